//! Fast commits: an fsync that writes what changed as a few records, not the blocks that hold them.
//!
//! ```text
//!   ordinary log                      fast-commit area
//!   … | T-2 | T-1 |                   | HEAD(T) TAIL | records TAIL | records TAIL | zeros or old …
//!               └ base                   fast commits of the running transaction T, each on top of those before
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

mod area;
mod async_sync;
mod clear_area;
mod data_checksum;
mod fua;
mod lead;
mod queue;
mod stats;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use extol_block::BlockNr;
use extol_sync::Condvar;
use extol_sync::atomic::{AtomicBool, Ordering};

pub(crate) use area::Area;
pub use async_sync::{Done, Job};
pub(crate) use data_checksum::{DataChecksums, MOST as MOST_CHECKSUMS};
use extol_ondisk::fast_commit::{DataChecksum, FcRecords};
pub use fua::FuaPolicy;
pub(crate) use queue::{BatchWaiters, Queue};
pub(crate) use stats::FastCounters;
pub use stats::{FastCommitStats, MOST_REASONS};

use crate::journal::Journal;
use crate::types::{JournalError, Result, Tid};

/// What a handle notes for the file system's side. The journal does not look into it.
pub type Notes = Box<dyn Any + Send>;

/// What an fsync wants to be durable: a number that means something to the file system only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SyncKey(pub u64);

impl SyncKey {
    /// Nothing of the file system's, but another fast commit behind the last one.
    pub(crate) const NONE: Self = Self(u64::MAX);
}

/// What the source has for a fast commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Nothing has changed since it was made durable, or is being.
    Nothing,
    /// These records in this order. From now on they count as durable: if they cannot become so,
    /// the transaction must be committed in full, or the journal aborted.
    Records(FcRecords),
    /// No record says it. The journal commits in full, and counts the reason of that number
    /// ([`FastSource::reasons`]).
    Full(u8),
}

/// The file system's side: knows what changed since the last full commit and the fast commits
/// since.
///
/// Called with the journal's state lock held ([`closed`](Self::closed)) or with inode locks held
/// ([`apply`](Self::apply)): the source's lock is a leaf, and it does no I/O.
pub trait FastSource: Send + Sync + Debug {
    /// A handle of transaction `tid` has ended, or moves on to another one, after these changes.
    /// They must become visible at once. `finished`: the operation ended well; otherwise it is not
    /// known what it left.
    fn apply(&self, tid: Tid, notes: Option<Notes>, finished: bool);

    /// What makes `keys` durable on top of transaction `tid - 1` and of all that was collected for
    /// `tid` before.
    /// A key that the source did not make asks for nothing.
    fn collect(&self, tid: Tid, keys: &[SyncKey]) -> Collected;

    /// Transaction `tid` takes no more handles and will be committed in full: what is known of it
    /// can be forgotten. The result is dropped later, without the lock.
    fn closed(&self, tid: Tid) -> Box<dyn Any + Send>;

    /// The names of the reasons for full commits, at most [`MOST_REASONS`].
    fn reasons(&self) -> &'static [&'static str];
}

/// The journal's side of fast commits, as far as it needs no lock; the rest is [`Queue`].
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    source: OnceLock<Arc<dyn FastSource>>,
    /// Blocks that must be home, as committed, before a fast commit counts.
    patched: OnceLock<Vec<Range<BlockNr>>>,
    /// Handles note what they change.
    tracks: AtomicBool,
    /// The role is free, for the thread that sleeps ready to lead the open batch.
    lead: Condvar,
    pub checksums: DataChecksums,
    /// Fast commits become durable by FUA, where they can.
    pub by_fua: AtomicBool,
    pub counters: FastCounters,
}

impl FastCommits {
    /// The source, whether or not deltas are wanted.
    pub fn source(&self) -> Option<&Arc<dyn FastSource>> {
        self.source.get()
    }

    /// See [`Journal::set_patched_blocks`].
    pub fn patched(&self) -> &[Range<BlockNr>] {
        self.patched.get().map_or(&[], Vec::as_slice)
    }

    pub fn tracks(&self) -> bool {
        self.tracks.load(Ordering::Relaxed)
    }
}

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
        let _ = self.fast.patched.set(blocks);
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

    /// True if the log has an area for fast commits.
    #[must_use]
    pub fn has_fast_area(&self) -> bool {
        self.state.lock().fast.area.is_some()
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
        let next = state.next_tid;
        state.fast.from = on.then_some(next);
        // Under the lock: a handle that joins the next transaction sees it.
        self.fast.tracks.store(on, Ordering::Relaxed);
        self.end_batch_wait(&mut state);
        self.wake_fast(&state);
        Ok(())
    }
}
