//! Who asks for a commit, and who waits for one.
//!
//! A waiter leads the commit itself if nobody is committing. It sleeps on `done` while somebody else is, and looks again
//! at every end of a commit: the transaction that it waits for may be the next one.

use super::{Journal, State};
use crate::types::{JournalError, Result, Tid};

impl Journal {
    pub(super) fn want(&self, state: &mut State, tid: Tid) {
        if state.wanted.is_none_or(|w| tid.after(w)) {
            state.wanted = Some(tid);
        }
        let now = self.clock.now_ns();
        if let Some(running) = &mut state.running
            && running.tx.tid == tid
        {
            running.requested_ns.get_or_insert(now);
        }
        self.commit_wakeup.wake();
    }

    /// Asks for the commit of `tid` without waiting.
    pub fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock();
        if !state.committed.at_least(tid) {
            self.want(&mut state, tid);
        }
    }

    /// Returns once `tid` is durable. Never call it with a handle open.
    ///
    /// # Errors
    /// If the journal was aborted before that.
    pub fn commit_wait(&self, tid: Tid) -> Result<()> {
        crate::order::assert_no_handle("waiting for a commit");
        let mut state = self.state.lock();
        loop {
            if let Some(why) = &state.aborted {
                return Err(JournalError::Aborted(why.to_string()));
            }
            if state.committed.at_least(tid) {
                return Ok(());
            }
            let running = state.running.as_ref().filter(|r| r.tx.tid == tid);
            let nothing_there = match running {
                Some(r) => !r.locked && r.handles == 0 && r.tx.is_empty(),
                None => state.committing.is_none_or(|(c, _)| c != tid),
            };
            if nothing_there {
                // What came before it may still be on its way.
                if running.is_none() || state.committing.is_none() {
                    return Ok(());
                }
                self.done.wait(state.bare());
                continue;
            }
            if running.is_some_and(|r| r.requested_ns.is_none()) {
                let now = self.clock.now_ns();
                if let Some(r) = &mut state.running {
                    r.requested_ns = Some(now);
                }
            }
            if state.committer {
                self.done.wait(state.bare());
            } else {
                state = self.lead_commit(state);
            }
        }
    }

    /// Commits the running transaction, if there is one with anything in it, and waits.
    ///
    /// # Errors
    /// As [`commit_wait`](Self::commit_wait).
    pub fn commit_all(&self) -> Result<()> {
        // With nothing on its way this is the last durable one, and only an abort can be told.
        self.commit_wait(self.newest())
    }

    /// The newest transaction that exists: every change made so far is in it or in an older one.
    #[must_use]
    pub fn newest(&self) -> Tid {
        let state = self.state.lock();
        match (&state.running, state.committing) {
            (Some(r), _) => r.tx.tid,
            (None, Some((tid, _))) => tid,
            (None, None) => state.committed,
        }
    }

    /// Newest durable transaction.
    #[must_use]
    pub fn committed(&self) -> Tid {
        self.state.lock().committed
    }
}
