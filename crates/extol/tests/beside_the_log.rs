//! Small synced files lie beside the log: one flush waits for their data and for the records that
//! map it.

#[allow(dead_code)]
mod common;

use common::*;
use extol::vfs::FileSystem;
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice as _, MemDevice};

/// The device byte behind the log's last block, fast-commit area included, by the superblock's copy
/// of the journal inode, which holds its extents.
fn log_end(dev: &MemDevice) -> u64 {
    const JNL_BLOCKS: usize = 0x10c;
    let mut sb = [0; 1024];
    dev.read_at(&mut sb, 1024).unwrap();
    let word =
        |at: usize| u64::from(u16::from_le_bytes([sb[JNL_BLOCKS + at], sb[JNL_BLOCKS + at + 1]]));
    assert_eq!((word(0), word(6)), (0xf30a, 0), "a root that is a leaf");
    let last = 12 * word(2) as usize;
    let start = word(last + 8) | word(last + 10) << 16 | word(last + 6) << 32;
    (start + word(last + 4)) * 4096
}

/// The distance of most files, in several directories, from the log's end, in MiB.
fn distance(features: &str) -> u64 {
    let dev = image("512M", &["-t", "ext4", "-b", "4096", "-O", features]);
    // Zeroed blocks come when they are asked for, not when a thread gets to it.
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(dev.clone() as _, &options).unwrap();
    let dirs: Vec<u32> = (0..4).map(|nr| dir(&fs, fs.root(), &format!("d{nr}"))).collect();
    let end = log_end(&dev);
    let mut ways: Vec<u64> = (0..400)
        .map(|nr| {
            let ino = file(&fs, dirs[nr % dirs.len()], &format!("f{nr}"));
            fs.write(ino, 0, &[7; 4000]).unwrap();
            fs.fsync(ino, false).unwrap();
            fs.fiemap(ino, 0, u64::MAX).unwrap()[0].physical.abs_diff(end) >> 20
        })
        .collect();
    fs.unmount().unwrap();
    assert_clean(&dev, features);
    ways.sort_unstable();
    ways[ways.len() * 9 / 10]
}

#[test]
fn synced_files_lie_behind_the_fast_commits() {
    let distance = distance("fast_commit");
    assert!(distance <= 3, "{distance} MiB");
}

/// Without fast commits they are where their directories are.
#[test]
fn others_do_not() {
    let distance = distance("^fast_commit");
    assert!(distance > 32, "{distance} MiB");
}
