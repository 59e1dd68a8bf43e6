//! The device below a [`Throttle`]: counts bytes written and times flushes, and changes nothing.

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{BlockDevice, Result, ScatteredWrite, SharedDevice};

use super::Throttle;

#[derive(Debug)]
pub(crate) struct ThrottledDevice {
    inner: SharedDevice,
    throttle: Arc<Throttle>,
}

impl ThrottledDevice {
    pub(crate) fn new(inner: SharedDevice, throttle: Arc<Throttle>) -> Self {
        Self { inner, throttle }
    }

    /// Counts a write that has returned. One that failed may have left as much in the cache.
    fn count(&self, bytes: u64, result: Result<()>) -> Result<()> {
        self.throttle.wrote(bytes);
        result
    }
}

impl BlockDevice for ThrottledDevice {
    extol_block::pass_on!(shape, abilities, reads, length);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.count(buf.len() as u64, self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let bytes = bufs.iter().map(|b| b.len() as u64).sum();
        self.count(bytes, self.inner.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        let bytes = writes.iter().map(ScatteredWrite::len).sum();
        self.count(bytes, self.inner.write_scattered(writes))
    }

    // Writes with FUA are durable when they return: no flush waits for them.
    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.inner.write_scattered_fua(writes)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_fua(buf, offset)
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_mark(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        let flush = self.throttle.begin_flush();
        let result = self.inner.flush();
        if result.is_ok() {
            flush.succeeded();
        }
        result
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.zero_range(offset, len)
    }
}
