//! A directory moves, and one below it is fsynced: the new path is durable, as on Linux, even if
//! nothing changed in the fsynced directory.

#![allow(missing_docs)]

use std::sync::Arc;

use extol::device::MemDevice;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, FileSystem as _, MountOptions};
use extol_devices::RecordingDevice;

#[test]
fn an_fsync_below_a_moved_directory_makes_the_move_durable() {
    for features in ["fast_commit", "^fast_commit"] {
        for synced in [true, false] {
            let base = MemDevice::new(64 << 20);
            let options =
                MkfsOptions { features: vec![features.to_owned()], ..MkfsOptions::default() };
            mkfs(&base, &options, &mut |_| {}).unwrap();
            let dev = Arc::new(RecordingDevice::new(base));
            let options = MountOptions::default().without_threads();
            let fs = Ext4::open(Arc::clone(&dev) as _, &options).unwrap();
            fs.create_dir_all("a/b/c").unwrap();
            fs.create_dir("d").unwrap();
            fs.write_file("a/b/c/file", b"content").unwrap();
            fs.sync().unwrap();
            fs.rename_path("a/b", "d/e").unwrap();
            if synced {
                let below = fs.inode("d/e/c").unwrap();
                fs.fsync(below.ino(), false).unwrap();
            }
            let crashed = Arc::new(dev.image_at(dev.position(), |_| false));
            let after = Ext4::open(crashed, &options).unwrap();
            let (old, new) = (after.exists("a/b/c/file"), after.exists("d/e/c/file"));
            assert_eq!((old, new), (!synced, synced), "{features}");
        }
    }
}
