//! Waiting for a commit, and the wait for other requests before one is led.
//!
//! A waiter leads the commit itself if there is no committer. Else it sleeps on the
//! [`BatchWaiters`](crate::fast::BatchWaiters) of its transaction: all of them are woken at the
//! same time when it is durable, and need no lock to know that. At every other end of a commit,
//! fast ones and aborts included, they look again ([`wake_done`](Journal::wake_done)): one of them
//! leads.
//!
//! ```text
//!   request ─ count it ─ committer?  ── yes ─► sleep ─────────┬─ served: return
//!                │ no                                         │  else look again
//!                gathering? ── yes: end its wait if complete ─┤
//!                │ no                                         │
//!                policy: wait ── gather: sleep on gathered ───┤ all syncers joined, time over, or end_batch_wait
//!                │ go                                         │
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
use extol_sync::thread;

use super::{Journal, State};
use crate::batching::{Gather, Moment};
use crate::types::{JournalError, Result, Tid};

/// What a leader gathers for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gathering {
    /// The full commit of this transaction.
    Full(Tid),
    /// The fast commit of this batch of requests.
    Fast(u64),
}

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
        if state.wanted.is_none_or(|w| tid.after(w)) {
            state.wanted = Some(tid);
        }
        let now = self.clock.now_ns();
        if let Some(running) = &mut state.running
            && running.tx.tid == tid
        {
            running.requested_ns.get_or_insert(now);
        }
        self.end_batch_wait(state);
        self.commit_wakeup.wake();
    }

    /// Ends the wait of a leader that gathers, if one does: it commits now.
    pub(crate) fn end_batch_wait(&self, state: &mut State) {
        if state.gathering.take().is_some() {
            self.gathered.notify_all();
        }
    }

    /// Asks for the commit of `tid` without waiting.
    pub fn request_commit(&self, tid: Tid) {
        let mut state = self.state.lock();
        if !state.committed.at_least(tid) {
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
        self.counters.distributions.sync_wait.record(self.clock.now_ns().saturating_sub(began));
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
            if let Some(why) = &state.aborted {
                return Err(JournalError::Aborted(why.to_string()));
            }
            if state.committed.at_least(tid) {
                return Ok(());
            }
            let is_running = state.running.as_ref().is_some_and(|r| r.tx.tid == tid);
            let nothing_there = if is_running {
                nothing_to_commit(&state)
            } else {
                state.committing.is_none_or(|(c, _)| c != tid)
            };
            if nothing_there {
                // What came before it may still be on its way.
                if !is_running || state.committing.is_none() {
                    return Ok(());
                }
                self.done.wait(state.bare());
                continue;
            }
            if !std::mem::replace(&mut counted, true) {
                self.count(&mut state, is_running);
            }
            if purpose == Purpose::Need {
                self.end_batch_wait(&mut state);
            }
            if state.committer || state.gathering.is_some() {
                let waiters =
                    Arc::clone(if is_running { &state.waiters } else { &state.committing_waiters });
                let seen = waiters.bell.rings();
                drop(state);
                waiters.bell.wait(seen);
                if waiters.is_served() {
                    return Ok(());
                }
                state = self.state.lock();
                continue;
            }
            let whose = Gathering::Full(tid);
            let waits = if purpose == Purpose::Need { None } else { self.policy(&state, whose) };
            state = match waits {
                Some(gather) => self.gather(state, whose, gather),
                None => self.lead_commit(state),
            };
        }
    }

    /// Counts a request for the running transaction, or for the one being committed.
    pub(crate) fn count(&self, state: &mut State, is_running: bool) {
        let now = self.clock.now_ns();
        let State { running, batcher, serving, gathering, .. } = state;
        let Some(running) = running.as_mut().filter(|_| is_running) else {
            *serving += 1;
            return;
        };
        running.requested_ns.get_or_insert(now);
        running.waiting += 1;
        batcher.asked(thread::current().id());
        let enough = match gathering {
            // A full commit serves the requests for a fast one, too.
            Some((Gathering::Fast(_), _)) => true,
            Some((Gathering::Full(_), gather)) => running.waiting >= gather.enough,
            None => false,
        };
        if enough {
            self.end_batch_wait(state);
        }
    }

    /// Should the leader wait for others first?
    pub(crate) fn policy(&self, state: &State, whose: Gathering) -> Option<Gather> {
        // The commit is waited for to get room or to freeze, or no other thread will ever commit.
        let urgent = state.space_waiters > 0 || state.barriers > 0 || state.wanted.is_some();
        if urgent || self.works_in_callers() {
            return None;
        }
        let running = state.running.as_ref()?;
        let (gathered, batcher) = match whose {
            Gathering::Full(_) => (running.gathered, &state.batcher),
            Gathering::Fast(_) => (state.fast.gathered, &state.fast.batcher),
        };
        if gathered {
            return None;
        }
        batcher.begin(&self.moment(state, whose)?)
    }

    fn moment(&self, state: &State, whose: Gathering) -> Option<Moment> {
        let now_ns = self.clock.now_ns();
        let running = state.running.as_ref()?;
        let (asked_ns, waiting) = match whose {
            Gathering::Full(_) => (running.requested_ns, running.waiting),
            Gathering::Fast(_) => (state.fast.asked_ns, state.fast.waiting),
        };
        let asked_ns = asked_ns.unwrap_or(now_ns);
        Some(Moment { now_ns, asked_ns, waiting, handles: running.joined })
    }

    /// Waits until others have joined, the time is over, or
    /// [`end_batch_wait`](Self::end_batch_wait) is called. The caller leads the commit afterwards,
    /// if there still is one to lead.
    pub(crate) fn gather<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        whose: Gathering,
        gather: Gather,
    ) -> Guard<'a, State> {
        let began = self.clock.now_ns();
        match whose {
            Gathering::Fast(_) => state.fast.gathered = true,
            Gathering::Full(_) => {
                if let Some(running) = &mut state.running {
                    running.gathered = true;
                }
            }
        }
        let mut deadline = after(gather.until_ns.saturating_sub(began));
        state.gathering = Some((whose, gather));
        // Once it was taken away, another leader may gather for something later before we run.
        while let Some((_, mut gather)) = state.gathering.filter(|(now, _)| *now == whose) {
            // The clock may be a test's; the end of a wait is always real.
            let over = self.gathered.wait_until(state.bare(), deadline).timed_out();
            if !over || state.gathering.is_none_or(|(now, _)| now != whose) {
                continue;
            }
            let batcher = match whose {
                Gathering::Full(_) => &state.batcher,
                Gathering::Fast(_) => &state.fast.batcher,
            };
            state.gathering = match self.moment(&state, whose) {
                Some(at) if batcher.goes_on(&mut gather, &at) => {
                    deadline = after(gather.until_ns.saturating_sub(at.now_ns));
                    Some((whose, gather))
                }
                _ => None,
            };
        }
        let waited = self.clock.now_ns().saturating_sub(began);
        self.counters.batch_waits.add(1);
        self.counters.batch_wait_ns.add(waited);
        if !state.committer && nothing_to_commit(&state) {
            // All changes were taken back, so no commit will wake the waiters.
            self.wake_done(&state);
            self.wake_fast(&state);
        }
        state
    }

    /// The committer's role is free again, after something that was no full commit: wakes the
    /// threads that need it.
    pub(crate) fn release_role(&self, state: &mut State) {
        state.committer = false;
        self.wake_done(state);
        if std::mem::take(&mut state.service_waits) {
            self.commit_wakeup.wake();
        }
        if self.works_in_callers() {
            self.can_join.notify_all();
        }
        if std::mem::take(&mut state.rewind_waits) {
            self.checkpoint_wakeup.wake();
        }
    }

    /// All waiters for the end of a commit look again. With the state locked, behind what
    /// they are to see.
    pub(crate) fn wake_done(&self, state: &State) {
        self.done.notify_all();
        for waiters in [&state.waiters, &state.committing_waiters] {
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

/// True if the running transaction, if any, holds nothing and no handle is about to change that.
pub(crate) fn nothing_to_commit(state: &State) -> bool {
    state.running.as_ref().is_none_or(|r| !r.locked && r.handles == 0 && r.tx.is_empty())
}

fn after(ns: u64) -> Instant {
    Instant::now() + Duration::from_nanos(ns)
}
