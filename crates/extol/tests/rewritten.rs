//! Large pieces of small files: the first go to the device at once, what replaces them again and
//! again waits in memory.

mod common;

use std::sync::Arc;

use common::*;
use extol::Ext4;
use extol::vfs::FileSystem;
use extol_block::MemDevice;

const MIB: usize = 1 << 20;

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 4096 * 7 + seed) as u8).collect()
}

fn write(fs: &Ext4, ino: u32, offset: usize, data: &[u8]) {
    assert_eq!(fs.write(ino, offset as u64, data), Ok(data.len()));
}

fn contents(fs: &Ext4, ino: u32) -> Vec<u8> {
    let size = fs.getattr(ino).unwrap().size;
    let mut all = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut all).unwrap(), all.len());
    all
}

#[test]
fn what_is_replaced_again_waits_in_memory() {
    let dev = image("160M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let ino = file(&fs, fs.root(), "f");
    let mut expected = bytes(2 * MIB, 0);
    for at in [0, MIB] {
        write(&fs, ino, at, &expected[at..at + MIB]);
        assert_eq!(fs.stats().dirty_bytes, 0, "data of a new file");
    }
    for round in 1..5 {
        expected = bytes(2 * MIB, round);
        for at in [0, MIB] {
            write(&fs, ino, at, &expected[at..at + MIB]);
        }
        assert_eq!(fs.stats().dirty_bytes, 2 * MIB, "round {round}");
        assert!(contents(&fs, ino) == expected, "round {round}");
    }
    // What makes the file longer goes to the device.
    let more = bytes(MIB, 9);
    write(&fs, ino, 2 * MIB, &more);
    assert_eq!(fs.stats().dirty_bytes, 2 * MIB);
    expected.extend(more);
    assert!(contents(&fs, ino) == expected);
    fs.unmount().unwrap();
    assert_clean(&dev, "after rewriting");
    let fs = open(&dev, "");
    let ino = fs.lookup(fs.root(), b"f").unwrap().id.ino;
    assert!(contents(&fs, ino) == expected, "after a mount");
    fs.unmount().unwrap();
}

/// An fsync takes what waits along, and who syncs between any two writes gets each written at once.
#[test]
fn an_fsync_covers_what_waits() {
    let dev = image("160M", &["-t", "ext4", "-O", "fast_commit"]);
    let fs = open(&dev, "");
    let ino = file(&fs, fs.root(), "f");
    for round in 0..4 {
        write(&fs, ino, 0, &bytes(MIB, round));
    }
    assert_eq!(fs.stats().dirty_bytes, MIB);
    fs.fsync(ino, true).unwrap();
    let crashed = |expected: &[u8]| {
        let after = Arc::new(MemDevice::from_bytes(&dev.to_bytes()));
        let fs = open(&after, "");
        let ino = fs.lookup(fs.root(), b"f").unwrap().id.ino;
        assert!(contents(&fs, ino) == expected, "after a crash");
        fs.unmount().unwrap();
        assert_clean(&after, "after a crash");
    };
    crashed(&bytes(MIB, 3));
    for round in 10..14 {
        write(&fs, ino, 0, &bytes(MIB, round));
        assert_eq!(fs.stats().dirty_bytes, 0, "round {round}");
        fs.fsync(ino, true).unwrap();
        crashed(&bytes(MIB, round));
    }
    fs.unmount().unwrap();
}

/// A file is held in memory as a whole, so not a long one; nor more than memory has room for.
#[test]
fn long_files_are_written_each_time() {
    let dev = image("160M", &["-t", "ext4"]);
    let fs = open(&dev, "dirty_mb=3");
    let long = file(&fs, fs.root(), "long");
    for round in 0..3 {
        for at in 0..5 {
            write(&fs, long, at * MIB, &bytes(MIB, round + at));
            assert_eq!(fs.stats().dirty_bytes, 0, "round {round}");
        }
    }
    let home = dir(&fs, fs.root(), "d");
    let files: Vec<u32> = (0..6).map(|n| file(&fs, home, &format!("{n}"))).collect();
    for round in 0..3 {
        for &ino in &files {
            write(&fs, ino, 0, &bytes(MIB, round + ino as usize));
            assert!(fs.stats().dirty_bytes <= 3 * MIB, "round {round}");
        }
    }
    for &ino in &files {
        assert!(contents(&fs, ino) == bytes(MIB, 2 + ino as usize));
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "after rewriting");
}
