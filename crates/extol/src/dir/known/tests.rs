//! Slots and versions, and a directory in which names change below those who look them up.

use std::sync::atomic::{AtomicBool, Ordering};

use extol_vfs::{Creds, FileSystem as _, FsError, NewNode, RenameFlags};

use super::*;
use crate::Ext4;
use crate::ops::delete::tests::{open, volume};
use crate::ops::names::refer;

#[test]
fn a_name_is_known_until_it_is_taken_away() {
    let known = Known::new(1000);
    assert_eq!(known.recall(2, b"name"), None);
    known.remember(2, b"name", 12);
    let sighting = known.recall(2, b"name").unwrap();
    assert_eq!(sighting.ino, 12);
    assert!(known.holds(sighting));
    for other in [&b"nam"[..], b"name\0", b"name2", b"Name", b""] {
        assert_eq!(known.recall(2, other), None, "{other:?}");
        known.erase(2, other);
    }
    assert_eq!(known.recall(3, b"name"), None);
    assert!(known.holds(sighting), "others went");
    known.erase(2, b"name");
    assert!(!known.holds(sighting));
    assert_eq!(known.recall(2, b"name"), None);
    known.remember(2, b"name", 12);
    assert_eq!(known.recall(2, b"name").map(|s| s.ino), Some(12));
    assert!(!known.holds(sighting), "it is there again, but was away");
}

#[test]
fn names_share_slots() {
    let known = Known::new(0);
    let name = |n: u32| format!("name{n}").into_bytes();
    for n in 0..10_000 {
        known.remember(n % 7, &name(n), n);
        assert_eq!(known.recall(n % 7, &name(n)).map(|s| s.ino), Some(n));
    }
    let left = (0..10_000).filter(|n| known.recall(n % 7, &name(*n)).is_some()).count();
    assert!((32..=64).contains(&left), "{left} of 64 slots");
}

#[test]
fn two_names_seldom_drive_each_other_out() {
    let known = Known::new(1024);
    let name = |n: u32| format!("name{n}").into_bytes();
    for n in 0..512 {
        known.remember(2, &name(n), n);
    }
    let left = (0..512).filter(|n| known.recall(2, &name(*n)).is_some()).count();
    // A simulation of two thousand runs: 437 to 478; with one slot each 380 to 427.
    assert!(left > 430, "{left} of 512");
}

/// Two noted it at the same time.
#[test]
fn a_name_in_both_of_its_slots_goes_from_both() {
    let known = Known::new(1000);
    known.remember(2, b"name", 12);
    let key = Key::of(2, b"name").unwrap();
    let slots = known.slots.get().unwrap();
    known.places(&key).into_iter().for_each(|at| slots[at].write(&key, 12));
    let seen = known.recall(2, b"name").unwrap();
    known.erase(2, b"name");
    assert_eq!((known.recall(2, b"name"), known.holds(seen)), (None, false));
}

#[test]
fn names_that_are_not_noted() {
    let known = Known::new(1000);
    for name in [&b"."[..], b"..", &[b'n'; LONGEST + 1], &[b'n'; 255]] {
        known.remember(2, name, 12);
        assert_eq!(known.recall(2, name), None, "{name:?}");
    }
    known.remember(2, &[b'n'; LONGEST], 12);
    assert!(known.recall(2, &[b'n'; LONGEST]).is_some());
    known.remember(2, b"...", 12);
    assert!(known.recall(2, b"...").is_some());
}

#[test]
fn a_slot_that_is_being_written_is_left_alone() {
    let slot = Slot::default();
    let [key, other] = [&b"name"[..], b"other"].map(|name| Key::of(2, name).unwrap());
    slot.write(&key, 12);
    let (_, first) = slot.read(&key).unwrap();
    slot.sequence.fetch_add(1, Ordering::Relaxed);
    assert_eq!(slot.read(&key), None);
    assert!(!slot.is_at(first), "as good as erased");
    slot.write(&other, 13);
    assert_eq!(slot.read(&other), None);
    slot.sequence.fetch_add(1, Ordering::Relaxed);
    assert_eq!(slot.read(&key).map(|(ino, _)| ino), Some(12), "the second writer left it alone");
}

/// The inode tells the name, so that parts of two writers' notes would show.
#[test]
fn nobody_reads_parts_of_two_notes() {
    let slot = Slot::default();
    let keys =
        [0_u32, 1, 2, 3].map(|n| Key::of(n % 2, n.to_string().repeat(20).as_bytes()).unwrap());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = [0_u32, 2].map(|first| {
            let (slot, keys) = (&slot, &keys);
            scope.spawn(move || {
                for i in 0..200_000 {
                    let n = first + i % 2;
                    slot.write(&keys[n as usize], n);
                    if i % 5 == 0 {
                        slot.erase(&keys[n as usize]);
                    }
                }
            })
        });
        let reader = scope.spawn(|| {
            let mut seen = 0_u64;
            while !done.load(Ordering::Relaxed) || seen == 0 {
                for (n, key) in (0..).zip(&keys) {
                    if let Some((ino, _)) = slot.read(key) {
                        assert_eq!(ino, n);
                        seen += 1;
                    }
                }
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

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
fn who_asks_again_searches_no_more() {
    let (device, fs) = volume();
    let root = fs.root();
    let file = make(&fs, root, b"file", NewNode::Regular);
    assert_eq!(blocks(&fs, root, b"file"), 0, "who makes a name knows it");
    fs.unmount().unwrap();
    let fs = open(device);
    assert!(blocks(&fs, root, b"file") > 0);
    assert_eq!(blocks(&fs, root, b"file"), 0);
    // What happens to others is nothing to it, and attributes are those of now.
    make(&fs, root, b"other", NewNode::Regular);
    fs.unlink(root, b"other").unwrap();
    fs.write(file, 0, b"data").unwrap();
    assert_eq!(blocks(&fs, root, b"file"), 0);
    assert_eq!(fs.lookup(root, b"file").unwrap().size, 4);
    let linked = fs.link(file, root, b"link").unwrap();
    assert_eq!(blocks(&fs, root, b"link"), 0);
    fs.forget(linked.id.ino, 2);
}

/// Each way in which a name can go, or lead elsewhere.
#[test]
fn what_happened_since_counts() {
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
    // A directory goes, and its number becomes another's.
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
    // Out of one directory into another, both of which forget their cells.
    let file = make(&fs, reused, b"moving", NewNode::Regular);
    know(reused, &[b"moving"]);
    fs.rename(reused, b"moving", root, b"moved", none).unwrap();
    assert_eq!(find(&fs, reused, b"moving"), Err(FsError::NotFound));
    assert_eq!(find(&fs, root, b"moved"), Ok(file));
}

/// The name goes between the look at its slot and the reference.
#[test]
fn what_went_meanwhile_is_not_found() {
    let (_, fs) = volume();
    let root = fs.root();
    let file = make(&fs, root, b"name", NewNode::Regular);
    let seen = fs.inner().vol.known.recall(root, b"name").unwrap();
    assert_eq!(seen.ino, file);
    assert_eq!(refer(fs.inner(), root, seen).unwrap().unwrap().id.ino, file);
    fs.forget(file, 1);
    fs.unlink(root, b"name").unwrap();
    assert!(refer(fs.inner(), root, seen).is_none());
    // Its number is another file's, and the name another's, too.
    fs.sync().unwrap();
    let next = make(&fs, root, b"next", NewNode::Regular);
    assert_eq!(next, file);
    fs.link(next, root, b"name").unwrap();
    assert!(refer(fs.inner(), root, seen).is_none());
    fs.forget(next, 1);
    assert_eq!(fs.stats().inodes_known, 0, "who gives up has given back");
    // An orphan: it stays as long as others refer to it.
    let seen = fs.inner().vol.known.recall(root, b"name").unwrap();
    fs.retain(next);
    [&b"name"[..], b"next"].iter().for_each(|name| fs.unlink(root, name).unwrap());
    let free = fs.statfs().unwrap().inodes_free;
    assert!(refer(fs.inner(), root, seen).is_none());
    assert_eq!(fs.statfs().unwrap().inodes_free, free);
    fs.forget(next, 1);
    assert_eq!(fs.statfs().unwrap().inodes_free, free + 1);
}

/// Sets it when it goes, also by a panic.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One thread lets a name lead to one file after another, and away, while others look it up: it
/// leads to what it was given, and who has an answer has the file, even if its last name goes at
/// that moment.
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
                            assert_eq!(now.id, attr.id, "somebody else's inode");
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
            assert!(round < 1_000_000, "nobody looks");
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
