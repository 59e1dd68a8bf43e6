//! Async sync requests: the caller goes on with other work, and a function is called when what it
//! asked for is durable.
//!
//! A front end reads requests of many processes. If each fsync kept one of its threads asleep until
//! the batch is durable, it would cost two thread switches more, and a thread. So the front end
//! leaves an *async request*: what is asked for, and a function to call at the end.
//!
//! Async requests that one commit will serve are a *group*: those in a batch of a fast commit, and
//! those for the full commit of a transaction. The *batch leader* of a group is the thread whose
//! request was the first in it. It waits as a blocking request does: leads the commit, stands by to
//! lead it, sleeps until another thread has written it, or waits for the full commit that the batch
//! needs instead. Then it calls the functions of all requests in the group. So a group costs one
//! thread switch at most, however many ask.
//!
//! ```text
//!   make_durable_for_then ─ durable already? ── yes ─► called at once
//!            │ no
//!      can T have a fast commit? ── no, or a full one is on its way ─► count as a request for the full commit of T
//!            │ yes                                                               │
//!      join the open batch                                                       │
//!            ▼                                                                   ▼
//!      leave the request ─ has the group a leader, or will one take it over? ── yes ─► return    (too many: wait as in make_durable_for)
//!            │ no: the caller leads
//!            ▼
//!   lead_group: the oldest request of the group ── none ─► take over the next batch ── none ─► no leader any more, return
//!            ▲        │ wait as a blocking request does, until it is over
//!            │        ▼
//!            └── take all that are over ─ no lock any more ─ is their data flushed? ─ call
//! ```
//!
//! A batch leader that has called all functions goes on with the next batch if async requests have
//! come to it meanwhile: it *takes them over*. So under load one thread leads commit after commit,
//! and no thread is woken between two of them. A group that waits for a full commit has a leader of
//! its own, for that takes long. After [`MOST_TAKEN_OVER`] batches the next one gets another
//! leader: the thread may have other work.
//!
//! To all others (blocking requests, full commits, checkpoints, freezes, aborts) a batch leader is
//! one more thread that waits for a commit. A thread that sleeps ready to lead a batch leads it
//! with the async requests in it; their leader, which sleeps in the batch as well, calls their
//! functions. So a thread that waits for its own request calls no other request's function.
//!
//! The wait takes long, and the front end may have a thread for that: it is given the wait as a
//! job, which it does at once in the calling thread, or in another.
//!
//! Invariants
//! - AS-1: the function of a request is called once: the request is in the list until its leader
//!   takes it out, under the state lock, and calls it (`Journal::lead_group`).
//! - AS-2: a group has one leader, or is about to be taken over. A thread that finds neither when
//!   it leaves a request becomes the leader (`AsyncRequests::add`), and is until there is none,
//!   seen under the state lock (`Journal::lead_group`). `takes_over` is set only while such a
//!   leader has not yet looked in vain for a group (`AsyncRequests::take_over`), whatever the
//!   functions do that it calls.
//! - AS-3: a batch with async requests will be led, by FC-9: its leader waits in it, or will when
//!   it has called the functions of the one before. So will a full commit: its leader waits for it.
//! - AS-4: success is told when a batch that the request is in was served, or its transaction is
//!   durable, before any abort (or there was nothing to commit when its leader, or the thread that
//!   left it, looked), and then the file data written or deferred before it was left is flushed
//!   (`Journal::lead_group`, `Journal::tell`). These are the conditions of a blocking request.
//! - AS-5: functions are called with no lock held, those of a batch in the order in which they
//!   came. They may leave other requests, and a panic ends that call alone (`Journal::lead_group`).

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::SyncKey;
use super::lead::{NextStep, Ticket};
use crate::journal::wait::{Purpose, nothing_to_commit};
use crate::journal::{Deferral, Journal, State};
use crate::types::{JournalError, Result, Tid};

/// Is told what became of a request.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// What takes long.
pub type Job = Box<dyn FnOnce() + Send>;

/// AsyncRequests at a time: a caller with more waits. A front end has one for each thread that is
/// in fsync, so this bounds memory (half a MiB) and delays none.
pub(super) const MOST: usize = 4096;

/// Batches that one leader keeps before another is to come.
pub(super) const MOST_TAKEN_OVER: u32 = 256;

/// A request whose caller does not sleep.
struct AsyncRequest {
    tid: Tid,
    by: By,
    call: Call,
}

/// What it waits for.
#[derive(Clone)]
enum By {
    /// A batch.
    Fast { key: SyncKey, ticket: Ticket },
    /// The full commit of its transaction.
    Full,
}

/// AsyncRequests with one leader: see there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Batch(u64),
    Full(Tid),
}

impl Group {
    /// Its leader keeps no other.
    fn is_full_commit(self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl AsyncRequest {
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
/// the open ones, the one being written, and those whose functions are being called.
#[derive(Default)]
pub(crate) struct AsyncRequests {
    groups: Vec<Kept>,
    count: usize,
    /// The leader of a batch is at work, and will look for others without one.
    takes_over: bool,
}

/// Those of a group.
struct Kept {
    group: Group,
    list: VecDeque<AsyncRequest>,
    has_leader: bool,
}

impl AsyncRequests {
    /// One more. True if its group needs a leader: the caller becomes that.
    fn add(&mut self, request: AsyncRequest) -> bool {
        let group = request.group();
        self.count += 1;
        if let Some(kept) = self.groups.iter_mut().find(|kept| kept.group == group) {
            kept.list.push_back(request);
            return false;
        }
        let has_leader = group.is_full_commit() || !std::mem::replace(&mut self.takes_over, true);
        self.groups.push(Kept { group, list: VecDeque::from([request]), has_leader });
        has_leader
    }

    /// A leader whose group has ended takes_over the oldest one without a leader. `None`: there is
    /// none, or it does not take over. One that has led [`MOST_TAKEN_OVER`] leaves those that come
    /// from now on to another, and goes when that one is there.
    fn take_over(&mut self, ended: Group, kept: u32) -> Option<Group> {
        if ended.is_full_commit() || (kept > MOST_TAKEN_OVER && self.takes_over) {
            return None;
        }
        let orphan = self.groups.iter_mut().find(|kept| !kept.has_leader);
        if orphan.is_none() || kept >= MOST_TAKEN_OVER {
            self.takes_over = false;
        }
        orphan.map(|orphan| {
            orphan.has_leader = true;
            orphan.group
        })
    }

    /// The oldest one of a group.
    fn first(&self, group: Group) -> Option<&AsyncRequest> {
        self.groups.iter().find(|kept| kept.group == group)?.list.front()
    }

    /// Takes that one.
    fn take_first(&mut self, group: Group) -> Option<AsyncRequest> {
        let request = self.groups.iter_mut().find(|kept| kept.group == group)?.list.pop_front();
        self.count -= usize::from(request.is_some());
        request
    }

    /// The group, in which there is none, has no leader any more.
    fn end(&mut self, group: Group) {
        self.groups.retain(|kept| kept.group != group);
    }

    /// There are none, and no leader.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.groups.is_empty() && self.count == 0 && !self.takes_over
    }
}

impl fmt::Debug for AsyncRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.count)
    }
}

/// What becomes of a request when it is made.
enum Made {
    /// It is over.
    Over(Result<()>, Call),
    /// There are too many: the caller waits.
    Wait(Call),
    /// The leader will call.
    Kept,
    /// The caller is the leader of this group.
    Keep(Group),
}

impl State {
    /// What became of a request, if it is over.
    fn outcome(&self, request: &AsyncRequest) -> Option<Result<()>> {
        if let Some(why) = &self.aborted {
            return Some(Err(JournalError::Aborted(why.to_string())));
        }
        let served = match &request.by {
            By::Fast { ticket, .. } => self.fast.is_served(ticket.batch),
            By::Full => false,
        };
        (self.committed.at_least(request.tid) || served).then_some(Ok(()))
    }
}

impl Journal {
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
        deferred: Option<Deferral>,
        done: Done,
        elsewhere: &mut dyn FnMut(Job),
    ) {
        crate::order::assert_no_handle("leaving a request");
        let (began_ns, written) = (self.clock.now_ns(), self.data_written());
        let call = Call { began_ns, written, deferred, done };
        match self.leave_request(tid, key, call) {
            Made::Kept => {}
            Made::Keep(group) => {
                let its = Arc::clone(self);
                elsewhere(Box::new(move || its.lead_group(group)));
            }
            Made::Over(result, call)
                if !self.is_covered(call.written) || call.deferred.is_some() =>
            {
                let its = Arc::clone(self);
                elsewhere(Box::new(move || its.tell(result, call)));
            }
            Made::Over(result, call) => self.tell(result, call),
            Made::Wait(call) => {
                let its = Arc::clone(self);
                elsewhere(Box::new(move || {
                    let result = its.wait_fast(tid, key);
                    its.tell(result, call);
                }));
            }
        }
    }

    fn leave_request(&self, tid: Tid, key: SyncKey, call: Call) -> Made {
        let mut state = self.state.lock();
        if let Some(why) = &state.aborted {
            return Made::Over(Err(JournalError::Aborted(why.to_string())), call);
        }
        if state.committed.at_least(tid) {
            return Made::Over(Ok(()), call);
        }
        if state.fast.async_requests.count >= MOST {
            return Made::Wait(call);
        }
        let by = if self.may_join(&state, tid) {
            By::Fast { key, ticket: self.enter(&mut state, key) }
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
        let request = AsyncRequest { tid, by, call };
        let group = request.group();
        let first = state.fast.async_requests.add(request);
        if first { Made::Keep(group) } else { Made::Kept }
    }

    /// Keeps the requests of a group until there are none, and then those of others that need a
    /// leader.
    fn lead_group(&self, mut group: Group) {
        let (mut over, mut kept) = (Vec::new(), 0);
        loop {
            let mut state = self.state.lock();
            let Some(first) = state.fast.async_requests.first(group) else {
                state.fast.async_requests.end(group);
                kept += 1;
                match state.fast.async_requests.take_over(group, kept) {
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
            while let Some(first) = state.fast.async_requests.first(group)
                && let Some(result) = result.take().or_else(|| state.outcome(first))
                && let Some(first) = state.fast.async_requests.take_first(group)
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
