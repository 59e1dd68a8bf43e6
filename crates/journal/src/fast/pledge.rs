//! Requests that nobody sleeps for: whoever asks goes on with other work, and is told when it is durable.
//!
//! A front end reads the requests of others. If each of them kept a thread asleep until its batch is durable, every fsync would
//! cost two thread switches more, and a thread. So it leaves a *pledge* instead: what is asked for, and a function to
//! be called at the end.
//!
//! Somebody must see to it that pledges are kept. That is the *keeper*: the thread whose own pledge found none. It behaves for
//! the oldest pledge as that one's own thread would: leads its batch, stands by to lead it, sleeps until somebody else has written it,
//! or waits for the full commit that it needs instead. When that pledge is over it calls the functions of
//! all that are over with it, and goes on with the oldest one that is left. So under load one thread
//! leads batch after batch, with no thread to wake in between, and the others bring it new members.
//!
//! ```text
//!   make_durable_for_then ─ durable already? ── yes ─► called at once
//!            │ no
//!      can T have a fast commit? ── no, or a full one is on its way, or too many pledges ─► wait as in make_durable_for
//!            │ yes
//!      join the open batch, leave a pledge ─ is there a keeper? ── yes ─► return
//!            │ no: the caller is
//!            ▼
//!   keep: the oldest pledge ── none ─► no keeper any more, return
//!            ▲        │ look (as a thread that waits), until it is over
//!            │        ▼
//!            └── take all that are over ─ no lock any more ─ is its data flushed? ─ call
//! ```
//!
//! To everybody else (blocking requests, full commits, checkpoints, freezes, aborts) the keeper is one more thread
//! that waits for a fast commit. Whoever sleeps ready to lead a batch leads it with the pledges in it; the keeper, who sleeps
//! in it as well, calls their functions. So a thread that waits for its own request never works for others' for longer
//! than one batch, which it would have led anyway, and calls nobody's function. The one that is kept busy is a
//! thread that came with a pledge: whoever uses this form has to have others. It is told so first (`stays`).
//!
//! Invariants
//! - K1: a pledge is called once: it is in the list until the keeper takes it out, under the state lock, and calls it
//!   (`Journal::keep`).
//! - K2: while there is a pledge there is one keeper. It gives that up under the state lock, with an empty list
//!   (`Journal::keep`); who finds none when it leaves its pledge becomes it (`Journal::pledge`).
//! - K3: a batch with pledges will be led, by F9: the keeper is asleep in the oldest batch that has any, or has the committer's role,
//!   or is on its way to look. It does not sleep on a later one, and nothing needs to be led before the oldest is over.
//! - K4: a pledge is told of success when a batch that it is in was served, or its transaction is durable, before any
//!   abort, and then the file data written or deferred before it was left is flushed (`Journal::keep`, `Journal::tell`). These are the
//!   conditions of a blocking request.
//! - K5: functions are called with no lock held, in the order in which the pledges came. They may leave others (`Journal::keep`).

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

/// All of them, in the order in which they came.
#[derive(Default)]
pub(crate) struct Pledges {
    list: VecDeque<Pledge>,
    kept: bool,
}

#[cfg(test)]
impl Pledges {
    /// There are none, and nobody keeps them.
    pub fn is_idle(&self) -> bool {
        self.list.is_empty() && !self.kept
    }
}

impl fmt::Debug for Pledges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pledges", self.list.len())
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
    /// The caller is the keeper.
    Keep,
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
    /// later, by some other thread that came here. Or this thread stays, calls `stays` first, and works for all who come
    /// meanwhile, until nobody waits any more. Data that was left to others becomes durable, too. `done` is called once in any case, with no lock held, perhaps
    /// before this returns; it must not wait for the journal. Never call this with a handle open.
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
            Made::Keep => {
                stays();
                self.keep();
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
        if !self.may_join(&state, tid) || state.fast.pledges.list.len() >= MOST {
            return Made::Wait(call);
        }
        let ticket = self.enter(&mut state, ask);
        let pledges = &mut state.fast.pledges;
        pledges.list.push_back(Pledge { tid, ask, ticket, call });
        if std::mem::replace(&mut pledges.kept, true) { Made::Kept } else { Made::Keep }
    }

    /// Keeps pledges until there are none.
    fn keep(&self) {
        let mut over = Vec::new();
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.fast.pledges.list.front() else {
                state.fast.pledges.kept = false;
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
            while let Some(first) = state.fast.pledges.list.front()
                && let Some(result) = result.take().or_else(|| state.outcome(first.tid, &first.ticket))
                && let Some(first) = state.fast.pledges.list.pop_front()
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
