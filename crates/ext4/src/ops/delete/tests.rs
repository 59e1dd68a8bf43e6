//! How many transactions a file's end takes, and what is left when it cannot end.

use std::sync::Arc;

use extol_check::CheckOptions;
use extol_device::MemDevice;
use extol_vfs::{Fallocate, FileSystem as _, RenameFlags};

use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

fn volume() -> (Arc<MemDevice>, Arc<Ext4>) {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let options = MountOptions { threads: false, ..MountOptions::default() };
    (Arc::clone(&device), Ext4::open(device, &options).unwrap())
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
    let report = extol_check::check(Arc::<MemDevice>::clone(device), &CheckOptions::default(), &mut |_| {});
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
fn a_referenced_file_is_an_orphan_until_nobody_knows_it() {
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

#[test]
fn a_large_file_takes_more() {
    let (device, fs) = volume();
    let before = left(&fs);
    let file = fs.create_file("large").unwrap();
    fs.fallocate(file.inode().ino(), Fallocate::Allocate { keep_size: false }, 0, 20 << 20).unwrap();
    drop(file);
    fs.sync().unwrap();
    assert!(handles(&fs, || fs.remove_file("large").unwrap()) > 1);
    assert_eq!(left(&fs), before);
    close(&device, &fs);
}

/// The name goes all the same, and nothing forgets the inode.
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
    assert!(fs.trouble().is_some());
}
