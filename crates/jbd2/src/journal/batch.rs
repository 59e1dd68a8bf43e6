//! A batch: many handles, one commit or none.
//!
//! *Purpose.* A list of operations that becomes durable together or not at all
//! (`extol edit IMAGE < script`). A transaction is that already; a batch keeps it from being
//! committed before its time.
//!
//! ```text
//!   begin: frozen, log empty ─ thawed with the gate's `batch` set
//!     handles join ─ stop ─ join ─ …   (no commit starts: BA-1)
//!       │ no room for one more           ╰─ commit: the gate opens, one full commit
//!       ╰─ full: shut down                ╰─ dropped: shut down
//! ```
//!
//! *What may begin a commit.* The commit interval, a request of a handle that restarts, a handle
//! that finds the transaction full or the log short of space, an fsync, a freeze. The first two do
//! nothing while a batch lives, a handle without room ends it, and the others fail with
//! [`JournalError::InBatch`]. There is no fast commit, since the log is empty (JN-5).
//!
//! *Bound.* The blocks that the batch changes must fit into the log and, as snapshots, into the
//! part of the cache for them: [`Batch::most`].
//!
//! Invariants
//! - BA-1: while a batch lives no commit is led and nothing is written to the log
//!   (`Journal::in_batch`, asked wherever a commit may begin).
//! - BA-2: after a batch that found no room, or was dropped, nothing is committed any more: the
//!   journal is shut down under the lock that refuses the room.
//! - BA-3: blocks that the batch frees are not used again before it is durable, as with every
//!   transaction: callbacks run behind the commit.
//!
//! File data goes in place as always. What overwrites blocks that a file had before the batch is
//! not taken back; the file system has to write such data to other blocks.

use std::sync::Arc;

use extol_sync::atomic::Ordering;

use super::state::State;
use super::{Journal, by_memory};
use crate::types::{JournalError, Result};

/// Why the journal is shut down by a batch that finds no room.
pub(super) const BATCH_FULL: &str = "the batch did not fit into the journal";

/// The running transaction, kept from being committed. Dropping it shuts the journal down.
#[derive(Debug)]
pub struct Batch {
    journal: Arc<Journal>,
    over: bool,
}

impl Journal {
    /// Begins a batch: commits what there is, empties the log, and lets no commit begin until
    /// [`Batch::commit`]. Never call it with a handle open.
    ///
    /// # Errors
    /// If there is no log, there is a batch, or the journal was aborted.
    pub fn begin_batch(self: &Arc<Self>) -> Result<Batch> {
        if !self.has_log() {
            return Err(JournalError::Unsupported("a batch needs a journal".into()));
        }
        self.freeze()?;
        self.state.lock().gate.batch = true;
        self.thaw();
        Ok(Batch { journal: Arc::clone(self), over: false })
    }

    /// True while a batch lives.
    #[must_use]
    pub fn has_batch(&self) -> bool {
        self.state.lock().gate.batch
    }

    /// Err while a batch lives: no commit may begin.
    pub(crate) fn in_batch(state: &State) -> Result<()> {
        if state.gate.batch { Err(JournalError::InBatch) } else { Ok(()) }
    }

    /// The most blocks that the running transaction may hold now.
    pub(super) fn most_blocks(&self, state: &State) -> u32 {
        match state.gate.batch {
            true => by_memory(self.pinned_max, self.block_size()),
            false => self.max_credits(),
        }
    }

    /// A handle finds no room in the batch: nothing of it will be durable (BA-2). The caller shuts
    /// the journal down without the lock.
    pub(super) fn batch_is_full(&self, state: &mut State) -> JournalError {
        let most = self.most_in_log(state);
        state.gate.batch_full = true;
        state.failure.reason.get_or_insert_with(|| BATCH_FULL.into());
        self.is_aborted.store(true, Ordering::Release);
        JournalError::BatchFull { most }
    }

    /// The most blocks of a transaction by the log that is free, and by memory.
    fn most_in_log(&self, state: &State) -> u32 {
        let most = by_memory(self.pinned_max, self.block_size());
        let (Some(log), Some(space)) = (self.log.get(), &state.log.space) else { return most };
        let (mut fits, mut too_many) = (0, most.saturating_add(1));
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            match log.room_for(middle) <= space.free() {
                true => fits = middle,
                false => too_many = middle,
            }
        }
        fits
    }
}

impl Batch {
    /// The most blocks that it can change.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.journal.most_in_log(&self.journal.state.lock())
    }

    /// The blocks that it has changed.
    #[must_use]
    pub fn changed(&self) -> u32 {
        let state = self.journal.state.lock();
        state.tx.running.as_ref().map_or(0, |r| r.tx.dirty.load(Ordering::Acquire))
    }

    /// A handle found no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.journal.state.lock().gate.batch_full
    }

    /// Makes all of it durable, in one commit. Never call it with a handle open.
    ///
    /// # Errors
    /// If it was full, or the journal was aborted: nothing of it is durable then, unless the
    /// commit itself failed at its end.
    pub fn commit(mut self) -> Result<()> {
        self.over = true;
        {
            let mut state = self.journal.state.lock();
            state.failure.check()?;
            state.gate.batch = false;
        }
        self.journal.commit_all()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.over {
            self.journal.shut_down("the batch was given up");
        }
    }
}

#[cfg(test)]
mod tests;
