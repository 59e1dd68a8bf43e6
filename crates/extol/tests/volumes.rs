//! Mount, change a little of everything, unmount: e2fsck must find nothing, for every kind of
//! volume.

mod common;

use common::*;
use extol::vfs::{Creds, Fallocate, FileSystem, NewNode, RenameFlags, SetAttr, XattrSet};
use extol_block::{BlockDevice, MemDevice};

const VARIANTS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "orphan_file"],
    &["-t", "ext4", "-O", "inline_data"],
    &["-t", "ext4", "-O", "^has_journal"],
    &["-t", "ext4", "-O", "^64bit,^extents", "-I", "128"],
    &["-t", "ext3"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext2"],
    &["-t", "ext2", "-b", "1024"],
];

#[test]
fn a_little_of_everything_is_clean() {
    for args in VARIANTS {
        let dev = image("64M", args);
        let fs = open(&dev, "");
        let root = fs.root();
        let d = dir(&fs, root, "d");
        for i in 0..300 {
            let ino = file(&fs, d, &format!("file-{i:04}"));
            let body = vec![i as u8; i * 37 % 9000];
            assert_eq!(fs.write(ino, 0, &body).unwrap(), body.len());
            if i % 10 == 0 {
                fs.fsync(ino, false).unwrap();
            }
        }
        for i in (0..300).step_by(3) {
            fs.unlink(d, format!("file-{i:04}").as_bytes()).unwrap();
        }
        let big = file(&fs, root, "big");
        let body: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        assert_eq!(fs.write(big, 5000, &body).unwrap(), body.len());
        fs.fsync(big, true).unwrap();
        let mut back = vec![0; body.len()];
        assert_eq!(fs.read(big, 5000, &mut back).unwrap(), body.len());
        assert!(back == body, "{args:?}");
        fs.setattr(big, &SetAttr { size: Some(1_000_001), ..SetAttr::default() }).unwrap();
        fs.fallocate(big, Fallocate::PunchHole, 20_000, 50_000).unwrap();
        fs.setxattr(big, b"user.a", b"value", XattrSet::Any).unwrap();
        fs.setxattr(big, b"user.b", &[7; 700], XattrSet::Any).unwrap();
        fs.link(big, d, b"big-link").unwrap();
        fs.rename(root, b"big", d, b"moved", RenameFlags::empty()).unwrap();
        let d2 = dir(&fs, d, "inner");
        fs.rename(d, b"inner", root, b"outer", RenameFlags::empty()).unwrap();
        file(&fs, d2, "x");
        let owner = Creds { uid: 5, gid: 6 };
        fs.create(root, b"fast", NewNode::Symlink(b"d/moved".to_vec()), 0o777, 0, owner).unwrap();
        fs.create(root, b"slow", NewNode::Symlink(vec![b'x'; 200]), 0o777, 0, owner).unwrap();
        fs.create(root, b"fifo", NewNode::Fifo, 0o600, 0, owner).unwrap();
        let mut names = 0;
        fs.readdir(d, 0, &mut |_| {
            names += 1;
            true
        })
        .unwrap();
        assert_eq!(names, 200 + 2 + 2, "{args:?}");
        fs.unmount().unwrap();
        let stats = fs.stats();
        assert_eq!(stats.journal.overdrafts, 0, "{args:?}");
        assert_clean(&dev, &format!("{args:?}"));

        // Once more: the volume opens again and shows the same.
        let fs = open(&dev, "");
        let d = fs.lookup(fs.root(), b"d").unwrap().id.ino;
        let moved = fs.lookup(d, b"moved").unwrap();
        assert_eq!((moved.size, moved.nlink), (1_000_001, 2));
        let mut back = vec![0; 10_000];
        fs.read(moved.id.ino, 5000, &mut back).unwrap();
        assert!(back == body[..10_000]);
        assert_eq!(fs.readlink(fs.lookup(fs.root(), b"slow").unwrap().id.ino).unwrap().len(), 200);
        fs.unmount().unwrap();
        assert_clean(&dev, &format!("{args:?} again"));
    }
}

/// Tools leave volumes that are clean by their state, and whose superblock counts wrong
/// (`e2fsck -E journal_only` behind a crash).
#[test]
fn free_blocks_are_those_that_the_groups_have() {
    let dev = image("16M", &["-t", "ext4", "-O", "^metadata_csum"]);
    let free_of = |dev: &MemDevice| {
        let mut field = [0; 4];
        dev.read_at(&mut field, 1024 + 12).unwrap();
        u32::from_le_bytes(field)
    };
    let right = free_of(&dev);
    for wrong in [right + 300, right - 300] {
        dev.write_at(&wrong.to_le_bytes(), 1024 + 12).unwrap();
        let fs = open(&dev, "");
        assert_eq!(fs.stats().free_blocks, u64::from(right), "{wrong}");
        file(&fs, fs.root(), &wrong.to_string());
        fs.unmount().unwrap();
        assert_eq!(free_of(&dev), right);
        assert_clean(&dev, "counted");
    }
}

#[test]
fn a_crash_loses_nothing_that_was_synced() {
    for args in VARIANTS.iter().filter(|a| !a.contains(&"ext2") && !a.contains(&"^has_journal")) {
        let dev = image("64M", args);
        let fs = open(&dev, "");
        let d = dir(&fs, fs.root(), "d");
        for i in 0..100 {
            let ino = file(&fs, d, &format!("f{i}"));
            fs.write(ino, 0, format!("content {i}").as_bytes()).unwrap();
            fs.fsync(ino, false).unwrap();
        }
        for i in 0..50 {
            file(&fs, d, &format!("unsynced{i}"));
        }
        fs.crash();
        drop(fs);
        let fs = open(&dev, "");
        let d = fs.lookup(fs.root(), b"d").unwrap().id.ino;
        for i in 0..100 {
            let attr = fs.lookup(d, format!("f{i}").as_bytes()).unwrap();
            let mut body = vec![0; 100];
            let n = fs.read(attr.id.ino, 0, &mut body).unwrap();
            assert_eq!(&body[..n], format!("content {i}").as_bytes(), "{args:?}");
        }
        fs.unmount().unwrap();
        assert_clean(&dev, &format!("{args:?}"));
    }
}
