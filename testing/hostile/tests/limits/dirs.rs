//! Directories: loops, wrong parents, second names, sizes and indexes that lie.

use extol::vfs::{FileSystem, RenameFlags};
use extol_check::Kind as Finding;
use extol_hostile::layout::{Kind, Target, le16, le32, read};
use extol_ondisk::htree::DxKind;

use crate::craft::{Craft, put16, put32};
use crate::prove::{Case, message};

/// The first block of a directory that is not hashed.
fn leaf(v: &Craft, name: &str) -> Target {
    v.all(v.ino(name), |k| k == Kind::Leaf)[0]
}

/// The entry of `name` leads to `ino`.
fn lead(v: &Craft, dir: &str, name: &str, ino: u32, kind: u8) {
    v.edit(leaf(v, dir), |b| {
        let mut at = 0;
        while &b[at + 8..at + 8 + usize::from(b[at + 6])] != name.as_bytes() {
            at += usize::from(le16(b, at + 4));
        }
        put32(b, at, ino);
        b[at + 7] = kind;
    });
}

fn walk_and_remove(fs: &std::sync::Arc<extol::Ext4>) -> Vec<String> {
    let mut said = Vec::new();
    match fs.walk("/t") {
        Ok(walk) => {
            let found: Vec<_> = walk.take(50_000).collect();
            assert!(found.len() < 50_000, "a walk without end");
            said.extend(found.into_iter().filter_map(message));
        }
        Err(e) => said.push(e.to_string()),
    }
    said.extend(message(fs.remove_dir_all("/t/nest")));
    said.extend(message(fs.remove_dir_all("/t")));
    said.extend(message(fs.sync()));
    said
}

#[test]
fn a_directory_that_contains_an_ancestor() {
    for ancestor in ["d", "c", "nest", "t"] {
        let v = Craft::new("ext4-1k");
        let to = v.ino(ancestor);
        lead(&v, "d", "leaf", to, 2);
        let focus = [v.ino("d"), to];
        Case::new("loop", v)
            .focus(&focus)
            .then(walk_and_remove)
            .says(&["directory", "inode"])
            .finds(&[Finding::DirLinked])
            .prove();
    }
}

/// ".." of "a" is "b", and ".." of "b" is "a": the way up never ends.
#[test]
fn parents_in_a_circle() {
    for (of, to) in [("a", "b"), ("a", "a"), ("b", "d"), ("nest", "d")] {
        let v = Craft::new("ext4-1k");
        let up = v.ino(to);
        lead(&v, of, "..", up, 2);
        let focus = [v.ino(of), up];
        Case::new("parents", v)
            .focus(&focus)
            .then(|fs| {
                let mut said = Vec::new();
                // Moving a directory below another one asks for the ancestors of the target.
                let rename = |from: &str, to: &str| fs.rename_with(from, to, RenameFlags::empty());
                said.extend(message(rename("/t/one", "/t/nest/a/b/c/d/one")));
                said.extend(message(rename("/t/nest/a/b", "/t/big/b")));
                said.extend(message(rename("/t/nest", "/t/empty/nest")));
                said.extend(message(fs.read_file("/t/nest/a/b/../../../small1")));
                said.extend(walk_and_remove(fs));
                said
            })
            .finds(&[Finding::DotDot, Finding::DirLoop])
            .prove();
    }
}

#[test]
fn a_directory_with_two_names() {
    let v = Craft::new("ext4-1k");
    let (one, t) = (v.ino("c"), v.ino("one"));
    lead(&v, "one", "n0", one, 2);
    Case::new("second name", v)
        .focus(&[one, t])
        .then(|fs| {
            let mut said = Vec::new();
            said.extend(message(fs.rename_path("/t/one/n0", "/t/one/moved")));
            said.extend(message(fs.remove_dir_all("/t/one")));
            said.extend(walk_and_remove(fs));
            said
        })
        .finds(&[Finding::DirLinked])
        .prove();
}

/// An entry leads to a reserved inode, to none, to the root.
#[test]
fn names_of_what_must_not_have_one() {
    for ino in [1, 2, 3, 7, 8, 10, 500, 4_000_000] {
        let v = Craft::new("ext4-1k");
        lead(&v, "one", "n0", ino, 1);
        let focus = [v.ino("one"), ino];
        Case::new("reserved", v)
            .focus(&focus)
            .then(|fs| {
                let mut said: Vec<String> =
                    message(fs.write_file("/t/one/n0", b"XtolDataXtolData")).into_iter().collect();
                said.extend(message(fs.remove_dir_all("/t/one")));
                said
            })
            .says(&["inode"])
            .finds(&[
                Finding::DirBadInode,
                Finding::DirUnusedInode,
                Finding::DirLinked,
                Finding::GroupUnused,
            ])
            .prove();
    }
}

/// A size of terabytes: what is not mapped is not looked for block by block.
#[test]
fn directories_with_sizes_that_lie() {
    for (name, low, high) in [
        ("one", 1024u32, 0xFFFF_u32),
        ("tall", 0, 0x100),
        ("nest", 0xFFFF_FC00, 0),
        ("big", 0xFFFF_FC00, 0x3FF),
    ] {
        let v = Craft::new("ext4-1k");
        let ino = v.ino(name);
        v.edit_ino(ino, |b| {
            put32(b, 4, low);
            put32(b, 0x6C, high);
        });
        Case::new("size of a directory", v)
            .focus(&[ino])
            .then(|fs| {
                let mut said = Vec::new();
                for dir in ["one", "tall", "nest", "big"] {
                    said.extend(message(fs.lookup(fs.root(), b"t").and_then(|t| {
                        let dir = fs.lookup(t.id.ino, dir.as_bytes())?.id.ino;
                        let _ = fs.lookup(dir, b"not there");
                        fs.link(fs.inode("/t/small1")?.ino(), dir, b"one more name")
                    })));
                }
                said.extend(walk_and_remove(fs));
                said
            })
            .finds(&[Finding::InodeSize, Finding::DirHole, Finding::InodeFlags])
            .prove();
    }
}

/// Every entry of a hashed directory's index leads to the root of the index, to itself, or behind
/// the end; limits, counts and levels lie; all hashes are equal.
#[test]
fn indexes_that_are_bombs() {
    type Change = fn(&mut [u8]);
    let each = |b: &mut [u8], at: usize, hash: Option<u32>, block: Option<u32>| {
        for i in 0..usize::from(le16(b, at + 2)) {
            if let (Some(hash), true) = (hash, i > 0) {
                put32(b, at + 8 * i, hash);
            }
            if let Some(block) = block {
                put32(b, at + 8 * i + 4, block);
            }
        }
    };
    let cases: [(&str, DxKind, Change); 12] = [
        ("order", DxKind::Node, |b| put32(b, 8 + 8, u32::MAX)),
        ("levels", DxKind::Root, |b| b[30] = 0),
        ("more levels", DxKind::Root, |b| b[30] = 2),
        ("most levels", DxKind::Root, |b| b[30] = 255),
        ("hash", DxKind::Root, |b| b[28] = 77),
        ("no entries", DxKind::Root, |b| put16(b, 34, 0)),
        ("count", DxKind::Root, |b| put16(b, 34, 0xFFFF)),
        ("limit", DxKind::Root, |b| put16(b, 32, 0xFFFF)),
        ("limit of a node", DxKind::Node, |b| put16(b, 8, 1)),
        ("count of a node", DxKind::Node, |b| put16(b, 10, 0)),
        ("first limit and count", DxKind::Node, |b| b[8..12].fill(0xFF)),
        ("hash version", DxKind::Root, |b| b[29] = 0),
    ];
    for (name, kind, change) in cases {
        let v = Craft::new("ext4-1k");
        let ino = v.ino("tall");
        v.edit(v.all(ino, |k| k == Kind::Index(kind))[0], change);
        Case::new(name, v).focus(&[ino]).then(fill_and_empty).says(&["director", "inode"]).prove();
    }
    for (kind, at) in [(DxKind::Root, 32), (DxKind::Node, 8)] {
        for (hash, block) in [
            (None, Some(0)),
            (None, Some(1)),
            (None, Some(0x0FFF_FFFF)),
            (Some(0x7000_0000), None),
            (Some(0x7000_0001), None),
            (Some(0), None),
            (Some(0), Some(2)),
        ] {
            let v = Craft::new("ext4-1k");
            let ino = v.ino("tall");
            for t in v.all(ino, |k| k == Kind::Index(kind)) {
                v.edit(t, |b| each(b, at, hash, block));
            }
            Case::new("index entries", v)
                .focus(&[ino])
                .then(fill_and_empty)
                .finds(&[
                    Finding::HtreeNode,
                    Finding::HtreeRoot,
                    Finding::HtreeHash,
                    Finding::HtreeReference,
                ])
                .prove();
        }
    }
}

/// Names go into the hashed directory until something happens, and then it is removed.
fn fill_and_empty(fs: &std::sync::Arc<extol::Ext4>) -> Vec<String> {
    let mut said = Vec::new();
    let file = fs.inode("/t/small1").map(|i| i.ino());
    let dir = fs.inode("/t/tall").map(|i| i.ino());
    if let (Ok(file), Ok(dir)) = (file, dir) {
        for i in 0..100 {
            let name = format!("{i:02}{}", "y".repeat(200));
            said.extend(message(fs.link(file, dir, name.as_bytes())));
        }
        for i in 0..100 {
            let name = format!("{i:03}{}", "x".repeat(240));
            said.extend(message(fs.unlink(dir, name.as_bytes())));
        }
    }
    said.extend(message(fs.remove_dir_all("/t/tall")));
    said.extend(message(fs.sync()));
    said
}

/// A block of entries that never ends: each as short as can be, or of no length.
#[test]
fn entries_without_end() {
    for len in [0u16, 1, 4, 8, 11, 1023, 0xFFFF] {
        let v = Craft::new("ext4-1k");
        let ino = v.ino("one");
        let t = leaf(&v, "one");
        let before = read(&v.dev, t.at, t.len);
        assert!(le32(&before, 0) == ino);
        v.edit(t, |b| put16(b, 24 + 4, len));
        Case::new("entry", v)
            .focus(&[ino])
            .then(walk_and_remove)
            .says(&["director", "inode"])
            .finds(&[Finding::DirCorrupt])
            .prove();
    }
}
