//! Deep indexes: 1 KiB blocks and the longest names.

use super::lab::{Lab, Recipe, htree_dump};
use extol_ondisk::dirent::{self, entry_len};
use extol_vfs::FsError;

fn long_name(n: usize) -> Vec<u8> {
    let mut name = format!("{n:08}").into_bytes();
    name.resize(255, b'n');
    name
}

/// Adds long names until the volume or the index is full; gives their number.
fn fill(lab: &mut Lab, most: usize) -> usize {
    for n in 0..most {
        let before = (lab.dir.raw.clone(), lab.vol.alloc.free_blocks());
        match lab.add(&long_name(n)) {
            Ok(()) => {}
            Err(FsError::NoSpace) => {
                assert_eq!(
                    (lab.dir.raw.clone(), lab.vol.alloc.free_blocks()),
                    before,
                    "NoSpace left a trace"
                );
                return n;
            }
            Err(e) => panic!("{e}"),
        }
    }
    most
}

#[test]
fn two_levels_then_full() {
    let recipe =
        Recipe { size: 64 << 20, mke2fs: &["-t", "ext4", "-b", "1024", "-N", "2000"], tune: &[] };
    let mut lab = Lab::new(&recipe);
    assert_eq!(fill(&mut lab, 2000), 2000);
    lab.check();
    lab.fsck("two levels");
    assert!(htree_dump(&mut lab).contains("Indirect levels: 1"));
    let n = 2000 + {
        let mut n = 0;
        loop {
            match lab.add(&long_name(2000 + n)) {
                Ok(()) => n += 1,
                Err(e) => break assert_eq!(e, FsError::NoSpace),
            }
        }
        n
    };
    assert!(n > 15_000, "index full with {n} names");
    assert!(lab.vol.alloc.free_blocks() > 1000, "it is the index that is full");
    lab.check();
    lab.fsck("full index");
    lab.ask_linux();
    // What was removed can be added again, and a short name may still find room.
    for i in (0..n).step_by(3) {
        lab.remove(&long_name(i)).unwrap();
    }
    for i in (0..n).step_by(3) {
        lab.add(&long_name(i)).unwrap();
    }
    lab.check();
    lab.fsck("full again");
}

#[test]
fn three_levels() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "2000"];
    let mut lab = Lab::new(&Recipe { size: 96 << 20, mke2fs, tune: &[] });
    assert_eq!(fill(&mut lab, 50_000), 50_000);
    assert!(htree_dump(&mut lab).contains("Indirect levels: 2"));
    lab.check();
    lab.fsck("three levels");
    lab.ask_linux();
    lab.play(500, 255, 0.5);
    lab.check();
    lab.fsck("three levels, changed");
}

#[test]
fn full_volume_changes_nothing() {
    for args in
        [&["-t", "ext4", "-b", "1024", "-m", "0"][..], &["-t", "ext3", "-b", "1024", "-m", "0"]]
    {
        let mut lab = Lab::new(&Recipe { size: 4 << 20, mke2fs: args, tune: &[] });
        let n = fill(&mut lab, 20_000);
        assert!(n < 20_000 && lab.vol.alloc.free_blocks() < 3);
        lab.check();
        lab.fsck("full volume");
    }
}

/// DR-6: leaves that would be divided at three quarters take names until they are full.
#[test]
fn leaves_become_full_on_a_full_volume() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-m", "0", "-O", "fast_commit", "-J", "size=1"];
    let mut lab = Lab::new(&Recipe { size: 4 << 20, mke2fs, tune: &[] });
    let (mut used, mut refused) = (0, 0);
    for i in 0.. {
        let name = format!("{i:0>40}").into_bytes();
        match lab.add(&name) {
            Ok(()) => (used, refused) = (used + entry_len(name.len()), 0),
            Err(e) => {
                assert_eq!(e, FsError::NoSpace);
                refused += 1;
            }
        }
        if refused == 200 {
            break;
        }
    }
    let blocks = lab.dir.raw.size as usize / lab.vol.geo.block_len();
    let area = dirent::area_len(&lab.vol.geo) * blocks;
    assert!(used * 10 > area * 8, "{used} of {area} bytes used");
    lab.check();
    lab.fsck("full leaves");
}
