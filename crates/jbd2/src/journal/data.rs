//! Which writes in place a flush has covered: file data, and blocks that a checkpoint wrote home.
//!
//! Each kind is counted when a write has returned; a flush covers those counted before it began. So
//! a second flush for the same writes can be left out: the covered count never passes what was read
//! before the flush was asked for.
//!
//! ```text
//!   home writes  ──┤1   ──┤2        ──┤3
//!   commit's flush          ├───────────┤     covers 2: the tail may move past what 1 and 2 wrote, not past 3
//! ```

use extol_sync::atomic::{AtomicU64, Ordering};

use super::Journal;
use crate::log::Log;
use crate::types::Result;

/// Writes of one kind.
#[derive(Debug)]
pub(crate) struct Coverage {
    returned: AtomicU64,
    covered: AtomicU64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { returned: AtomicU64::new(0), covered: AtomicU64::new(0) }
    }
}

impl Coverage {
    /// One more has returned. Gives their number: a flush that begins from now on covers so many.
    pub fn returned(&self) -> u64 {
        self.returned.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// How many a flush has covered.
    pub fn covered(&self) -> u64 {
        self.covered.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        self.returned.load(Ordering::Acquire)
    }

    pub fn is_dirty(&self) -> bool {
        self.now() > self.covered()
    }

    /// True if that is more than before.
    fn flushed(&self, count: u64) -> bool {
        self.covered.fetch_max(count, Ordering::AcqRel) < count
    }
}

/// What a flush that begins now covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covered {
    data: u64,
    ordered: u64,
    home: u64,
}

impl Journal {
    /// The file system wrote file data to the device; the write has returned. It must be on the
    /// medium before what maps it counts. (There are two other kinds:
    /// [`note_free_write`](Self::note_free_write),
    /// [`note_checksummed_write`](Self::note_checksummed_write).)
    pub fn note_data_write(&self) {
        self.data_writes.returned();
        self.note_ordered_write();
    }

    /// One of the data writes that were noted is ordered.
    pub(crate) fn note_ordered_write(&self) {
        self.ordered_writes.returned();
    }

    /// True if each commit makes durable what was written (and told of) before its handles were
    /// opened, before it is durable itself. Else a caller that needs that order must
    /// [flush](Self::flush_data) before opening a handle.
    #[must_use]
    pub fn commits_after_data(&self) -> bool {
        self.has_log() && !self.async_commit
    }

    /// Makes all file data written so far durable; does nothing if a later flush has already done
    /// so.
    ///
    /// # Errors
    /// If the flush fails (the journal is aborted then), or was aborted before.
    pub fn flush_data(&self) -> Result<()> {
        self.check_aborted()?;
        self.write_deferred()?;
        self.flush_returned()
    }

    /// As that, for writes that have returned.
    fn flush_returned(&self) -> Result<()> {
        self.check_aborted()?;
        if !self.data_is_dirty() || !self.barrier() {
            self.counters.flushes_saved.add(1);
            return Ok(());
        }
        self.flush_device()?;
        // If another thread's flush failed meanwhile, it may have been told about our data instead
        // of us.
        self.check_aborted()
    }

    /// File data written so far, for [`flush_written`](Self::flush_written).
    pub(crate) fn data_written(&self) -> u64 {
        self.data_writes.now()
    }

    /// As [`flush_data`](Self::flush_data), for what was written up to then: what others write
    /// later is theirs to flush.
    pub(crate) fn flush_written(&self, written: u64) -> Result<()> {
        if self.data_writes.covered() < written {
            return self.flush_returned();
        }
        self.counters.flushes_saved.add(1);
        self.check_aborted()
    }

    pub(crate) fn data_is_dirty(&self) -> bool {
        self.data_writes.is_dirty()
    }

    /// A write waits for a flush of the file system's device.
    pub(crate) fn anything_is_dirty(&self) -> bool {
        self.data_writes.is_dirty() || self.ordered_writes.is_dirty() || self.home_writes.is_dirty()
    }

    /// Flushes the file system's device and remembers what that covered. A failure aborts.
    pub(crate) fn flush_device(&self) -> Result<()> {
        let covered = self.data_writes_begun();
        self.counters.flushes.add(1);
        match self.device.flush() {
            Ok(()) => {
                #[cfg(feature = "planted-bugs")]
                if crate::planted::has(crate::planted::Bug::FlushCoversLater) {
                    self.data_flushed(self.data_writes_begun());
                }
                self.data_flushed(covered);
                Ok(())
            }
            Err(e) => Err(self.abort(&format!("flush failed: {e}"))),
        }
    }

    /// Writes to the log with `write` (whose argument says whether with FUA), durable on return if
    /// there are barriers. Where a durable write is a write and a flush, the flush is one like all
    /// others: it covers what was written before it.
    pub(crate) fn write_durably(
        &self,
        log: &Log,
        write: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        if !self.barrier() || !log.fua_is_flush() {
            return write(self.barrier());
        }
        self.write_and_flush(|| write(false))
    }

    /// A write of any kind, durable on return with all that was written before it, by a flush of
    /// the file system's device.
    pub(crate) fn write_and_flush(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        write()?;
        self.flush_device()?;
        // If another thread's flush failed meanwhile, it may have been told about our write instead
        // of us.
        self.check_aborted()
    }

    /// What a flush of the file system's device covers if it begins now or later.
    pub(crate) fn data_writes_begun(&self) -> Covered {
        Covered {
            data: self.data_writes.now(),
            ordered: self.ordered_writes.now(),
            home: self.home_writes.now(),
        }
    }

    /// A flush of the file system's device succeeded, and began after `covered` was read.
    pub(crate) fn data_flushed(&self, covered: Covered) {
        self.ordered_writes.flushed(covered.ordered);
        if self.data_writes.flushed(covered.data) {
            self.fast.checksums.flushed(covered.data);
        }
        if self.home_writes.flushed(covered.home) {
            // The tail may move.
            self.checkpoint_wakeup.wake();
        }
    }
}
