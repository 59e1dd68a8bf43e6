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
//!      can T have a fast commit? ── no, or a full one ──► count as a request
//!            │ yes                  is on its way         for the full commit of T
//!      join the open batch                                   │
//!            ▼                                               ▼
//!      leave the request ─ has the group a leader, or will one take it over? ── yes ─► return
//!            │ no: the caller leads             (too many requests: wait as in make_durable_for)
//!            ▼
//!   lead_group: the oldest request of the group ── none ─► take over the next batch
//!            ▲        │ wait as a blocking request       ── none ─► no leader any more, return
//!            │        │ does, until it is over
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

use super::queue::Ticket;
use super::source::SyncKey;
use crate::types::{CommitKind, Result, Tid};

/// Is told what became of a request.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// Requests at a time: a caller with more waits. A front end has one for each thread that is
/// in fsync, so this bounds memory (half a MiB) and delays none.
pub(crate) const MOST: usize = 4096;

/// Batches that one leader keeps before another is to come.
pub(crate) const MOST_TAKEN_OVER: u32 = 256;

/// A request whose caller does not sleep.
pub(crate) struct AsyncRequest {
    pub tid: Tid,
    pub by: By,
    pub call: Call,
}

/// What it waits for.
#[derive(Clone)]
pub(crate) enum By {
    /// A batch.
    Fast { key: SyncKey, ticket: Ticket },
    /// The full commit of its transaction.
    Full,
}

impl AsyncRequest {
    /// Requests for the same commit have one leader: they are a group.
    pub fn group(&self) -> CommitKind {
        match &self.by {
            By::Fast { ticket, .. } => CommitKind::Fast(ticket.batch),
            By::Full => CommitKind::Full(self.tid),
        }
    }
}

/// What is to be done at the end of one.
pub(crate) struct Call {
    pub began_ns: u64,
    /// File data that must be flushed (see `Journal::flush_written`), and the deferred write that
    /// must be durable, by its number.
    pub written: u64,
    pub deferred: Option<u64>,
    pub done: Done,
}

/// All of them, those of a group in the order in which they came. There are a few groups at most:
/// the open ones, the one being written, and those whose functions are being called.
#[derive(Default)]
pub(crate) struct AsyncRequests {
    groups: Vec<Requests>,
    pub count: usize,
    /// The leader of a batch is at work, and will look for others without one.
    takes_over: bool,
}

/// Those for the same commit.
struct Requests {
    group: CommitKind,
    list: VecDeque<AsyncRequest>,
    has_leader: bool,
}

impl AsyncRequests {
    /// One more. If its group needs a leader, gives that: the caller becomes it.
    pub fn add(&mut self, request: AsyncRequest) -> Option<CommitKind> {
        let group = request.group();
        self.count += 1;
        if let Some(kept) = self.groups.iter_mut().find(|kept| kept.group == group) {
            kept.list.push_back(request);
            return None;
        }
        // That of a full commit takes over no other group.
        let is_full = matches!(group, CommitKind::Full(_));
        let has_leader = is_full || !std::mem::replace(&mut self.takes_over, true);
        self.groups.push(Requests { group, list: VecDeque::from([request]), has_leader });
        has_leader.then_some(group)
    }

    /// A leader whose group has ended takes over the oldest one without a leader. `None`: there is
    /// none, or it does not take over. One that has led [`MOST_TAKEN_OVER`] leaves those that come
    /// from now on to another, and goes when that one is there.
    pub fn take_over(&mut self, ended: CommitKind, kept: u32) -> Option<CommitKind> {
        if matches!(ended, CommitKind::Full(_)) || (kept > MOST_TAKEN_OVER && self.takes_over) {
            return None;
        }
        let next = self.groups.iter_mut().find(|kept| !kept.has_leader);
        if next.is_none() || kept >= MOST_TAKEN_OVER {
            self.takes_over = false;
        }
        next.map(|next| {
            next.has_leader = true;
            next.group
        })
    }

    /// The oldest one of a group.
    pub fn first(&self, group: CommitKind) -> Option<&AsyncRequest> {
        self.groups.iter().find(|kept| kept.group == group)?.list.front()
    }

    /// Takes that one.
    pub fn take_first(&mut self, group: CommitKind) -> Option<AsyncRequest> {
        let request = self.groups.iter_mut().find(|kept| kept.group == group)?.list.pop_front();
        self.count -= usize::from(request.is_some());
        request
    }

    /// The group, in which there is none, has no leader any more.
    pub fn end(&mut self, group: CommitKind) {
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
