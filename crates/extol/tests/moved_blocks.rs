//! Blocks that move: everything that files have behind a limit, and files into fewer pieces.
//!
//! Each volume gets files in front of the limit that go again, and behind them every kind of block
//! that the mover knows. dumpe2fs and debugfs say what is behind the limit afterwards, e2fsck and
//! the checker whether the volume is sound, and the contents are compared.

#[allow(dead_code)]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Arc;

use common::*;
use extol::resize::Vacated;
use extol::vfs::{Fallocate, FileKind, FileSystem, FsError, Outcome, VolumeControl, XattrSet};
use extol::{Ext4, MountOptions, OpenOptions};
use extol_block::MemDevice;

/// What a tool of e2fsprogs says about the volume.
fn ask(dev: &MemDevice, tool: &str, args: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, dev.to_bytes()).unwrap();
    let out = Command::new(tool).args(args).arg(&path).output().unwrap();
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn numbers(list: &str) -> impl Iterator<Item = (u64, u64)> + '_ {
    list.split([',', ' ']).filter_map(|word| {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    })
}

/// Blocks at or behind `limit` that are in use and belong to no group and not to the journal.
fn behind(dev: &MemDevice, limit: u64) -> BTreeSet<u64> {
    let text = ask(dev, "dumpe2fs", &[]);
    let count = text.lines().find_map(|line| line.strip_prefix("Block count:")).unwrap();
    let mut used: BTreeSet<u64> = (limit..count.trim().parse().unwrap()).collect();
    let mut drop = |from: u64, to: u64| used.retain(|nr| *nr < from || *nr > to);
    for line in text.lines().map(str::trim) {
        if let Some(free) = line.strip_prefix("Free blocks: ") {
            numbers(free).for_each(|(from, to)| drop(from, to));
        }
        for part in line.split(", ") {
            let place = ["block bitmap at ", "inode bitmap at ", "inode table at "];
            let lower = part.to_lowercase();
            if let Some((_, rest)) = place.iter().find_map(|place| lower.split_once(place)) {
                let first = rest.split(' ').next().unwrap_or_default();
                numbers(first).for_each(|(from, to)| drop(from, to));
            }
            let copy = ["superblock at ", "group descriptors at ", "reserved gdt blocks at "];
            if let Some((_, rest)) = copy.iter().find_map(|place| lower.split_once(place)) {
                let first = rest.split(' ').next().unwrap_or_default();
                numbers(first).for_each(|(from, to)| drop(from, to));
            }
        }
    }
    for inode in ["<7>", "<8>"] {
        let blocks = ask(dev, "debugfs", &["-R", &format!("blocks {inode}")]);
        numbers(&blocks.replace('\n', " ")).for_each(|(from, to)| drop(from, to));
    }
    used
}

/// Kind, contents or target, and attributes of a file.
type Shown = (FileKind, Vec<u8>, Vec<Vec<u8>>);

/// All files.
fn contents(fs: &Arc<Ext4>) -> BTreeMap<String, Shown> {
    let mut all = BTreeMap::new();
    for entry in fs.walk("/").unwrap() {
        let entry = entry.unwrap();
        let path = entry.path().to_str().unwrap().to_owned();
        let kind = entry.attr().kind;
        let bytes = match kind {
            FileKind::Regular => fs.read_file(&path).unwrap(),
            FileKind::Symlink => fs.read_link(&path).unwrap().to_str().unwrap().into(),
            _ => Vec::new(),
        };
        let mut attributes = Vec::new();
        if kind != FileKind::Symlink {
            for name in fs.list_xattrs(&path).unwrap() {
                let name = String::from_utf8(name).unwrap();
                attributes.push(fs.get_xattr(&path, &name).unwrap());
            }
        }
        all.insert(path, (kind, bytes, attributes));
    }
    all
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8 | 1
        })
        .collect()
}

/// Fills the blocks in front of the limit with files that go again.
fn ballast(fs: &Arc<Ext4>, limit: u64) -> Vec<String> {
    let bs = u64::from(fs.block_size());
    let mut names = Vec::new();
    for len in [64, 1] {
        for nr in 0.. {
            let name = format!("/ballast {len} {nr}");
            let made = fs.write_file(&name, vec![1; (len * bs) as usize]).and_then(|()| fs.sync());
            if made.is_err() {
                let _ = fs.remove_file(&name);
                break;
            }
            names.push(name);
        }
    }
    let lies_behind = |name: &String| {
        let ino = fs.inode(name).unwrap().ino();
        let runs = fs.fiemap(ino, 0, u64::MAX).unwrap();
        runs.iter().all(|run| run.physical / bs >= limit)
    };
    let (gone, kept): (Vec<_>, Vec<_>) = names.into_iter().partition(lies_behind);
    gone.iter().for_each(|name| fs.remove_file(name).unwrap());
    fs.sync().unwrap();
    kept
}

/// Every kind of block.
fn every_kind(fs: &Arc<Ext4>, extents: bool, sharers: u32) {
    let bs = fs.block_size() as usize;
    fs.write_file("/large", bytes(1, 150 * bs + 77)).unwrap();
    // Names enough for an index.
    fs.create_dir("/dir").unwrap();
    for nr in 0..400 {
        let name = format!("/dir/a file with quite a long name, number {nr}");
        fs.write_file(&name, bytes(nr, nr as usize % 3 * 900)).unwrap();
    }
    for nr in 0..4 {
        fs.symlink("x/".repeat(100 + nr), format!("/link{nr}")).unwrap();
    }
    // A tree of more than one level: every second block is a hole. And far behind: the levels of
    // an indirect map.
    let deep = fs.create_file("/deep").unwrap();
    let count = if extents { 90 * bs / 12 } else { 40 };
    for nr in 0..count.min(1500) {
        deep.write_all_at(&bytes(nr as u64, 100), 2 * (nr * bs) as u64).unwrap();
    }
    for far in [300, 12 + 256 + 5000, 12 + 256 + 65536 + 300] {
        deep.write_all_at(&bytes(far, bs), far * bs as u64).unwrap();
    }
    deep.sync_all().unwrap();
    if extents {
        let only = fs.create_file("/allocated").unwrap();
        only.allocate(Fallocate::Allocate { keep_size: false }, 0, 60 * bs as u64).unwrap();
        only.write_all_at(&bytes(9, bs), 20 * bs as u64).unwrap();
        let behind = fs.create_file("/behind the end").unwrap();
        behind.write_all_at(b"short", 0).unwrap();
        behind.allocate(Fallocate::Allocate { keep_size: true }, 0, 30 * bs as u64).unwrap();
    }
    fs.create_dir("/shared").unwrap();
    for nr in 0..sharers {
        let name = format!("/shared/{nr}");
        fs.write_file(&name, b"").unwrap();
        fs.set_xattr(&name, "user.same", [7; 600], XattrSet::Any).unwrap();
    }
    fs.write_file("/own", b"").unwrap();
    fs.set_xattr("/own", "user.own", [8; 500], XattrSet::Any).unwrap();
    fs.sync().unwrap();
}

/// The volume after tune2fs.
fn changed(dev: &MemDevice, args: &[&str]) -> Arc<MemDevice> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, dev.to_bytes()).unwrap();
    let out = Command::new("tune2fs").args(args).arg(&path).output().unwrap();
    assert!(out.status.success(), "tune2fs: {}", String::from_utf8_lossy(&out.stderr));
    // (It does not count all blocks of what it makes.)
    Command::new("e2fsck").arg("-fy").arg(&path).output().unwrap();
    Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()))
}

struct Case {
    what: &'static str,
    size: &'static str,
    mke2fs: &'static [&'static str],
    options: &'static str,
    extents: bool,
    sharers: u32,
    /// A feature whose blocks lie behind the limit.
    feature: Option<&'static str>,
}

const PLAIN: Case = Case {
    what: "extents, 1 KiB",
    size: "24M",
    mke2fs: &["-t", "ext4", "-b", "1024", "-J", "size=4", "-N", "4096"],
    options: "",
    extents: true,
    sharers: 30,
    feature: None,
};

fn options(words: &str) -> MountOptions {
    MountOptions::parse(words).unwrap().without_threads()
}

/// Makes the volume of a case, with what is to be moved behind a limit. Gives that as well.
fn prepared(case: &Case) -> (Arc<MemDevice>, u64) {
    let dev = image(case.size, case.mke2fs);
    let fs = Ext4::open(dev.clone() as _, &options(case.options)).unwrap();
    let limit = dev.to_bytes().len() as u64 / u64::from(fs.block_size()) * 6 / 10;
    let names = ballast(&fs, limit);
    every_kind(&fs, case.extents, case.sharers);
    let (dev, fs) = match case.feature {
        None => (dev, fs),
        Some(feature) => {
            fs.unmount().unwrap();
            // (The interval is that of mmp: with a second nothing waits.)
            let words = ["-E", "mmp_update_interval=1", "-O", feature];
            let dev = changed(&dev, if feature == "mmp" { &words } else { &words[2..] });
            let fs = Ext4::open(dev.clone() as _, &options(case.options)).unwrap();
            (dev, fs)
        }
    };
    names.iter().for_each(|name| fs.remove_file(name).unwrap());
    fs.unmount().unwrap();
    assert_clean(&dev, case.what);
    (dev, limit)
}

fn is_sound(dev: &Arc<MemDevice>, what: &str) {
    assert_clean(dev, what);
    let options = extol_check::CheckOptions::default();
    let report = extol_check::check(Arc::clone(dev) as _, &options, &mut |_| {}).unwrap();
    assert!(report.clean, "{what}: {report:?}");
}

fn vacates(case: &Case) -> Vacated {
    let (dev, limit) = prepared(case);
    let before = behind(&dev, limit);
    assert!(before.len() > 200, "{}: only {} blocks are behind", case.what, before.len());
    let fs = Ext4::open(dev.clone() as _, &options(case.options)).unwrap();
    let all = contents(&fs);
    let moved = fs.vacate(limit).unwrap();
    assert_eq!(contents(&fs), all, "{}: in memory", case.what);
    fs.unmount().unwrap();
    is_sound(&dev, case.what);
    let after = behind(&dev, limit);
    assert!(after.is_empty(), "{}: {after:?} is behind still ({moved:?})", case.what);
    assert!(moved.total() >= before.len() as u64, "{}: {moved:?}", case.what);
    assert!(moved.tree_blocks > 0 && moved.attribute_blocks > 0, "{}: {moved:?}", case.what);
    // What was in the log is not replayed over it, and everything is usable.
    let fs = Ext4::open(dev.clone() as _, &options(case.options)).unwrap();
    assert_eq!(contents(&fs), all, "{}", case.what);
    assert_eq!(fs.vacate(limit).unwrap().total(), 0, "{}: twice", case.what);
    fs.write_file("/another", bytes(5, 300_000)).unwrap();
    fs.remove_dir_all("/dir").unwrap();
    fs.remove_file("/deep").unwrap();
    fs.unmount().unwrap();
    is_sound(&dev, case.what);
    moved
}

#[test]
fn extents() {
    vacates(&PLAIN);
}

#[test]
fn shared_attribute_blocks() {
    vacates(&Case { what: "1,100 users of equal attributes", sharers: 1100, ..PLAIN });
}

#[test]
fn fast_commits() {
    let mke2fs = ["-t", "ext4", "-b", "1024", "-J", "size=4", "-N", "4096", "-O", "fast_commit"];
    vacates(&Case {
        what: "fast commits",
        mke2fs: Box::leak(Box::new(mke2fs)),
        options: "fast_commit",
        ..PLAIN
    });
}

#[test]
fn orphan_file() {
    let moved = vacates(&Case { what: "orphan file", feature: Some("orphan_file"), ..PLAIN });
    assert!(moved.others > 10, "{moved:?}");
}

/// The claim goes on in the new block, and the next mount finds it there.
#[test]
fn mmp_block() {
    let moved = vacates(&Case { what: "mmp", feature: Some("mmp"), ..PLAIN });
    assert_eq!(moved.others, 1, "{moved:?}");
}

#[test]
fn indirect_maps() {
    for (kind, log) in [("ext3", true), ("ext2", false)] {
        let mut mke2fs = vec!["-t", kind, "-b", "1024", "-N", "4096"];
        if log {
            mke2fs.extend(["-J", "size=4"]);
        }
        let mke2fs = Vec::leak(mke2fs);
        vacates(&Case { what: kind, mke2fs, extents: false, ..PLAIN });
    }
}

#[test]
fn journalled_data() {
    vacates(&Case { what: "data=journal", options: "data=journal", ..PLAIN });
}

#[test]
fn larger_blocks_and_inline_data() {
    let mke2fs = ["-t", "ext4", "-b", "4096", "-J", "size=4", "-N", "4096", "-O", "inline_data"];
    let mke2fs = Box::leak(Box::new(mke2fs));
    vacates(&Case { what: "4 KiB, inline_data", size: "96M", mke2fs, ..PLAIN });
}

/// What has no room in front of the limit stays, the volume is sound, and all of it is usable
/// again.
#[test]
fn too_little_room() {
    let (dev, _) = prepared(&PLAIN);
    let fs = Ext4::open(dev.clone() as _, &options("")).unwrap();
    fs.write_file("/more", bytes(3, 9_000_000)).unwrap();
    fs.sync().unwrap();
    let all = contents(&fs);
    let free = fs.statfs().unwrap().blocks_free;
    assert_eq!(fs.vacate(8000), Err(FsError::NoSpace));
    // (Trees get or lose blocks when extents are divided or joined.)
    let now = fs.statfs().unwrap().blocks_free;
    assert!(now.abs_diff(free) < 100, "{free} blocks were free, {now} are");
    assert_eq!(contents(&fs), all);
    for nr in 0.. {
        match fs.write_file(format!("/fill{nr}"), bytes(nr, 100_000)) {
            Ok(()) => fs.sync().unwrap(),
            Err(FsError::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(fs.statfs().unwrap().blocks_available < 100);
    fs.unmount().unwrap();
    is_sound(&dev, "too little room");
}

/// A file of many pieces becomes one, while it is open and changes; holes and unwritten blocks
/// stay.
#[test]
fn defragmented() {
    for case in [
        PLAIN,
        Case { what: "data=journal", options: "data=journal", ..PLAIN },
        Case {
            what: "ext3",
            mke2fs: &["-t", "ext3", "-b", "1024", "-J", "size=4", "-N", "4096"],
            extents: false,
            ..PLAIN
        },
    ] {
        let dev = image(case.size, case.mke2fs);
        let fs = Ext4::open(dev.clone() as _, &options(case.options)).unwrap();
        for round in 0..60 {
            for name in ["/a", "/b"] {
                let file = fs.open_file(name, OpenOptions::new().write(true).create(true)).unwrap();
                file.write_all_at(&bytes(round, 2048), round * 2048).unwrap();
                file.sync_all().unwrap();
            }
        }
        let a = fs.open_file("/a", OpenOptions::new().write(true)).unwrap();
        a.write_all_at(&bytes(70, 4096), 300_000).unwrap();
        fs.sync().unwrap();
        let ino = a.inode().ino();
        let all = contents(&fs);
        let before = fs.fragments(ino).unwrap();
        assert!(before.extents > 5 && before.best == 2, "{}: {before:?}", case.what);
        // What is not written back yet moves as well.
        a.write_all_at(&bytes(71, 100), 0).unwrap();
        let done = fs.defragment(ino).unwrap();
        assert_eq!((done.after.extents, done.outcome), (2, Outcome::Moved), "{}", case.what);
        assert_eq!((done.before, done.after.blocks), (before, before.blocks));
        let again = fs.defragment(ino).unwrap();
        assert_eq!((again.after, again.outcome), (done.after, Outcome::Whole));
        let mut expected = all["/a"].1.clone();
        expected[..100].copy_from_slice(&bytes(71, 100));
        assert_eq!(fs.read_file("/a").unwrap(), expected, "{}", case.what);
        assert_eq!(fs.read_file("/b").unwrap(), all["/b"].1);
        fs.unmount().unwrap();
        is_sound(&dev, case.what);
        let fs = Ext4::open(dev.clone() as _, &options(case.options)).unwrap();
        assert_eq!(fs.read_file("/a").unwrap(), expected, "{}", case.what);
        assert_eq!(fs.statfs().unwrap().blocks_free, {
            fs.sync().unwrap();
            fs.statfs().unwrap().blocks_free
        });
    }
}

/// Without a run that is long enough a file stays as it is, and no block is lost.
#[test]
fn no_room_to_defragment() {
    let dev = image("8M", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-m", "0", "-N", "9000"]);
    let fs = Ext4::open(dev.clone() as _, &options("")).unwrap();
    let mut last = 0;
    for nr in 0.. {
        let made = fs.write_file(format!("/{nr}"), [1; 1024]).and_then(|()| fs.sync());
        if made.is_err() {
            break;
        }
        last = nr;
    }
    // Every second block is free.
    (0..last).step_by(2).for_each(|nr| fs.remove_file(format!("/{nr}")).unwrap_or_default());
    fs.sync().unwrap();
    fs.write_file("/pieces", bytes(4, 20_000)).unwrap();
    fs.sync().unwrap();
    let ino = fs.inode("/pieces").unwrap().ino();
    let free = fs.statfs().unwrap().blocks_free;
    let before = fs.fragments(ino).unwrap();
    let done = fs.defragment(ino).unwrap();
    assert!(before.extents > 3, "{before:?}");
    assert_eq!((done.after, done.outcome), (before, Outcome::NoRoom));
    assert_eq!(fs.statfs().unwrap().blocks_free, free);
    assert!(matches!(fs.defragment(2), Err(FsError::IsADirectory)));
    fs.unmount().unwrap();
    is_sound(&dev, "no room");
}
