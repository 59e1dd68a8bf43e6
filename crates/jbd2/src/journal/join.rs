//! Handles come and go.
//!
//! A handle joins the running transaction if that is not locked, has credits left, and the log can
//! take it with the handle's credits. Otherwise it sleeps on `can_join`, having asked for what it
//! needs: a commit (the transaction is full) or a checkpoint (the log is). With
//! [`Journal::work_in_callers`] it does that work itself.
//!
//! The last handle to leave wakes the thread that waits for the transaction to drain: the
//! committer, or a freeze.

use std::sync::Arc;

use extol_sync::rank::Guard;

use super::Journal;
use super::batch::BATCH_FULL;
use super::state::{Admission, State};
use crate::handle::Handle;
use crate::space::LogSpace;
use crate::transaction::Transaction;
use crate::types::{JournalError, Result};

/// What a handle begins with.
#[derive(Debug)]
pub(crate) struct Joined {
    pub tx: Arc<Transaction>,
    /// Credits that its operation asked for.
    pub credits: u32,
    /// Credits that every handle has beside them.
    pub aside: u32,
}

impl Journal {
    /// Joins the running transaction. Sleeps while it is locked or the log is full, so take every
    /// inode lock that the operation needs before. `credits`: blocks that it may change.
    ///
    /// # Errors
    /// If the journal was aborted, or no transaction ever has room for `credits`.
    pub fn start(self: &Arc<Self>, credits: u32) -> Result<Handle> {
        crate::order::wanted();
        let joined = self.join(credits)?;
        Ok(Handle::new(Arc::clone(self), joined))
    }

    /// As [`start`](Self::start), for callers that come back later instead of waiting for a thaw:
    /// `None` while the journal is frozen.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_unless_frozen(self: &Arc<Self>, credits: u32) -> Result<Option<Handle>> {
        crate::order::wanted();
        let joined = self.join_or_leave(credits, true)?;
        Ok(joined.map(|joined| Handle::new(Arc::clone(self), joined)))
    }

    /// A handle with more credits than a transaction has otherwise, for a journal that no other
    /// thread uses: the replay of fast commits, which must become one transaction, or an inode that
    /// gets another number.
    ///
    /// # Errors
    /// If the journal was aborted or has a transaction already, or the log cannot hold so many
    /// blocks.
    pub fn start_alone(self: &Arc<Self>, credits: u32) -> Result<Handle> {
        crate::order::wanted();
        let aside = self.side_credits();
        let all = credits.saturating_add(aside);
        let mut state = self.state.lock();
        state.failure.check()?;
        if state.tx.running.is_some() || !self.has_room(&state, all) {
            let is_empty = state.tx.running.is_none();
            drop(state);
            let max = if is_empty { self.max_credits_alone() } else { 0 };
            return Err(JournalError::TooManyCredits { wanted: credits, max });
        }
        let tx = self.join_running(&mut state, all);
        drop(state);
        Ok(Handle::new(Arc::clone(self), Joined { tx, credits, aside }))
    }

    /// Most credits that [`start_alone`](Self::start_alone) takes of an empty log.
    #[must_use]
    pub fn max_credits_alone(&self) -> u32 {
        let blocks = self.state.lock().log.space.as_ref().map_or(0, LogSpace::len);
        let (mut low, mut high) = (self.max_credits(), blocks);
        while low < high {
            let middle = high - (high - low) / 2;
            if self.room_for_alone(middle) <= blocks { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// Blocks of the shortest log, without those for fast commits, that takes a handle with so many
    /// credits [alone](Self::start_alone).
    #[must_use]
    pub fn log_for_alone(&self, credits: u32) -> u32 {
        // (With its superblock.)
        self.room_for_alone(credits).saturating_add(1)
    }

    fn room_for_alone(&self, credits: u32) -> u32 {
        self.room_for(credits.saturating_add(self.side_credits()))
    }

    /// True while the journal lets no handle in (freeze, close).
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state.lock().gate.barriers > 0
    }

    pub(crate) fn join(&self, credits: u32) -> Result<Joined> {
        self.join_or_leave(credits, false)?
            .ok_or_else(|| JournalError::Aborted("a handle did not wait for the thaw".into()))
    }

    /// `None` only with `unless_frozen`, while the journal is frozen.
    fn join_or_leave(&self, credits: u32, unless_frozen: bool) -> Result<Option<Joined>> {
        let (asked, aside, max) = (credits, self.side_credits(), self.max_credits());
        if asked > max {
            return Err(JournalError::TooManyCredits { wanted: asked, max });
        }
        let credits = asked.saturating_add(aside);
        let mut waited_since = None;
        let mut space_since = None;
        let mut state = self.state.lock();
        let tx = loop {
            state.failure.check()?;
            if unless_frozen && state.gate.barriers > 0 {
                return Ok(None);
            }
            if state.gate.read_only {
                return Err(JournalError::ReadOnly);
            }
            let most = self.most_blocks(&state);
            let admission = state.admit(credits, most, |n| self.room_for(n));
            if admission == Admission::Joins {
                break self.join_running(&mut state, credits);
            }
            if state.gate.batch && admission != Admission::Waits {
                let full = self.batch_is_full(&mut state);
                drop(state);
                self.shut_down(BATCH_FULL);
                return Err(full);
            }
            let now = self.clock.now_ns();
            waited_since.get_or_insert(now);
            match admission {
                Admission::Full(_) if self.works_in_callers() && !state.role.taken => {
                    state = self.lead_commit(state);
                }
                Admission::Full(tid) => {
                    self.want(&mut state, tid);
                    self.can_join.wait(state.bare());
                }
                Admission::NoSpace => {
                    space_since.get_or_insert(now);
                    state = self.wait_for_space(state);
                }
                Admission::Waits | Admission::Joins => self.can_join.wait(state.bare()),
            }
        };
        drop(state);
        let now = if waited_since.is_some() { self.clock.now_ns() } else { 0 };
        let waited = waited_since.map_or(0, |since| now.saturating_sub(since));
        if let Some(since) = space_since {
            let waited = now.saturating_sub(since);
            self.counters.space_waits.add(1);
            self.counters.space_wait_ns.add(waited);
            self.counters.distributions.space_wait_ns.record(waited);
        }
        if waited > 0 {
            self.counters.wait_ns.add(waited);
        }
        self.counters.distributions.handle_start_ns.record(waited);
        Ok(Some(Joined { tx, credits: asked, aside }))
    }

    /// Sleeps until there may be room in the log, or makes some.
    fn wait_for_space<'a>(&'a self, mut state: Guard<'a, State>) -> Guard<'a, State> {
        state.log.waiters += 1;
        self.end_batch_wait(&mut state);
        if self.works_in_callers() {
            drop(state);
            let stepped = self.checkpoint_step();
            state = self.state.lock();
            if matches!(stepped, Ok(false)) && state.role.taken {
                // Another caller's commit takes the space, and will be there for the next step.
                self.done.wait(state.bare());
            }
        } else {
            self.checkpoint_wakeup.wake();
            self.can_join.wait(state.bare());
        }
        state.log.waiters -= 1;
        state
    }

    /// Free log blocks that a transaction of so many blocks asks for.
    fn room_for(&self, blocks: u32) -> u32 {
        self.log.get().map_or(0, |log| log.room_for(blocks))
    }

    /// The log can take the running transaction with so many credits more.
    fn has_room(&self, state: &State, credits: u32) -> bool {
        state.has_room(credits, |blocks| self.room_for(blocks))
    }

    fn join_running(&self, state: &mut State, credits: u32) -> Arc<Transaction> {
        let (tx, begins) = state.tx.join(credits, || self.clock.now_ns());
        if begins {
            // The commit service must see the new transaction to time it.
            self.commit_wakeup.wake();
        }
        tx
    }

    /// A handle ends; `unused` credits come back.
    pub(crate) fn leave(&self, unused: u32) {
        let mut state = self.state.lock();
        let Some(running) = &mut state.tx.running else {
            debug_assert!(false, "a handle outlived its transaction");
            return;
        };
        running.handles -= 1;
        running.credits = running.credits.saturating_sub(unused);
        if running.handles == 0 && (running.locked || state.gate.barriers > 0) {
            self.drained.notify_all();
        } else if unused > 0 && state.sync.wanted.is_some() {
            // A handle that found the transaction full may fit in now, and no commit will wake it
            // if nothing was changed.
            self.can_join.notify_all();
        }
        let lost = state.lost_callbacks();
        drop(state);
        lost.into_iter().for_each(|callback| callback(false));
    }

    pub(crate) fn extend(&self, credits: u32) -> Result<bool> {
        self.check_aborted()?;
        let mut state = self.state.lock();
        let has_room = self.has_room(&state, credits);
        let most = self.most_blocks(&state);
        let Some(running) = &mut state.tx.running else { return Ok(false) };
        if !has_room || running.locked || running.credits.saturating_add(credits) > most {
            return Ok(false);
        }
        running.credits += credits;
        Ok(true)
    }

    /// A budget was too small: take from the slack and count it.
    pub(crate) fn overdraw(&self, credits: u32) {
        self.counters.overdrafts.add(u64::from(credits));
        if let Some(running) = &mut self.state.lock().tx.running {
            running.credits += credits;
        }
    }
}
