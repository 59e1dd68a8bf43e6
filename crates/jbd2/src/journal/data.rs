//! File data as the journal sees it: which of it is written, which needs an order, and the flushes
//! for it.

use extol_block::BlockNr;
use extol_ondisk::fast_commit::DataChecksum;

use super::Journal;
use super::writes::Covered;
use crate::fast::source::SyncKey;
use crate::log::Log;
use crate::planted;
use crate::types::Result;

impl Journal {
    /// File data was written to the device, and the write has returned. It must be on the medium
    /// before what maps it counts. (There are two other kinds:
    /// [`note_unordered_write`](Self::note_unordered_write),
    /// [`note_checksummed_write`](Self::note_checksummed_write).)
    pub fn note_data_write(&self) {
        self.writes.data.returned();
        self.writes.ordered.returned();
    }

    /// How many writes of file data have been noted.
    #[must_use]
    pub fn data_writes(&self) -> u64 {
        self.writes.data.now()
    }

    /// True if data with checksums saves a flush: fast commits are written, to the device that also
    /// holds the data, and must be durable.
    #[must_use]
    pub fn wants_data_checksums(&self) -> bool {
        self.barrier() && self.fast.tracks() && self.log.get().is_some_and(|log| !log.is_external())
    }

    /// As [`note_data_write`](Self::note_data_write), where nothing depends on the data being on
    /// the medium: it only has to be there when an fsync returns.
    ///
    /// Gives its number, for [`is_covered`](Self::is_covered).
    pub fn note_unordered_write(&self) -> u64 {
        self.writes.data.returned()
    }

    /// True if a flush that began behind that write has ended.
    #[must_use]
    pub fn is_covered(&self, write: u64) -> bool {
        self.writes.data.covered() >= write
    }

    /// As [`note_data_write`](Self::note_data_write), for data that recovery can compare. Old
    /// contents of the blocks may be seen after a crash.
    ///
    /// Gives its number, for [`is_covered`](Self::is_covered).
    pub fn note_checksummed_write(&self, checksums: &[DataChecksum]) -> u64 {
        let write = self.writes.data.returned();
        if !self.wants_data_checksums() || !self.fast.checksums.add(checksums, write) {
            self.writes.ordered.returned();
        }
        write
    }

    /// Must be called before other bytes are written to blocks of a file, by the caller that keeps
    /// others from writing there. `same` says whether a block will begin with the bytes that a
    /// checksum counts, as it does now. May write a fast commit.
    ///
    /// # Errors
    /// As [`make_durable_for`](Self::make_durable_for).
    pub fn about_to_overwrite(
        &self,
        first: BlockNr,
        blocks: u32,
        same: impl Fn(&DataChecksum) -> bool,
    ) -> Result<()> {
        let found = self.fast.checksums.overwritten(first, blocks, same);
        if found.unflushed {
            // The first bytes need their order still, and recovery cannot compare them any more.
            self.writes.ordered.returned();
        }
        if planted::has(planted::Bug::ChecksummedDataOverwritten) {
            return Ok(());
        }
        match found.sent {
            None => Ok(()),
            // Then the last fast commit is another one, or the transaction is in the log.
            Some(tid) => {
                self.fast.counters.overwrites.add(1);
                self.wait_fast(tid, SyncKey::NONE)
            }
        }
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
        if !self.writes.data.is_dirty() || !self.barrier() {
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
        self.writes.data.now()
    }

    /// As [`flush_data`](Self::flush_data), for what was written up to then: what others write
    /// later is theirs to flush.
    pub(crate) fn flush_written(&self, written: u64) -> Result<()> {
        if self.writes.data.covered() < written {
            return self.flush_returned();
        }
        self.counters.flushes_saved.add(1);
        self.check_aborted()
    }

    /// Flushes the file system's device and remembers what that covered. A failure aborts.
    pub(crate) fn flush_device(&self) -> Result<()> {
        let covered = self.writes.begun();
        self.counters.flushes.add(1);
        match self.device.flush() {
            Ok(()) => {
                if planted::has(planted::Bug::FlushCoversLater) {
                    self.note_flush(self.writes.begun());
                }
                self.note_flush(covered);
                Ok(())
            }
            Err(e) => Err(self.abort_by("flush failed", &e.into())),
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

    /// A flush of the file system's device succeeded, and began after `covered` was read.
    pub(crate) fn note_flush(&self, covered: Covered) {
        let (data, home) = self.writes.flushed(covered);
        if data {
            self.fast.checksums.flushed(covered.data);
        }
        if home {
            // The tail may move.
            self.checkpoint_wakeup.wake();
        }
    }
}
