//! The lock order of docs/design/lock-order.md, broken on purpose on a real volume: each step
//! must be refused.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use extol_block::MemDevice;
use extol_vfs::{Creds, FileSystem as _, NewNode};

use crate::alloc::SuperCell;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

/// Runs something that takes a lock; true if the order forbids it.
#[track_caller]
fn refused<T>(step: impl FnOnce() -> T) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(step()))) else { return false };
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(text.starts_with("lock order"), "another panic: {text}");
    true
}

#[test]
fn against_the_order() {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let ext4 = Ext4::open(device, &MountOptions::default()).unwrap();
    let fs = ext4.inner();
    let make = |name: &str, kind: NewNode| {
        ext4.create(ext4.root(), name.as_bytes(), kind, 0o755, 0, Creds::default()).unwrap().id.ino
    };
    let dirs = [make("d", NewNode::Directory), make("e", NewNode::Directory)]
        .map(|ino| fs.cell(ino).unwrap());
    let mut files = [make("f", NewNode::Regular), make("g", NewNode::Regular)];
    files.sort_unstable();
    let files = files.map(|ino| fs.cell(ino).unwrap());

    // 1 and 2: the rename lock, directories, files in ascending order.
    {
        let _dir = dirs[0].write().unwrap();
        assert!(refused(|| fs.rename.lock()), "rename lock inside an inode lock");
        assert!(refused(|| dirs[1].read().map(drop)), "two directories without the rename lock");
        let _file = files[0].read().unwrap();
        assert!(!refused(|| files[1].write().map(drop)));
        assert!(refused(|| dirs[1].write().map(drop)), "a directory inside a file");
    }
    {
        let _still = fs.rename.lock();
        let _dir = dirs[1].write().unwrap();
        assert!(!refused(|| dirs[0].write().map(drop)));
    }
    {
        let _file = files[1].write().unwrap();
        assert!(refused(|| files[0].write().map(drop)), "files must ascend");
        assert!(refused(|| files[1].read().map(drop)), "twice the same");
    }
    // 3: a handle comes after inodes and before all else.
    {
        let handle = fs.start(1).unwrap();
        assert!(refused(|| files[0].read().map(drop)), "an inode lock inside a handle");
        assert!(refused(|| fs.start(1)), "a handle inside a handle");
        handle.stop().unwrap();
        let sb: &SuperCell = &fs.sb;
        assert!(refused(|| sb.read(|_| drop(fs.start(1)))), "a handle inside the superblock lock");
        assert!(
            refused(|| sb.read(|_| drop(files[0].read()))),
            "an inode lock inside the superblock lock"
        );
    }
    ext4.unmount().unwrap();
}
