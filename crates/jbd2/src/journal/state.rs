//! What the journal's lock holds, in parts of one job each, and what follows from it. Nothing here
//! waits, wakes a thread, or knows a device: the journal does that with what it finds here.
//!
//! | part | holds |
//! | --- | --- |
//! | [`Transactions`] | the running and the committing one, and which are durable |
//! | [`Role`] | the committer's role, and which services wait for it |
//! | [`LogState`] | log space, the handles that wait for it, when checkpoints begin |
//! | [`Gate`] | whether handles may join at all |
//! | [`Failure`] | why the journal was aborted |
//! | [`SyncRequests`] | requests for full commits, and the wait of a leader for more |
//! | [`Queue`] | requests for fast commits, and their area |
//! | [`AsyncRequests`] | requests of either kind whose callers do not sleep |

use std::sync::Arc;

use extol_sync::thread;

use crate::batching::{BatchWait, Batcher, Moment};
use crate::checkpoint::policy::FreeThreshold;
use crate::fast::async_requests::{AsyncRequest, AsyncRequests, By};
use crate::fast::queue::{BatchWaiters, Queue};
use crate::planted;
use crate::space::LogSpace;
use crate::transaction::{Callback, Running, Transaction};
use crate::types::{CommitKind, JournalError, Result, Tid};

#[derive(Debug)]
pub(crate) struct State {
    pub tx: Transactions,
    pub role: Role,
    pub log: LogState,
    pub gate: Gate,
    pub failure: Failure,
    pub sync: SyncRequests,
    pub fast: Queue,
    pub async_requests: AsyncRequests,
}

/// At most one transaction runs and one is being committed (JN-1).
#[derive(Debug)]
pub(crate) struct Transactions {
    pub running: Option<Running>,
    /// The transaction being committed, and its first log block.
    pub committing: Option<(Tid, u32)>,
    /// Newest durable transaction.
    pub committed: Tid,
    pub next: Tid,
}

/// Where a transaction is, for a thread that waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It is durable, or there is nothing in it and all before it is durable.
    Over,
    /// There is nothing in it; one before it is being committed.
    Empty,
    Running,
    Committing,
}

/// A thread that has the committer's role commits, fast or in full, or rewinds the log.
#[derive(Debug, Default)]
pub(crate) struct Role {
    pub taken: bool,
    /// The commit service had something to look at and found the role taken.
    pub service_waits: bool,
    /// The checkpoint found the role taken: the log is to go back to its beginning.
    pub rewind_waits: bool,
}

#[derive(Debug)]
pub(crate) struct LogState {
    /// None: there is no log.
    pub space: Option<LogSpace>,
    /// The superblock on disk says "empty".
    pub empty: bool,
    /// Handles that wait for space.
    pub waiters: u32,
    /// Free part under which the asynchronous checkpoint begins; none: checkpoints are
    /// synchronous.
    pub threshold: Option<FreeThreshold>,
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// While not zero no handle may join (freeze, flush, close).
    pub barriers: u32,
    /// Frozen until further notice: handles are refused.
    pub read_only: bool,
    /// A batch keeps the running transaction from being committed (`super::batch`).
    pub batch: bool,
    /// A handle found no room in it.
    pub batch_full: bool,
}

/// What a handle that wants to join meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Joins,
    /// A freeze or a commit is in the way.
    Waits,
    /// This transaction must be committed first.
    Full(Tid),
    /// The log has no room for its credits.
    NoSpace,
}

#[derive(Debug, Default)]
pub(crate) struct Failure {
    pub reason: Option<Arc<str>>,
    /// The abort came from an error; it was no shutdown on purpose.
    pub is_error: bool,
}

#[derive(Debug, Default)]
pub(crate) struct SyncRequests {
    /// Commit at least up to here.
    pub wanted: Option<Tid>,
    pub batcher: Batcher,
    /// A leader waits for others before this commit. A thread that cannot wait for that takes it
    /// away (`Journal::end_batch_wait`).
    pub batch_wait: Option<(CommitKind, BatchWait)>,
    /// Waiters for the full commit of the running transaction (they move on with it), and of the
    /// one being committed, or committed last.
    pub waiters: Arc<BatchWaiters>,
    pub committing_waiters: Arc<BatchWaiters>,
    /// Durable requests that the commit in progress serves.
    pub serving: u32,
}

impl Transactions {
    /// None has begun, and `next` is the first.
    pub fn new(next: Tid) -> Self {
        Self { running: None, committing: None, committed: next.previous(), next }
    }

    pub fn is_running(&self, tid: Tid) -> bool {
        self.running.as_ref().is_some_and(|r| r.tx.tid == tid)
    }

    /// The newest transaction that exists.
    pub fn newest(&self) -> Tid {
        match (&self.running, self.committing) {
            (Some(r), _) => r.tx.tid,
            (None, Some((tid, _))) => tid,
            (None, None) => self.committed,
        }
    }

    /// The transaction to be committed behind the one that is being committed, if any.
    pub fn next_to_commit(&self) -> Tid {
        self.running.as_ref().map_or(self.next, |r| r.tx.tid)
    }

    pub fn has_handles(&self) -> bool {
        self.running.as_ref().is_some_and(|r| r.handles > 0)
    }

    /// True if the running transaction, if any, holds nothing and no handle is about to change
    /// that.
    pub fn nothing_to_commit(&self) -> bool {
        self.running.as_ref().is_none_or(|r| !r.locked && r.handles == 0 && r.tx.is_empty())
    }

    pub fn progress(&self, tid: Tid) -> Progress {
        let is_running = self.is_running(tid);
        if self.committed.at_least(tid) {
            Progress::Over
        } else if is_running && !self.nothing_to_commit() {
            Progress::Running
        } else if self.committing.is_some_and(|(committing, _)| committing == tid) {
            Progress::Committing
        } else if is_running && self.committing.is_some() {
            Progress::Empty
        } else {
            Progress::Over
        }
    }

    /// A handle joins the running transaction; true if that begins with it.
    pub fn join(&mut self, credits: u32, now: impl FnOnce() -> u64) -> (Arc<Transaction>, bool) {
        let begins = self.running.is_none();
        let next = &mut self.next;
        let running = self.running.get_or_insert_with(|| {
            let tid = *next;
            *next = tid.next();
            Running::new(tid, now())
        });
        running.handles += 1;
        running.joined += 1;
        running.credits += credits;
        (Arc::clone(&running.tx), begins)
    }
}

impl LogState {
    /// The asynchronous checkpoint should begin, or a handle waits for it.
    pub fn wants_checkpoint(&self) -> bool {
        let is_low = self.space.as_ref().zip(self.threshold).is_some_and(|(space, threshold)| {
            u64::from(space.free()) * 100 < u64::from(space.len()) * u64::from(threshold.percent())
        });
        is_low || self.waiters > 0
    }
}

impl Failure {
    /// Err if the journal was aborted.
    pub fn check(&self) -> Result<()> {
        match &self.reason {
            Some(why) => Err(JournalError::Aborted(why.to_string())),
            None => Ok(()),
        }
    }
}

impl SyncRequests {
    /// A commit of `tid` is wanted.
    pub fn want(&mut self, tid: Tid) {
        if self.wanted.is_none_or(|wanted| tid.after(wanted)) {
            self.wanted = Some(tid);
        }
    }
}

impl State {
    /// True if the log has room for so many credits beside what the running transaction was
    /// promised. `room_for`: free log blocks that a transaction of so many blocks asks for.
    pub fn has_room(&self, credits: u32, room_for: impl FnOnce(u32) -> u32) -> bool {
        let promised = self.tx.running.as_ref().map_or(0, |r| r.credits);
        let Some(space) = &self.log.space else { return true };
        space.free() >= room_for(promised.saturating_add(credits))
    }

    /// A handle with so many credits wants to join, of the `max` that a transaction may have.
    pub fn admit(
        &mut self,
        credits: u32,
        max: u32,
        room_for: impl FnOnce(u32) -> u32,
    ) -> Admission {
        if self.gate.barriers > 0 {
            return Admission::Waits;
        }
        if let Some(r) = &mut self.tx.running {
            if r.locked {
                return Admission::Waits;
            }
            let is_full = r.credits.saturating_add(credits) > max;
            if is_full && (r.handles > 0 || !r.tx.is_empty()) {
                return Admission::Full(r.tx.tid);
            }
            if is_full {
                // Charged for revokes that were cancelled since. It holds nothing, so no thread
                // would ever commit it.
                r.credits = 0;
            }
        }
        if self.has_room(credits, room_for) { Admission::Joins } else { Admission::NoSpace }
    }

    /// What waits for a transaction that will never be durable: to be told so, once its last handle
    /// is gone. (They may hold the journal alive, so they must not stay.)
    pub fn lost_callbacks(&mut self) -> Vec<Callback> {
        match (&self.failure.reason, &self.tx.running) {
            (Some(_), Some(r)) if r.handles == 0 => std::mem::take(&mut *r.tx.callbacks.lock()),
            _ => Vec::new(),
        }
    }

    /// The full commit of the running transaction was asked for, and will serve all requests.
    pub fn full_is_coming(&self) -> bool {
        self.sync.wanted.is_some() || self.tx.running.as_ref().is_some_and(|r| r.waiting > 0)
    }

    /// A fast commit may serve a request for `tid` now.
    pub fn can_be_fast(&self, tid: Tid) -> bool {
        let early = planted::has(planted::Bug::FastOnEmptyLog);
        self.fast.covers(tid)
            && (!self.log.empty || early)
            && self.tx.running.as_ref().is_some_and(|r| r.tx.tid == tid && !r.locked)
            && !self.tx.nothing_to_commit()
    }

    /// A request for `tid` may join a batch now.
    pub fn may_join_batch(&self, tid: Tid) -> bool {
        self.can_be_fast(tid) && !self.full_is_coming()
    }

    /// What became of an async request, if it is over.
    pub fn outcome(&self, request: &AsyncRequest) -> Option<Result<()>> {
        if let Err(aborted) = self.failure.check() {
            return Some(Err(aborted));
        }
        let served = match &request.by {
            By::Fast { ticket, .. } => self.fast.is_served(ticket.batch),
            By::Full => false,
        };
        (self.tx.committed.at_least(request.tid) || served).then_some(Ok(()))
    }

    /// Counts a request for the running transaction, or for the one being committed. True if a
    /// leader that waits has waited enough.
    pub fn count(&mut self, is_running: bool, now_ns: u64) -> bool {
        let Some(running) = self.tx.running.as_mut().filter(|_| is_running) else {
            self.sync.serving += 1;
            return false;
        };
        running.requested_ns.get_or_insert(now_ns);
        running.waiting += 1;
        self.sync.batcher.asked(thread::current().id());
        match self.sync.batch_wait {
            // A full commit serves the requests for a fast one, too.
            Some((CommitKind::Fast(_), _)) => true,
            Some((CommitKind::Full(_), wait)) => running.waiting >= wait.enough,
            None => false,
        }
    }

    /// True if a leader that waits for this batch has waited enough.
    pub fn batch_is_complete(&self, batch: u64) -> bool {
        self.sync.batch_wait.is_some_and(|(kind, wait)| {
            kind == CommitKind::Fast(batch) && self.fast.waiting >= wait.enough
        })
    }

    /// Should the leader of this commit wait for others first?
    pub fn begin_batch_wait(&self, kind: CommitKind, now_ns: u64) -> Option<BatchWait> {
        // The commit is waited for to get room or to freeze.
        let is_urgent =
            self.log.waiters > 0 || self.gate.barriers > 0 || self.sync.wanted.is_some();
        let has_waited = match kind {
            CommitKind::Full(_) => self.tx.running.as_ref()?.has_waited,
            CommitKind::Fast(_) => self.fast.has_waited || self.full_is_coming(),
        };
        if is_urgent || has_waited {
            return None;
        }
        self.batcher(kind).begin(&self.moment(kind, now_ns)?)
    }

    /// A leader waits for this commit. The next one will not.
    pub fn set_batch_wait(&mut self, kind: CommitKind, wait: BatchWait) {
        match (kind, &mut self.tx.running) {
            (CommitKind::Fast(_), _) => self.fast.has_waited = true,
            (CommitKind::Full(_), Some(running)) => running.has_waited = true,
            _ => {}
        }
        self.sync.batch_wait = Some((kind, wait));
    }

    /// The leader's time is over: may it wait on?
    pub fn extend_batch_wait(
        &self,
        kind: CommitKind,
        mut wait: BatchWait,
        now_ns: u64,
    ) -> Option<BatchWait> {
        let moment = self.moment(kind, now_ns)?;
        self.batcher(kind).goes_on(&mut wait, &moment).then_some(wait)
    }

    fn batcher(&self, kind: CommitKind) -> &Batcher {
        match kind {
            CommitKind::Full(_) => &self.sync.batcher,
            CommitKind::Fast(_) => &self.fast.batcher,
        }
    }

    fn moment(&self, kind: CommitKind, now_ns: u64) -> Option<Moment> {
        let running = self.tx.running.as_ref()?;
        let (asked_ns, waiting) = match kind {
            CommitKind::Full(_) => (running.requested_ns, running.waiting),
            CommitKind::Fast(_) => (self.fast.asked_ns, self.fast.waiting),
        };
        let asked_ns = asked_ns.unwrap_or(now_ns);
        Some(Moment { now_ns, asked_ns, waiting, handles: running.joined })
    }
}

#[cfg(test)]
mod tests;
