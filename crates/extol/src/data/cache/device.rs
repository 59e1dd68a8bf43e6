//! The device below the cache: passes every change on, then updates the cache (PC-1).

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{BlockDevice, Result, ScatteredWrite, SharedDevice};

use super::DataCache;

#[derive(Debug)]
pub(crate) struct CachedDevice {
    inner: SharedDevice,
    cache: Arc<DataCache>,
}

impl CachedDevice {
    pub(crate) fn new(inner: SharedDevice, cache: Arc<DataCache>) -> Self {
        Self { inner, cache }
    }

    /// After a write of these bytes.
    fn update(&self, bufs: &[IoSlice<'_>], offset: u64, result: Result<()>) -> Result<()> {
        match &result {
            Ok(()) => self.cache.wrote(offset, bufs),
            Err(_) => self.cache.invalidate(offset, bufs.iter().map(|buf| buf.len() as u64).sum()),
        }
        result
    }

    /// After a change to unknown bytes.
    fn drop_range(&self, offset: u64, len: u64, result: Result<()>) -> Result<()> {
        self.cache.invalidate(offset, len);
        result
    }

    fn update_batch(&self, writes: &[ScatteredWrite<'_>], result: Result<()>) -> Result<()> {
        for write in writes {
            match &result {
                Ok(()) => self.cache.wrote(write.offset, write.bufs),
                // Which write failed is unknown.
                Err(_) => self.cache.invalidate(write.offset, write.len()),
            }
        }
        result
    }
}

impl BlockDevice for CachedDevice {
    extol_block::pass_on!(shape, abilities, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.update(&[IoSlice::new(buf)], offset, self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.update(bufs, offset, self.inner.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.update_batch(writes, self.inner.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        // The failure may be one of a flush.
        let written =
            self.inner.write_scattered_fua(writes).inspect_err(|_| self.cache.invalidate_all());
        self.update_batch(writes, written)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        let written =
            self.inner.write_fua(buf, offset).inspect_err(|_| self.cache.invalidate_all());
        self.update(&[IoSlice::new(buf)], offset, written)
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.update(&[IoSlice::new(buf)], offset, self.inner.write_mark(buf, offset))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush().inspect_err(|_| self.cache.invalidate_all())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.drop_range(offset, len, self.inner.discard(offset, len))
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.drop_range(offset, len, self.inner.zero_range(offset, len))
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        let old = self.size();
        let from = bytes.min(old);
        self.drop_range(from, old - from, self.inner.set_size(bytes))
    }
}
