//! Fast commits: joining a batch, leading its commit, and telling those that asked.
//!
//! ```text
//!   make_durable_for ─ durable already? ── yes ─► return
//!        │ no
//!   can T have one? ── no, or a full commit is on its way ─► wait for the full commit
//!        │ yes
//!   join the open batch
//!        ▼
//!   role taken, or does a leader wait? ── yes ─► sleep until the batch is served ──────┐ look
//!        │ no                                                                          │ again
//!   group-commit policy ── wait for others: all syncers joined, or time is over ───────┤
//!        │ commit now                                                                  │
//!   take the role and the batch, collect ─ nothing ──────────────────────► served ─────┤
//!                  ├──── records, and room ─► write ─► durable ──────────► served ─────┤
//!                  └──── no records say it, or no room ─► full commit for the batch ───┘
//! ```
//!
//! The leader has the same role as one that commits in full (`Role`), so there is one
//! at a time, of either kind. (Async requests: [`super::async_requests`].) The
//! transaction stays open: handles join and end while it is at work. It locks nothing while it
//! collects and writes. A request that comes meanwhile joins the next batch; its first member is
//! woken to lead it.
//!
//! Invariants
//! - FC-1: a fast commit of T counts on T-1: it is written only while T runs and nothing is being
//!   committed, so T-1 is durable (`fast_commit`, which has the role).
//! - FC-2: only where recovery will look: the superblock on the medium names a live log with the
//!   FAST_COMMIT bit. The first full commit behind a mount or a thaw makes it so
//!   (`LogState::empty`, looked at by `State::can_be_fast`; the bit: `Log::write_tail`).
//! - FC-3: the area's first block holds nothing when the log becomes live, and when the first fast
//!   commit of a transaction is written; after a full commit that made fast commits void it is
//!   cleared before the role is given up (`Journal::clear_after_commit`, `Area::place`). So no fast
//!   commit of another life of the log is ever taken for one that counts, and e2fsck, which gives
//!   up the whole log when the area begins with another transaction's, finds none.
//! - FC-4: the last write of a fast commit makes it count, and all that it needs is durable before
//!   or within it: file data of the inodes in it before, or with a checksum, by which recovery sees
//!   whether it is (`write_chain`); its own are covered by its sum, and of the first of a
//!   transaction no part can be missing (`chain`).
//! - FC-5: at most two blocks fewer than the area has belong to one transaction (`Area`).
//! - FC-6: what the source gave is durable before the batch is told so, or the transaction is
//!   committed in full next, with no other fast commit in between, or the journal is aborted
//!   (`lead_fast`).
//! - FC-7: a transaction with a fast commit is not empty: it will be committed, and a freeze waits
//!   for that (`Transaction::has_fast`).
//! - FC-8: the blocks that e2fsck writes from memory behind a fast commit are home as committed
//!   before one counts (`clear_after_commit`, `write_patched_home` in `clear_area.rs`).
//! - FC-9: no thread sleeps on in a batch: it is served, or a full commit, an abort or the end of
//!   fast commits wakes it. A thread that was woken to lead and goes another way wakes the rest
//!   (`next_step`). Async requests have a thread that sleeps for them all (AS-2 and AS-3 in
//!   [`super::async_requests`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use extol_sync::atomic::Ordering;
use extol_sync::rank::Guard;

use super::async_requests::{AsyncRequest, By, Call, Done, MOST as MOST_REQUESTS};
use super::queue::{Batch, Ticket};
use super::source::SyncKey;
use super::write::Outcome;
use crate::journal::Journal;
use crate::journal::deferred::DeferredWrite;
use crate::journal::state::State;
use crate::journal::wait::Purpose;
use crate::types::{CommitKind, Result, Tid};

/// What takes long.
pub type Job = Box<dyn FnOnce() + Send>;

/// What a waiter does next.
enum NextStep<'a> {
    /// What it waits for has happened, or never will.
    Over(Result<()>),
    /// It needs the full commit.
    Full,
    /// It has slept, or led: it has to look again.
    Again(Guard<'a, State>),
}

/// What became of an async request when it was left.
enum Left {
    /// It is over.
    Over(Result<()>, Call),
    /// There are too many, or it would need none: the caller waits.
    TooMany(Call),
    /// A leader will call; the caller is the leader of these.
    Queued(Option<CommitKind>),
}

impl Journal {
    /// Returns once what `ask` names is durable, as it was after all operations on it that have
    /// ended in transaction `tid` or before, and all file data written before the call: by a fast
    /// commit if that can be, else as [`make_durable`](Self::make_durable). Never call it with a
    /// handle open.
    ///
    /// # Errors
    /// If the journal was aborted before that, or a write or flush fails (which aborts it).
    pub fn make_durable_for(&self, tid: Tid, key: SyncKey) -> Result<()> {
        let began = self.clock.now_ns();
        let written = self.data_written();
        self.wait_fast(tid, key)?;
        self.flush_written(written)?;
        self.counters.distributions.sync_wait_ns.record(self.clock.now_ns().saturating_sub(began));
        Ok(())
    }

    pub(crate) fn wait_fast(&self, tid: Tid, key: SyncKey) -> Result<()> {
        crate::order::assert_no_handle("waiting for a fast commit");
        let mut ticket = None;
        let mut state = self.state.lock();
        loop {
            state = match self.next_step(state, tid, key, &mut ticket) {
                NextStep::Again(state) => state,
                NextStep::Over(result) => return result,
                NextStep::Full => return self.wait_for(tid, Purpose::Durability),
            };
        }
    }

    /// What a waiter for a fast commit of `tid` does next: joins the open batch, sleeps, waits for
    /// others, or leads.
    fn next_step<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        tid: Tid,
        key: SyncKey,
        ticket: &mut Option<Ticket>,
    ) -> NextStep<'a> {
        if let Err(aborted) = state.failure.check() {
            return NextStep::Over(Err(aborted));
        }
        if state.tx.committed.at_least(tid)
            || ticket.as_ref().is_some_and(|t: &Ticket| state.fast.is_served(t.batch))
        {
            return NextStep::Over(Ok(()));
        }
        let Ticket { batch, waiters } = match ticket {
            Some(known) if state.can_be_fast(tid) => known,
            Some(Ticket { batch, .. }) => {
                state.fast.leave(*batch);
                self.wake_fast(&state);
                return NextStep::Full;
            }
            None if state.may_join_batch(tid) => ticket.insert(self.join_batch(&mut state, key)),
            None => {
                self.count_not_fast(&state, tid);
                return NextStep::Full;
            }
        };
        let batch = *batch;
        if state.role.taken || state.sync.batch_wait.is_some() {
            // A leader that waits for others leads afterwards, or wakes all.
            if state.role.taken && state.fast.set_next_leader(batch) {
                self.fast.lead.wait(state.bare());
                state.fast.clear_next_leader(batch);
                return NextStep::Again(state);
            }
            return match self.sleep_among(state, waiters) {
                Some(state) => NextStep::Again(state),
                None => NextStep::Over(Ok(())),
            };
        }
        let kind = CommitKind::Fast(batch);
        NextStep::Again(match self.begin_batch_wait(&state, kind) {
            Some(wait) => self.batch_wait(state, kind, wait),
            None => self.lead_fast(state, tid),
        })
    }

    /// Counts a request for `tid` that goes to a full commit at once, if that is for want of a live
    /// log.
    fn count_not_fast(&self, state: &State, tid: Tid) {
        if state.log.empty && state.fast.covers(tid) {
            self.fast.counters.failed.add(1);
        }
    }

    /// Joins the open batch.
    fn join_batch(&self, state: &mut State, key: SyncKey) -> Ticket {
        let ticket = state.fast.join(key, self.clock.now_ns());
        if state.batch_is_complete(ticket.batch) {
            self.end_batch_wait(state);
        }
        ticket
    }

    /// Serves the open batch, which asks for things of `tid`, the running transaction. No other
    /// thread has the role.
    fn lead_fast<'a>(&'a self, mut state: Guard<'a, State>, tid: Tid) -> Guard<'a, State> {
        debug_assert!(!state.role.taken && state.tx.committing.is_none());
        let c = &self.fast.counters;
        let batch = state.fast.take();
        if state.full_is_coming() {
            return self.fall_back(state, &batch);
        }
        let place = state.fast.area.as_ref().and_then(|area| area.place(tid));
        let (Some(place), Some(source)) = (place, self.fast.source()) else {
            c.failed.add(u64::from(batch.requests));
            return self.fall_back(state, &batch);
        };
        if let Some(running) = &state.tx.running {
            running.tx.has_fast.store(true, Ordering::Relaxed);
        }
        state.role.taken = true;
        drop(state);

        let began = self.clock.now_ns();
        let waiters = Arc::clone(&batch.waiters);
        let outcome = self.fast_commit(&**source, tid, place, &batch);
        let mut state = self.state.lock();
        match outcome {
            Outcome::Full(reason) => {
                match reason {
                    Some(reason) => {
                        c.ineligible.add(u64::from(batch.requests));
                        c.count(reason, batch.requests);
                    }
                    None => c.failed.add(u64::from(batch.requests)),
                }
                state.role.taken = false;
                return self.fall_back(state, &batch);
            }
            // All waiters were told.
            Outcome::Lost => {
                self.release_role(&mut state);
                return state;
            }
            Outcome::Written(blocks) => {
                if let Some(area) = &mut state.fast.area {
                    area.take(tid, blocks);
                }
                let now = self.clock.now_ns();
                let took = now.saturating_sub(began);
                self.counters.distributions.fast_commit_ns.record(took);
                let waiting = state.fast.waiting;
                state.fast.batcher.ended(now, took, batch.requests, waiting);
            }
            Outcome::Durable => {}
        }
        state.fast.serve(batch.number, batch.keys);
        self.release_role(&mut state);
        // One of the next batch is ready to lead it, and goes first. The others need no lock to
        // know that they are served.
        self.fast.lead.notify_all();
        drop(state);
        waiters.serve();
        self.state.lock()
    }

    /// A full commit serves the batch. The role is free.
    fn fall_back<'a>(&'a self, mut state: Guard<'a, State>, batch: &Batch) -> Guard<'a, State> {
        let now = self.clock.now_ns();
        if let Some(running) = &mut state.tx.running {
            running.requested_ns.get_or_insert(now);
            running.waiting += batch.requests;
        }
        self.lead_commit(state)
    }

    /// All waiters for a fast commit look again.
    pub(crate) fn wake_fast(&self, state: &State) {
        self.fast.lead.notify_all();
        state.fast.wake();
    }

    /// As [`make_durable_for`](Self::make_durable_for), but this returns at once, and `done` is
    /// called with the result later, by some other thread that came here. What must wait is given
    /// to `elsewhere` as a job, at most one: it waits, and works for requests that come meanwhile,
    /// as long as there are any (for a few hundred commits, and what has come by then). It has to
    /// be done, before long, by this thread or another, with no handle open and nothing held that a
    /// commit waits for. Data that was left to others becomes durable, too. `done` is called once
    /// in any case, with no lock held, perhaps before this returns; what it does should be over at
    /// once. Never call this with a handle open.
    pub fn make_durable_for_then(
        self: &Arc<Self>,
        tid: Tid,
        key: SyncKey,
        deferred: Option<DeferredWrite>,
        done: Done,
        elsewhere: &mut dyn FnMut(Job),
    ) {
        crate::order::assert_no_handle("leaving a request");
        let (began_ns, written) = (self.clock.now_ns(), self.data_written());
        let deferred = deferred.map(|deferred| deferred.number());
        let call = Call { began_ns, written, deferred, done };
        let its = Arc::clone(self);
        match self.leave_request(tid, key, call) {
            Left::Queued(None) => {}
            Left::Queued(Some(group)) => elsewhere(Box::new(move || its.lead_group(group))),
            Left::Over(result, call) if self.is_covered(call.written) && deferred.is_none() => {
                self.tell(result, call);
            }
            Left::Over(result, call) => elsewhere(Box::new(move || its.tell(result, call))),
            Left::TooMany(call) => {
                elsewhere(Box::new(move || {
                    let result = its.wait_fast(tid, key);
                    its.tell(result, call);
                }));
            }
        }
    }

    fn leave_request(&self, tid: Tid, key: SyncKey, call: Call) -> Left {
        let mut state = self.state.lock();
        if let Err(aborted) = state.failure.check() {
            return Left::Over(Err(aborted), call);
        }
        if state.tx.committed.at_least(tid) {
            return Left::Over(Ok(()), call);
        }
        if state.async_requests.count >= MOST_REQUESTS {
            return Left::TooMany(call);
        }
        let by = if state.may_join_batch(tid) {
            By::Fast { key, ticket: self.join_batch(&mut state, key) }
        } else {
            let is_running = state.tx.is_running(tid);
            if is_running && state.tx.nothing_to_commit() {
                // Over, unless what came before it is still on its way.
                return Left::TooMany(call);
            }
            self.count_not_fast(&state, tid);
            self.count(&mut state, is_running);
            By::Full
        };
        Left::Queued(state.async_requests.add(AsyncRequest { tid, by, call }))
    }

    /// Leads the requests for one commit until there are none, and then those for others that need
    /// a leader.
    fn lead_group(&self, mut group: CommitKind) {
        let (mut over, mut kept) = (Vec::new(), 0);
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.async_requests.first(group) else {
                state.async_requests.end(group);
                kept += 1;
                match state.async_requests.take_over(group, kept) {
                    Some(next) => group = next,
                    None => return,
                }
                continue;
            };
            let (tid, by) = (first.tid, first.by.clone());
            let result = match by {
                By::Full => {
                    drop(state);
                    self.wait_counted(tid, Purpose::Durability, true)
                }
                By::Fast { key, ticket } => {
                    let mut ticket = Some(ticket);
                    loop {
                        match self.next_step(state, tid, key, &mut ticket) {
                            NextStep::Again(now) => state = now,
                            NextStep::Over(result) => break result,
                            NextStep::Full => break self.wait_for(tid, Purpose::Durability),
                        }
                    }
                }
            };
            let mut state = self.state.lock();
            // Only this thread takes them out, so it is the same one.
            let mut result = Some(result);
            while let Some(first) = state.async_requests.first(group)
                && let Some(result) = result.take().or_else(|| state.outcome(first))
                && let Some(first) = state.async_requests.take_first(group)
            {
                over.push((result, first.call));
            }
            drop(state);
            for (result, call) in over.drain(..) {
                let _ = catch_unwind(AssertUnwindSafe(|| self.tell(result, call)));
            }
        }
    }

    /// Calls, once the file data is flushed.
    fn tell(&self, result: Result<()>, call: Call) {
        let result = result
            .and_then(|()| self.flush_written(call.written))
            .and_then(|()| call.deferred.map_or(Ok(()), |n| self.make_deferred_durable(n)));
        if result.is_ok() {
            let took = self.clock.now_ns().saturating_sub(call.began_ns);
            self.counters.distributions.sync_wait_ns.record(took);
        }
        (call.done)(result);
    }
}
