//! What a writeback batch tells the journal, with another flush at the worst moment.
//! (`tests/writeback_batch.rs` tests batches from outside.)

use std::sync::Arc;

use extol_block::{BlockDevice, MemDevice, Result, ScatteredWrite};
use extol_devices::RecordingDevice;
use extol_sync::plain::Mutex;
use extol_vfs::{Creds, FileSystem, NewNode};

use crate::data::writeback;
use crate::mkfs::{MkfsOptions, mkfs};
use crate::{Ext4, MountOptions};

const FILES: u8 = 10;

/// Flushes just before a batch is written.
#[derive(Debug)]
struct FlushBefore {
    inner: Arc<RecordingDevice>,
    fs: Mutex<Option<Arc<Ext4>>>,
}

impl BlockDevice for FlushBefore {
    extol_block::pass_on!(shape, abilities, reads, ends);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        if let Some(fs) = self.fs.lock().take() {
            fs.inner().vol.journal.flush_data().unwrap();
        }
        self.inner.write_scattered(writes)
    }
}

/// A flush that began before a batch was written does not make it durable, so a fast commit that
/// maps a file of the batch flushes again.
#[test]
fn an_earlier_flush_does_not_cover_a_batch() {
    let base = MemDevice::new(64 << 20);
    let features = vec!["fast_commit".to_owned()];
    mkfs(&base, &MkfsOptions { features, ..MkfsOptions::default() }, &mut |_| {}).unwrap();
    let inner = Arc::new(RecordingDevice::new(base));
    let dev = Arc::new(FlushBefore { inner: Arc::clone(&inner), fs: Mutex::new(None) });
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(Arc::clone(&dev) as _, &options).unwrap();
    let make = |n: u8| {
        let name = [b'a' + n];
        fs.create(fs.root(), &name, NewNode::Regular, 0o644, 0, Creds::default()).unwrap().id.ino
    };
    let files: Vec<u32> = (0..FILES).map(make).collect();
    fs.sync().unwrap();
    // The first fast commit flushes in any case.
    fs.write(files[0], 0, b"first").unwrap();
    fs.fsync(files[0], false).unwrap();
    for (n, ino) in (0..).zip(&files).skip(1) {
        assert_eq!(fs.write(*ino, 0, &[n; 5000]), Ok(5000));
    }
    *dev.fs.lock() = Some(Arc::clone(&fs));
    writeback::flush_all(fs.inner()).unwrap();
    assert!(dev.fs.lock().is_none(), "there was a batch");
    let fast_commits = || fs.stats().journal.fast_commit.commits;
    let (begin, before) = (inner.position(), fast_commits());
    fs.fsync(files[1], false).unwrap();
    assert_eq!(fast_commits(), before + 1);
    let mut complete = 0;
    for cut in begin + 1..=inner.position() {
        // Everything flushed before, and all of the fsync.
        let after = Ext4::open(Arc::new(inner.image_at(cut, |i| i >= begin)), &options).unwrap();
        let content = after.read_file("/b").unwrap();
        assert!(
            content.is_empty() || content == [1; 5000],
            "after a crash at {cut}: {} bytes",
            content.len()
        );
        complete += usize::from(!content.is_empty());
        after.unmount().unwrap();
    }
    assert!(complete > 0);
    fs.unmount().unwrap();
}
