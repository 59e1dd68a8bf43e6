//! The device as pacing sees it: what is written is counted, flushes are timed.

use std::io::IoSlice;
use std::sync::Arc;

use extol_block::{BlockDevice, Result, ScatteredWrite, SharedDevice, Wait};

use super::Pace;

/// Counts and times for a [`Pace`], and changes nothing.
#[derive(Debug)]
pub(crate) struct PacedDevice {
    inner: SharedDevice,
    pace: Arc<Pace>,
}

impl PacedDevice {
    pub(crate) fn new(inner: SharedDevice, pace: Arc<Pace>) -> Self {
        Self { inner, pace }
    }

    /// Counts what a write that has returned may have left in the device's cache, also if it
    /// failed.
    fn count<T>(&self, bytes: u64, result: T) -> T {
        self.pace.wrote(bytes);
        result
    }
}

impl BlockDevice for PacedDevice {
    extol_block::pass_on!(shape, abilities, reads);

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

    // Durable when they return: no flush waits for them.
    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>], wait: Wait) -> Result<()> {
        self.inner.write_scattered_fua(writes, wait)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_fua(buf, offset)
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_mark(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        let flush = self.pace.begin();
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
