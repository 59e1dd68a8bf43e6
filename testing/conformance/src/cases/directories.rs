//! Reading directories, also while they change.

use std::collections::{BTreeMap, BTreeSet};

use rustix::fs::{FileType, OFlags};

use super::{Case, LAYOUTS, case, mkdir, put};
use crate::Transcript;
use crate::posix::{Fd, Posix};

pub(super) const CASES: &[Case] = &[
    case("entries carry kind and inode", LAYOUTS, entries),
    case("positions in directories", &["ext4", "1k", "ext2"], positions),
    case("reading while names come and go", &["1k", "ext2"], while_changing),
    case("sizes of directories", LAYOUTS, sizes),
];

fn open(fs: &dyn Posix, path: &str) -> Fd {
    fs.open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0).expect("open a directory")
}

fn entries(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "d/dir");
    put(fs, "d/file", b"");
    fs.symlink("x", "d/link").unwrap();
    for (name, kind) in [
        ("fifo", FileType::Fifo),
        ("char", FileType::CharacterDevice),
        ("block", FileType::BlockDevice),
        ("sock", FileType::Socket),
    ] {
        fs.mknod(&format!("d/{name}"), kind, 0o600, (1, 3)).unwrap();
    }
    let fd = open(fs, "d");
    let found = fs.readdir(fd, usize::MAX).unwrap();
    let mut seen = BTreeSet::new();
    for entry in found {
        let ino = fs.lstat(&format!("d/{}", entry.name)).unwrap().ino;
        seen.insert((entry.name, format!("{:?}", entry.kind), ino == entry.ino));
    }
    t.value("entries", seen);
    t.note("at the end", fs.readdir(fd, 10).map(|e| e.len()));
    t.note("once more", fs.readdir(fd, 10).map(|e| e.len()));
    put(fs, "d/late", b"");
    fs.seekdir(fd, 0).unwrap();
    t.note("from the start", fs.readdir(fd, usize::MAX).map(|e| e.len()));
    fs.close(fd);
}

/// A position is good for ever: used later and in any order, it goes on with the same entry.
fn positions(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "d");
    for n in 0..500 {
        put(fs, &format!("d/file-{n}"), b"");
    }
    let fd = open(fs, "d");
    let all = fs.readdir(fd, usize::MAX).unwrap();
    t.value("names", all.len());
    let mut wrong = 0;
    let mut check = |entries: &[crate::Entry]| {
        // What a reader sees of changes since it last was at the start is open; so it starts anew.
        let fd = open(fs, "d");
        fs.readdir(fd, 1).unwrap();
        for pair in entries.windows(2).rev().step_by(7) {
            fs.seekdir(fd, pair[0].next).unwrap();
            let next = fs.readdir(fd, 1).unwrap();
            wrong += usize::from(next.first().map(|e| &e.name) != Some(&pair[1].name));
        }
        fs.close(fd);
        t.value("entries that did not follow", wrong);
    };
    check(&all);
    // The rest still follows each other after changes.
    let removed: BTreeSet<String> = (0..500).step_by(3).map(|n| format!("file-{n}")).collect();
    for name in &removed {
        fs.unlink(&format!("d/{name}")).unwrap();
    }
    let rest: Vec<_> = all.into_iter().filter(|e| !removed.contains(&e.name)).collect();
    check(&rest);
    fs.seekdir(fd, 0).unwrap();
    let again = fs.readdir(fd, usize::MAX).unwrap();
    t.value("the same again", again.iter().map(|e| &e.name).eq(rest.iter().map(|e| &e.name)));
    fs.close(fd);
}

/// A name that is in the directory during the whole reading is found exactly once, whatever else
/// comes and goes.
fn while_changing(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "d");
    for n in 0..400 {
        put(fs, &format!("d/stay-{n:04}"), b"");
        put(fs, &format!("d/leave-{n:04}"), b"");
    }
    let fd = open(fs, "d");
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for round in 0..1000 {
        let some = fs.readdir(fd, 50).unwrap();
        if some.is_empty() {
            break;
        }
        for entry in some {
            *seen.entry(entry.name).or_default() += 1;
        }
        for n in 0..15 {
            let _ = fs.unlink(&format!("d/leave-{:04}", (round * 97 + n * 13) % 400));
            put(fs, &format!("d/come-{round}-{n}"), b"");
        }
    }
    let stayed = (0..400).filter(|n| seen.get(&format!("stay-{n:04}")) == Some(&1)).count();
    t.value("found exactly once of those that stay", stayed);
    t.value("found twice", seen.values().filter(|n| **n > 1).count());
    fs.close(fd);
}

fn sizes(fs: &dyn Posix, t: &mut Transcript) {
    mkdir(fs, "d");
    t.note("empty", fs.stat("d").map(|s| (s.size, s.nlink)));
    for n in 0..60 {
        put(fs, &format!("d/{n:0200}"), b"");
    }
    t.note("links", fs.stat("d").map(|s| s.nlink));
    t.value("grew", fs.stat("d").unwrap().size > 4096);
    for n in 0..10 {
        mkdir(fs, &format!("d/sub{n}"));
    }
    t.note("links", fs.stat("d").map(|s| s.nlink));
    t.note("remove", fs.remove_all("d"));
}
