//! Large writes, which go to the device without becoming pages.

mod common;

use common::*;
use extol::Ext4;
use extol::vfs::{Fallocate, FileSystem, FsError};

const KIB: usize = 1024;

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 4096 * 7 + seed) as u8).collect()
}

fn write(fs: &Ext4, ino: u32, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(ino, offset, data), Ok(data.len()), "{} at {offset}", data.len());
}

fn contents(fs: &Ext4, ino: u32) -> Vec<u8> {
    let size = fs.getattr(ino).unwrap().size;
    let mut all = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut all).unwrap(), all.len());
    all
}

#[test]
fn pieces_arrive_whatever_was_there() {
    for block in ["1024", "4096"] {
        let dev = image("160M", &["-t", "ext4", "-b", block]);
        let fs = open(&dev, "");
        let home = dir(&fs, fs.root(), "d");
        let ino = file(&fs, home, "f");
        let mut expected = Vec::new();
        let mut put = |offset: usize, len: usize| {
            let data = bytes(len, offset);
            write(&fs, ino, offset as u64, &data);
            let end = expected.len().max(offset + len);
            expected.resize(end, 0);
            expected[offset..offset + len].copy_from_slice(&data);
            assert!(contents(&fs, ino) == expected, "{block}: {len} at {offset}");
            if offset == 0 {
                // Small writes wait in pages: the next piece covers some, and ends in the middle of
                // one.
                for at in (300 * KIB..900 * KIB).step_by(3 * KIB) {
                    fs.write(ino, at as u64, b"small").unwrap();
                    let end = expected.len().max(at + 5);
                    expected.resize(end, 0);
                    expected[at..at + 5].copy_from_slice(b"small");
                }
            }
        };
        put(0, 512 * KIB);
        put(256 * KIB, 500 * KIB + 77);
        put(3000 * KIB, 256 * KIB); // behind a hole
        put(2800 * KIB, 300 * KIB); // a hole, and what is mapped
        fs.fallocate(ino, Fallocate::Allocate { keep_size: false }, 4 << 20, 1 << 20).unwrap();
        expected.resize(5 << 20, 0);
        let data = bytes(600 * KIB, 5);
        // Into unwritten blocks.
        write(&fs, ino, 4 << 20, &data);
        expected[4 << 20..(4 << 20) + data.len()].copy_from_slice(&data);
        assert!(contents(&fs, ino) == expected, "{block}");
        fs.fsync(ino, false).unwrap();
        fs.unmount().unwrap();
        assert_clean(&dev, block);
        let fs = open(&dev, "");
        let home = fs.lookup(fs.root(), b"d").unwrap().id.ino;
        let ino = fs.lookup(home, b"f").unwrap().id.ino;
        assert!(contents(&fs, ino) == expected, "{block}: after a mount");
        fs.unmount().unwrap();
    }
}

/// What an fsync has acknowledged is there after a crash.
#[test]
fn an_fsync_covers_them() {
    let dev = image("160M", &["-t", "ext4", "-O", "fast_commit"]);
    let fs = open(&dev, "");
    let ino = file(&fs, fs.root(), "f");
    let (first, second) = (bytes(400 * KIB, 1), bytes(400 * KIB + 9, 2));
    write(&fs, ino, 0, &first);
    fs.fsync(ino, false).unwrap();
    write(&fs, ino, 400 * KIB as u64, &second);
    fs.fsync(ino, true).unwrap();
    let crashed = std::sync::Arc::new(extol_block::MemDevice::from_bytes(&dev.to_bytes()));
    drop(fs);
    let fs = open(&crashed, "");
    let ino = fs.lookup(fs.root(), b"f").unwrap().id.ino;
    assert!(contents(&fs, ino) == [first, second].concat());
    fs.unmount().unwrap();
    assert_clean(&crashed, "after a crash");
}

/// Dirty pages before a large write are on the device as soon as the size is that covers them,
/// whichever file was synced: a crash must not show zeros where there never were any.
#[test]
fn pages_before_a_large_piece_go_first() {
    let dev = image("160M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let (ino, other) = (file(&fs, fs.root(), "f"), file(&fs, fs.root(), "g"));
    let (small, large) = (bytes(5000, 1), bytes(300 * KIB, 2));
    fs.write(ino, 0, &small).unwrap();
    write(&fs, ino, 8192, &large);
    fs.fsync(other, false).unwrap();
    let crashed = std::sync::Arc::new(extol_block::MemDevice::from_bytes(&dev.to_bytes()));
    drop(fs);
    let fs = open(&crashed, "");
    let ino = fs.lookup(fs.root(), b"f").unwrap().id.ino;
    let found = contents(&fs, ino);
    assert_eq!(found.len(), 8192 + large.len(), "the large piece is mapped");
    assert!(found[..5000] == small && found[8192..] == large);
    fs.unmount().unwrap();
}

/// As on Linux: what fits below the greatest size is written, and nothing behind it is an error.
#[test]
fn a_write_across_the_greatest_size_is_short() {
    let dev = image("16M", &["-t", "ext4", "-b", "4096"]);
    let fs = open(&dev, "");
    let home = dir(&fs, fs.root(), "d");
    let most = u64::from(u32::MAX) * 4096;
    for (offset, len, fits) in [
        (most - 4096, 4097, Ok(4096)),
        (most - 8192, 8193, Ok(8192)),
        (most - 1, 2, Ok(1)),
        (most - 300 * 1024, 400 * 1024, Ok(300 * 1024)),
        (most, 0, Ok(0)),
        (most, 1, Err(FsError::FileTooLarge)),
        (u64::MAX, 4096, Err(FsError::FileTooLarge)),
    ] {
        let ino = file(&fs, home, &format!("{offset}-{len}"));
        assert_eq!(fs.write(ino, offset, &bytes(len, 1)), fits, "{len} at {offset}");
        let size = if let Ok(written @ 1..) = fits { offset + written as u64 } else { 0 };
        assert_eq!(fs.getattr(ino).unwrap().size, size);
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "the greatest sizes");
}
