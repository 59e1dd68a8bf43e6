//! Requests that nobody sleeps for: whoever asks goes on with other work, and is told when it is
//! durable.
//!
//! A front end reads the requests of others. If each of them kept a thread asleep until its batch
//! is durable, every fsync would cost two thread switches more, and a thread. So it leaves a
//! *pledge* instead: what is asked for, and a function to be called at the end.
//!
//! Pledges that one commit will keep are a *group*: those in a batch of a fast commit, and those
//! for the full commit of a transaction. Somebody must see to it that they are kept. That is the
//! *keeper* of a group: the thread whose pledge was the first in it. It waits as if it had come
//! without one: leads the commit, stands by to lead it, sleeps until somebody else has written it,
//! or waits for the full commit that a batch needs instead. When it is over it calls the functions
//! of all pledges in the group. So a group costs one thread switch at most, however many ask.
//!
//! ```text
//!   make_durable_for_then ─ durable already? ── yes ─► called at once
//!            │ no
//!      can T have a fast commit? ── no, or a full one is on its way ─► count as one that waits for the full commit of T
//!            │ yes                                                               │
//!      join the open batch                                                       │
//!            ▼                                                                   ▼
//!      leave a pledge ─ has the group a keeper, or will one adopt it? ── yes ─► return    (too many pledges: wait as in make_durable_for)
//!            │ no: the caller is
//!            ▼
//!   keep: the oldest pledge of the group ── none ─► adopt the next batch ── none ─► no keeper any more, return
//!            ▲        │ wait as a thread without pledge does, until it is over
//!            │        ▼
//!            └── take all that are over ─ no lock any more ─ is their data flushed? ─ call
//! ```
//!
//! A keeper of a batch that has told everybody goes on with the next batch, if pledges have come to
//! it meanwhile: it *adopts* them. So under load one thread leads commit after commit, and between
//! two of them nobody has to be woken. (When each batch had a keeper of its own, that one stood by
//! and led as soon as it was woken, while the one before it was still calling: a switch more for
//! each batch, and on a busy machine a tenth to an eighth fewer files per second.) What waits for a
//! full commit has a keeper of its own, for that takes long. After [`MOST_ADOPTED`] batches the
//! next one gets another keeper: the thread may be one that wants to go on.
//!
//! To everybody else (blocking requests, full commits, checkpoints, freezes, aborts) a keeper is
//! one more thread that waits for a commit. Whoever sleeps ready to lead a batch leads it with the
//! pledges in it; their keeper, who sleeps in it as well, calls their functions. So a thread that
//! waits for its own request calls nobody's function.
//!
//! What a keeper does takes long, and the front end may have a thread for that: it is given the
//! keeping as a job (`aside`), which it does at once in the thread that came, or in another.
//!
//! Invariants
//! - P1: a pledge is called once: it is in the list until its keeper takes it out, under the state
//!   lock, and calls it (`Journal::keep`).
//! - P2: pledges of a group have one keeper, or somebody is about to adopt them. Who finds neither
//!   when it leaves one becomes the keeper (`Pledges::add`), and is until there is none, seen under
//!   the state lock (`Journal::keep`). `adopts` is set only while such a keeper has not yet looked
//!   in vain for a group to adopt (`Pledges::adopt`), whatever the functions do that it calls.
//! - P3: a batch with pledges will be led, by F9: its keeper waits in it, or will when it has
//!   called the functions of the one before. So will a full commit: its keeper waits for it.
//! - P4: a pledge is told of success when a batch that it is in was served, or its transaction is
//!   durable, before any abort (or there was nothing to commit when its keeper, or the one that
//!   left it, looked), and then the file data written or deferred before it was left is flushed
//!   (`Journal::keep`, `Journal::tell`). These are the conditions of a blocking request.
//! - P5: functions are called with no lock held, those of a batch in the order in which they came.
//!   They may leave others, and one that panics is the end of that call alone (`Journal::keep`).

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Ask;
use super::lead::{Look, Ticket};
use crate::journal::wait::{Purpose, nothing_to_commit};
use crate::journal::{Deferral, Journal, State};
use crate::types::{JournalError, Result, Tid};

/// Is told what became of a request.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// What takes long.
pub type Job = Box<dyn FnOnce() + Send>;

/// Pledges at a time: who comes with more waits. A front end has one for each thread of its users
/// that is in fsync, so this bounds memory (half a MiB) and hinders nobody.
pub(super) const MOST: usize = 4096;

/// Batches that one keeper keeps before another is to come.
pub(super) const MOST_ADOPTED: u32 = 256;

/// A request that nobody sleeps for.
struct Pledge {
    tid: Tid,
    by: By,
    call: Call,
}

/// What it waits for.
#[derive(Clone)]
enum By {
    /// A batch.
    Fast { ask: Ask, ticket: Ticket },
    /// The full commit of its transaction.
    Full,
}

/// Pledges with one keeper: see there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Batch(u64),
    Full(Tid),
}

impl Group {
    /// Its keeper keeps no other.
    fn is_lonely(self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl Pledge {
    fn group(&self) -> Group {
        match &self.by {
            By::Fast { ticket, .. } => Group::Batch(ticket.batch),
            By::Full => Group::Full(self.tid),
        }
    }
}

/// What is to be done at the end of one.
struct Call {
    began_ns: u64,
    /// File data that must be flushed: see [`Journal::flush_written`]; and what was left to others.
    written: u64,
    deferred: Option<Deferral>,
    done: Done,
}

/// All of them, those of a group in the order in which they came. There are a few groups at most:
/// the open ones, the one being written, and those of which somebody is told.
#[derive(Default)]
pub(crate) struct Pledges {
    groups: Vec<Kept>,
    count: usize,
    /// The keeper of a batch is at work, and will look for others without one.
    adopts: bool,
}

/// Those of a group.
struct Kept {
    group: Group,
    list: VecDeque<Pledge>,
    has_keeper: bool,
}

impl Pledges {
    /// One more. True if its group needs a keeper: who left it is that.
    fn add(&mut self, pledge: Pledge) -> bool {
        let group = pledge.group();
        self.count += 1;
        if let Some(kept) = self.groups.iter_mut().find(|kept| kept.group == group) {
            kept.list.push_back(pledge);
            return false;
        }
        let has_keeper = group.is_lonely() || !std::mem::replace(&mut self.adopts, true);
        self.groups.push(Kept { group, list: VecDeque::from([pledge]), has_keeper });
        has_keeper
    }

    /// A keeper whose group has ended adopts the oldest one without a keeper. `None`: there is
    /// none, or it does not adopt. One that has kept [`MOST_ADOPTED`] leaves those that come from
    /// now on to another, and goes when that one is there.
    fn adopt(&mut self, ended: Group, kept: u32) -> Option<Group> {
        if ended.is_lonely() || (kept > MOST_ADOPTED && self.adopts) {
            return None;
        }
        let orphan = self.groups.iter_mut().find(|kept| !kept.has_keeper);
        if orphan.is_none() || kept >= MOST_ADOPTED {
            self.adopts = false;
        }
        orphan.map(|orphan| {
            orphan.has_keeper = true;
            orphan.group
        })
    }

    /// The oldest one of a group.
    fn first(&self, group: Group) -> Option<&Pledge> {
        self.groups.iter().find(|kept| kept.group == group)?.list.front()
    }

    /// Takes that one.
    fn take_first(&mut self, group: Group) -> Option<Pledge> {
        let pledge = self.groups.iter_mut().find(|kept| kept.group == group)?.list.pop_front();
        self.count -= usize::from(pledge.is_some());
        pledge
    }

    /// The group, in which there is none, has no keeper any more.
    fn end(&mut self, group: Group) {
        self.groups.retain(|kept| kept.group != group);
    }

    /// There are none, and nobody keeps them.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.count == 0 && !self.adopts
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
    /// There are too many: the caller waits.
    Wait(Call),
    /// The keeper will call.
    Kept,
    /// The caller is the keeper of this group.
    Keep(Group),
}

impl State {
    /// What became of a pledge, if it is over.
    fn outcome(&self, pledge: &Pledge) -> Option<Result<()>> {
        if let Some(why) = &self.aborted {
            return Some(Err(JournalError::Aborted(why.to_string())));
        }
        let served = match &pledge.by {
            By::Fast { ticket, .. } => self.fast.is_served(ticket.batch),
            By::Full => false,
        };
        (self.committed.at_least(pledge.tid) || served).then_some(Ok(()))
    }
}

impl Journal {
    /// As [`make_durable_for`](Self::make_durable_for), but this returns at once, and `done` is
    /// called with the result later, by some other thread that came here. What must wait is given
    /// to `aside` as a job, at most one: it waits, and works for those who come meanwhile, as long
    /// as there are any (for a few hundred commits, and what has come by then). It has to be done,
    /// before long, by this thread or another, with no handle open and nothing held that a commit
    /// waits for. Data that was left to others becomes durable, too. `done` is called once in any
    /// case, with no lock held, perhaps before this returns; what it does should be over at once.
    /// Never call this with a handle open.
    pub fn make_durable_for_then(
        self: &Arc<Self>,
        tid: Tid,
        ask: Ask,
        deferred: Option<Deferral>,
        done: Done,
        aside: &mut dyn FnMut(Job),
    ) {
        crate::order::assert_no_handle("leaving a pledge");
        let (began_ns, written) = (self.clock.now_ns(), self.data_written());
        let call = Call { began_ns, written, deferred, done };
        match self.pledge(tid, ask, call) {
            Made::Kept => {}
            Made::Keep(group) => {
                let its = Arc::clone(self);
                aside(Box::new(move || its.keep(group)));
            }
            Made::Over(result, call)
                if !self.is_covered(call.written) || call.deferred.is_some() =>
            {
                let its = Arc::clone(self);
                aside(Box::new(move || its.tell(result, call)));
            }
            Made::Over(result, call) => self.tell(result, call),
            Made::Wait(call) => {
                let its = Arc::clone(self);
                aside(Box::new(move || {
                    let result = its.wait_fast(tid, ask);
                    its.tell(result, call);
                }));
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
        if state.fast.pledges.count >= MOST {
            return Made::Wait(call);
        }
        let by = if self.may_join(&state, tid) {
            By::Fast { ask, ticket: self.enter(&mut state, ask) }
        } else {
            let is_running = state.running.as_ref().is_some_and(|r| r.tx.tid == tid);
            if is_running && nothing_to_commit(&state) {
                // Over, unless what came before it is still on its way.
                return Made::Wait(call);
            }
            self.not_fast(&state, tid);
            self.count(&mut state, is_running);
            By::Full
        };
        let pledge = Pledge { tid, by, call };
        let group = pledge.group();
        let first = state.fast.pledges.add(pledge);
        if first { Made::Keep(group) } else { Made::Kept }
    }

    /// Keeps the pledges of a group until there are none, and then those of others that need a
    /// keeper.
    fn keep(&self, mut group: Group) {
        let (mut over, mut kept) = (Vec::new(), 0);
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.fast.pledges.first(group) else {
                state.fast.pledges.end(group);
                kept += 1;
                match state.fast.pledges.adopt(group, kept) {
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
                By::Fast { ask, ticket } => {
                    let mut ticket = Some(ticket);
                    loop {
                        match self.look(state, tid, ask, &mut ticket) {
                            Look::Again(now) => state = now,
                            Look::Over(result) => break result,
                            Look::Full => break self.wait_for(tid, Purpose::Durability),
                        }
                    }
                }
            };
            let mut state = self.state.lock();
            // Only this thread takes them out, so it is the same one.
            let mut result = Some(result);
            while let Some(first) = state.fast.pledges.first(group)
                && let Some(result) = result.take().or_else(|| state.outcome(first))
                && let Some(first) = state.fast.pledges.take_first(group)
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
            .and_then(|()| call.deferred.map_or(Ok(()), |deferred| deferred.make_durable()));
        if result.is_ok() {
            self.counters
                .distributions
                .sync_wait
                .record(self.clock.now_ns().saturating_sub(call.began_ns));
        }
        (call.done)(result);
    }
}
