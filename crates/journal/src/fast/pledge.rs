//! Requests that nobody sleeps for: whoever asks goes on with other work, and is told when it is durable.
//!
//! A front end reads the requests of others. If each of them kept a thread asleep until its batch is durable, every fsync would
//! cost two thread switches more, and a thread. So it leaves a *pledge* instead: what is asked for, and a function to
//! be called at the end.
//!
//! Somebody must see to it that pledges are kept. That is the *keeper* of a batch: the thread whose pledge was the first in it. It
//! waits as if it had come without one: leads the batch, stands by to lead it, sleeps until somebody else has written it, or
//! waits for the full commit that is needed instead. When the batch is over it calls the functions of all
//! pledges in it, and goes. So a batch costs one thread switch, however many ask.
//!
//! ```text
//!   make_durable_for_then ─ durable already? ── yes ─► called at once
//!            │ no
//!      can T have a fast commit? ── no, or a full one is on its way, or too many pledges ─► wait as in make_durable_for
//!            │ yes
//!      join the open batch, leave a pledge ─ has the batch a keeper? ── yes ─► return
//!            │ no: the caller is
//!            ▼
//!   keep: the oldest pledge of the batch ── none ─► no keeper any more, return
//!            ▲        │ look (as a thread that waits), until it is over
//!            │        ▼
//!            └── take all that are over ─ no lock any more ─ is their data flushed? ─ call
//! ```
//!
//! Each batch has a keeper of its own, so that the next one is on its way to the device while the functions of this one are
//! called: they write replies, which takes about as long as a flush. One thread that did it all, batch after batch, would save
//! a switch and let the device stand idle.
//!
//! To everybody else (blocking requests, full commits, checkpoints, freezes, aborts) a keeper is one more thread
//! that waits for a fast commit. Whoever sleeps ready to lead a batch leads it with the pledges in it; their keeper, who sleeps
//! in it as well, calls their functions. So a thread that waits for its own request calls nobody's function, and
//! one that came with a pledge works for one batch at most. It is told so first (`stays`).
//!
//! Invariants
//! - P1: a pledge is called once: it is in the list until its keeper takes it out, under the state lock, and calls it
//!   (`Journal::keep`).
//! - P2: pledges of a batch have one keeper. Who finds none of its batch when it leaves one becomes it (`Pledges::add`), and it
//!   is until there is none, seen under the state lock (`Journal::keep`).
//! - P3: a batch with pledges will be led, by F9: its keeper waits in it.
//! - P4: a pledge is told of success when a batch that it is in was served, or its transaction is durable, before any
//!   abort, and then the file data written or deferred before it was left is flushed (`Journal::keep`, `Journal::tell`). These are the
//!   conditions of a blocking request.
//! - P5: functions are called with no lock held, those of a batch in the order in which they came. They may leave others
//!   (`Journal::keep`).

use std::collections::VecDeque;
use std::fmt;

use super::Ask;
use super::lead::{Look, Ticket};
use crate::journal::wait::Purpose;
use crate::journal::{Deferral, Journal, State};
use crate::types::{JournalError, Result, Tid};

/// Is told what became of a request.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// Pledges at a time: who comes with more waits. A front end has one for each thread of its users that is in fsync, so this bounds
/// memory (half a MiB) and hinders nobody.
pub(super) const MOST: usize = 4096;

/// A request that nobody sleeps for.
struct Pledge {
    tid: Tid,
    ask: Ask,
    ticket: Ticket,
    call: Call,
}

/// What is to be done at the end of one.
struct Call {
    began_ns: u64,
    /// File data that must be flushed: see [`Journal::flush_written`]; and what was left to others.
    written: u64,
    deferred: Option<Deferral>,
    done: Done,
}

/// All of them, those of a batch in the order in which they came. There are a few batches at most: the open one, the one being
/// written, and those of which somebody is told.
#[derive(Default)]
pub(crate) struct Pledges {
    batches: Vec<Kept>,
    count: usize,
}

/// Those of a batch. As long as this is here, it has a keeper.
struct Kept {
    batch: u64,
    list: VecDeque<Pledge>,
}

impl Pledges {
    /// One more. True if it is the first of its batch: who left it is the keeper.
    fn add(&mut self, pledge: Pledge) -> bool {
        let batch = pledge.ticket.batch;
        self.count += 1;
        if let Some(kept) = self.batches.iter_mut().find(|kept| kept.batch == batch) {
            kept.list.push_back(pledge);
            return false;
        }
        self.batches.push(Kept { batch, list: VecDeque::from([pledge]) });
        true
    }

    /// The oldest one of a batch.
    fn first(&self, batch: u64) -> Option<&Pledge> {
        self.batches.iter().find(|kept| kept.batch == batch)?.list.front()
    }

    /// Takes that one.
    fn take_first(&mut self, batch: u64) -> Option<Pledge> {
        let pledge = self.batches.iter_mut().find(|kept| kept.batch == batch)?.list.pop_front();
        self.count -= usize::from(pledge.is_some());
        pledge
    }

    /// The batch, in which there is none, has no keeper any more.
    fn end(&mut self, batch: u64) {
        self.batches.retain(|kept| kept.batch != batch);
    }

    /// There are none, and nobody keeps them.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.batches.is_empty() && self.count == 0
    }
}

impl fmt::Debug for Pledges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pledges", self.count)
    }
}

/// What becomes of a request when it is made.
enum Made {
    /// It is over.
    Over(Result<()>, Call),
    /// It needs a full commit, or there are too many: the caller waits.
    Wait(Call),
    /// The keeper will call.
    Kept,
    /// The caller is the keeper of this batch.
    Keep(u64),
}

impl State {
    /// What became of a pledge, if it is over.
    fn outcome(&self, tid: Tid, ticket: &Ticket) -> Option<Result<()>> {
        if let Some(why) = &self.aborted {
            return Some(Err(JournalError::Aborted(why.to_string())));
        }
        (self.committed.at_least(tid) || self.fast.is_served(ticket.batch)).then_some(Ok(()))
    }
}

impl Journal {
    /// As [`make_durable_for`](Self::make_durable_for), but as a rule this returns at once, and `done` is called with the result
    /// later, by some other thread that came here. Or this thread stays, calls `stays` first, and works for those who come
    /// meanwhile, for one batch. Data that was left to others becomes durable, too. `done` is called once in any case, with no
    /// lock held, perhaps before this returns; what it does should be over at once. Never call this with a handle open.
    pub fn make_durable_for_then(
        &self,
        tid: Tid,
        ask: Ask,
        deferred: Option<Deferral>,
        done: Done,
        stays: &mut dyn FnMut(),
    ) {
        crate::order::assert_no_handle("leaving a pledge");
        let (began_ns, written) = (self.clock.now_ns(), self.data_written());
        let call = Call { began_ns, written, deferred, done };
        match self.pledge(tid, ask, call) {
            Made::Kept => {}
            Made::Keep(batch) => {
                stays();
                self.keep(batch);
            }
            Made::Over(result, call) => {
                if !self.is_covered(call.written) || call.deferred.is_some() {
                    stays();
                }
                self.tell(result, call);
            }
            Made::Wait(call) => {
                stays();
                let result = self.wait_fast(tid, ask);
                self.tell(result, call);
            }
        }
    }

    fn pledge(&self, tid: Tid, ask: Ask, call: Call) -> Made {
        let mut state = self.state.lock();
        if let Some(why) = &state.aborted {
            return Made::Over(Err(JournalError::Aborted(why.to_string())), call);
        }
        if state.committed.at_least(tid) {
            return Made::Over(Ok(()), call);
        }
        if !self.may_join(&state, tid) || state.fast.pledges.count >= MOST {
            return Made::Wait(call);
        }
        let ticket = self.enter(&mut state, ask);
        let batch = ticket.batch;
        let first = state.fast.pledges.add(Pledge { tid, ask, ticket, call });
        if first { Made::Keep(batch) } else { Made::Kept }
    }

    /// Keeps the pledges of a batch until there are none.
    fn keep(&self, batch: u64) {
        let mut over = Vec::new();
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.fast.pledges.first(batch) else {
                state.fast.pledges.end(batch);
                return;
            };
            let (tid, ask, mut ticket) = (first.tid, first.ask, Some(first.ticket.clone()));
            let result = loop {
                match self.look(state, tid, ask, &mut ticket) {
                    Look::Again(now) => state = now,
                    Look::Over(result) => break result,
                    Look::Full => break self.wait_for(tid, Purpose::Durability),
                }
            };
            let mut state = self.state.lock();
            // Only this thread takes them out, so it is the same one.
            let mut result = Some(result);
            while let Some(first) = state.fast.pledges.first(batch)
                && let Some(result) = result.take().or_else(|| state.outcome(first.tid, &first.ticket))
                && let Some(first) = state.fast.pledges.take_first(batch)
            {
                over.push((result, first.call));
            }
            drop(state);
            for (result, call) in over.drain(..) {
                self.tell(result, call);
            }
        }
    }

    /// Calls, once the file data is flushed.
    fn tell(&self, result: Result<()>, call: Call) {
        let result = result
            .and_then(|()| self.flush_written(call.written))
            .and_then(|()| call.deferred.map_or(Ok(()), |deferred| deferred.make_durable()));
        if result.is_ok() {
            self.counters.distributions.sync_wait.record(self.clock.now_ns().saturating_sub(call.began_ns));
        }
        (call.done)(result);
    }
}
