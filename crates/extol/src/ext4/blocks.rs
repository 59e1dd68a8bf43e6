//! Where the blocks of files lie, and which numbers inodes have.

use std::ops::Range;

use extol_block::BlockNr;
use extol_vfs::Result;

use super::Ext4;
use crate::error;
use crate::maintenance;
use crate::resize::{self, ResizeError, Vacated};

impl Ext4 {
    /// True if a full device has stopped the volume, without a record of an error
    /// ([`AccessOptions::unmarked_when_full`](crate::options::AccessOptions::unmarked_when_full)):
    /// the next opening recovers it.
    #[must_use]
    pub fn is_stopped_by_full(&self) -> bool {
        self.fs().vol.journal.is_stopped_by_full()
    }

    /// The bytes between which data of files was written to free blocks.
    #[must_use]
    pub fn data_written(&self) -> Range<u64> {
        let fs = self.fs();
        let Range { start, end } = fs.data_written.lock().clone();
        let bits = fs.vol.geo.block_size.bits();
        start << bits..end << bits
    }

    /// Moves all that files have at or behind block `limit` in front of it, while all other changes
    /// wait. (The journal, and what belongs to the block groups, stays.)
    ///
    /// # Errors
    /// `NoSpace` if there is no room in front of the limit; what was moved until then stays moved.
    #[doc(hidden)]
    pub fn vacate(&self, limit: u64) -> Result<Vacated> {
        self.op(|fs| {
            maintenance::exclusively(fs, || {
                let done = resize::vacate(fs, BlockNr(limit));
                fs.vol.alloc.set_limit(None).and(done)
            })?
        })
    }

    /// Moves the log in front of block `limit`, while all other changes wait. `progress` is told
    /// which of its three steps is done.
    ///
    /// # Errors
    /// If it has no room there.
    #[doc(hidden)]
    pub fn move_journal(
        &self,
        limit: u64,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> std::result::Result<(), ResizeError> {
        let fs = self.fs();
        maintenance::exclusively(&fs, || {
            // (The allocator gives up nothing while frees wait.)
            fs.vol.journal.commit_all().map_err(error::journal)?;
            fs.vol.alloc.set_limit(Some(BlockNr(limit)))?;
            let done = resize::move_journal(&fs, limit, 0, progress);
            fs.vol.alloc.set_limit(None)?;
            done
        })?
    }

    /// How many groups there are, and how many inodes each has.
    #[doc(hidden)]
    #[must_use]
    pub fn inode_groups(&self) -> (u64, u64) {
        let fs = self.fs();
        (fs.vol.geo.groups().into(), fs.vol.geo.inodes_per_group.into())
    }

    /// Gives all inodes with numbers above `limit` (a whole number of groups) lower ones, while all
    /// other changes wait. Gives how many. `progress` is told how many of how many are done, and
    /// may end it.
    ///
    /// # Errors
    /// If they have no room, or the journal is too small for one of them.
    #[doc(hidden)]
    pub fn renumber(
        &self,
        limit: u64,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> std::result::Result<u64, ResizeError> {
        let fs = self.fs();
        maintenance::exclusively(&fs, || resize::move_inodes(&fs, limit, progress))?
    }
}
