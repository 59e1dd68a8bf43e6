//! Which file data a flush has covered.
//!
//! The file system tells of each data write when it has returned; a flush covers those told of before it began. So a
//! second flush for the same data can be left out: `flushed_writes` never passes the count that was read before the
//! flush was asked for.

use extol_sync::atomic::Ordering;

use super::Journal;
use crate::types::Result;

impl Journal {
    /// The file system wrote file data to the device; the write has returned.
    pub fn note_data_write(&self) {
        self.data_writes.fetch_add(1, Ordering::AcqRel);
    }

    /// True if each commit makes durable what was written (and told of) before its handles were opened, before it is
    /// durable itself. Else who needs that order must [flush](Self::flush_data) before opening a handle.
    #[must_use]
    pub fn commits_after_data(&self) -> bool {
        self.has_log() && !self.async_commit
    }

    /// Makes all file data written so far durable; does nothing if a later flush has already done so.
    ///
    /// # Errors
    /// If the flush fails (the journal is aborted then), or was aborted before.
    pub fn flush_data(&self) -> Result<()> {
        self.check_aborted()?;
        if !self.data_is_dirty() || !self.barrier() {
            self.counters.flushes_saved.add(1);
            return Ok(());
        }
        self.flush_device()?;
        // If another thread's flush failed meanwhile, it may have been told about our data instead of us.
        self.check_aborted()
    }

    pub(crate) fn data_is_dirty(&self) -> bool {
        self.data_writes.load(Ordering::Acquire) > self.flushed_writes.load(Ordering::Acquire)
    }

    /// Flushes the file system's device and remembers what that covered. A failure aborts.
    pub(crate) fn flush_device(&self) -> Result<()> {
        let covered = self.data_writes.load(Ordering::Acquire);
        self.counters.flushes.add(1);
        match self.device.flush() {
            Ok(()) => {
                self.data_flushed(covered);
                Ok(())
            }
            Err(e) => Err(self.abort(&format!("flush failed: {e}"))),
        }
    }

    pub(crate) fn data_writes_begun(&self) -> u64 {
        self.data_writes.load(Ordering::Acquire)
    }

    pub(crate) fn data_flushed(&self, covered: u64) {
        self.flushed_writes.fetch_max(covered, Ordering::AcqRel);
    }
}
