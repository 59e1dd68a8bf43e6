//! The device as the cache sees it: every change that has returned.

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{BlockDevice, Result, ScatteredWrite, SharedDevice, Wait};

use super::DataCache;

/// Tells a [`DataCache`] what was written, and changes nothing.
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
    fn note(&self, bufs: &[IoSlice<'_>], offset: u64, result: Result<()>) -> Result<()> {
        match &result {
            Ok(()) => self.cache.wrote(offset, bufs),
            Err(_) => self.cache.gone(offset, bufs.iter().map(|buf| buf.len() as u64).sum()),
        }
        result
    }

    /// After a change to bytes that are not known.
    fn forget(&self, offset: u64, len: u64, result: Result<()>) -> Result<()> {
        self.cache.gone(offset, len);
        result
    }

    fn note_batch(&self, writes: &[ScatteredWrite<'_>], result: Result<()>) -> Result<()> {
        for write in writes {
            match &result {
                Ok(()) => self.cache.wrote(write.offset, write.bufs),
                // Which of them failed is not known.
                Err(_) => self.cache.gone(write.offset, write.len()),
            }
        }
        result
    }
}

impl BlockDevice for CachedDevice {
    extol_block::pass_on!(shape, abilities, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note(&[IoSlice::new(buf)], offset, self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.note(bufs, offset, self.inner.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.note_batch(writes, self.inner.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>], wait: Wait) -> Result<()> {
        // It may have been a flush that failed.
        let written =
            self.inner.write_scattered_fua(writes, wait).inspect_err(|_| self.cache.forget_all());
        self.note_batch(writes, written)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        let written = self.inner.write_fua(buf, offset).inspect_err(|_| self.cache.forget_all());
        self.note(&[IoSlice::new(buf)], offset, written)
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note(&[IoSlice::new(buf)], offset, self.inner.write_mark(buf, offset))
    }

    /// After a failed flush nobody knows which writes the device still has.
    fn flush(&self) -> Result<()> {
        self.inner.flush().inspect_err(|_| self.cache.forget_all())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.forget(offset, len, self.inner.discard(offset, len))
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.forget(offset, len, self.inner.zero_range(offset, len))
    }
}
