//! What becomes of files and their attributes.

use extol_vfs::{
    Fallocate, FileSystem, NewNode, Rdev, RenameFlags, SetAttr, SetTime, Timestamp, XattrSet,
};

use super::{BLOCK, Rig};
use crate::fast_commit::{Collected, Reason};

/// The flag that files keep while they have blocks.
const EXTENTS: u32 = 0x8_0000;

#[test]
fn a_new_file_is_one_small_commit() {
    let rig = Rig::new();
    let a = rig.file("a");
    rig.write(a, 0, 100);
    assert_eq!(rig.records(a), "INODE ADD0+1 CREAT:a INODE");
    assert_eq!(rig.ask(a), Collected::Nothing);
    rig.write(a, 100, 3 * BLOCK);
    assert_eq!(rig.records(a), "ADD1+3 INODE");
    // Nothing but times.
    rig.write(a, 0, 10);
    assert_eq!(rig.ask_as(a, true), Collected::Nothing);
    assert_eq!(rig.records(a), "INODE");
}

#[test]
fn truncate_and_punch_and_preallocate() {
    let rig = Rig::new();
    let a = rig.file("a");
    rig.write(a, 0, 10 * BLOCK);
    rig.fs.fsync(a, false).unwrap();
    rig.commit();
    let size = |n: usize| SetAttr { size: Some(n as u64), ..SetAttr::default() };
    rig.fs.setattr(a, &size(2 * BLOCK + 5)).unwrap();
    rig.write(a, 3 * BLOCK, BLOCK);
    assert_eq!(rig.records(a), "DEL4+6 ADD3+1 INODE");
    rig.fs.fallocate(a, Fallocate::PunchHole, 0, BLOCK as u64).unwrap();
    assert_eq!(rig.records(a), "DEL0+1 INODE");
    let keep = Fallocate::Allocate { keep_size: true };
    rig.fs.fallocate(a, keep, 20 * BLOCK as u64, 5 * BLOCK as u64).unwrap();
    assert_eq!(rig.records(a), "ZERO20+5 INODE");
    rig.write(a, 20 * BLOCK, BLOCK);
    assert_eq!(rig.records(a), "ADD20+1 INODE");
    let keep = Fallocate::ZeroRange { keep_size: true };
    rig.fs.fallocate(a, keep, 20 * BLOCK as u64, BLOCK as u64).unwrap();
    assert_eq!(rig.records(a), "ZERO20+1 INODE");
    rig.fs.setattr(a, &size(0)).unwrap();
    assert_eq!(rig.records(a), "DEL0+25 INODE");
}

#[test]
fn two_files_do_not_pay_for_each_other() {
    let rig = Rig::new();
    let (a, b) = (rig.file("a"), rig.file("b"));
    let s = rig.make(rig.root, "s", NewNode::Symlink(b"a".to_vec()));
    rig.write(a, 0, 1);
    rig.write(b, 0, 1);
    rig.fs.setxattr(b, b"user.x", b"1", XattrSet::Any).unwrap();
    assert_eq!(rig.records(a), "INODE ADD0+1 CREAT:a INODE");
    assert_eq!(rig.ask(s), Collected::Full(Reason::DataJournalling));
    rig.refused(b, Reason::Xattr);
}

#[test]
fn xattrs() {
    let rig = Rig::new();
    let a = rig.file("a");
    rig.commit();
    rig.fs.setxattr(a, b"user.x", b"1", XattrSet::Any).unwrap();
    rig.refused(a, Reason::Xattr);
    // What was there before stays where it is.
    rig.write(a, 0, 1);
    assert_eq!(rig.records(a), "ADD0+1 INODE");
    rig.fs.setxattr(a, b"user.x", &[5; 1000], XattrSet::Any).unwrap();
    rig.refused(a, Reason::Xattr);
    // In its block, which the inode does not show.
    rig.fs.setxattr(a, b"user.x", &[6; 1000], XattrSet::Any).unwrap();
    rig.refused(a, Reason::Xattr);
    rig.fs.removexattr(a, b"user.x").unwrap();
    rig.refused(a, Reason::Xattr);
    rig.fs.setxattr(a, b"user.y", b"1", XattrSet::Any).unwrap();
    let b = rig.file("b");
    rig.fs.setxattr(b, b"user.x", b"1", XattrSet::Any).unwrap();
    rig.refused(b, Reason::Xattr);
}

#[test]
fn what_is_no_regular_file() {
    let rig = Rig::new();
    let kinds = [
        NewNode::Symlink(b"target".to_vec()),
        NewNode::CharDevice(Rdev { major: 1, minor: 3 }),
        NewNode::BlockDevice(Rdev { major: 7, minor: 0 }),
        NewNode::Fifo,
        NewNode::Socket,
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        let ino = rig.make(rig.root, &format!("n{i}"), kind);
        rig.refused(ino, Reason::DataJournalling);
        rig.fs.link(ino, rig.root, format!("l{i}").as_bytes()).unwrap();
        rig.refused(rig.root, Reason::DataJournalling);
    }
    let a = rig.file("a");
    rig.commit();
    rig.rename((rig.root, "a"), (rig.root, "b"), RenameFlags::WHITEOUT);
    rig.refused(a, Reason::DataJournalling);
}

#[test]
fn journal_flag() {
    let rig = Rig::new();
    let a = rig.file("a");
    rig.commit();
    let flags = |flags| SetAttr { flags: Some(EXTENTS | flags), ..SetAttr::default() };
    rig.fs.setattr(a, &flags(0x4000)).unwrap();
    rig.refused(a, Reason::JournalFlag);
    let perm = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    rig.fs.setattr(a, &perm).unwrap();
    rig.refused(a, Reason::DataJournalling);
    rig.fs.setattr(a, &flags(0)).unwrap();
    rig.refused(a, Reason::JournalFlag);
    rig.fs.setattr(a, &perm).unwrap();
    assert_eq!(rig.records(a), "INODE");
}

#[test]
fn shifted_ranges() {
    let rig = Rig::new();
    let a = rig.file("a");
    rig.write(a, 0, 4 * BLOCK);
    rig.fs.fsync(a, false).unwrap();
    rig.commit();
    rig.fs.fallocate(a, Fallocate::CollapseRange, 0, BLOCK as u64).unwrap();
    rig.refused(a, Reason::FallocRange);
    rig.fs.fallocate(a, Fallocate::InsertRange, 0, BLOCK as u64).unwrap();
    rig.refused(a, Reason::FallocRange);
}

#[test]
fn maps_with_blocks_of_their_own() {
    let rig = Rig::new();
    let a = rig.file("a");
    for i in 0..6 {
        rig.write(a, 2 * i * BLOCK, 1);
    }
    rig.refused(a, Reason::ExtentTree);
    // What changes no map is no reason.
    rig.write(a, 0, 10);
    assert_eq!(rig.records(a), "INODE");
    rig.write(a, 20 * BLOCK, 1);
    rig.refused(a, Reason::ExtentTree);
    let size = SetAttr { size: Some(0), ..SetAttr::default() };
    rig.fs.setattr(a, &size).unwrap();
    rig.refused(a, Reason::ExtentTree);

    let rig = Rig::with(&["-O", "fast_commit,^extents,^64bit"], "");
    let a = rig.file("a");
    rig.write(a, 0, 1);
    rig.refused(a, Reason::ExtentTree);
}

#[test]
fn inline_data() {
    let rig = Rig::with(&["-O", "fast_commit,inline_data"], "");
    let sub = rig.dir("sub");
    rig.commit();
    let a = rig.make(sub, "a", NewNode::Regular);
    rig.refused(a, Reason::InlineData);
    let b = rig.file("b");
    rig.commit();
    rig.write(b, 0, 10);
    rig.refused(b, Reason::InlineData);
    rig.write(b, 0, BLOCK);
    rig.refused(b, Reason::InlineData);
    rig.write(b, BLOCK, BLOCK);
    assert_eq!(rig.records(b), "ADD1+1 INODE");
}

#[test]
fn attributes() {
    let rig = Rig::new();
    let a = rig.file("a");
    let sub = rig.dir("sub");
    rig.commit();
    let flags = Some(EXTENTS | 0x40);
    let perm = SetAttr { perm: Some(0o700), uid: Some(5), flags, ..SetAttr::default() };
    rig.fs.setattr(a, &perm).unwrap();
    assert_eq!(rig.records(a), "INODE");
    rig.fs.setattr(sub, &perm).unwrap();
    // A name in it needs none of its attributes.
    let inside = rig.make(sub, "inside", NewNode::Regular);
    assert_eq!(rig.records(inside), "INODE CREAT:inside INODE");
    rig.refused(sub, Reason::Attributes);
    let at = SetTime::At(Timestamp { sec: 1, nsec: 0 });
    rig.fs
        .setattr(sub, &SetAttr { mtime: Some(at), atime: Some(at), ..SetAttr::default() })
        .unwrap();
    rig.refused(sub, Reason::Attributes);
    rig.fs.setxattr(sub, b"user.x", b"1", XattrSet::Any).unwrap();
    let inside = rig.make(sub, "inside2", NewNode::Regular);
    assert_eq!(rig.records(inside), "INODE CREAT:inside2 INODE");
    rig.refused(sub, Reason::Xattr);
}

#[test]
fn data_journalling_is_left_to_full_commits() {
    let rig = Rig::with(&[], "data=journal");
    let a = rig.file("a");
    rig.write(a, 0, 1);
    // (fsync does not even ask.)
    rig.fs.fsync(a, false).unwrap();
    assert_eq!(rig.ask(a), Collected::Nothing);
}
