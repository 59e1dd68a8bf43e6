//! How many transactions the deletion of a file takes, and what is left when it fails.

use std::sync::Arc;

use extol_block::{MemDevice, SharedDevice};
use extol_check::CheckOptions;
use extol_vfs::Mountable as _;
use extol_vfs::{Fallocate, FileSystem as _, FsError, RenameFlags, SetAttr, SetTime};

use crate::data::flush;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

pub(crate) fn volume() -> (Arc<MemDevice>, Arc<Ext4>) {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    (Arc::clone(&device), open(device))
}

/// Opens a volume without threads of its own.
pub(crate) fn open(device: SharedDevice) -> Arc<Ext4> {
    Ext4::open(device, &MountOptions::default().without_threads()).unwrap()
}

/// Handles that `work` opens, in a volume without threads of its own.
pub(crate) fn handles(fs: &Ext4, work: impl FnOnce()) -> u64 {
    let now = || {
        // (They are counted by the commit.)
        fs.sync().unwrap();
        fs.stats().journal.handles
    };
    now();
    let before = now();
    let idle = now() - before;
    let before = now();
    work();
    now() - before - idle
}

/// Free blocks and inodes, orphans.
fn left(fs: &Ext4) -> (u64, u64, usize) {
    fs.sync().unwrap();
    let stats = fs.stats();
    (stats.free_blocks, stats.free_inodes, fs.inner().orphans.len())
}

fn close(device: &Arc<MemDevice>, fs: &Ext4) {
    fs.unmount().unwrap();
    let report =
        extol_check::check(Arc::<MemDevice>::clone(device), &CheckOptions::default(), &mut |_| {});
    let report = report.unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_replaced_file_goes_with_its_name_too() {
    let (device, fs) = volume();
    fs.write_file("new", vec![1; 9000]).unwrap();
    let before = left(&fs);
    fs.write_file("old", vec![2; 9000]).unwrap();
    fs.sync().unwrap();
    let root = fs.root();
    let replace = || fs.rename(root, b"new", root, b"old", RenameFlags::empty()).unwrap();
    assert_eq!(handles(&fs, replace), 1);
    assert_eq!(left(&fs), before);
    assert_eq!(fs.read_file("old").unwrap(), [1; 9000]);
    close(&device, &fs);
}

#[test]
fn a_referenced_file_is_an_orphan_until_its_last_reference_goes() {
    let (device, fs) = volume();
    let before = left(&fs);
    fs.write_file("a", "contents").unwrap();
    let node = fs.inode("a").unwrap();
    fs.remove_file("a").unwrap();
    assert_eq!(left(&fs).2, 1);
    let mut bytes = [0; 8];
    assert_eq!(fs.read(node.ino(), 0, &mut bytes), Ok(8));
    assert_eq!(handles(&fs, || drop(node)), 1, "blocks and inode together");
    assert_eq!(left(&fs), before);
    close(&device, &fs);
}

/// Writeback waits for the lock of a file that is deleted meanwhile. The number is that of another
/// file by then, whose data must not be forgotten.
#[test]
fn a_waiter_for_a_deleted_file_leaves_the_next_one_alone() {
    let (device, fs) = volume();
    let inner = fs.inner();
    fs.write_file("a", vec![1; 9000]).unwrap();
    let node = fs.inode("a").unwrap();
    let ino = node.ino();
    fs.remove_file("a").unwrap();
    let waits = inner.cell(ino).unwrap();
    // As by the thread that takes the last reference, before the cell leaves the table.
    super::delete(inner, &mut waits.write().unwrap()).unwrap();
    fs.sync().unwrap();
    fs.write_file("b", vec![2; 9000]).unwrap();
    assert_eq!(fs.inode("b").unwrap().ino(), ino, "the first free one");
    assert_eq!(inner.dirty.len(), 1);
    if let Ok(mut st) = waits.write() {
        flush::flush(inner, &mut st).unwrap();
    }
    assert_eq!(inner.dirty.len(), 1, "it still is to be written");
    drop(node);
    close(&device, &fs);
    assert_eq!(open(device).read_file("b").unwrap(), [2; 9000]);
}

#[test]
fn a_large_file_takes_more() {
    let (device, fs) = volume();
    let before = left(&fs);
    let file = fs.create_file("large").unwrap();
    fs.fallocate(file.inode().ino(), Fallocate::Allocate { keep_size: false }, 0, 20 << 20)
        .unwrap();
    drop(file);
    fs.sync().unwrap();
    assert!(handles(&fs, || fs.remove_file("large").unwrap()) > 1);
    assert_eq!(left(&fs), before);
    close(&device, &fs);
}

/// The name is removed all the same, and the orphan list keeps the inode.
#[test]
fn what_cannot_be_deleted_stays_an_orphan() {
    let (_device, fs) = volume();
    fs.write_file("a", vec![1; 20_000]).unwrap();
    let ino = fs.inode("a").unwrap().ino();
    fs.sync().unwrap();
    {
        let cell = fs.inner().cell(ino).unwrap();
        // The block of its attributes: the superblock's.
        cell.write().unwrap().node.raw.file_acl = 1;
    }
    fs.remove_file("a").unwrap();
    assert!(!fs.exists("a"));
    assert!(fs.inner().orphans.contains(ino));
    assert!(fs.first_error().is_some());
}

/// Makes a file that the front end refers to; gives its number.
fn referenced(fs: &Arc<Ext4>, name: &str, size: usize) -> u32 {
    fs.write_file(name, vec![7; size]).unwrap();
    fs.sync().unwrap();
    fs.lookup(fs.root(), name.as_bytes()).unwrap().id.ino
}

#[test]
fn a_referenced_file_that_is_not_open_is_deleted_with_its_name() {
    let (device, fs) = volume();
    fs.count_opens();
    let before = left(&fs);
    let ino = referenced(&fs, "a", 9000);
    assert_eq!(handles(&fs, || fs.unlink(fs.root(), b"a").unwrap()), 1);
    assert_eq!(left(&fs), before);
    // The cell tells its attributes, takes the times that the kernel writes back, and nothing else.
    let attr = fs.getattr(ino).unwrap();
    assert_eq!((attr.nlink, attr.size), (0, 9000));
    let times = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
    let written_back = || assert_eq!(fs.setattr(ino, &times).unwrap().nlink, 0);
    assert_eq!(handles(&fs, written_back), 0);
    let mode = SetAttr { perm: Some(0o600), ..SetAttr::default() };
    assert_eq!(fs.setattr(ino, &mode), Err(FsError::Stale));
    assert_eq!(fs.opened(ino), Err(FsError::Stale));
    assert_eq!(fs.read(ino, 0, &mut [0]), Err(FsError::Stale));
    assert_eq!(fs.write(ino, 0, b"x"), Err(FsError::Stale));
    assert_eq!(fs.link(ino, fs.root(), b"b"), Err(FsError::Stale));
    assert_eq!(fs.open_by_number(ino), Err(FsError::Stale));
    // Its number is held as long as it is referenced, even once the deletion is durable.
    let new = |name: &str| {
        fs.write_file(name, "").unwrap();
        fs.inode(name).unwrap().ino()
    };
    assert!((0..20).all(|n| new(&format!("new{n}")) != ino));
    fs.forget(ino, 1);
    assert!(fs.getattr(ino).is_err() || fs.getattr(ino).unwrap().nlink == 0);
    assert!((20..40).any(|n| new(&format!("new{n}")) == ino), "the first free one");
    fs.forget(ino, 1);
    assert_eq!(fs.stats().inodes_known, 0);
    close(&device, &fs);
}

#[test]
fn an_open_file_outlives_its_name() {
    let (device, fs) = volume();
    fs.count_opens();
    let before = left(&fs);
    let mut bytes = [0; 8];
    // Forgotten last, as the kernel sends it, and closed last, as it may arrive.
    for forgotten_last in [true, false] {
        let ino = referenced(&fs, "a", 9000);
        fs.opened(ino).unwrap();
        fs.opened(ino).unwrap();
        fs.closed(ino);
        fs.unlink(fs.root(), b"a").unwrap();
        assert_eq!(left(&fs).2, 1);
        assert_eq!(fs.read(ino, 0, &mut bytes), Ok(8));
        let end =
            |last: bool| if last == forgotten_last { fs.forget(ino, 1) } else { fs.closed(ino) };
        end(false);
        assert_eq!(fs.read(ino, 0, &mut bytes), Ok(8));
        end(true);
        assert_eq!(left(&fs), before);
    }
    close(&device, &fs);
}

#[test]
fn a_referenced_directory_outlives_its_name() {
    let (device, fs) = volume();
    fs.count_opens();
    fs.create_dir("dir").unwrap();
    let dir = fs.lookup(fs.root(), b"dir").unwrap().id.ino;
    fs.rmdir(fs.root(), b"dir").unwrap();
    assert_eq!(left(&fs).2, 1, "it may be a working directory");
    fs.forget(dir, 1);
    assert_eq!(left(&fs).2, 0);
    close(&device, &fs);
}

/// The last free inode is that of a deleted file that is still referenced: a creation waits for it,
/// a moment.
#[test]
fn the_last_inode_comes_free_when_it_is_forgotten() {
    let (device, fs) = volume();
    fs.count_opens();
    let first = referenced(&fs, "first", 0);
    let full = (0..100_000).find_map(|n| fs.write_file(format!("f{n}"), "").err());
    assert_eq!(full, Some(FsError::NoSpace));
    fs.unlink(fs.root(), b"first").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.write_file("again", "").unwrap_err(), FsError::NoSpace, "still referenced");
    std::thread::scope(|scope| {
        let again = scope.spawn(|| fs.write_file("again", ""));
        std::thread::sleep(std::time::Duration::from_millis(5));
        fs.forget(first, 1);
        again.join().unwrap().unwrap();
    });
    assert_eq!(fs.inode("again").unwrap().ino(), first);
    close(&device, &fs);
}

/// The number is held, and then the file cannot be deleted: it must be as it was.
#[test]
fn a_failed_deletion_releases_the_number() {
    let (_device, fs) = volume();
    fs.count_opens();
    let ino = referenced(&fs, "a", 20_000);
    {
        let cell = fs.inner().cell(ino).unwrap();
        // The block of its attributes: the superblock's.
        cell.write().unwrap().node.raw.file_acl = 1;
    }
    fs.unlink(fs.root(), b"a").unwrap();
    assert!(fs.inner().orphans.contains(ino));
    assert!(fs.opened(ino).is_ok());
    assert!(!fs.inner().table.is_held(ino));
}

/// Threads that create and delete where hardly an inode is free take each other's numbers in the
/// transaction that frees them (DL-4).
#[test]
fn a_number_is_free_when_its_inode_is_gone() {
    let device = Arc::new(MemDevice::new(64 << 20));
    let options = MkfsOptions { inodes: Some(64), ..MkfsOptions::default() };
    mkfs(&*device, &options, &mut |_| {}).unwrap();
    let fs = Ext4::open(Arc::<MemDevice>::clone(&device), &MountOptions::default()).unwrap();
    for thread in 0..3 {
        fs.create_dir(format!("/{thread}")).unwrap();
    }
    let free = fs.statfs().unwrap().inodes_free;
    (1..free).for_each(|nr| drop(fs.create_file(format!("/filler {nr}")).unwrap()));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let fs = &fs;
            scope.spawn(move || {
                for nr in 0..60_000 {
                    let path = format!("/{thread}/{}", nr % 8);
                    let made = fs.create_file(&path).map(drop);
                    match made.and_then(|()| fs.remove_file(&path)) {
                        Ok(()) | Err(FsError::NoSpace) => {}
                        Err(error) => panic!("file {nr} of thread {thread}: {error}"),
                    }
                }
            });
        }
    });
    close(&device, &fs);
}
