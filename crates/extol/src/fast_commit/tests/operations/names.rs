//! Names and directories.

use std::ops::Range;

use extol_vfs::{FileSystem, NewNode, RenameFlags};

use super::{BLOCK, Rig};
use crate::fast_commit::{Collected, Reason};

#[test]
fn names() {
    let rig = Rig::new();
    let (a, b) = (rig.file("a"), rig.file("b"));
    let sub = rig.dir("sub");
    rig.commit();
    rig.fs.link(a, sub, b"second").unwrap();
    rig.write(b, 0, 1);
    assert_eq!(rig.records(a), "LINK:second INODE");
    rig.fs.unlink(rig.root, b"a").unwrap();
    assert_eq!(rig.records(a), "UNLINK:a INODE");
    rig.rename((sub, "second"), (rig.root, "third"), RenameFlags::empty());
    assert_eq!(rig.records(a), "LINK:third UNLINK:second INODE");
    assert_eq!(rig.records(b), "ADD0+1 INODE");
    let c = rig.file("c");
    rig.fs.link(c, sub, b"c2").unwrap();
    rig.rename((rig.root, "c"), (rig.root, "c1"), RenameFlags::empty());
    assert_eq!(rig.records(c), "INODE CREAT:c1 LINK:c2 INODE");
}

#[test]
fn a_directory_brings_what_its_new_names_lead_to() {
    let rig = Rig::new();
    let sub = rig.dir("sub");
    rig.commit();
    let a = rig.make(sub, "a", NewNode::Regular);
    let other = rig.file("other");
    assert_eq!(rig.records(sub), "INODE CREAT:a INODE");
    assert_eq!(rig.ask(sub), Collected::Nothing);
    assert_eq!(rig.ask(a), Collected::Nothing);
    assert_eq!(rig.records(other), "INODE CREAT:other INODE");
}

#[test]
fn what_came_and_went_leaves_nothing() {
    let rig = Rig::new();
    let sub = rig.dir("sub");
    rig.commit();
    let dead = rig.make(sub, "dead", NewNode::Regular);
    rig.write(dead, 0, BLOCK);
    rig.fs.fsync(dead, false).ok();
    let alive = rig.make(sub, "alive", NewNode::Regular);
    rig.commit();
    let (tmp, held) =
        (rig.make(sub, "tmp", NewNode::Regular), rig.make(sub, "held", NewNode::Regular));
    rig.fs.unlink(sub, b"tmp").unwrap();
    rig.fs.forget(tmp, 1);
    rig.fs.unlink(sub, b"held").unwrap();
    rig.write(alive, 0, 1);
    assert_eq!(rig.records(alive), "ADD0+1 INODE");
    assert_eq!(rig.ask(sub), Collected::Nothing);
    // It could not be found after a crash.
    assert_eq!(rig.ask(held), Collected::Nothing);
}

#[test]
fn exchanged_names() {
    let rig = Rig::new();
    let (a, b) = (rig.file("a"), rig.file("b"));
    rig.commit();
    rig.rename((rig.root, "a"), (rig.root, "b"), RenameFlags::EXCHANGE);
    assert_eq!(rig.ask(b), Collected::Full(Reason::CrossRename));
    rig.refused(a, Reason::CrossRename);
    // With a name more, there is an order.
    rig.fs.link(a, rig.root, b"c").unwrap();
    rig.commit();
    rig.rename((rig.root, "a"), (rig.root, "b"), RenameFlags::EXCHANGE);
    assert_eq!(rig.records(b), "UNLINK:b LINK:b UNLINK:a LINK:a INODE INODE");
    let sub = rig.dir("sub");
    rig.commit();
    rig.rename((rig.root, "sub"), (rig.root, "a"), RenameFlags::EXCHANGE);
    rig.refused(sub, Reason::CrossRename);
}

#[test]
fn directories() {
    let rig = Rig::new();
    let a = rig.file("a");
    let sub = rig.dir("sub");
    rig.refused(sub, Reason::Directory);
    rig.dir("new");
    rig.refused(rig.root, Reason::Directory);
    let inner = rig.make(sub, "inner", NewNode::Directory);
    let file = rig.make(inner, "file", NewNode::Regular);
    rig.refused(file, Reason::Directory);
    rig.fs.unlink(inner, b"file").unwrap();
    rig.fs.forget(file, 1);
    rig.fs.rmdir(sub, b"inner").unwrap();
    rig.refused(sub, Reason::Directory);
    rig.dir("moves");
    rig.commit();
    rig.rename((rig.root, "moves"), (sub, "moved"), RenameFlags::empty());
    rig.write(a, 0, 1);
    rig.refused(a, Reason::DirRename);
}

#[test]
fn a_replaced_file_that_has_another_name_is_no_reason() {
    let rig = Rig::new();
    let (a, _) = (rig.file("a"), rig.file("b"));
    rig.fs.link(a, rig.root, b"a2").unwrap();
    rig.commit();
    rig.rename((rig.root, "b"), (rig.root, "a"), RenameFlags::empty());
    assert_eq!(rig.records(a), "UNLINK:a LINK:a UNLINK:b INODE INODE");
}

#[test]
fn a_directory_that_might_grow() {
    let rig = Rig::new();
    let sub = rig.dir("sub");
    let name = |i: u32| format!("{i:0>244}");
    // Entries of 252 bytes: sixteen of them fit, and with thirteen the block is divided.
    let files: Vec<_> = (0..12).map(|i| rig.make(sub, &name(i), NewNode::Regular)).collect();
    rig.fs.link(files[0], rig.root, b"zero").unwrap();
    rig.commit();
    // The place of a name that goes is no place for another, as long as the base has it.
    rig.fs.unlink(sub, name(0).as_bytes()).unwrap();
    assert_eq!(rig.records(files[0]), format!("UNLINK:{} INODE", name(0)));
    let made: Vec<_> = (20..24).map(|i| rig.make(sub, &name(i), NewNode::Regular)).collect();
    assert_eq!(rig.records(made[3]), format!("INODE CREAT:{} INODE", name(23)));
    // It has been divided, but not in the base.
    assert_eq!(rig.fs.getattr(sub).unwrap().size, 3 * BLOCK as u64);
    let fifth = rig.make(sub, &name(24), NewNode::Regular);
    rig.refused(fifth, Reason::DirectoryGrew);
    let sixth = rig.make(sub, &name(25), NewNode::Regular);
    assert_eq!(rig.records(sixth), format!("INODE CREAT:{} INODE", name(25)));
}

/// How many of the fsyncs of new names in one directory are full commits, and the directory's size.
fn growth(rig: &Rig, dir: u32, names: Range<u32>) -> (usize, u64) {
    let mut full = 0;
    for i in names {
        let ino = rig.make(dir, &format!("a new name {i:0>20}"), NewNode::Regular);
        match rig.ask(ino) {
            Collected::Records(_) => {}
            Collected::Full(Reason::DirectoryGrew) => {
                full += 1;
                rig.commit();
            }
            other => panic!("{other:?}"),
        }
    }
    (full, rig.fs.getattr(dir).unwrap().size)
}

/// A new leaf has room in the base: the block that its names came from had a quarter left. So far
/// fewer full commits than leaves, and the leaves are at least three eighths full.
#[test]
fn a_directory_that_grows_is_seldom_a_full_commit() {
    let rig = Rig::with(&["-N", "24000"], "");
    let dir = rig.dir("synced");
    rig.commit();
    let (full, size) = growth(&rig, dir, 0..10_000);
    // 40 bytes each.
    let (blocks, filled) = (size / BLOCK as u64, 10_000 * 40 / BLOCK as u64);
    assert!(full as u64 * 10 <= blocks, "{full} full commits, {blocks} blocks");
    assert!(blocks * 3 <= filled * 8, "{blocks} blocks, {filled} filled");
}
