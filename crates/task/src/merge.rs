//! Requests that one operation can answer together.
//!
//! Many threads may ask for the same expensive operation at the same time: a sync of the volume,
//! say. One operation that begins after all of them have asked answers them all. So the requests go
//! into a queue, and one *issuing thread* takes all that are there, does the operation once, and
//! gives each caller the result. Meanwhile the next requests gather: a hundred callers cost about
//! two operations. The issuing thread has a priority of its own; a caller may have a low one, and
//! other callers would wait for it. f2fs does the same for its checkpoints (`checkpoint_merge`).
//!
//! ```text
//!   ask ──► queue ──┐                              ┌──► answer
//!   ask ──► queue ──┼─ take all ─ join ─ issue ────┼──► answer
//!   ask ──► queue ──┘  (issuing thread)            └──► answer
//!                      what is queued during `issue` waits for the next turn
//! ```
//!
//! The issuing thread can be started and stopped at any time. Without it a caller does the
//! operation itself, at once.
//!
//! Two callers that ask again as soon as they are answered would alternate: the issuing thread
//! takes the first request a moment before the second one is queued, so each caller waits for the
//! other's operation and then for its own. So after an operation the issuing thread waits until as
//! many requests are queued as it has just answered, but at most half as long as that operation
//! took (`Callers`).
//!
//! Invariants
//! - MG-1: a request is answered by an operation that began after it was queued. `Merger::turn`
//!   takes requests from the queue only before it issues, never while it does.
//! - MG-2: every request in the queue is answered. It is queued only while there is an issuing
//!   thread (`Merger::ask`); a stop first takes the thread out of the state, waits for its end, and
//!   then answers what is left (`Merger::stop`).
//! - MG-3: the requests of a batch get the same answer, also if the operation panics
//!   ([`Issue::broken`]).
//! - MG-4: a start that failed leaves nothing behind (`Merger::start`).
//!
//! Locks: `control` is held while the thread starts or ends and never by a caller or by the thread;
//! the others are leaves.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use extol_sync::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use crate::{Clock, Progress, Runner, Service, Wakeup};

/// The operation that the requests ask for.
pub trait Issue: Send + Sync + 'static {
    /// What a request asks for.
    type Ask: Copy + Send + Sync + 'static;
    /// The result.
    type Answer: Clone + Send + 'static;

    /// What contains both.
    fn join(a: Self::Ask, b: Self::Ask) -> Self::Ask;

    /// Does the operation, on the issuing thread or on a caller's.
    fn issue(&self, ask: Self::Ask) -> Self::Answer;

    /// The answer if `issue` panicked.
    fn broken() -> Self::Answer;

    /// Called once on the issuing thread when it begins. The result is dropped on that thread when
    /// it ends.
    fn begin(&self) -> Box<dyn Send> {
        Box::new(())
    }
}

/// A request in the queue.
struct Request<I: Issue> {
    ask: I::Ask,
    queued_ns: u64,
    answer: Mutex<Option<I::Answer>>,
    answered: Condvar,
}

impl<I: Issue> Request<I> {
    fn give(&self, answer: I::Answer) {
        *self.answer.lock() = Some(answer);
        self.answered.notify_all();
    }

    fn wait(&self) -> I::Answer {
        let mut answer = self.answer.lock();
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => self.answered.wait(&mut answer),
            }
        }
    }
}

/// The callers that are expected back after an operation.
#[derive(Clone, Copy, Debug, Default)]
struct Callers {
    /// The requests that the last operation answered, and those that were queued when it ended.
    count: usize,
    ended_ns: u64,
    took_ns: u64,
}

impl Callers {
    /// The longest wait, however long operations take.
    const LONGEST_NS: u64 = 10_000_000;

    /// How long to wait for the rest if `waiting` requests are queued; `None`: begin now.
    fn pause(&self, now_ns: u64, waiting: usize) -> Option<Duration> {
        let until = self.ended_ns.saturating_add((self.took_ns / 2).min(Self::LONGEST_NS));
        (waiting > 0 && waiting < self.count && now_ns < until)
            .then(|| Duration::from_nanos(until - now_ns))
    }
}

/// Counters of a [`Merger`]: those that f2fs shows of its checkpoint thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeStats {
    /// The issuing thread runs.
    pub enabled: bool,
    /// Requests that have no answer yet.
    pub queued: u64,
    /// Operations done for the queue.
    pub issued: u64,
    /// Requests that these answered.
    pub total: u64,
    /// Mean waiting time of the requests of the last batch, in ms.
    pub cur_time_ms: u64,
    /// The largest such time so far.
    pub peak_time_ms: u64,
}

impl MergeStats {
    /// The line of f2fs's status file.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { queued, issued, total, cur_time_ms, peak_time_ms, .. } = self;
        format!(
            "CP merge (Queued: {queued:4}, Issued: {issued:4}, Total: {total:4}, \
             Cur time: {cur_time_ms:4}(ms), Peak time: {peak_time_ms:4}(ms))"
        )
    }
}

/// The queue, and what is known of its thread and of the operations.
struct State<I: Issue> {
    /// Requests that no operation answers yet.
    queue: Vec<Arc<Request<I>>>,
    /// Wakes the issuing thread, if there is one.
    thread: Option<Wakeup>,
    callers: Callers,
    stats: MergeStats,
}

/// The queue, its thread, and the one entry to both: [`ask`](Self::ask).
pub struct Merger<I: Issue> {
    issue: I,
    clock: Arc<dyn Clock>,
    state: Mutex<State<I>>,
    control: Mutex<Option<Runner>>,
}

impl<I: Issue> std::fmt::Debug for Merger<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Merger")
    }
}

impl<I: Issue> Merger<I> {
    /// Without an issuing thread: each caller does its own operation.
    pub fn new(issue: I, clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = State {
            queue: Vec::new(),
            thread: None,
            callers: Callers::default(),
            stats: MergeStats::default(),
        };
        Arc::new(Self { issue, clock, state: Mutex::new(state), control: Mutex::new(None) })
    }

    /// The operation.
    pub fn issuer(&self) -> &I {
        &self.issue
    }

    /// Asks for the operation and waits for its result.
    pub fn ask(&self, ask: I::Ask) -> I::Answer {
        let mut state = self.state.lock();
        let Some(wakeup) = state.thread.clone() else {
            drop(state);
            return self.issue.issue(ask);
        };
        let request = Arc::new(Request {
            ask,
            queued_ns: self.clock.now_ns(),
            answer: Mutex::new(None),
            answered: Condvar::new(),
        });
        state.queue.push(Arc::clone(&request));
        state.stats.queued += 1;
        drop(state);
        wakeup.wake();
        request.wait()
    }

    /// Answers the requests in the queue with one operation. False if there were none.
    fn turn(&self) -> bool {
        let batch = std::mem::take(&mut self.state.lock().queue);
        let Some(ask) = batch.iter().map(|request| request.ask).reduce(I::join) else {
            return false;
        };
        let began_ns = self.clock.now_ns();
        let answer = std::panic::catch_unwind(AssertUnwindSafe(|| self.issue.issue(ask)));
        let answer = answer.unwrap_or_else(|_| I::broken());

        let count = batch.len() as u64;
        let now = self.clock.now_ns();
        let waited = |request: &Arc<Request<I>>| now.saturating_sub(request.queued_ns) / 1_000_000;
        let mean = batch.iter().map(waited).sum::<u64>() / count;
        let mut state = self.state.lock();
        let stats = &mut state.stats;
        stats.issued += 1;
        stats.total += count;
        stats.queued -= count;
        stats.cur_time_ms = mean;
        stats.peak_time_ms = stats.peak_time_ms.max(mean);
        state.callers = Callers {
            count: batch.len() + state.queue.len(),
            ended_ns: now,
            took_ns: now.saturating_sub(began_ns),
        };
        drop(state);
        batch.into_iter().for_each(|request| request.give(answer.clone()));
        true
    }

    /// Starts the issuing thread, called `name`, if it does not run.
    ///
    /// # Errors
    /// If the thread cannot be created; everything stays as it was.
    pub fn start(self: &Arc<Self>, name: &str) -> std::io::Result<()> {
        self.start_with(|wakeup, service| Runner::start(name, wakeup, service))
    }

    fn start_with(
        self: &Arc<Self>,
        start: impl FnOnce(&Wakeup, IssueService<I>) -> std::io::Result<Runner>,
    ) -> std::io::Result<()> {
        let mut control = self.control.lock();
        if control.is_some() {
            return Ok(());
        }
        // The last thread's wake-up stays stopped.
        let wakeup = Wakeup::new();
        let service = IssueService { merger: Arc::clone(self), begun: None, pauses: 0 };
        *control = Some(start(&wakeup, service)?);
        self.state.lock().thread = Some(wakeup);
        Ok(())
    }

    /// Stops the issuing thread, if it runs, and answers what it left in the queue. Later callers
    /// do the operation themselves.
    pub fn stop(&self) {
        let mut control = self.control.lock();
        let Some(runner) = control.take() else { return };
        self.state.lock().thread = None;
        runner.stop();
        self.turn();
    }

    /// Counters.
    pub fn stats(&self) -> MergeStats {
        let state = self.state.lock();
        MergeStats { enabled: state.thread.is_some(), ..state.stats }
    }
}

/// The issuing thread: takes the whole queue each time.
struct IssueService<I: Issue> {
    merger: Arc<Merger<I>>,
    /// What [`Issue::begin`] gave.
    begun: Option<Box<dyn Send>>,
    /// Waits for the rest of the callers since the last operation, at most `Callers::count`. (A
    /// clock that stands still ends none.)
    pauses: usize,
}

impl<I: Issue> Service for IssueService<I> {
    fn step(&mut self) -> Progress {
        self.begun.get_or_insert_with(|| self.merger.issue.begin());
        let merger = &self.merger;
        let (callers, queued) = {
            let state = merger.state.lock();
            (state.callers, state.queue.len())
        };
        if self.pauses < callers.count
            && let Some(pause) = callers.pause(merger.clock.now_ns(), queued)
        {
            self.pauses += 1;
            return Progress::Idle(Some(pause));
        }
        self.pauses = 0;
        if merger.turn() { Progress::More } else { Progress::Idle(None) }
    }
}

#[cfg(test)]
mod tests;
