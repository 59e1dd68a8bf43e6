//! Large files, whose data comes in requests of the largest size.

use crate::{NEEDS, subject};
use extol_testkit::{Image, Scratch, e2fsck, require};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

const MIB: usize = 1 << 20;

fn contents(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 4096 * 7 + seed) as u8).collect()
}

/// Large files and small ones are written side by side, in pieces of odd sizes; then one is written
/// over in places. Every byte is there, at once and after the next mount.
#[test]
fn large_files_arrive_whole() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", 320 << 20, &["-t", "ext4"]);
    let mount = subject().mount(&image, &scratch.dir("mnt"), &[]);
    let dir = mount.path().to_path_buf();
    let mut expected: Vec<Vec<u8>> = (0..3).map(|n| contents(20 * MIB + n * 1001, n)).collect();
    std::thread::scope(|scope| {
        for (n, bytes) in expected.iter().enumerate() {
            let dir = &dir;
            scope.spawn(move || {
                let mut file = File::create(dir.join(format!("large{n}"))).unwrap();
                for (i, piece) in bytes.chunks(900_001).enumerate() {
                    file.write_all(piece).unwrap();
                    std::fs::write(dir.join(format!("small{n}-{i}")), &piece[..100]).unwrap();
                }
                file.sync_all().unwrap();
            });
        }
    });
    let large = File::options().write(true).open(dir.join("large0")).unwrap();
    for (n, at) in [3 * MIB + 5, 9 * MIB, 15 * MIB + 4096].into_iter().enumerate() {
        let over = contents(2 * MIB + 77, 100 + n);
        large.write_all_at(&over, at as u64).unwrap();
        expected[0][at..at + over.len()].copy_from_slice(&over);
    }
    large.sync_all().unwrap();
    drop(large);
    let same = |when: &str| {
        for (n, bytes) in expected.iter().enumerate() {
            assert!(
                std::fs::read(dir.join(format!("large{n}"))).unwrap() == *bytes,
                "large{n} {when}"
            );
            for (i, piece) in bytes.chunks(900_001).enumerate().filter(|_| n > 0) {
                let small = std::fs::read(dir.join(format!("small{n}-{i}"))).unwrap();
                assert!(small == piece[..100], "small{n}-{i} {when}");
            }
        }
    };
    same("at once");
    mount.unmount();
    e2fsck(&image).assert_clean("after large files");
    let mount = subject().mount(&image, &dir, &[]);
    same("after the next mount");
    mount.unmount();
}
