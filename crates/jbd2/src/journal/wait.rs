//! Waiting for a commit, and the wait for other requests before one is led.
//!
//! A waiter leads the commit itself if there is no committer. Else it sleeps on the
//! [`BatchWaiters`](crate::fast::BatchWaiters) of its transaction: all of them are woken at the
//! same time when it is durable, and need no lock to know that. At every other end of a commit,
//! fast ones and aborts included, they look again ([`wake_done`](Journal::wake_done)): one of them
//! leads.
//!
//! ```text
//!   request ─ count it ─ committer? ───────── yes ─► sleep ───┬─ served: return
//!                │ no                                         │  else look again
//!                does a leader wait? ──────── yes ─► sleep ───┤
//!                │ no     (end its wait if all have joined)   │
//!                begin_batch_wait ─ wait ─► batch_wait ───────┤  all syncers joined, time over,
//!                │ commit now                                 │  or end_batch_wait
//!                lead the commit ◄────────────────────────────┘
//! ```
//!
//! Durable requests (fsync and its like) go through [`Journal::make_durable`] and let the policy of
//! `crate::batching` decide; so do those for one key, which a fast commit may serve
//! (`crate::fast::lead`, with the same wait). What the file system needs for itself (a freeze,
//! freed blocks) goes through [`Journal::commit_wait`], which waits for no other request and ends
//! the wait of a leader that does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use extol_sync::rank::Guard;

use super::Journal;
use super::state::{Progress, State};
use crate::batching::BatchWait;
use crate::fast::queue::BatchWaiters;
use crate::types::{CommitKind, Result, Tid};

/// Why a thread waits for a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// A durable request: others may join.
    Durability,
    /// The file system itself cannot go on.
    Need,
}

impl Journal {
    pub(super) fn want(&self, state: &mut State, tid: Tid) {
        state.sync.want(tid);
        let now = self.clock.now_ns();
        if let Some(running) = state.tx.running.as_mut().filter(|r| r.tx.tid == tid) {
            running.requested_ns.get_or_insert(now);
        }
        self.end_batch_wait(state);
        self.commit_wakeup.wake();
    }

    /// Ends the wait of a leader for other requests, if one waits: it commits now.
    pub(crate) fn end_batch_wait(&self, state: &mut State) {
        if state.sync.batch_wait.take().is_some() {
            self.batch_complete.notify_all();
        }
    }

    /// Asks for the commit of `tid` without waiting.
    pub fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock();
        if !state.tx.committed.at_least(tid) && !state.gate.batch {
            self.want(&mut state, tid);
        }
    }

    /// Returns once `tid` is durable; waits for no other request. Never call it with a handle open.
    ///
    /// # Errors
    /// If the journal was aborted before that.
    pub fn commit_wait(&self, tid: Tid) -> Result<()> {
        self.wait_for(tid, Purpose::Need)
    }

    /// Returns once `tid` and all file data written before the call are durable. Requests at
    /// the same time share the commit and its flush. Never call it with a handle open.
    ///
    /// # Errors
    /// If the journal was aborted before that, or a flush fails (which aborts it).
    pub fn make_durable(&self, tid: Tid) -> Result<()> {
        let began = self.clock.now_ns();
        self.write_deferred()?;
        let written = self.data_written();
        self.wait_for(tid, Purpose::Durability)?;
        // The commit's flush covered the data, unless the transaction was durable before the data
        // was written.
        self.flush_written(written)?;
        self.counters.distributions.sync_wait_ns.record(self.clock.now_ns().saturating_sub(began));
        Ok(())
    }

    /// As [`make_durable`](Self::make_durable), for every change made so far.
    ///
    /// # Errors
    /// See there.
    pub fn make_all_durable(&self) -> Result<()> {
        self.make_durable(self.newest())
    }

    pub(crate) fn wait_for(&self, tid: Tid, purpose: Purpose) -> Result<()> {
        self.wait_counted(tid, purpose, false)
    }

    /// As that. `counted`: it was counted as a request.
    pub(crate) fn wait_counted(&self, tid: Tid, purpose: Purpose, mut counted: bool) -> Result<()> {
        crate::order::assert_no_handle("waiting for a commit");
        let mut state = self.state.lock();
        loop {
            state.failure.check()?;
            let is_running = match state.tx.progress(tid) {
                Progress::Over => return Ok(()),
                Progress::Running => true,
                Progress::Committing => false,
                Progress::Empty => {
                    self.done.wait(state.bare());
                    continue;
                }
            };
            Self::in_batch(&state)?;
            if !std::mem::replace(&mut counted, true) {
                self.count(&mut state, is_running);
            }
            if purpose == Purpose::Need {
                self.end_batch_wait(&mut state);
            }
            if state.role.taken || state.sync.batch_wait.is_some() {
                let sync = &state.sync;
                let waiters = if is_running { &sync.waiters } else { &sync.committing_waiters };
                let waiters = Arc::clone(waiters);
                state = match self.sleep_among(state, &waiters) {
                    Some(state) => state,
                    None => return Ok(()),
                };
                continue;
            }
            let kind = CommitKind::Full(tid);
            state = match self.begin_batch_wait(&state, kind) {
                Some(wait) if purpose == Purpose::Durability => self.batch_wait(state, kind, wait),
                _ => self.lead_commit(state),
            };
        }
    }

    /// Sleeps until the waiters are woken. `None`: they are served.
    pub(crate) fn sleep_among<'a>(
        &'a self,
        state: Guard<'a, State>,
        waiters: &BatchWaiters,
    ) -> Option<Guard<'a, State>> {
        let seen = waiters.bell.rings();
        drop(state);
        waiters.bell.wait(seen);
        (!waiters.is_served()).then(|| self.state.lock())
    }

    /// Counts a request for the running transaction, or for the one being committed.
    pub(crate) fn count(&self, state: &mut State, is_running: bool) {
        if state.count(is_running, self.clock.now_ns()) {
            self.end_batch_wait(state);
        }
    }

    /// Should the leader of this commit wait for others first? Without services no other thread
    /// would commit meanwhile.
    pub(crate) fn begin_batch_wait(&self, state: &State, kind: CommitKind) -> Option<BatchWait> {
        if self.works_in_callers() {
            return None;
        }
        state.begin_batch_wait(kind, self.clock.now_ns())
    }

    /// Waits until others have joined, the time is over, or
    /// [`end_batch_wait`](Self::end_batch_wait) is called. The caller leads the commit afterwards,
    /// if there still is one to lead.
    pub(crate) fn batch_wait<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        kind: CommitKind,
        wait: BatchWait,
    ) -> Guard<'a, State> {
        let began = self.clock.now_ns();
        state.set_batch_wait(kind, wait);
        let mut deadline = after(wait.until_ns.saturating_sub(began));
        let own = |state: &State| state.sync.batch_wait.filter(|(now, _)| *now == kind);
        // Once it was taken away, another leader may wait for a later commit before this one runs.
        while let Some((_, wait)) = own(&state) {
            // The clock may be a test's; the end of a wait is always real.
            let over = self.batch_complete.wait_until(state.bare(), deadline).timed_out();
            if !over || own(&state).is_none() {
                continue;
            }
            let now = self.clock.now_ns();
            let extended = state.extend_batch_wait(kind, wait, now);
            if let Some(wait) = extended {
                deadline = after(wait.until_ns.saturating_sub(now));
            }
            state.sync.batch_wait = extended.map(|wait| (kind, wait));
        }
        self.counters.batching.waits.add(1);
        self.counters.batching.wait_ns.add(self.clock.now_ns().saturating_sub(began));
        if !state.role.taken && state.tx.nothing_to_commit() {
            // All changes were taken back, so no commit will wake the waiters.
            self.wake_done(&state);
            self.wake_fast(&state);
        }
        state
    }

    /// The committer's role is free again, after something that was no full commit: wakes the
    /// threads that need it.
    pub(crate) fn release_role(&self, state: &mut State) {
        state.role.taken = false;
        self.wake_done(state);
        if std::mem::take(&mut state.role.service_waits) {
            self.commit_wakeup.wake();
        }
        if self.works_in_callers() {
            self.can_join.notify_all();
        }
        if std::mem::take(&mut state.role.rewind_waits) {
            self.checkpoint_wakeup.wake();
        }
    }

    /// All waiters for the end of a commit look again. With the state locked, behind what
    /// they are to see.
    pub(crate) fn wake_done(&self, state: &State) {
        self.done.notify_all();
        for waiters in [&state.sync.waiters, &state.sync.committing_waiters] {
            if Arc::strong_count(waiters) > 1 {
                waiters.bell.ring();
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
        self.state.lock().tx.newest()
    }

    /// Newest durable transaction.
    #[must_use]
    pub fn committed(&self) -> Tid {
        self.state.lock().tx.committed
    }
}

fn after(ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(ns)
}
