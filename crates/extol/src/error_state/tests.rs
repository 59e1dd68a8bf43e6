//! Which of two errors is recorded.

use std::sync::Arc;

use extol_block::{BlockDevice as _, FileDevice, MemDevice, OpenOptions};
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

fn damage(fs: &Ext4, ino: u64) -> FsError {
    fs.inner().note(Err::<(), _>(FsError::corrupt("damaged").in_inode(ino))).unwrap_err()
}

#[test]
fn what_an_abort_left_half_done_is_no_damage() {
    for options in ["errors=continue", "errors=remount-ro", "errors=panic"] {
        let happens = |fs: &Ext4| {
            fs.inner().vol.journal.abort("the disk went away");
            assert!(matches!(damage(fs, 12), FsError::Io(_)), "{options}");
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
            assert_eq!(damage(fs, 12), FsError::corrupt("damaged").in_inode(12));
            assert_eq!(damage(fs, 13), FsError::corrupt("damaged").in_inode(13));
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

/// The operation that meets it, and the allocator's errors, which the next one records.
#[test]
fn what_another_writer_changed_is_no_damage() {
    for (options, by_the_allocator) in
        [("errors=continue", false), ("errors=continue", true), ("errors=remount-ro", false)]
    {
        let device = Arc::new(MemDevice::new(16 << 20));
        mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
        let mut options = MountOptions::parse(options).unwrap();
        options.background.threads = false;
        let fs = Ext4::open(Arc::<MemDevice>::clone(&device), &options).unwrap();
        let mut bytes = [0; 1024];
        device.read_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let mut sb = Superblock::decode(&bytes).unwrap();
        sb.mtime += 1;
        device.write_at(&sb.encode(), SUPERBLOCK_OFFSET).unwrap();
        let damage = FsError::corrupt("damaged").in_inode(12);
        let inner = fs.inner();
        if by_the_allocator {
            inner.error_state.pending.put(&damage);
            inner.note(Ok(())).unwrap();
        } else {
            let told = inner.note(Err::<(), _>(damage)).unwrap_err();
            assert!(matches!(&told, FsError::Io(why) if why.contains("another")), "{told}");
        }
        let first = fs.first_error().unwrap();
        assert!(first.contains("another program"), "{first}");
        assert!(fs.is_read_only() && fs.sync().is_err());
        device.read_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        assert_eq!(bytes, sb.encode(), "a volume that another has is written");
    }
}

#[test]
fn a_device_that_was_cut_is_the_reason_of_its_failures() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    let device = Arc::new(FileDevice::open(file.path(), &OpenOptions::read_write()).unwrap());
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let mut options = MountOptions::default();
    options.background.threads = false;
    let fs = Ext4::open(device, &options).unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    fs.inner().vol.journal.abort("a write failed");
    fs.inner().note_abort();
    let first = fs.first_error().unwrap();
    assert!(first.contains("was cut to ") && first.contains("of 16777216 bytes"), "{first}");
    assert_eq!(fs.inner().read_only_reason().as_deref(), Some(&*first));
}
