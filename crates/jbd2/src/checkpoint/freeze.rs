//! Freeze: no handle open, everything home, the log empty.

use crate::journal::Journal;
use crate::types::Result;

impl Journal {
    /// Waits until no handle is open and keeps new ones out, commits, writes everything home and
    /// marks the log empty. [`thaw`](Self::thaw) lets handles in again.
    ///
    /// # Errors
    /// If the journal was aborted, now or before; handles are let in again then (and fail).
    pub fn freeze(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            state.barriers += 1;
            self.end_batch_wait(&mut state);
            while state.running.as_ref().is_some_and(|r| r.handles > 0) {
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
        let newest = self.state.lock().committed;
        self.checkpoint_through(newest)?;
        let _one = self.checkpointing.lock();
        let mut state = self.state.lock();
        if state.log_empty {
            return Ok(());
        }
        // An empty transaction may be running; its number is not used up.
        let next = state.running.as_ref().map_or(state.next_tid, |r| r.tx.tid);
        state.log_empty = true;
        if let Some(space) = &mut state.space {
            space.set_empty();
        }
        drop(state);
        // Home writes were flushed by the checkpoint. No commit can run: handles are kept out.
        log.write_empty(next).map_err(|e| self.abort(&format!("marking the log empty failed: {e}")))
    }

    /// Makes a [`freeze`](Self::freeze) one of indefinite length: handles are refused
    /// instead of waiting (the volume becomes read-only). [`resume`](Self::resume) ends both.
    pub fn rest(&self) {
        self.state.lock().resting = true;
        self.can_join.notify_all();
    }

    /// Ends a [`rest`](Self::rest) and the freeze before it.
    pub fn resume(&self) {
        self.state.lock().resting = false;
        self.thaw();
    }

    /// Ends a [`freeze`](Self::freeze).
    pub fn thaw(&self) {
        let mut state = self.state.lock();
        state.barriers = state.barriers.saturating_sub(1);
        self.can_join.notify_all();
    }
}
