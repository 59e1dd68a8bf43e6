//! A batch of changes that becomes durable as one, or not at all.
//!
//! The journal keeps all changes in one transaction (`extol_jbd2::Batch`). What is left for the
//! file system is file data, which the journal does not hold. New data goes to blocks that were
//! free when the batch began, since blocks that it frees are not used again before its commit. A
//! truncate copies the part of the last block that stays to a new block, instead of zeroing the
//! rest in place (`data::truncate`). Overwriting what a file held before the batch is not part of
//! it.
//!
//! A batch that is given up ends the volume as a power cut would: all that was changed is in memory
//! alone, and the next opening has nothing to replay.

use extol_vfs::{FsError, Result, Shutdown, VolumeControl as _};

use super::Ext4;
use crate::data::writeback;
use crate::error;

/// Changes that become durable together. Dropped without [`commit`](Self::commit), none of them
/// does, and the volume is shut down: close it and open it again.
#[derive(Debug)]
pub struct Batch<'f> {
    fs: &'f Ext4,
    /// `None` once it is committed.
    journal: Option<extol_jbd2::Batch>,
}

impl<'f> Batch<'f> {
    pub(super) fn begin(fs: &'f Ext4) -> Result<Self> {
        let journal = fs.with(|inner| {
            inner.check_writable()?;
            writeback::flush_all(inner)?;
            if !inner.vol.journal.has_log() {
                return Err(FsError::NoJournal);
            }
            inner.vol.journal.begin_batch().map_err(error::journal)
        })?;
        Ok(Self { fs, journal: Some(journal) })
    }

    /// The most metadata blocks that it can change, as its journal and the cache allow.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.journal.as_ref().map_or(0, extol_jbd2::Batch::most)
    }

    /// The metadata blocks that it has changed.
    #[must_use]
    pub fn changed(&self) -> u32 {
        self.journal.as_ref().map_or(0, extol_jbd2::Batch::changed)
    }

    /// True if a change found no room: all changes fail from then on, and so will the commit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.journal.as_ref().is_some_and(extol_jbd2::Batch::is_full)
    }

    /// Writes the data of files, and makes all of it durable.
    ///
    /// # Errors
    /// If it does not fit into the journal or onto the volume, or the device fails. It is given up
    /// then; only a device that fails in the middle of the commit itself may leave it durable.
    pub fn commit(mut self) -> Result<()> {
        self.fs.with(writeback::flush_all)?;
        match self.journal.take() {
            Some(journal) => {
                let committed = journal.commit().map_err(error::journal);
                if committed.is_err() {
                    let _ = self.fs.shut_down(Shutdown::Now);
                }
                committed
            }
            None => Ok(()),
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.journal.is_some() {
            // (Before the journal's own part ends.)
            let _ = self.fs.shut_down(Shutdown::Now);
        }
    }
}
