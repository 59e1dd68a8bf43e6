//! Fast commits: an fsync that writes what changed as a few records, not the blocks that hold them.
//!
//! ```text
//!   ordinary log        fast-commit area
//!   … | T-2 | T-1 |     | HEAD(T) TAIL | records TAIL | records TAIL | zeros or old …
//!               └ base     fast commits of the running transaction T, each on top of those before
//! ```
//!
//! The journal does not know what a record means. Operations note in their handle what they changed
//! ([`Notes`]); when the handle ends, all its notes reach the file system's [`FastSource`] at once,
//! tagged with the handle's transaction. An fsync then asks for what one key names ([`SyncKey`]);
//! the leader collects from the source what all waiting requests need, on top of the last full
//! commit and the fast commits since, and writes that as one chain of blocks. What no record says
//! is committed in full, and the source gives the reason.
//!
//! The source keeps its own copies, so no inode and no handle is waited for, and operations go on
//! all the while.

pub(crate) mod area;
pub(crate) mod async_requests;
mod clear_area;
pub(crate) mod data_checksum;
mod fua;
mod lead;
pub(crate) mod queue;
pub(crate) mod source;
#[cfg(test)]
mod tests;
mod write;

use std::ops::Range;
use std::sync::Arc;

use extol_block::BlockNr;
use extol_sync::atomic::Ordering;

pub use async_requests::Done;
pub use fua::FuaPolicy;
pub use lead::Job;
pub use source::{Collected, FastSource, Notes, SyncKey};

use crate::journal::Journal;
pub use crate::stats::{FastCommitStats, MOST_REASONS};
use crate::types::{JournalError, Result};

impl Journal {
    /// Names the blocks that hold the file system's superblock and group descriptors, and the
    /// journal's inode. e2fsck reads them before it replays the log, and writes them back from
    /// memory when it has replayed fast commits: of the superblock only the words that it has
    /// changed itself, so that the checksum is wrong if the log held a newer one; of the
    /// descriptors all, so that what the log had brought is lost; of the block with the journal's
    /// inode all, with the inodes beside it, when it replays one of them (blocks of 4 KiB hold
    /// sixteen). So whenever the log holds a newer version of one of these blocks, it goes home
    /// before the first fast commit of a transaction counts.
    pub fn set_patched_blocks(&self, blocks: Vec<Range<BlockNr>>) {
        *self.fast.patched.write() = Arc::new(blocks);
    }

    /// Another one of them: a block of descriptors that the volume did not have. (If none are
    /// named, there are no fast commits.)
    pub fn add_patched_block(&self, block: BlockNr) {
        let mut patched = self.fast.patched.write();
        match Arc::make_mut(&mut patched).last_mut() {
            None => {}
            Some(last) if last.end == block => last.end = block.plus(1),
            Some(_) => Arc::make_mut(&mut patched).push(block..block.plus(1)),
        }
    }

    /// Names the file system's side and turns fast commits on, if the log has an area for them.
    /// Once.
    pub fn set_fast_source(&self, source: Arc<dyn FastSource>) {
        if self.fast.source.set(source).is_ok() {
            // Without an area it stays off.
            let _ = self.set_fast_commits(true);
        }
    }

    /// True if changes are noted for fast commits.
    #[must_use]
    pub fn tracks_changes(&self) -> bool {
        self.fast.tracks()
    }

    /// The block of the file system behind the fast-commit area, if that lies on the same device:
    /// what goes to the medium together with fast commits is nowhere sooner there.
    #[must_use]
    pub fn behind_fast_area(&self) -> Option<BlockNr> {
        let log = self.log.get().filter(|log| !log.is_external())?;
        log.behind_area().filter(|nr| self.in_range(*nr))
    }

    /// Turns fast commits on or off, at once. When turned on, they begin with the next transaction:
    /// of the running one the source does not know everything.
    ///
    /// # Errors
    /// If they are to be on and the log has no area for them, or there is no
    /// [source](Self::set_fast_source).
    pub fn set_fast_commits(&self, on: bool) -> Result<()> {
        let mut state = self.state.lock();
        if on && (state.fast.area.is_none() || self.fast.source.get().is_none()) {
            return Err(JournalError::Unsupported(
                "fast_commit needs an area in the journal".into(),
            ));
        }
        if on == state.fast.from.is_some() {
            return Ok(());
        }
        let next = state.tx.next;
        state.fast.from = on.then_some(next);
        // Under the lock: a handle that joins the next transaction sees it.
        self.fast.tracks.store(on, Ordering::Relaxed);
        self.end_batch_wait(&mut state);
        self.wake_fast(&state);
        Ok(())
    }
}
