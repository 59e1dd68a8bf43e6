//! What each operation of the file system gives: records, or the reason for a full commit.

use std::process::Command;
use std::sync::Arc;

use extol_device::{BlockDevice, MemDevice};
use extol_journal::Tid;
use extol_journal::fast::{Ask, Collected, Delta, FastSource, FcRecord, Reason};
use extol_vfs::{
    Creds, Fallocate, FileSystem, NewNode, Rdev, RenameFlags, SetAttr, SetTime, Timestamp, XattrSet,
};

use crate::data::writeback;
use crate::fast_commit::Tracker;
use crate::{Ext4, MountOptions};

const BLOCK: usize = 4096;

struct Rig {
    dev: Arc<MemDevice>,
    fs: Arc<Ext4>,
    tracker: Arc<Tracker>,
    root: u32,
}

impl Rig {
    fn new() -> Self {
        Self::with(&[], "")
    }

    fn with(mke2fs: &[&str], options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^resize_inode,fast_commit", "-J", "size=8"])
            // Where names go, and so when leaves are divided, is up to the seed of the hash, which would be a random one.
            .args(["-E", "hash_seed=5a3f9c1e-7b24-4d86-a1c0-3e9b72d4f608"])
            .args(mke2fs)
            .arg(&path)
            .arg("32M")
            .status();
        assert!(made.unwrap().success());
        let dev = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let options = MountOptions { threads: false, ..MountOptions::parse(options).unwrap() };
        let fs = Ext4::open(Arc::clone(&dev) as _, &options).unwrap();
        let tracker = Arc::clone(&fs.inner().tracker);
        let root = fs.root();
        let rig = Self { dev, fs, tracker, root };
        rig.commit();
        rig
    }

    /// A new base.
    fn commit(&self) {
        self.fs.sync().unwrap();
    }

    fn make(&self, dir: u32, name: &str, new: NewNode) -> u32 {
        self.fs.create(dir, name.as_bytes(), new, 0o644, 0, Creds::default()).unwrap().id.ino
    }

    fn file(&self, name: &str) -> u32 {
        self.make(self.root, name, NewNode::Regular)
    }

    fn dir(&self, name: &str) -> u32 {
        self.make(self.root, name, NewNode::Directory)
    }

    fn write(&self, ino: u32, at: usize, len: usize) {
        assert_eq!(self.fs.write(ino, at as u64, &vec![7; len]).unwrap(), len);
    }

    fn rename(&self, from: (u32, &str), to: (u32, &str), flags: RenameFlags) {
        self.fs.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags).unwrap();
    }

    /// What an fsync collects.
    fn ask_as(&self, ino: u32, data_only: bool) -> Collected {
        let fs = self.fs.inner();
        writeback::flush(fs, &mut fs.cell(ino).unwrap().write().unwrap()).unwrap();
        self.tracker.collect(fs.vol.journal.newest(), &[Ask { ino, data_only }])
    }

    fn ask(&self, ino: u32) -> Collected {
        self.ask_as(ino, false)
    }

    /// The kinds of the records that an fsync collects.
    #[track_caller]
    fn records(&self, ino: u32) -> String {
        match self.ask(ino) {
            Collected::Records(records) => kinds(&records),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(&self, ino: u32, reason: Reason) {
        assert_eq!(self.ask(ino), Collected::Full(reason));
        // After the full commit all is well again.
        self.commit();
        assert_eq!(self.ask(ino), Collected::Nothing);
    }
}

fn kinds(records: &[FcRecord]) -> String {
    let kind = |record: &FcRecord| {
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match record {
            FcRecord::AddRange { block, len, unwritten, .. } => {
                format!("{}{block}+{len}", if *unwritten { "ZERO" } else { "ADD" })
            }
            FcRecord::DelRange { block, len, .. } => format!("DEL{block}+{len}"),
            FcRecord::Creat(e) => format!("CREAT:{}", name(&e.name)),
            FcRecord::Link(e) => format!("LINK:{}", name(&e.name)),
            FcRecord::Unlink(e) => format!("UNLINK:{}", name(&e.name)),
            FcRecord::Inode { .. } => "INODE".to_owned(),
        }
    };
    records.iter().map(kind).collect::<Vec<_>>().join(" ")
}

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
    let (tmp, held) = (rig.make(sub, "tmp", NewNode::Regular), rig.make(sub, "held", NewNode::Regular));
    rig.fs.unlink(sub, b"tmp").unwrap();
    rig.fs.forget(tmp, 1);
    rig.fs.unlink(sub, b"held").unwrap();
    rig.write(alive, 0, 1);
    assert_eq!(rig.records(alive), "ADD0+1 INODE");
    assert_eq!(rig.ask(sub), Collected::Nothing);
    // Nobody could find it after a crash.
    assert_eq!(rig.ask(held), Collected::Nothing);
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

/// The names in records of one kind.
fn told(records: &[FcRecord], kind: &str) -> Vec<(u32, String, u32)> {
    let entry = |record: &FcRecord| match (record, kind) {
        (FcRecord::Link(e), "link") | (FcRecord::Unlink(e), "unlink") => {
            Some((e.parent, String::from_utf8_lossy(&e.name).into_owned(), e.ino))
        }
        _ => None,
    };
    records.iter().filter_map(entry).collect()
}

/// Neither Linux nor e2fsck can be told that a file is gone, so it gets a name elsewhere, and nothing in it.
#[test]
fn deleted_files_keep_a_name() {
    let rig = Rig::new();
    let (a, b) = (rig.file("a"), rig.file("b"));
    rig.write(a, 0, 3 * BLOCK);
    rig.fs.fsync(a, false).unwrap();
    rig.commit();
    rig.fs.unlink(rig.root, b"a").unwrap();
    let Collected::Records(records) = rig.ask(rig.root) else { panic!("refused") };
    assert_eq!(kinds(&records), format!("LINK:#{a} UNLINK:a DEL0+3 INODE"));
    assert_eq!(told(&records, "link"), [(11, format!("#{a}"), a)]);
    let Some(FcRecord::Inode { image, .. }) = records.last() else { panic!("{records:?}") };
    assert_eq!((image[0], image[1], image[4], image[0x1A]), (0, 0x80, 0, 1), "mode, size, links");
    assert_eq!(rig.ask(rig.root), Collected::Nothing);
    assert_eq!(rig.ask(a), Collected::Nothing);
    // Another file takes the place of one that was written since and is still open.
    let c = rig.file("c");
    rig.write(b, 0, 5 * BLOCK);
    rig.rename((rig.root, "c"), (rig.root, "b"), RenameFlags::empty());
    assert_eq!(rig.fs.getattr(b).unwrap().nlink, 0);
    let Collected::Records(records) = rig.ask(c) else { panic!("refused") };
    assert_eq!(kinds(&records), format!("INODE LINK:#{b} UNLINK:b CREAT:b INODE INODE"));
    // It may be written, but it cannot come back.
    rig.write(b, 0, 1);
    assert_eq!(rig.ask(b), Collected::Nothing);
    rig.fs.link(b, rig.root, b"again").unwrap();
    rig.refused(b, Reason::Deleted);
    rig.fs.unlink(rig.root, b"again").unwrap();
    rig.fs.forget(b, 2);
    rig.fs.unlink(rig.root, b"b").unwrap();
    rig.fs.forget(c, 1);
    assert_eq!(
        rig.records(rig.root),
        format!("LINK:#{b} LINK:#{c} UNLINK:again UNLINK:b DEL0+5 INODE INODE")
    );
}

#[test]
fn unnamed_files() {
    let rig = Rig::new();
    let t = rig.fs.create_unnamed(rig.root, 0o600, 0, Creds::default()).unwrap().id.ino;
    assert_eq!(rig.ask(t), Collected::Nothing);
    rig.fs.link(t, rig.root, b"t").unwrap();
    rig.refused(t, Reason::Deleted);
    let t = rig.fs.create_unnamed(rig.root, 0o600, 0, Creds::default()).unwrap().id.ino;
    rig.commit();
    rig.fs.link(t, rig.root, b"t2").unwrap();
    rig.refused(t, Reason::Deleted);
}

/// What no record takes from a deleted file.
#[test]
fn deleted_files_that_are_a_full_commit() {
    let rig = Rig::new();
    let gone = |name: &str| {
        rig.fs.unlink(rig.root, name.as_bytes()).unwrap();
    };
    let (tree, value, open) = (rig.file("tree"), rig.file("value"), rig.file("open"));
    for ino in [tree, open] {
        (0..6).for_each(|i| rig.write(ino, 2 * i * BLOCK, 1));
        rig.fs.fsync(ino, false).unwrap();
    }
    rig.fs.setxattr(value, b"user.x", b"1", XattrSet::Any).unwrap();
    rig.commit();
    gone("tree");
    rig.fs.forget(tree, 1);
    rig.refused(rig.root, Reason::ExtentTree);
    gone("value");
    rig.fs.forget(value, 1);
    rig.refused(rig.root, Reason::Xattr);
    gone("open");
    rig.refused(rig.root, Reason::Deleted);
}

/// There is room for so many names where deleted files go, and for none of anybody else's behind them.
#[test]
fn the_place_of_deleted_files() {
    let rig = Rig::with(&["-N", "2000"], "");
    // Four blocks of 4 KiB, 20 bytes a name.
    let names: Vec<String> = (0..900).map(|n| format!("f{n}")).collect();
    let files: Vec<u32> = names.iter().map(|name| rig.file(name)).collect();
    rig.commit();
    let remove = |n: usize| {
        rig.fs.unlink(rig.root, names[n].as_bytes()).unwrap();
        rig.fs.forget(files[n], 1);
        rig.ask(rig.root)
    };
    let most = (0..900).take_while(|n| matches!(remove(*n), Collected::Records(_))).count();
    assert_eq!(most, (4096 - 12 - 24) / 20 + 3 * ((4096 - 12) / 20));
    rig.refused(rig.root, Reason::Deleted);
    // Each transaction has as many; but now somebody else comes.
    assert!(matches!(remove(850), Collected::Records(_)));
    let own = rig.make(11, "own", NewNode::Regular);
    rig.refused(own, Reason::DirectoryGrew);
    remove(851);
    rig.refused(rig.root, Reason::Deleted);
    assert!(rig.fs.create(11, b"#5", NewNode::Regular, 0o644, 0, Creds::default()).is_ok());
    let park = || crate::mount::fast_commit::park(rig.fs.inner()).unwrap();
    assert_eq!(park(), None, "a name like those of deleted files");
    rig.fs.unlink(11, b"#5").unwrap();
    assert_eq!(park().map(|park| (park.dir, park.places as usize)), Some((11, most - 1)));
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
    let flags = |flags| SetAttr { flags: Some(flags), ..SetAttr::default() };
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
    let perm = SetAttr { perm: Some(0o700), uid: Some(5), flags: Some(0x40), ..SetAttr::default() };
    rig.fs.setattr(a, &perm).unwrap();
    assert_eq!(rig.records(a), "INODE");
    rig.fs.setattr(sub, &perm).unwrap();
    // A name in it needs none of its attributes.
    let inside = rig.make(sub, "inside", NewNode::Regular);
    assert_eq!(rig.records(inside), "INODE CREAT:inside INODE");
    rig.refused(sub, Reason::Attributes);
    let at = SetTime::At(Timestamp { sec: 1, nsec: 0 });
    rig.fs.setattr(sub, &SetAttr { mtime: Some(at), atime: Some(at), ..SetAttr::default() }).unwrap();
    rig.refused(sub, Reason::Attributes);
    rig.fs.setxattr(sub, b"user.x", b"1", XattrSet::Any).unwrap();
    let inside = rig.make(sub, "inside2", NewNode::Regular);
    assert_eq!(rig.records(inside), "INODE CREAT:inside2 INODE");
    rig.refused(sub, Reason::Xattr);
}

#[test]
fn a_directory_that_might_grow() {
    let rig = Rig::new();
    let sub = rig.dir("sub");
    let name = |i: u32| format!("{i:0>244}");
    // Entries of 252 bytes: sixteen of them fit.
    let files: Vec<_> = (0..14).map(|i| rig.make(sub, &name(i), NewNode::Regular)).collect();
    rig.fs.link(files[0], rig.root, b"zero").unwrap();
    rig.commit();
    // The place of a name that goes is no place for another, as long as the base has it.
    rig.fs.unlink(sub, name(0).as_bytes()).unwrap();
    assert_eq!(rig.records(files[0]), format!("UNLINK:{} INODE", name(0)));
    let made: Vec<_> = (20..22).map(|i| rig.make(sub, &name(i), NewNode::Regular)).collect();
    assert_eq!(rig.records(made[1]), format!("INODE CREAT:{} INODE", name(21)));
    // It has been divided, but not in the base.
    let dir_size = rig.fs.getattr(sub).unwrap().size;
    assert_eq!(dir_size, 3 * BLOCK as u64);
    let third = rig.make(sub, &name(22), NewNode::Regular);
    rig.refused(third, Reason::DirectoryGrew);
    let fourth = rig.make(sub, &name(23), NewNode::Regular);
    assert_eq!(rig.records(fourth), format!("INODE CREAT:{} INODE", name(23)));
    assert_eq!(rig.fs.getattr(sub).unwrap().size, dir_size);
}

/// How many of the fsyncs of new names in one directory are full commits, and the directory's size.
fn growth(rig: &Rig, dir: u32, names: u32) -> (usize, u64) {
    let mut full = 0;
    for i in 0..names {
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

/// A directory that names are synced in has room in the base: it doubles between two full commits, and so they get rare.
#[test]
fn a_directory_that_grows_is_seldom_a_full_commit() {
    let rig = Rig::with(&["-N", "6000"], "");
    let (synced, other) = (rig.dir("synced"), rig.dir("other"));
    rig.commit();
    let (full, size) = growth(&rig, synced, 2500);
    // 40 bytes each: a hundred in a block, so forty blocks were filled.
    assert!(full <= 12, "{full} full commits");
    // Nobody syncs here.
    for i in 0..2500 {
        rig.make(other, &format!("a new name {i:0>20}"), NewNode::Regular);
    }
    let plain = rig.fs.getattr(other).unwrap().size;
    println!("{full} full commits, {size} bytes, {plain} without");
    assert!(size * 2 <= plain * 3, "{size} bytes, {plain} without");
    assert!(plain < 2500 * 40 * 2, "{plain} bytes");
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

/// Puts something into the slot of an inode that was never used.
fn scribble(dev: &MemDevice, rig: &Rig, ino: u32, at: usize, bytes: &[u8]) {
    let vol = &rig.fs.inner().vol;
    let (group, index) = vol.geo.group_of_inode(extol_ondisk::InodeNr(ino));
    let slot = u64::from(index) * u64::from(vol.geo.inode_size) + at as u64;
    let table = vol.alloc.inode_table(group).unwrap().offset(vol.geo.block_size);
    dev.write_at(bytes, table + slot).unwrap();
}

#[test]
fn slots_with_remains() {
    for (at, bytes, all) in [
        (0x28, &[0x0A, 0xF3, 1, 0, 4, 0, 0, 0][..], false),
        (0xC0, &[1], false),
        (0x28, &[0x0A, 0xF3, 0, 0, 4, 0, 0, 0], false),
        (0x1A, &[1], true),
        (0, &[0, 0x80], true),
    ] {
        let rig = Rig::with(&["-E", "lazy_itable_init=1,nodiscard"], "noinit_itable");
        // Far enough that its block of the table was not read.
        let first = rig.file("first");
        let ino = first + 40;
        scribble(&rig.dev, &rig, ino, at, bytes);
        for i in first + 1..ino {
            rig.file(&format!("f{i}"));
        }
        let victim = rig.file("victim");
        assert_eq!(victim, ino, "inodes are handed out from the front");
        let next = rig.file("next");
        let harmless = at == 0x28 && bytes[2] == 0;
        match (harmless, all) {
            (true, _) => assert_eq!(rig.records(victim), "INODE CREAT:victim INODE"),
            (false, false) => {
                assert_eq!(rig.ask(victim), Collected::Full(Reason::UsedSlot));
                assert_eq!(rig.records(next), "INODE CREAT:next INODE");
            }
            (false, true) => rig.refused(next, Reason::UsedSlot),
        }
    }
}

/// An image whose links are not those of its names would leave a wrong count, or an inode without a name.
#[test]
fn links_that_no_name_explains() {
    let tracker = Tracker::default();
    let told = |ino, links, born, was: Option<u32>, is: Option<u32>| {
        let image = vec![0; 160].into();
        let inode = Delta::Inode { ino, image, born, data: true, links };
        let name = Delta::Name { dir: 2, name: format!("n{ino}").into_bytes().into(), was, is };
        tracker.apply(Tid(7), vec![inode, name], true);
        tracker.collect(Tid(7), &[Ask { ino, data_only: false }])
    };
    // A new one: two links and one name; and one that is as it should be.
    assert_eq!(told(12, 2, true, None, Some(12)), Collected::Full(Reason::Failed));
    assert!(matches!(told(13, 1, true, None, Some(13)), Collected::Records(_)));
    // An old one that had no name before.
    assert_eq!(told(14, 1, false, None, Some(14)), Collected::Full(Reason::Failed));
    assert!(matches!(told(15, 1, false, Some(15), None), Collected::Records(_)));
}

/// In a table that was zeroed, what somebody left in a slot concerns only the inode that gets it.
#[test]
fn remains_in_a_zeroed_table() {
    for (at, bytes) in [(0x1A, &[1][..]), (0, &[0, 0x80])] {
        let rig = Rig::with(&["-E", "lazy_itable_init=0,nodiscard"], "");
        let first = rig.file("first");
        let ino = first + 40;
        scribble(&rig.dev, &rig, ino, at, bytes);
        for i in first + 1..ino {
            rig.file(&format!("f{i}"));
        }
        let victim = rig.file("victim");
        assert_eq!(victim, ino, "inodes are handed out from the front");
        let next = rig.file("next");
        assert_eq!(rig.ask(victim), Collected::Full(Reason::UsedSlot));
        assert_eq!(rig.records(next), "INODE CREAT:next INODE");
    }
}

#[test]
fn a_number_that_changes_hands_within_a_transaction() {
    let rig = Rig::with(&["-N", "16"], "");
    let make = |n: usize| {
        let name = format!("f{n}");
        rig.fs.create(rig.root, name.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default()).ok()
    };
    let files: Vec<u32> = (0..).map_while(make).map(|attr| attr.id.ino).collect();
    rig.commit();
    rig.fs.unlink(rig.root, b"f0").unwrap();
    rig.fs.forget(files[0], 1);
    let again = rig.file("again");
    assert_eq!(again, files[0]);
    rig.write(files[1], 0, 1);
    rig.refused(files[1], Reason::UsedSlot);
}
