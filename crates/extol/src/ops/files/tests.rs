//! What is acknowledged while an error is stopping the volume, and fsyncs that others do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_block::MemDevice;
use extol_devices::RecordingDevice;
use extol_vfs::VolumeControl as _;
use extol_vfs::{CheckpointFlags, Creds, FileSystem as _, FsError, NewNode};

use crate::Ext4;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::ops::delete::tests::open;

const TEXT: &[u8] = b"written and not yet on the device";

/// Another thread's error has just made the volume read-only, and the journal still works.
#[test]
fn a_volume_that_has_just_become_read_only_acknowledges_nothing_that_is_lost() {
    type SyncIt = fn(&Ext4, u32) -> Result<(), FsError>;
    let ways: [(&str, SyncIt); 3] = [
        ("fsync", |fs, ino| fs.fsync(ino, false)),
        ("fdatasync", |fs, ino| fs.fsync(ino, true)),
        ("sync", |fs, _| fs.sync()),
    ];
    for (how, sync) in ways {
        let base = MemDevice::new(64 << 20);
        mkfs(&base, &MkfsOptions::default(), &mut |_| {}).unwrap();
        let device = Arc::new(RecordingDevice::new(base));
        let fs = open(Arc::<RecordingDevice>::clone(&device));
        let file = fs
            .create(fs.root(), b"file", NewNode::Regular, 0o644, 0, Creds::default())
            .unwrap()
            .id
            .ino;
        fs.write(file, 0, TEXT).unwrap();
        fs.inner().read_only.store(true, Ordering::Release);
        let acknowledged = sync(&fs, file).is_ok();
        let after = open(Arc::new(device.image_at(usize::MAX, |_| false)));
        let found = after.read_file("/file").unwrap_or_default();
        assert!(!acknowledged || found == TEXT, "{how} lies: {found:?}");
        // And an abort that happens meanwhile is reported.
        fs.inner().vol.journal.abort("for the test");
        assert!(matches!(sync(&fs, file), Err(FsError::Io(_))), "{how}");
    }
}

/// A file whose map is damaged has no place for its data. That must not stop other files.
#[test]
fn a_file_that_cannot_be_written_stops_no_other() {
    type SyncIt = fn(&Ext4) -> Result<(), FsError>;
    let ways: [(&str, SyncIt); 2] =
        [("sync", |fs| fs.sync()), ("checkpoint", |fs| fs.checkpoint(CheckpointFlags::empty()))];
    for (how, sync) in ways {
        let base = MemDevice::new(64 << 20);
        mkfs(&base, &MkfsOptions::default(), &mut |_| {}).unwrap();
        let device = Arc::new(RecordingDevice::new(base));
        let fs = open(Arc::<RecordingDevice>::clone(&device));
        let make = |name: &[u8]| {
            fs.create(fs.root(), name, NewNode::Regular, 0o644, 0, Creds::default()).unwrap().id.ino
        };
        let (bad, good) = (make(b"bad"), make(b"good"));
        for ino in [bad, good] {
            fs.write(ino, 0, TEXT).unwrap();
        }
        fs.inner().cell(bad).unwrap().write().unwrap().node.raw.i_block[0] ^= 0xff;
        let first = sync(&fs);
        assert!(matches!(first, Err(FsError::Corrupt { .. })), "{how} must tell: {first:?}");
        let after = open(Arc::new(device.image_at(usize::MAX, |_| false)));
        assert_eq!(after.read_file("/good").unwrap_or_default(), TEXT, "{how} left it in memory");
        fs.fsync(good, false).unwrap();
        // What is lost is not forgotten.
        assert!(matches!(fs.fsync(bad, false), Err(FsError::Corrupt { .. })));
        // And goes with the file.
        fs.unlink(fs.root(), b"bad").unwrap();
        fs.forget(bad, 1);
        sync(&fs).unwrap();
    }
}
