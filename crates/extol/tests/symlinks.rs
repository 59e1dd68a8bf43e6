//! Deletion of symbolic links.

use extol::device::MemDevice;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::FileSystem;
use extol::{Ext4, MountOptions};
use std::sync::Arc;

fn volume() -> MemDevice {
    let volume = MemDevice::new(8 << 20);
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.journal.size_mib = Some(1);
    mkfs(&volume, &options, &mut |_| {}).unwrap();
    volume
}

/// The block of a long link and its inode are freed through one handle, so by one transaction:
/// deleting a long link takes as many handles as deleting one that is kept inside its inode.
#[test]
fn a_long_link_goes_through_one_handle() {
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(Arc::new(volume()), &options).unwrap();
    let handles_of_deleting = |target: String| {
        fs.symlink(target, "/link").unwrap();
        fs.sync().unwrap();
        let before = fs.stats().journal.handles;
        fs.remove_file("/link").unwrap();
        fs.sync().unwrap();
        fs.stats().journal.handles - before
    };
    let short = handles_of_deleting("x".repeat(50));
    assert!(short > 0);
    assert_eq!(handles_of_deleting("x".repeat(500)), short);
    fs.unmount().unwrap();
}
