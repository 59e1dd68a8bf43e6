//! Inodes behind a limit get lower numbers.
//!
//! The volumes get files of all kinds with high numbers, and names that lead to them from
//! directories with high and low ones. debugfs says which numbers are left, e2fsck and the checker
//! whether the volume is sound, and the trees are compared, with all attributes.

#[allow(dead_code)]
mod common;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use common::*;
use extol::vfs::{Creds, FileKind, FileSystem, FsError, NewNode, Rdev, XattrSet};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;

fn options(words: &str) -> MountOptions {
    MountOptions::parse(words).unwrap().without_threads()
}

fn opened(dev: &Arc<MemDevice>, words: &str) -> Arc<Ext4> {
    Ext4::open(Arc::clone(dev) as _, &options(words)).unwrap()
}

/// What is known of a file, without its number and generation, and without the time of its last
/// access; contents or target; attributes.
type Shown = (String, Vec<u8>, Vec<(String, Vec<u8>)>);

fn tree(fs: &Arc<Ext4>) -> BTreeMap<String, Shown> {
    let mut all = BTreeMap::new();
    for entry in fs.walk("/").unwrap() {
        let entry = entry.unwrap();
        let path = entry.path().to_str().unwrap().to_owned();
        let attr = entry.attr();
        let a = format!(
            "{:?} {:o} {} {} {} {} {} {:?} {:?} {:?} {:?} {}",
            attr.kind,
            attr.perm,
            attr.size,
            attr.blocks,
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.rdev,
            attr.mtime,
            attr.ctime,
            attr.crtime,
            attr.flags
        );
        let bytes = match attr.kind {
            FileKind::Regular => fs.read_file(&path).unwrap(),
            FileKind::Symlink => fs.read_link(&path).unwrap().to_str().unwrap().into(),
            _ => Vec::new(),
        };
        let mut xattrs = Vec::new();
        if attr.kind != FileKind::Symlink {
            for name in fs.list_xattrs(&path).unwrap() {
                let name = String::from_utf8(name).unwrap();
                xattrs.push((name.clone(), fs.get_xattr(&path, &name).unwrap()));
            }
        }
        all.insert(path, (a, bytes, xattrs));
    }
    all
}

/// Numbers of inodes in use.
fn used(dev: &MemDevice) -> Vec<u32> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, dev.to_bytes()).unwrap();
    let out = Command::new("dumpe2fs").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let count = text.lines().find_map(|line| line.strip_prefix("Inode count:")).unwrap();
    let mut used = vec![true; count.trim().parse::<usize>().unwrap() + 1];
    used[0] = false;
    for list in text.lines().filter_map(|line| line.trim().strip_prefix("Free inodes: ")) {
        // (The line about the whole volume has a count behind blanks.)
        let ranges = list.split(", ").filter(|range| !range.is_empty() && !range.starts_with(' '));
        for range in ranges {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            used[from.parse().unwrap()..=to.parse().unwrap()].fill(false);
        }
    }
    (0..).zip(used).filter_map(|(ino, used)| used.then_some(ino)).collect()
}

fn is_sound(dev: &Arc<MemDevice>, what: &str) {
    assert_clean(dev, what);
    let options = extol_check::CheckOptions::default();
    let report = extol_check::check(Arc::clone(dev) as _, &options, &mut |_| {}).unwrap();
    assert!(report.clean, "{what}: {report:?}");
}

struct Case {
    what: &'static str,
    mke2fs: &'static str,
    options: &'static str,
    /// Most inodes to move; the volume is looked at after each.
    steps: usize,
}

const INODES: u64 = 1024;
const LIMIT: u64 = INODES * 5 / 8;

/// 16 groups of 64 inodes.
const EXT4: &str = "-t ext4 -b 1024 -g 1024 -N 1024 -J size=4";
const SIZE: &str = "16M";

const PLAIN: Case = Case { what: "ext4", mke2fs: EXT4, options: "", steps: 0 };

/// Files of all kinds with numbers behind the limit.
fn prepared(case: &Case) -> Arc<MemDevice> {
    let dev = image(SIZE, &case.mke2fs.split(' ').collect::<Vec<_>>());
    let fs = opened(&dev, case.options);
    fs.create_dir("/low").unwrap();
    fs.create_dir("/low/moves").unwrap();
    fs.write_file("/low/file", b"low").unwrap();
    let mut ballast = Vec::new();
    for nr in 0.. {
        let name = format!("/ballast {nr}");
        match fs.write_file(&name, b"") {
            Ok(()) => ballast.push(name),
            Err(FsError::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    let is_low = |name: &String| u64::from(fs.inode(name).unwrap().ino()) <= LIMIT;
    let (low, high): (Vec<_>, Vec<_>) = ballast.into_iter().partition(is_low);
    high.iter().for_each(|name| fs.remove_file(name).unwrap());
    fs.sync().unwrap();
    every_kind(&fs);
    low.iter().for_each(|name| fs.remove_file(name).unwrap());
    fs.unmount().unwrap();
    is_sound(&dev, case.what);
    dev
}

fn every_kind(fs: &Arc<Ext4>) {
    // A directory with an index, of which some names lead to one file, and which has children.
    fs.create_dir("/dir").unwrap();
    fs.write_file("/dir/target", [7; 3000]).unwrap();
    for nr in 0..150 {
        let name = format!("/dir/a name long enough to fill many leaves, number {nr}");
        fs.hard_link("/dir/target", name).unwrap();
    }
    fs.rename_path("/low/moves", "/dir/moved").unwrap();
    let mut deep = String::from("/dir");
    for nr in 0..6 {
        deep += &format!("/{nr}");
        fs.create_dir(&deep).unwrap();
        fs.write_file(format!("{deep}/file"), vec![nr; 700 * usize::from(nr)]).unwrap();
    }
    // Names in many directories.
    fs.write_file("/linked", b"in many places").unwrap();
    for nr in 0..40 {
        fs.create_dir(format!("/in {nr}")).unwrap();
        for name in ["one", "another"] {
            fs.hard_link("/linked", format!("/in {nr}/{name}")).unwrap();
        }
    }
    fs.hard_link("/linked", "/low/linked").unwrap();
    fs.symlink("short", "/low/link").unwrap();
    fs.symlink("x/".repeat(200), "/link").unwrap();
    let dev = Rdev { major: 8, minor: 300 };
    let root = fs.root();
    fs.create(root, b"node", NewNode::BlockDevice(dev), 0o640, 0, Creds::default()).unwrap();
    fs.create(root, b"fifo", NewNode::Fifo, 0o600, 0, Creds { uid: 5, gid: 6 }).unwrap();
    // A tree of extents; attributes inside and outside of the inode.
    let holes = fs.create_file("/holes").unwrap();
    for nr in 0..90 {
        holes.write_all_at(&[nr; 100], u64::from(nr) * 3000).unwrap();
    }
    holes.sync_all().unwrap();
    for name in ["/holes", "/dir", "/linked", "/dir/0/1"] {
        fs.set_xattr(name, "user.small", b"value", XattrSet::Any).unwrap();
        fs.set_xattr(name, "user.large", [9; 500], XattrSet::Any).unwrap();
    }
    fs.sync().unwrap();
}

fn moves(case: &Case) {
    let dev = prepared(case);
    let behind = |dev: &MemDevice| used(dev).into_iter().filter(|i| u64::from(*i) > LIMIT).count();
    let count = behind(&dev);
    assert!(count > 55, "{}: {count}", case.what);
    for step in 0..case.steps.min(count - 5) {
        let fs = opened(&dev, case.options);
        let all = tree(&fs);
        assert_eq!(fs.renumber(LIMIT, &mut |_, _| false).unwrap(), 1);
        assert_eq!(tree(&fs), all, "{}: step {step}, in memory", case.what);
        fs.unmount().unwrap();
        is_sound(&dev, &format!("{}: step {step}", case.what));
    }
    assert_eq!(behind(&dev), count - case.steps.min(count - 5), "{}", case.what);
    let fs = opened(&dev, case.options);
    let all = tree(&fs);
    let mut told = Vec::new();
    let moved = fs.renumber(LIMIT, &mut |done, of| {
        told.push((done, of));
        true
    });
    let moved = moved.unwrap();
    assert_eq!(moved as usize, behind(&dev).max(told.len()));
    assert_eq!(told, (1..=moved).map(|done| (done, moved)).collect::<Vec<_>>());
    assert_eq!(tree(&fs), all, "{}: in memory", case.what);
    // While the volume is open: the log is empty.
    let copy = Arc::new(MemDevice::from_bytes(&dev.to_bytes()));
    let again = opened(&copy, case.options);
    assert_eq!(tree(&again), all, "{}: a copy", case.what);
    again.unmount().unwrap();
    // All of it is usable.
    assert_eq!(fs.renumber(LIMIT, &mut |_, _| true).unwrap(), 0, "{}: twice", case.what);
    fs.write_file("/dir/0/another", [5; 5000]).unwrap();
    fs.create_dir("/dir/0/1/new").unwrap();
    fs.remove_dir_all("/in 3").unwrap();
    fs.remove_file("/dir/target").unwrap();
    fs.unmount().unwrap();
    is_sound(&dev, case.what);
    assert!(*used(&copy).last().unwrap() <= LIMIT as u32, "{}", case.what);
    let fs = opened(&dev, case.options);
    fs.remove_dir_all("/dir").unwrap();
    fs.unmount().unwrap();
    is_sound(&dev, case.what);
}

#[test]
fn after_every_inode() {
    moves(&Case { steps: usize::MAX, ..PLAIN });
}

#[test]
fn inside_inodes() {
    let mke2fs = "-t ext4 -b 1024 -g 1024 -N 1024 -J size=4 -O inline_data";
    moves(&Case { what: "inline_data", mke2fs, steps: usize::MAX, ..PLAIN });
}

#[test]
fn fast_commits_and_orphan_file() {
    let mke2fs = "-t ext4 -b 1024 -g 1024 -N 1024 -J size=4 -O fast_commit,orphan_file";
    let what = "fast_commit, orphan_file";
    moves(&Case { what, mke2fs, options: "fast_commit", steps: 5 });
}

#[test]
fn other_volumes() {
    let ext2 = "-t ext2 -b 1024 -g 1024 -N 1024 -I 128";
    moves(&Case { what: "ext2, 128 bytes", mke2fs: ext2, steps: 5, ..PLAIN });
    let ext3 = "-t ext3 -b 1024 -g 1024 -N 1024 -J size=4";
    moves(&Case { what: "ext3", mke2fs: ext3, steps: 5, ..PLAIN });
    let untyped = "-t ext3 -b 1024 -g 1024 -N 1024 -J size=4 -O ^filetype,^dir_index";
    moves(&Case { what: "without types", mke2fs: untyped, steps: 5, ..PLAIN });
    let no_csum = "-t ext4 -b 1024 -g 1024 -N 1024 -J size=4 -O ^metadata_csum,uninit_bg";
    moves(&Case { what: "without checksums", mke2fs: no_csum, steps: 5, ..PLAIN });
    let seed =
        "-t ext4 -b 1024 -g 1024 -N 1024 -J size=4 -O metadata_csum_seed,large_dir,project -I 512";
    moves(&Case { what: "512 bytes, metadata_csum_seed", mke2fs: seed, steps: 5, ..PLAIN });
}

/// A directory with more children than can be counted: they move, and then it does, which takes a
/// log for all of them.
#[test]
fn more_children_than_links() {
    let count = 65_001;
    let mke2fs = ["-t", "ext4", "-b", "4096", "-N", "180000", "-J", "size=80", "-O", "inline_data"];
    let dev = image("512M", &mke2fs);
    let fs = opened(&dev, "cache_mb=256");
    let mut ballast = 0;
    let parent = loop {
        fs.write_file(format!("/ballast {ballast}"), b"").unwrap();
        ballast += 1;
        if ballast % 1000 == 0 {
            let parent = fs.create_dir("/parent").and_then(|_| fs.inode("/parent")).unwrap();
            if u64::from(parent.ino()) > 100_000 {
                break parent.ino();
            }
            drop(parent);
            fs.remove_dir("/parent").unwrap();
            fs.sync().unwrap();
        }
    };
    (0..ballast).for_each(|nr| fs.remove_file(format!("/ballast {nr}")).unwrap());
    fs.sync().unwrap();
    for nr in 0..count {
        let name = format!("{nr}");
        let new = NewNode::Directory;
        fs.create(parent, name.as_bytes(), new, 0o755, 0, Creds::default()).unwrap();
    }
    assert_eq!(fs.metadata("/parent").unwrap().nlink, 1);
    fs.unmount().unwrap();
    let per_group = u32::from_le_bytes(dev.to_bytes()[1024 + 40..][..4].try_into().unwrap());
    let fs = opened(&dev, "cache_mb=256");
    let limit = u64::from(parent - 1) / u64::from(per_group) * u64::from(per_group);
    let moved = fs.renumber(limit, &mut |_, _| true).unwrap();
    assert!(moved >= 1);
    assert_eq!(fs.metadata("/parent").unwrap().nlink, 1);
    fs.unmount().unwrap();
    is_sound(&dev, "many children");
    assert!(u64::from(*used(&dev).last().unwrap()) <= limit);
    let fs = opened(&dev, "");
    assert_eq!(fs.read_dir("/parent").unwrap().count(), count);
    fs.remove_dir("/parent/65000").unwrap();
    fs.unmount().unwrap();
    is_sound(&dev, "one fewer");
}

/// What cannot be done is refused before anything is changed.
#[test]
fn refused() {
    // No room.
    let dev = prepared(&PLAIN);
    let fs = opened(&dev, "");
    for nr in 0.. {
        let made = fs.write_file(format!("/fill {nr}"), b"");
        if made.is_err() {
            break;
        }
    }
    fs.unmount().unwrap();
    let refused = |dev: &Arc<MemDevice>, words: &str, limit: u64| {
        let fs = opened(dev, words);
        let all = tree(&fs);
        let why = fs.renumber(limit, &mut |_, _| panic!("changed")).unwrap_err().to_string();
        assert_eq!(tree(&fs), all);
        fs.unmount().unwrap();
        is_sound(dev, &why);
        why
    };
    let why = refused(&dev, "", LIMIT);
    assert_eq!(
        why,
        "384 inodes are in use behind the new end, and 0 are free in front of it: remove files, or \
         choose a larger size"
    );
    // One transaction cannot hold all names.
    let dev =
        image("64M", &["-t", "ext4", "-b", "1024", "-g", "2048", "-N", "4096", "-J", "size=1"]);
    let fs = opened(&dev, "");
    for nr in 0..1100 {
        fs.create_dir(format!("/{nr}")).unwrap();
    }
    let mut last = String::new();
    for nr in 0..3000 {
        last = format!("/file {nr}");
        if fs.write_file(&last, b"").is_err() || fs.inode(&last).unwrap().ino() > 3200 {
            break;
        }
    }
    (0..1100).for_each(|nr| fs.hard_link(&last, format!("/{nr}/name")).unwrap());
    let own = fs.inode(&last).unwrap().ino();
    fs.unmount().unwrap();
    let fs = opened(&dev, "");
    for nr in 0..3000 {
        let name = format!("/file {nr}");
        if name != last && fs.remove_file(&name).is_err() {
            break;
        }
    }
    fs.unmount().unwrap();
    let why = refused(&dev, "", 3072);
    let start = format!("the journal is too small: inode {own} has to move, which takes a ");
    assert!(why.starts_with(&start), "{why}");
    assert!(why.contains("transaction of 1108 blocks with its names, and this journal"), "{why}");
}

/// What is in use does not move.
#[test]
fn in_use() {
    let dev = prepared(&PLAIN);
    let fs = opened(&dev, "");
    let file = fs.inode("/linked").unwrap();
    let why = fs.renumber(LIMIT, &mut |_, _| true).unwrap_err().to_string();
    let ino = file.ino();
    assert_eq!(why, format!("the file with inode {ino} is in use: close it and try again"));
    drop(file);
    fs.renumber(LIMIT, &mut |_, _| true).unwrap();
    fs.unmount().unwrap();
    is_sound(&dev, "in use");
}
