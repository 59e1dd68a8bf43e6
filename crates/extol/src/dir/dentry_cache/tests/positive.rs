//! Positive dentries in a directory in which names change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extol_vfs::{Creds, FileSystem as _, FsError, NewNode, RenameFlags};

use crate::Ext4;
use crate::ops::delete::tests::{open, volume};
use crate::ops::names::refer;

fn make(fs: &Ext4, dir: u32, name: &[u8], node: NewNode) -> u32 {
    let made = fs.create(dir, name, node, 0o755, 0, Creds::default()).unwrap().id.ino;
    fs.forget(made, 1);
    made
}

fn find(fs: &Ext4, dir: u32, name: &[u8]) -> Result<u32, FsError> {
    let found = fs.lookup(dir, name)?.id.ino;
    fs.forget(found, 1);
    Ok(found)
}

/// Directory blocks that looking for a name takes.
fn blocks(fs: &Ext4, dir: u32, name: &[u8]) -> u64 {
    let now = || {
        let journal = fs.stats().journal;
        journal.cache_hits + journal.cache_misses
    };
    let before = now();
    find(fs, dir, name).unwrap();
    now() - before
}

#[test]
fn a_second_lookup_searches_nothing() {
    let (device, fs) = volume();
    let root = fs.root();
    let file = make(&fs, root, b"file", NewNode::Regular);
    assert_eq!(blocks(&fs, root, b"file"), 0, "a new name is cached");
    fs.unmount().unwrap();
    let fs = open(device);
    assert!(blocks(&fs, root, b"file") > 0);
    assert_eq!(blocks(&fs, root, b"file"), 0);
    // Changes of other names do not matter, and attributes are the current ones.
    make(&fs, root, b"other", NewNode::Regular);
    fs.unlink(root, b"other").unwrap();
    fs.write(file, 0, b"data").unwrap();
    assert_eq!(blocks(&fs, root, b"file"), 0);
    assert_eq!(fs.lookup(root, b"file").unwrap().size, 4);
    let linked = fs.link(file, root, b"link").unwrap();
    assert_eq!(blocks(&fs, root, b"link"), 0);
    fs.forget(linked.id.ino, 2);
}

/// Each way in which a name can be removed, or lead elsewhere.
#[test]
fn each_change_of_a_name_counts() {
    let (_, fs) = volume();
    let root = fs.root();
    let none = RenameFlags::empty();
    let [a, b] = [&b"a"[..], b"b"].map(|name| make(&fs, root, name, NewNode::Regular));
    let know = |dir, names: &[&[u8]]| names.iter().for_each(|name| drop(find(&fs, dir, name)));
    know(root, &[b"a", b"b"]);
    fs.rename(root, b"a", root, b"b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((find(&fs, root, b"a"), find(&fs, root, b"b")), (Ok(b), Ok(a)));
    fs.rename(root, b"a", root, b"b", none).unwrap();
    assert_eq!((find(&fs, root, b"a"), find(&fs, root, b"b")), (Err(FsError::NotFound), Ok(b)));
    fs.unlink(root, b"b").unwrap();
    assert_eq!(find(&fs, root, b"b"), Err(FsError::NotFound));
    let again = make(&fs, root, b"b", NewNode::Regular);
    assert_eq!(find(&fs, root, b"b"), Ok(again));
    // A directory is removed, and its number is used again.
    let dir = make(&fs, root, b"dir", NewNode::Directory);
    make(&fs, dir, b"in", NewNode::Regular);
    know(root, &[b"dir"]);
    know(dir, &[b"in"]);
    fs.unlink(dir, b"in").unwrap();
    fs.rmdir(root, b"dir").unwrap();
    assert_eq!(find(&fs, root, b"dir"), Err(FsError::NotFound));
    fs.sync().unwrap();
    let made = (0..8).map(|n| make(&fs, root, format!("new{n}").as_bytes(), NewNode::Directory));
    let reused =
        made.into_iter().find(|ino| *ino == dir).expect("the lowest number is taken first");
    assert_eq!(find(&fs, reused, b"in"), Err(FsError::NotFound));
    // From one directory into another.
    let file = make(&fs, reused, b"moving", NewNode::Regular);
    know(reused, &[b"moving"]);
    fs.rename(reused, b"moving", root, b"moved", none).unwrap();
    assert_eq!(find(&fs, reused, b"moving"), Err(FsError::NotFound));
    assert_eq!(find(&fs, root, b"moved"), Ok(file));
}

/// The name is removed between the reading of its slot and the reference.
#[test]
fn a_name_removed_before_the_reference_is_not_found() {
    let (_, fs) = volume();
    let root = fs.root();
    let file = make(&fs, root, b"name", NewNode::Regular);
    let dentry = fs.inner().vol.dentries.positive(root, b"name").unwrap();
    assert_eq!(dentry.ino, file);
    assert_eq!(refer(fs.inner(), root, dentry).unwrap().unwrap().id.ino, file);
    fs.forget(file, 1);
    fs.unlink(root, b"name").unwrap();
    assert!(refer(fs.inner(), root, dentry).is_none());
    // Its number is that of another file, and the name leads to another file, too.
    fs.sync().unwrap();
    let next = make(&fs, root, b"next", NewNode::Regular);
    assert_eq!(next, file);
    fs.link(next, root, b"name").unwrap();
    assert!(refer(fs.inner(), root, dentry).is_none());
    fs.forget(next, 1);
    assert_eq!(fs.stats().inodes_known, 0, "the references are given back");
    // An orphan: it stays as long as it is referenced.
    let dentry = fs.inner().vol.dentries.positive(root, b"name").unwrap();
    fs.retain(next);
    [&b"name"[..], b"next"].iter().for_each(|name| fs.unlink(root, name).unwrap());
    let free = fs.statfs().unwrap().inodes_free;
    assert!(refer(fs.inner(), root, dentry).is_none());
    assert_eq!(fs.statfs().unwrap().inodes_free, free);
    fs.forget(next, 1);
    assert_eq!(fs.statfs().unwrap().inodes_free, free + 1);
}

/// Sets the flag when it is dropped, also by a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread lets a name lead to one file after another, and removes it, while others look it up:
/// they find what it was given, and a file that was found is there, even if its last name is
/// removed at that moment.
#[test]
fn names_change_while_they_are_looked_up() {
    let (_, fs) = volume();
    let root = fs.root();
    let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    match fs.lookup(root, b"name") {
                        Ok(attr) => {
                            seen.fetch_add(1, Ordering::Relaxed);
                            let now = fs.getattr(attr.id.ino).unwrap();
                            assert_eq!(now.id, attr.id, "another inode");
                            assert_eq!(now.size, 1, "what the name never led to");
                            fs.forget(attr.id.ino, 1);
                        }
                        Err(e) => assert_eq!(e, FsError::NotFound),
                    }
                }
            });
        }
        let _end = AtEnd(&done);
        for round in 0_u32.. {
            if round >= 3000 && seen.load(Ordering::Relaxed) >= 1000 {
                break;
            }
            assert!(round < 1_000_000, "no lookup finds it");
            let file = make(&fs, root, b"fresh", NewNode::Regular);
            fs.write(file, 0, b"x").unwrap();
            fs.rename(root, b"fresh", root, b"name", RenameFlags::empty()).unwrap();
            assert_eq!(find(&fs, root, b"name"), Ok(file));
            if round % 3 == 0 {
                fs.unlink(root, b"name").unwrap();
                assert_eq!(find(&fs, root, b"name"), Err(FsError::NotFound));
            }
        }
    });
    assert_eq!(fs.stats().inodes_known, 0);
    fs.unmount().unwrap();
}
