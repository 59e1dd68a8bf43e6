//! Which of two errors is recorded.

use std::sync::Arc;

use extol_block::{BlockDevice as _, MemDevice};
use extol_ondisk::Superblock;
use extol_ondisk::superblock::{SUPERBLOCK_OFFSET, State};
use extol_vfs::{FileSystem as _, FsError};

use super::record::{CORRUPTED, IO};
use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

/// Count, code and inode of the only error on the disk, after `happens`.
fn noted(options: &str, happens: impl FnOnce(&Ext4)) -> (u32, u8, u32) {
    let device = Arc::new(MemDevice::new(16 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let mut options = MountOptions::parse(options).unwrap();
    options.background.threads = false;
    let fs = Ext4::open(Arc::<MemDevice>::clone(&device), &options).unwrap();
    happens(&fs);
    assert!(fs.is_read_only() && fs.sync().is_err());
    let mut bytes = [0; 1024];
    device.read_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
    let sb = Superblock::decode(&bytes).unwrap();
    assert!(sb.state.contains(State::ERROR));
    assert_eq!(
        (sb.first_error_errcode, sb.first_error_ino),
        (sb.last_error_errcode, sb.last_error_ino)
    );
    (sb.error_count, sb.first_error_errcode, sb.first_error_ino)
}

fn damage(fs: &Ext4, ino: u64) {
    let _ = fs.inner().note(Err::<(), _>(FsError::corrupt("damaged").in_inode(ino)));
}

#[test]
fn what_an_abort_left_half_done_is_no_damage() {
    for options in ["errors=continue", "errors=remount-ro", "errors=panic"] {
        let happens = |fs: &Ext4| {
            fs.inner().vol.journal.abort("the disk went away");
            damage(fs, 12);
            assert_eq!(fs.first_error().as_deref(), Some("the disk went away"), "{options}");
        };
        assert_eq!(noted(options, happens), (1, IO, 0), "{options}");
    }
}

/// By the operation that meets it, or by one that only finds the journal aborted.
#[test]
fn damage_that_aborts_is_noted_as_damage() {
    for options in ["errors=remount-ro", "errors=panic"] {
        let happens = |fs: &Ext4| {
            damage(fs, 12);
            damage(fs, 13);
        };
        assert_eq!(noted(options, happens), (1, CORRUPTED, 12), "{options}");
        let by_another = |fs: &Ext4| {
            let _ = fs.inner().error_state.cause.set((CORRUPTED, 12, 0));
            fs.inner().vol.journal.abort("damaged");
            fs.inner().note_abort();
        };
        assert_eq!(noted(options, by_another), (1, CORRUPTED, 12), "{options}");
    }
}
