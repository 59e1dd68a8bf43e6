//! The full commit.
//!
//! ```text
//!   lock ─ drain ─ snapshot │ next transaction may run from here
//!   log:  [revoke]… [descriptor][copies]… [descriptor][copies]…  FLUSH  [commit record, FUA]
//!                                                                  │    └ durable: waiters return,
//!                             file data that the transaction maps ─┘      freed blocks are free
//! ```
//!
//! File data was written to the device, or deferred, before the handles that map it were opened;
//! what was deferred is written together with the log blocks (DD-5 in `journal/deferred.rs`). So
//! one flush before the commit record makes both the data and the log blocks durable. With an
//! external journal each device is flushed; with `journal_async_commit` the record travels with the
//! rest and one flush follows, correctness resting on checksums. Without a log, the snapshots are
//! written home and flushed.
//!
//! The order of what happens at the end matters: the record is durable, then older versions and
//! revoked blocks leave the checkpoint list, then callbacks give freed blocks back, then waiters
//! wake. If there were fast commits of the transaction, the first block of their area is cleared
//! then, and only then the next commit can begin, of either kind.

use std::sync::Arc;
use std::time::Duration;

use extol_sync::rank::Guard;
use extol_task::{Progress, Service};

use crate::fast::area::Area;
use crate::journal::Journal;
use crate::journal::deferred::DeferredBatch;
use crate::journal::state::State;
use crate::log::{Image, Log};
use crate::planted;
use crate::space::{LogRun, LogSpace};
use crate::transaction::{Closed, Running};
use crate::types::Result;

/// When the steps of a commit began.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// No handle can join any more.
    locked: u64,
    /// The last handle has ended, and the snapshots are taken.
    drained: u64,
}

impl Journal {
    /// Commits the running transaction, and ends the wait of a leader that waits for others. The
    /// caller becomes the committer; there must be none.
    pub(crate) fn lead_commit<'a>(&'a self, mut state: Guard<'a, State>) -> Guard<'a, State> {
        debug_assert!(!state.role.taken);
        let locked = self.clock.now_ns();
        let Some(running) = &mut state.tx.running else { return state };
        running.locked = true;
        state.role.taken = true;
        self.end_batch_wait(&mut state);
        while state.tx.has_handles() {
            self.drained.wait(state.bare());
        }
        let taken = if state.failure.reason.is_some() { None } else { state.tx.running.take() };
        let Some(running) = taken else {
            // Aborted: the transaction stays where it is; nothing of it is ever written.
            state.role.taken = false;
            self.wake_done(&state);
            return state;
        };
        let closed = running.tx.close();
        let tid = closed.tid;
        let forgotten = self.fast.source().map(|source| source.closed(tid));
        let times = Times { locked, drained: self.clock.now_ns() };
        self.count_closed(&running, &closed, times);
        // The requests for a fast commit of it are served, too.
        state.sync.serving = running.waiting + state.fast.take().requests;
        state.tx.committing = Some((tid, state.log.space.as_ref().map_or(0, LogSpace::head)));
        let waiters = std::mem::take(&mut state.sync.waiters);
        state.sync.committing_waiters = Arc::clone(&waiters);
        let (mut state, run) = self.take_space_for(state, &closed);
        if state.sync.wanted.is_some_and(|w| tid.at_least(w)) {
            state.sync.wanted = None;
        }
        let first = run.is_some() && std::mem::take(&mut state.log.empty);
        self.can_join.notify_all();
        drop(state);
        drop(forgotten);

        let is_durable = self.write_and_settle(closed, run, first);
        let mut state = self.state.lock();
        self.count_ended(&mut state, times);
        state.tx.committing = None;
        if is_durable && state.failure.reason.is_none() {
            state.tx.committed = tid;
            self.counters.transactions.add(1);
            waiters.serve();
            state = self.void_fast_commits(state);
        }
        self.leave_commit(state)
    }

    fn count_closed(&self, running: &Running, closed: &Closed, times: Times) {
        let c = &self.counters;
        let locked = times.drained.saturating_sub(times.locked);
        c.locked_ns.add(locked);
        c.distributions.locked_ns.record(locked);
        c.running_ns.add(times.locked.saturating_sub(running.began_ns));
        c.handles.add(running.joined);
        c.blocks.add(closed.blocks.len() as u64);
        if let Some(at) = running.requested_ns {
            c.requested.add(1);
            c.request_delay_ns.add(times.locked.saturating_sub(at));
        }
    }

    /// Takes log space for a closed transaction. `None`: there is not enough.
    fn take_space_for<'a>(
        &'a self,
        mut state: Guard<'a, State>,
        closed: &Closed,
    ) -> (Guard<'a, State>, Option<LogRun>) {
        let needed = self.log.get().map_or(0, |log| log.blocks_for(closed));
        if state.log.space.as_ref().is_some_and(|space| space.free() <= needed) {
            // Overdrawn by more than the slack. No other thread takes space meanwhile; failure
            // shows in `take`.
            drop(state);
            let _ = self.checkpoint_through(closed.tid.previous(), true);
            state = self.state.lock();
        }
        let run = match &mut state.log.space {
            Some(space) => space.take(needed),
            None => Some(LogRun::none()),
        };
        (state, run)
    }

    /// Writes a closed transaction, hands its blocks to the checkpoint list and calls back. True if
    /// the transaction is durable.
    fn write_and_settle(&self, closed: Closed, run: Option<LogRun>, first: bool) -> bool {
        let result = match run {
            Some(run) => self.write_closed(&closed, run, first),
            None => Err(self.abort("a transaction outgrew the log")),
        };
        let Closed { blocks, revokes, callbacks, tid } = closed;
        match result {
            Ok(start) if self.log.get().is_some() => {
                let superseded = self.checkpoint.committed(tid, start, blocks, &revokes);
                self.counters.checkpoint.superseded.add(superseded);
            }
            Ok(_) => {
                // Written home directly.
                for b in &blocks {
                    b.buf.state.lock().pending -= 1;
                }
            }
            // Never to be written. They stay pinned: readers must not see what was there before.
            Err(_) => {}
        }
        for callback in callbacks {
            callback(result.is_ok());
        }
        result.is_ok()
    }

    fn count_ended(&self, state: &mut State, times: Times) {
        let ended = self.clock.now_ns();
        let c = &self.counters;
        c.distributions.commit_ns.record(ended.saturating_sub(times.locked));
        let served = std::mem::take(&mut state.sync.serving);
        if served > 0 {
            c.distributions.batch_size.record(u64::from(served));
        }
        let waiting = state.tx.running.as_ref().map_or(0, |r| r.waiting);
        state.sync.batcher.ended(ended, ended.saturating_sub(times.drained), served, waiting);
    }

    /// The fast commits of the transaction that was just committed are void: clears their area.
    fn void_fast_commits<'a>(&'a self, mut state: Guard<'a, State>) -> Guard<'a, State> {
        if let Some(log) = self.log.get()
            && state.fast.area.as_ref().is_some_and(Area::needs_clearing)
        {
            // The requests that the commit served need not wait for that.
            self.wake_done(&state);
            self.wake_fast(&state);
            drop(state);
            if let Err(e) = self.clear_after_commit(log) {
                let _ = self.abort_by("clearing the fast-commit area failed", &e);
            }
            state = self.state.lock();
        }
        state
    }

    /// The caller is no longer the committer: wakes all that waited for that.
    fn leave_commit<'a>(&'a self, mut state: Guard<'a, State>) -> Guard<'a, State> {
        state.fast.batcher.interrupted(self.clock.now_ns());
        state.role.taken = false;
        state.role.service_waits = false;
        self.wake_done(&state);
        self.wake_fast(&state);
        if self.works_in_callers() {
            // A thread that found the next transaction full waits for this end, and has to lead.
            self.can_join.notify_all();
        }
        if state.sync.wanted.is_some() || state.tx.running.is_some() {
            // The service waits while this thread is the committer: a request may wait, or the next
            // timer start.
            self.commit_wakeup.wake();
        }
        if std::mem::take(&mut state.role.rewind_waits) || self.checkpoint_is_due(&state) {
            self.checkpoint_wakeup.wake();
        }
        if self.works_in_callers() { self.checkpoint_after_commit(state) } else { state }
    }

    /// Writes a closed transaction durably; gives its first log block.
    fn write_closed(&self, closed: &Closed, run: LogRun, first: bool) -> Result<u32> {
        let start = run.start();
        let result = match self.log.get() {
            Some(log) => self.write_to_log(log, closed, run, first),
            None => self.write_home_now(closed),
        };
        match result {
            Ok(()) => Ok(start),
            Err(e) => {
                Err(self.abort_by(&format!("commit of transaction {} failed", closed.tid), &e))
            }
        }
    }

    fn write_to_log(&self, log: &Log, closed: &Closed, run: LogRun, first: bool) -> Result<()> {
        let c = &self.counters;
        if first {
            // Nothing of another life of the log may count once the log is live.
            self.clear_area(log)?;
            log.write_tail(closed.tid, run.start(), false)?;
        }
        let began = self.clock.now_ns();
        let image = log.encode(closed, self.clock.wall(), run)?;
        c.logged_blocks.add(image.len() as u64);
        c.revoked_blocks.add(closed.revokes.len() as u64);
        // DD-1: of all handles of the transaction.
        let deferred = self.take_all_deferred();
        let (deferred, behind) = if planted::has(planted::Bug::DataBehindRecord) {
            (DeferredBatch::nothing(self), Some(deferred))
        } else {
            (deferred, None)
        };
        let record = image.len() - 1;
        let places = log.places(&image, 0..if self.async_commit { record + 1 } else { record })?;
        if self.async_commit || log.is_external() {
            deferred.write()?;
            log.write(&places)?;
        } else {
            deferred.write_with(&places.writes(), false)?;
        }
        let covered = self.writes.begun();
        if self.async_commit {
            self.flush_all(log)?;
        } else {
            self.flush_and_record(log, &image)?;
        }
        if let Some(behind) = behind {
            behind.write()?;
            return self.flush_device();
        }
        if self.barrier() && !log.is_external() {
            self.note_flush(covered);
        }
        let logging = self.clock.now_ns().saturating_sub(began);
        c.logging_ns.add(logging);
        c.distributions.logging_ns.record(logging);
        Ok(())
    }

    /// With `journal_async_commit`: the record is written already, and one flush makes all durable.
    fn flush_all(&self, log: &Log) -> Result<()> {
        if self.barrier() {
            if log.is_external() && self.writes.data.is_dirty() {
                self.flush_device()?;
            }
            self.counters.flushes.add(1);
            log.flush()?;
        }
        Ok(())
    }

    /// Makes durable what is written, then the record.
    fn flush_and_record(&self, log: &Log, image: &Image) -> Result<()> {
        let c = &self.counters;
        let began = self.clock.now_ns();
        if self.barrier() {
            if log.is_external() && self.writes.data.is_dirty() {
                self.flush_device()?;
            }
            c.flushes.add(1);
            if !planted::has(planted::Bug::CommitWithoutFlush) {
                log.flush()?;
            }
        }
        let flushing = self.clock.now_ns().saturating_sub(began);
        c.flushing_ns.add(flushing);
        c.distributions.flushing_ns.record(flushing);
        // A flush that failed elsewhere may have taken our error with it.
        self.check_aborted()?;
        self.write_durably(log, |fua| log.write_record(image, fua))
    }

    fn write_home_now(&self, closed: &Closed) -> Result<()> {
        let mut blocks: Vec<_> =
            closed.blocks.iter().map(|b| (b.buf.nr(), Arc::clone(&b.data))).collect();
        blocks.sort_unstable_by_key(|(nr, _)| *nr);
        self.write_deferred()?;
        crate::home::write(&*self.device, self.block_size(), &blocks)?;
        if self.barrier() {
            self.flush_device()?;
        }
        Ok(())
    }
}

/// Commits on request, or when the running transaction is old enough.
#[derive(Debug)]
pub(crate) struct CommitService(pub Arc<Journal>);

impl Service for CommitService {
    fn step(&mut self) -> Progress {
        let journal = &self.0;
        let mut state = journal.state.lock();
        if state.failure.reason.is_some() || state.role.taken || state.gate.batch {
            state.role.service_waits = true;
            return Progress::Idle(None);
        }
        let Some(running) = &state.tx.running else { return Progress::Idle(None) };
        let wanted = state.sync.wanted.is_some_and(|w| w.at_least(running.tx.tid));
        let age = journal.clock.now_ns().saturating_sub(running.began_ns);
        let left = journal.commit_interval_ns().saturating_sub(age);
        if running.handles == 0 && running.tx.is_empty() {
            // Nothing to write: look again when it could have become old.
            return Progress::Idle(Some(Duration::from_nanos(
                journal.commit_interval_ns().max(1_000_000),
            )));
        }
        if !wanted && left > 0 {
            return Progress::Idle(Some(Duration::from_nanos(left)));
        }
        drop(journal.lead_commit(state));
        Progress::More
    }
}

#[cfg(test)]
mod tests;
