//! Freeze: no handle open, everything home, the log empty; and erasing the empty log.
//!
//! What the log holds of former transactions (names, contents of directories, with `data=journal`
//! of files) is made unreadable. The volume does not need any of it: the log is emptied first.
//!
//! ```text
//!   handles kept out ─ commit, write home, mark empty (durable) ─ zero or discard [first, end)
//!                                                               ─ flush ─ handles let in
//! ```
//!
//! Invariant
//! - ER-1: no block is erased before the superblock that says "empty" is durable: a crash at any
//!   moment finds either the whole log, or one that is not read (`Journal::checkpoint_all`, which
//!   erases only between `freeze` and `thaw`).
//!
//! The fast-commit area belongs to what is erased; the superblock and what lies before the log's
//! first block do not.

use crate::journal::Journal;
use crate::log::{Erase, Log};
use crate::log_map::LogMap;
use crate::types::{JournalError, Result};

impl Journal {
    /// Waits until no handle is open and keeps new ones out, commits, writes everything home and
    /// marks the log empty. [`thaw`](Self::thaw) lets handles in again.
    ///
    /// # Errors
    /// If the journal was aborted, now or before; handles are let in again then (and fail).
    pub fn freeze(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            Self::in_batch(&state)?;
            state.gate.barriers += 1;
            self.end_batch_wait(&mut state);
            while state.tx.has_handles() {
                self.drained.wait(state.bare());
            }
        }
        let result = self.empty_log();
        if result.is_err() {
            self.thaw();
        }
        result
    }

    fn empty_log(&self) -> Result<()> {
        self.commit_all()?;
        // File data that was written in place, with no transaction to cover it.
        self.flush_data()?;
        let Some(log) = self.log.get() else { return Ok(()) };
        let newest = self.state.lock().tx.committed;
        self.checkpoint_through(newest, false)?;
        let _one = self.checkpointing.lock();
        let mut state = self.state.lock();
        if state.log.empty {
            return Ok(());
        }
        // An empty transaction may be running; its number is not used up.
        let next = state.tx.next_to_commit();
        state.log.empty = true;
        if let Some(space) = &mut state.log.space {
            space.set_empty();
        }
        drop(state);
        // Home writes were flushed by the checkpoint. No commit can run: handles are kept out.
        log.write_empty(next).map_err(|e| self.abort_by("marking the log empty failed", &e))
    }

    /// Makes a [`freeze`](Self::freeze) one of indefinite length: handles are refused
    /// instead of waiting (the volume becomes read-only). [`resume`](Self::resume) ends both.
    pub fn rest(&self) {
        self.state.lock().gate.read_only = true;
        self.can_join.notify_all();
    }

    /// Ends a [`rest`](Self::rest) and the freeze before it.
    pub fn resume(&self) {
        self.state.lock().gate.read_only = false;
        self.thaw();
    }

    /// Ends a [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut state = self.state.lock();
        state.gate.barriers = state.gate.barriers.saturating_sub(1);
        self.can_join.notify_all();
    }

    /// Moves the log of the volume to other blocks of it: writes an empty log there, durably, and
    /// calls `switch`, which makes the volume name these blocks, durably. Transactions go there
    /// from then on. Never call it with a handle open. A log that keeps its first block may become
    /// shorter or longer in place.
    ///
    /// # Errors
    /// If there is no log on the volume, or the new one would be too small; nothing has changed
    /// then. If `switch` or the device fails, the journal is aborted.
    pub fn move_log(&self, map: LogMap, switch: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(log) = self.log.get().filter(|log| !log.is_external()) else {
            return Err(JournalError::Unsupported("the log is not on the volume".into()));
        };
        self.freeze()?;
        let mut switched = false;
        let moved = log.move_to(map, || {
            switched = true;
            switch()
        });
        let done = match moved {
            Ok(space) => self.use_moved(log, space),
            Err(e) => Err(e),
        };
        if let (Err(e), true) = (&done, switched) {
            // Which log the volume names is not known.
            let _ = self.abort(&format!("moving the log failed: {e}"));
        }
        self.thaw();
        done
    }

    /// Blocks of the log, its superblock and the fast-commit area included; 0 without a log.
    #[must_use]
    pub fn log_blocks(&self) -> u32 {
        self.log.get().map_or(0, Log::maxlen)
    }

    /// Blocks of the log that are for fast commits, if it has some.
    #[must_use]
    pub fn fast_blocks(&self) -> u32 {
        self.log.get().map_or(0, Log::fast_blocks)
    }

    /// True if the log's device may be able to discard; false also without a log.
    #[must_use]
    pub fn can_discard_log(&self) -> bool {
        self.log.get().is_some_and(Log::can_discard)
    }

    /// Empties the log, so that the volume is complete without it, and erases it if that is wanted.
    /// Handles are kept out meanwhile; never call it with one open.
    ///
    /// # Errors
    /// If the journal was aborted, or the device fails. (If it only cannot discard, the log is
    /// empty all the same.)
    pub fn checkpoint_all(&self, erase: &[Erase]) -> Result<()> {
        self.freeze()?;
        let erased = match self.log.get() {
            Some(log) if !erase.is_empty() => {
                if let Some(area) = &mut self.state.lock().fast.area {
                    area.forget();
                }
                erase.iter().try_for_each(|how| log.erase(*how)).and_then(|()| log.flush())
            }
            _ => Ok(()),
        };
        self.thaw();
        erased
    }
}
