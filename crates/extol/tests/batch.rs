//! A batch is durable as a whole or not at all, wherever a crash cuts it off.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use extol::vfs::{
    Creds, FileKind, FileSystem, FsError, NewNode, RenameFlags, Result, SetAttr, XattrSet,
};
use extol::{Batch, Ext4, MountOptions};
use extol_block::MemDevice;
use extol_devices::RecordingDevice;

/// Everything of a tree but times, by path.
fn describe(fs: &Ext4) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(String::new(), fs.root())];
    while let Some((path, ino)) = todo.pop() {
        let attr = fs.getattr(ino).unwrap();
        let mut text = format!("{:?} {:o} {} {}", attr.kind, attr.perm, attr.uid, attr.nlink);
        match attr.kind {
            FileKind::Directory => fs
                .readdir(ino, 0, &mut |entry| {
                    if !matches!(&*entry.name, b"." | b".." | b"lost+found") {
                        let name = String::from_utf8_lossy(&entry.name).into_owned();
                        todo.push((format!("{path}/{name}"), entry.ino));
                    }
                    true
                })
                .unwrap(),
            FileKind::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len(), "{path}");
                let sum = bytes.iter().fold(7u64, |sum, b| sum.wrapping_mul(31) ^ u64::from(*b));
                text += &format!(" {} bytes {sum:x}", attr.size);
            }
            FileKind::Symlink => text += &format!(" {:?}", fs.readlink(ino).unwrap()),
            _ => {}
        }
        for name in fs.listxattr(ino).unwrap() {
            let value = fs.getxattr(ino, &name).unwrap();
            text += &format!(" {}={value:?}", String::from_utf8_lossy(&name));
        }
        all.insert(path, text);
    }
    all
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(7) ^ seed ^ (n >> 9) as u8).collect()
}

fn find(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.lookup(dir, name.as_bytes()).unwrap().id.ino
}

/// What the batch finds.
fn prepare(fs: &Ext4) {
    let root = fs.root();
    let old = dir(fs, root, "old");
    for (n, len) in [(1, 100_000), (2, 5_000), (3, 300_000), (4, 70_000)] {
        let ino = file(fs, old, &format!("file-{n}"));
        fs.write(ino, 0, &pattern(n, len)).unwrap();
        fs.forget(ino, 1);
    }
    let deep = dir(fs, old, "deep");
    for n in 0..40 {
        fs.forget(file(fs, deep, &format!("name-{n}")), 1);
    }
    fs.forget(deep, 1);
    fs.forget(old, 1);
}

/// Some of everything.
fn change(fs: &Ext4) -> Result<()> {
    let root = fs.root();
    let old = fs.lookup(root, b"old")?.id.ino;
    let creds = Creds { uid: 5, gid: 6 };
    let new = fs.create(root, b"new", NewNode::Directory, 0o755, 0, creds)?.id.ino;
    for n in 0..30u8 {
        let ino = fs.create_unnamed(new, 0o600, 0, creds)?.id.ino;
        fs.write(ino, 0, &pattern(100 + n, 9_000 * usize::from(n % 7)))?;
        fs.link(ino, new, format!("put-{n}").as_bytes())?;
        fs.forget(ino, 2);
    }
    fs.unlink(old, b"file-1")?;
    let cut = fs.lookup(old, b"file-2")?.id.ino;
    fs.setattr(cut, &SetAttr { size: Some(1_234), perm: Some(0o640), ..SetAttr::default() })?;
    fs.forget(cut, 1);
    let cut = fs.lookup(old, b"file-3")?.id.ino;
    fs.setattr(cut, &SetAttr { size: Some(123_456), ..SetAttr::default() })?;
    fs.setattr(cut, &SetAttr { size: Some(200_001), ..SetAttr::default() })?;
    fs.setxattr(cut, b"user.note", &[9; 900], XattrSet::Any)?;
    fs.forget(cut, 1);
    fs.rename(old, b"file-4", new, b"moved", RenameFlags::empty())?;
    let deep = fs.lookup(old, b"deep")?.id.ino;
    for n in 0..40 {
        fs.unlink(deep, format!("name-{n}").as_bytes())?;
    }
    fs.forget(deep, 1);
    fs.rmdir(old, b"deep")?;
    let link = NewNode::Symlink(vec![b'x'; 100]);
    fs.forget(fs.create(old, b"link", link, 0o777, 0, creds)?.id.ino, 1);
    fs.forget(old, 1);
    fs.forget(new, 1);
    Ok(())
}

fn read_only(device: &MemDevice) -> BTreeMap<String, String> {
    let device = Arc::new(device.snapshot());
    let fs = Ext4::open(device, &MountOptions::default().read_only()).unwrap();
    describe(&fs)
}

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-O", "fast_commit"],
    &["-t", "ext4", "-O", "^extents,^64bit,^metadata_csum", "-b", "1024"],
    &["-t", "ext4", "-O", "inline_data,orphan_file", "-J", "size=4", "-N", "32768"],
];

/// Every state of the medium that a crash can leave has the tree before the batch, or the one after
/// it; once the commit has returned, the latter.
#[test]
fn all_or_nothing_at_every_write() {
    for (n, kind) in KINDS.into_iter().enumerate() {
        let base = image("24M", kind);
        let fs = open(&base, "");
        prepare(&fs);
        let before = describe(&fs);
        fs.unmount().unwrap();
        let recording = Arc::new(RecordingDevice::new(base.snapshot()));
        let fs = Ext4::open(Arc::clone(&recording) as _, &MountOptions::default()).unwrap();
        let batch = fs.begin_batch().unwrap();
        change(&fs).unwrap();
        assert!(batch.changed() > 20 && batch.changed() < batch.most());
        let written = recording.position();
        batch.commit().unwrap();
        let committed = recording.position();
        let after = describe(&fs);
        assert_ne!(before, after);
        fs.unmount().unwrap();
        let (mut olds, mut news, mut seed) = (0, 0, 1u64);
        for cut in 0..=recording.position() {
            for way in 0..4 {
                let device = recording.image_at(cut, |_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    match way {
                        0 => true,
                        1 => false,
                        _ => seed >> 40 & 1 == 0,
                    }
                });
                let found = read_only(&device);
                assert!(found == before || found == after, "{kind:?}: cut {cut}, way {way}");
                let is_new = found == after;
                assert!(cut >= written || !is_new, "durable before the commit");
                assert!(cut < committed || is_new, "lost behind the commit");
                *(if is_new { &mut news } else { &mut olds }) += 1;
                if (cut + way + n).is_multiple_of(97) || cut + 1 == committed {
                    let device = Arc::new(device);
                    open(&device, "").unmount().unwrap();
                    assert_clean(&device, &format!("{kind:?}: cut {cut}, way {way}"));
                }
            }
        }
        assert!(olds > 20 && news > 20, "{olds} old, {news} new");
    }
}

/// A batch that is given up, by its user or for want of room, leaves the volume as it was and
/// without an error mark.
#[test]
fn given_up_it_leaves_nothing() {
    for full in [false, true] {
        for kind in KINDS {
            let device = image("24M", kind);
            let fs = open(&device, "");
            prepare(&fs);
            let before = describe(&fs);
            fs.unmount().unwrap();
            let fs = open(&device, "");
            let batch = fs.begin_batch().unwrap();
            change(&fs).unwrap();
            let mut refused = None;
            for n in 0..if full { 100_000 } else { 0 } {
                let name = format!("{n:0>200}");
                let new = NewNode::Directory;
                match fs.create(fs.root(), name.as_bytes(), new, 0o755, 0, Creds::default()) {
                    Ok(made) => fs.forget(made.id.ino, 1),
                    Err(error) => {
                        refused = Some((n, error));
                        break;
                    }
                }
            }
            assert_eq!(batch.is_full(), full, "{kind:?} {refused:?}");
            if full {
                assert!(refused.is_some_and(|(n, _)| n > 300), "{kind:?}");
                assert_eq!(batch.commit(), Err(FsError::ReadOnly));
            } else {
                drop(batch);
            }
            assert!(fs.check_gone());
            fs.unmount().unwrap();
            drop(fs);
            assert_eq!(read_only(&device), before);
            open(&device, "").unmount().unwrap();
            assert_clean(&device, "after a batch that was given up");
            assert_eq!(read_only(&device), before);
        }
    }
}

trait Gone {
    fn check_gone(&self) -> bool;
}

impl Gone for Ext4 {
    /// Changes fail.
    fn check_gone(&self) -> bool {
        let made = self.create(self.root(), b"late", NewNode::Fifo, 0o644, 0, Creds::default());
        made == Err(FsError::ReadOnly)
    }
}

#[test]
fn what_a_batch_refuses() {
    let device = image("16M", &["-t", "ext4", "-O", "^has_journal"]);
    let fs = open(&device, "");
    assert_eq!(fs.begin_batch().map(drop), Err(FsError::NoJournal));
    fs.unmount().unwrap();
    let device = image("16M", &["-t", "ext4"]);
    let fs = open(&device, "ro");
    assert_eq!(fs.begin_batch().map(drop), Err(FsError::ReadOnly));
    fs.unmount().unwrap();
    let fs = open(&device, "");
    let first: Batch<'_> = fs.begin_batch().unwrap();
    assert_eq!(fs.begin_batch().map(drop), Err(FsError::Busy));
    let ino = file(&fs, fs.root(), "file");
    fs.write(ino, 0, b"text").unwrap();
    assert_eq!(fs.fsync(ino, false), Err(FsError::Busy));
    assert_eq!(fs.sync(), Err(FsError::Busy));
    let flags = Some(fs.getattr(ino).unwrap().flags | 0x8);
    fs.setattr(ino, &SetAttr { flags, ..SetAttr::default() }).unwrap();
    fs.write(ino, 4, b" synced by a flag").unwrap();
    first.commit().unwrap();
    fs.fsync(ino, false).unwrap();
    assert_eq!(find(&fs, fs.root(), "file"), ino);
    fs.unmount().unwrap();
    assert_clean(&device, "after two batches");
}

/// A full volume ends a batch as any other failure does: what was freed in it is not free yet.
#[test]
fn a_full_volume_within_a_batch() {
    let device = image("16M", &["-t", "ext4", "-J", "size=1", "-b", "1024"]);
    let fs = open(&device, "");
    let root = fs.root();
    let ino = file(&fs, root, "large");
    fs.write(ino, 0, &pattern(1, 9 << 20)).unwrap();
    fs.forget(ino, 1);
    let before = describe(&fs);
    fs.unmount().unwrap();
    let fs = open(&device, "");
    let batch = fs.begin_batch().unwrap();
    fs.unlink(root, b"large").unwrap();
    let ino = file(&fs, root, "other");
    let written = fs.write(ino, 0, &pattern(2, 9 << 20)).and_then(|_| batch.commit());
    assert_eq!(written, Err(FsError::NoSpace));
    fs.unmount().unwrap();
    drop(fs);
    assert_eq!(read_only(&device), before);
    let fs = open(&device, "");
    assert_eq!(describe(&fs), before);
    fs.unmount().unwrap();
    assert_clean(&device, "after a batch on a full volume");
}
