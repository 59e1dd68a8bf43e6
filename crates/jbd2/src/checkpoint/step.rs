//! Executes what the policy decided: home writes, a flush (or another thread's), and the tail.
//!
//! A turn of the asynchronous checkpoint is one batch, or one flush with the tail's move; between
//! two turns nothing is locked, and the next turn begins with a new look: a thread that waits for
//! log space by then is served at once, an abort or a changed threshold is seen, and the thread's
//! loop looks at its stop signal. A thread that needs the log empty (a freeze) or a part of it free
//! (a commit that overdrew) takes the same lock between two turns and does it all.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use extol_block::BlockNr;
use extol_sync::rank::Guard;
use extol_task::{Progress, Service};

use super::list::Due;
use super::policy::{self, Decision, View};
use super::rounds::Rounds;
use crate::journal::Journal;
use crate::journal::state::State;
use crate::log::Log;
use crate::planted;
use crate::types::{Result, Tid};

/// What a block is to hold.
pub(crate) type Block = (BlockNr, Arc<Vec<u8>>);

/// The committer's role, to go back with the log's head. Never waited for with `checkpointing`
/// held: a commit that overdrew has it, and waits for that lock.
struct Role<'a>(&'a Journal);

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        self.0.release_role(&mut state);
        self.0.wake_fast(&state);
    }
}

impl Journal {
    /// One turn of the checkpoint: asks the policy, does what it says. False if there was nothing
    /// to do now.
    ///
    /// # Errors
    /// If a write fails; the journal is aborted then and the tail stays where it is.
    pub fn checkpoint_step(&self) -> Result<bool> {
        Ok(self.checkpoint_turn()? == Progress::More)
    }

    /// True if a look at the log's and the memory's state may give the checkpoint something to do.
    pub(crate) fn checkpoint_is_due(&self, state: &State) -> bool {
        state.log.wants_checkpoint() || self.pinned() > self.pinned_max
    }

    /// Bytes of committed blocks that wait to be durable at home.
    fn pinned(&self) -> usize {
        self.checkpoint.len() * self.block_size().len()
    }

    /// A commit ended, and only callers work: one turn, if there is something to do. Takes
    /// and gives the state lock.
    pub(crate) fn checkpoint_after_commit<'a>(
        &'a self,
        state: Guard<'a, State>,
    ) -> Guard<'a, State> {
        if state.log.threshold.is_none() {
            return state;
        }
        drop(state);
        // A failure has aborted the journal: every thread sees it.
        let _ = self.checkpoint_turn();
        self.state.lock()
    }

    fn checkpoint_turn(&self) -> Result<Progress> {
        let mut rounds = self.checkpointing.lock();
        self.check_aborted()?;
        let Some(log) = self.log.get() else { return Ok(Progress::Idle(None)) };
        let began = self.clock.now_ns();
        if self.settle(&mut rounds) {
            self.counters.checkpoint.shared_flushes.add(1);
            self.move_tail(log, &mut rounds, false)?;
        }
        let mut dry = false;
        loop {
            let (decision, is_async) = self.decide(&rounds, dry);
            if !dry && !matches!(decision, Decision::Round { .. } | Decision::Now(_)) {
                rounds.running = false;
            }
            match decision {
                Decision::Rest => return Ok(Progress::Idle(None)),
                Decision::Share(ns) => return Ok(Progress::Idle(Some(Duration::from_nanos(ns)))),
                Decision::Now(through) => {
                    self.write_through(log, &mut rounds, through, false)?;
                    return Ok(Progress::More);
                }
                Decision::Rewind => {
                    let (role, through) = self.take_role();
                    let moved = self.write_through(log, &mut rounds, through, role.is_some())?;
                    drop(role);
                    if is_async {
                        self.worked(began);
                    }
                    // If a commit was in the way, its end wakes us.
                    return Ok(if moved { Progress::More } else { Progress::Idle(None) });
                }
                Decision::Round { through, spare } => {
                    if rounds.is_written() {
                        rounds.begin(self.checkpoint.due(through, spare));
                    }
                    if self.write_batch(&mut rounds)? {
                        self.worked(began);
                        return Ok(Progress::More);
                    }
                    dry = true;
                }
                Decision::Finish => {
                    let moved = self.finish(log, &mut rounds, false)?;
                    if is_async {
                        self.worked(began);
                    }
                    return Ok(if moved { Progress::More } else { Progress::Idle(None) });
                }
            }
        }
    }

    fn worked(&self, since_ns: u64) {
        self.counters.checkpoint.busy_ns.add(self.clock.now_ns().saturating_sub(since_ns));
    }

    fn decide(&self, rounds: &Rounds, dry: bool) -> (Decision, bool) {
        let waiting = self.checkpoint.waiting();
        let pinned = self.pinned();
        let state = self.state.lock();
        let Some(space) = &state.log.space else { return (Decision::Rest, false) };
        let now = self.clock.now_ns();
        // Callers work when they come by; no thread watches the clock.
        let age = |ns: u64| if self.works_in_callers() { 0 } else { ns };
        let view = View {
            wraps: space.wraps(),
            log_len: space.len(),
            log_free: space.free(),
            tail: space.tail(),
            end: state.tx.committing.map_or(space.head(), |(_, start)| start),
            waiters: state.log.waiters,
            needed: self.space_needed(),
            pinned,
            pinned_max: self.pinned_max,
            block: self.block_size().len(),
            waiting: &waiting,
            committed: state.tx.committed,
            committing: state.tx.committing.is_some(),
            threshold: state.log.threshold,
            running: rounds.running,
            unflushed: rounds.unflushed_for(now).map(age),
            since_move: age(now.saturating_sub(rounds.moved_ns)),
            dry,
        };
        (policy::decide(&view), view.threshold.is_some())
    }

    /// Writes the next batch of the round home. False if nothing was left in it.
    fn write_batch(&self, rounds: &mut Rounds) -> Result<bool> {
        while !rounds.is_written() {
            let batch = rounds.next_batch(|left| {
                crate::home::batch_len(self.block_size(), left.iter().map(|d| d.nr))
            });
            let written = self.write_home(rounds, batch, None)?;
            if written > 0 {
                if !std::mem::replace(&mut rounds.running, true) {
                    self.counters.checkpoint.runs.add(1);
                }
                self.counters.checkpoint.batches.add(1);
                self.counters.checkpoint.blocks.add(written);
                return Ok(true);
            }
            // A newer version of each block was committed meanwhile.
        }
        Ok(false)
    }

    /// Writes these blocks home as far as they still wait, and `other` beside them; gives how many
    /// of these were written.
    fn write_home(
        &self,
        rounds: &mut Rounds,
        mut batch: Vec<Due>,
        other: Option<Block>,
    ) -> Result<u64> {
        if let Some(first) = self.home_first() {
            let due = self.checkpoint.not_home(&[first..first.plus(1)]);
            if !due.is_empty() {
                let written = self.write_sorted_home(rounds, due, None)?;
                self.flush_device()?;
                return Ok(written + self.write_sorted_home(rounds, batch, other)?);
            }
        }
        if let Some(last) = self.home_last().filter(|last| batch.iter().any(|d| d.nr == *last)) {
            // All that the same transactions need goes first.
            batch = self.checkpoint.due_before(last, batch);
            let (now, behind): (Vec<Due>, Vec<Due>) =
                batch.into_iter().partition(|due| due.nr != last);
            let written = self.write_sorted_home(rounds, now, other)?;
            self.flush_device()?;
            return Ok(written + self.write_sorted_home(rounds, behind, None)?);
        }
        self.write_sorted_home(rounds, batch, other)
    }

    /// As [`write_home`](Self::write_home), in block order.
    fn write_sorted_home(
        &self,
        rounds: &mut Rounds,
        mut batch: Vec<Due>,
        other: Option<Block>,
    ) -> Result<u64> {
        let began = self.clock.now_ns();
        let mut work = self.checkpoint.take(&mut batch);
        let count = work.len() as u64;
        if let Some(block) = other {
            work.insert(work.partition_point(|(nr, _)| *nr < block.0), block);
        }
        if work.is_empty() {
            return Ok(0);
        }
        let result = crate::home::write(&*self.device, self.block_size(), &work);
        self.checkpoint.wrote(&batch, result.is_ok());
        if let Err(e) = result {
            return Err(self.abort_by("checkpoint failed", &e.into()));
        }
        let now = self.clock.now_ns();
        rounds.wrote(self.writes.home.returned(), batch, now);
        rounds.busy_ns += now.saturating_sub(began);
        self.counters.checkpointed_blocks.add(count);
        Ok(count)
    }

    /// Marks home writes that a flush has covered as done. True if there were any.
    fn settle(&self, rounds: &mut Rounds) -> bool {
        let early = planted::has(planted::Bug::TailTooEarly);
        let covered = if self.barrier() && !early { self.writes.home.covered() } else { u64::MAX };
        let durable = rounds.durable(covered);
        durable.iter().for_each(|batch| self.checkpoint.settle(batch));
        if !durable.is_empty() {
            self.counters.checkpoints.add(1);
        }
        !durable.is_empty()
    }

    /// Makes home writes durable if they are not, and moves the tail. True if it moved.
    fn finish(&self, log: &Log, rounds: &mut Rounds, has_role: bool) -> Result<bool> {
        let began = self.clock.now_ns();
        self.settle(rounds);
        if rounds.unflushed_for(began).is_some() {
            self.flush_device()?;
            self.settle(rounds);
        }
        rounds.busy_ns += self.clock.now_ns().saturating_sub(began);
        self.move_tail(log, rounds, has_role)
    }

    /// Writes home what transactions up to `through` still need, flushes, and moves the tail. The
    /// caller has the committer's role if it `has_role`: no other thread takes log space then.
    pub(crate) fn checkpoint_through(&self, through: Tid, has_role: bool) -> Result<()> {
        let mut rounds = self.checkpointing.lock();
        self.check_aborted()?;
        let Some(log) = self.log.get() else { return Ok(()) };
        self.write_through(log, &mut rounds, through, has_role).map(drop)
    }

    fn write_through(
        &self,
        log: &Log,
        rounds: &mut Rounds,
        through: Tid,
        has_role: bool,
    ) -> Result<bool> {
        // What is left of an asynchronous round is in it, or can wait.
        rounds.begin(Vec::new());
        let due = self.checkpoint.due(through, false);
        self.write_home(rounds, due, None)?;
        self.finish(log, rounds, has_role)
    }

    /// Takes the committer's role if it is free; else its end wakes the checkpoint. Gives the
    /// newest durable transaction, too.
    fn take_role(&self) -> (Option<Role<'_>>, Tid) {
        let mut state = self.state.lock();
        if state.role.taken {
            state.role.rewind_waits = true;
            return (None, state.tx.committed);
        }
        state.role.taken = true;
        (Some(Role(self)), state.tx.committed)
    }

    /// Makes the newest committed versions of blocks in these ranges durable at home. The tail is
    /// left to the next turn.
    pub(crate) fn bring_home(&self, ranges: &[Range<BlockNr>]) -> Result<()> {
        if !self.checkpoint.not_home(ranges).is_empty()
            && self.send_home(ranges, None)?
            && self.barrier()
        {
            self.flush_device()?;
        }
        Ok(())
    }

    /// Writes the newest committed versions of blocks in these ranges home, and at the same time
    /// `other`, which the log does not know. True if a flush must follow for the former.
    pub(crate) fn send_home(
        &self,
        ranges: &[Range<BlockNr>],
        other: Option<Block>,
    ) -> Result<bool> {
        let mut rounds = self.checkpointing.lock();
        self.check_aborted()?;
        // No other thread writes blocks home while this one has the lock.
        let due = self.checkpoint.not_home(ranges);
        self.write_home(&mut rounds, due.clone(), other)?;
        Ok(!rounds.are_durable(&due, self.writes.home.covered()))
    }

    /// Names the oldest transaction that is still needed as the tail, and frees what lies before
    /// it. A log that does not wrap goes back to its beginning if no transaction is needed, else it
    /// stays as it is.
    fn move_tail(&self, log: &Log, rounds: &mut Rounds, has_role: bool) -> Result<bool> {
        let began = self.clock.now_ns();
        let mut role = None;
        let tail = {
            let mut state = self.state.lock();
            let Some(space) = &state.log.space else { return Ok(false) };
            if state.failure.reason.is_some() {
                // The log stays as it is.
                drop(state);
                return self.check_aborted().map(|()| false);
            }
            let next = state.tx.next_to_commit();
            let oldest = self.checkpoint.oldest();
            // Nothing live: leave the superblock alone, unless blocks can be freed.
            if space.wraps() {
                let tail = oldest.or(state.tx.committing).unwrap_or_else(|| (next, space.head()));
                (tail.1 != space.tail() && !state.log.empty).then_some(tail)
            } else {
                let tid = state.tx.committing.map_or(next, |(tid, _)| tid);
                let first = space.first();
                let free = has_role || !state.role.taken;
                let can = oldest.is_none() && free && space.head() != first && !state.log.empty;
                if can && !has_role {
                    // No commit may begin where the head is now.
                    state.role.taken = true;
                    role = Some(Role(self));
                }
                can.then_some((tid, first))
            }
        };
        let Some((tid, block)) = tail else { return Ok(false) };
        if let Err(e) = log.write_tail(tid, block, self.barrier()) {
            return Err(self.abort_by("moving the log tail failed", &e));
        }
        let mut state = self.state.lock();
        let State { log: of_log, tx, .. } = &mut *state;
        match &mut of_log.space {
            Some(space) if space.wraps() => space.move_tail(block),
            Some(space) => {
                space.set_empty();
                if let Some((_, start)) = &mut tx.committing {
                    *start = block;
                }
            }
            None => {}
        }
        self.can_join.notify_all();
        drop(state);
        drop(role);
        self.counters.checkpoint.tail_moves.add(1);
        rounds.moved_ns = self.clock.now_ns();
        let took = rounds.moved_ns.saturating_sub(began);
        self.counters
            .distributions
            .checkpoint_ns
            .record(std::mem::take(&mut rounds.busy_ns) + took);
        Ok(true)
    }
}

/// Writes committed blocks home when the policy says so.
#[derive(Debug)]
pub(crate) struct CheckpointService(pub Arc<Journal>);

impl Service for CheckpointService {
    fn step(&mut self) -> Progress {
        self.0.checkpoint_turn().unwrap_or(Progress::Idle(None))
    }
}

#[cfg(test)]
mod tests;
