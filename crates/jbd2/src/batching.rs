//! Group commit: how long an fsync waits for others to join its commit.
//!
//! Requests that come while a commit runs share the next one. That alone makes groups, but threads
//! that come back sooner than a commit takes form two of them, and each works half the time:
//!
//! ```text
//!  no wait   A ██commit██┐   ┌██commit██┐          wait   A ██commit██┐ ┌██commit██┐
//!            B    ·asks··└██commit██┘··asks        B      ██████████┘·└██████████┘
//!            one request each per two commits      C       ← all are back: one commit for all
//! ```
//!
//! So the first request (its thread is the leader) may wait for others before it commits. The rule
//! is that of jbd2, asked at every durable request (fsync, fdatasync, syncfs, O_SYNC, dirsync):
//! wait as long as an average commit takes. It is bound as follows.
//!
//! Invariants
//! - GC-1: a thread that syncs alone never waits. The concurrent syncers are the requests that one
//!   of the last few commits served, and those that waited at its end (`Batcher::syncers`). No
//!   thread is told from another: behind FUSE one program's requests come from any thread of the
//!   daemon, so jbd2's question (is it the same thread as last time?) does not help here.
//! - GC-2: the wait ends as soon as all concurrent syncers have joined (`BatchWait::enough`).
//! - GC-3: it takes no longer than an average commit, nor than `max_batch_time`; `min_batch_time`
//!   raises the average (`Batcher::begin`). The time counts from the moment at which waiting
//!   begins to cost something: the first request, or the end of the last commit if that is later.
//! - GC-4: where a commit costs no more than two thread switches there is no wait, unless
//!   `min_batch_time` asks for one. The quickest of the last few commits decides: on a busy machine
//!   the average is mostly time in which the committing thread did not run.
//!
//! `static` is the rule of ext3 before 2009: sleep a jiffy if another thread has synced since, and
//! another jiffy as long as handles join meanwhile. `none` never waits. Both exist for the
//! published comparison alone (`extol-bench fsync-batching`); no mount option reaches them.
//!
//! This module decides and has no threads. [`Journal`](crate::Journal) holds one `Batcher` for
//! full commits and one for fast commits under its state lock, tells them of requests and commits,
//! and does the waiting (`journal/wait.rs`).

use std::time::Duration;

use extol_sync::thread::ThreadId;
use serde::{Deserialize, Serialize};

/// A jiffy of the static rule: Linux's usual 250 Hz.
const JIFFY_NS: u64 = 4_000_000;
/// Two thread switches: going to sleep and being woken.
const CHEAP_NS: u64 = 25_000;
/// How many commits are looked back on.
const LOOK_BACK: usize = 4;
/// After a pause of this length, or of eight commits if that is longer, no other syncer is
/// expected.
const PAUSE_NS: u64 = 100_000_000;

/// The rule by which an fsync waits before it commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchPolicy {
    /// Never wait.
    None,
    /// Wait one jiffy as long as others join, as ext3 did before 2009.
    Static,
    /// Wait for the concurrent syncers, at most as long as a commit takes.
    #[default]
    Adaptive,
}

impl BatchPolicy {
    /// Every policy with its name.
    pub const NAMES: [(&'static str, Self); 3] =
        [("none", Self::None), ("static", Self::Static), ("adaptive", Self::Adaptive)];

    /// The policy of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
    }
}

/// The rule and its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batching {
    /// The rule.
    pub policy: BatchPolicy,
    /// Wait at least this long where the rule waits at all (`min_batch_time=`, default 0).
    pub min: Duration,
    /// Never wait longer (`max_batch_time=`, default 15 ms); 0: never wait.
    pub max: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Self { policy: BatchPolicy::Adaptive, min: Duration::ZERO, max: Duration::from_millis(15) }
    }
}

/// What the leader of a commit sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub now_ns: u64,
    /// First durable request for this transaction.
    pub asked_ns: u64,
    /// Durable requests for it so far, the leader's included.
    pub waiting: u32,
    /// Handles that ever joined it.
    pub handles: u64,
}

/// A leader's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchWait {
    /// It ends then (the journal's clock),
    pub until_ns: u64,
    /// or as soon as that many wait.
    pub enough: u32,
    /// The static rule: it never goes on past this, and how many handles had joined at the last
    /// look.
    last_ns: u64,
    handles: u64,
}

/// A commit that served requests.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    took_ns: u64,
    syncers: u32,
}

/// Decides whether a leader waits, for how many requests and how long. `Id` tells threads apart,
/// for the static rule.
#[derive(Debug)]
pub(crate) struct Batcher<Id = ThreadId> {
    settings: Batching,
    /// jbd2's moving average of the time of a commit; 0: none has ended.
    average_ns: u64,
    /// The last commits that served requests, in a ring.
    recent: [Ended; LOOK_BACK],
    next: usize,
    ended_ns: u64,
    /// The static rule: the thread that asked last, and whether another one has asked since the
    /// last commit.
    last_syncer: Option<Id>,
    others_asked: bool,
}

impl<Id> Default for Batcher<Id> {
    fn default() -> Self {
        Self {
            settings: Batching::default(),
            average_ns: 0,
            recent: [Ended::default(); LOOK_BACK],
            next: 0,
            ended_ns: 0,
            last_syncer: None,
            others_asked: false,
        }
    }
}

impl<Id: PartialEq> Batcher<Id> {
    pub fn settings(&self) -> Batching {
        self.settings
    }

    pub fn set(&mut self, settings: Batching) {
        self.settings = settings;
    }

    /// Average time of a commit.
    pub fn average_ns(&self) -> u64 {
        self.average_ns
    }

    /// Requests that are thought to come at the same time.
    pub fn syncers(&self) -> u32 {
        self.recent.iter().map(|ended| ended.syncers).max().unwrap_or(0)
    }

    /// A thread asks for durability.
    pub fn asked(&mut self, thread: Id) {
        self.others_asked |= self.last_syncer.as_ref() != Some(&thread);
        self.last_syncer = Some(thread);
    }

    /// A commit ended that took so long and served so many, while others wait for the next one.
    pub fn ended(&mut self, now_ns: u64, took_ns: u64, served: u32, waiting: u32) {
        self.average_ns = match self.average_ns {
            0 => took_ns,
            old => took_ns.saturating_add(old.saturating_mul(3)) / 4,
        };
        if served == 0 {
            // The timer's: it says nothing about the syncers.
            return;
        }
        if self.is_pause(now_ns.saturating_sub(took_ns)) {
            self.recent = [Ended::default(); LOOK_BACK];
        }
        self.recent[self.next] = Ended { took_ns, syncers: served + waiting };
        self.next = (self.next + 1) % LOOK_BACK;
        self.ended_ns = now_ns;
        self.others_asked = false;
    }

    /// A commit of another kind ended that held all requests up.
    pub fn interrupted(&mut self, now_ns: u64) {
        self.ended_ns = now_ns;
    }

    /// Should the leader wait? `None`: commit now.
    pub fn begin(&self, at: &Moment) -> Option<BatchWait> {
        let Batching { policy, min, max } = self.settings;
        let (min, max) = (nanos(min).min(nanos(max)), nanos(max));
        let (until_ns, enough, last_ns) = match policy {
            BatchPolicy::None => return None,
            BatchPolicy::Static if self.others_asked => {
                let last_ns = at.now_ns.saturating_add(max);
                (at.now_ns.saturating_add(JIFFY_NS).min(last_ns), u32::MAX, last_ns)
            }
            BatchPolicy::Static => return None,
            BatchPolicy::Adaptive => {
                let syncers = self.syncers();
                let alone = syncers <= 1 || self.is_pause(at.now_ns);
                if alone || at.waiting >= syncers || (min == 0 && self.is_cheap()) {
                    return None;
                }
                let since = at.asked_ns.max(self.ended_ns);
                let until_ns = since.saturating_add(self.average_ns.clamp(min, max));
                (until_ns, syncers, until_ns)
            }
        };
        (at.now_ns < until_ns).then_some(BatchWait {
            until_ns,
            enough,
            last_ns,
            handles: at.handles,
        })
    }

    /// The wait's time is over. True if it goes on, until its new `until_ns`.
    pub fn goes_on(&self, wait: &mut BatchWait, at: &Moment) -> bool {
        let more = self.settings.policy == BatchPolicy::Static
            && at.handles != wait.handles
            && at.now_ns < wait.last_ns;
        if more {
            wait.handles = at.handles;
            wait.until_ns = at.now_ns.saturating_add(JIFFY_NS).min(wait.last_ns);
        }
        more
    }

    /// No commit has ended for so long that the syncers of then are gone.
    fn is_pause(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.ended_ns) > PAUSE_NS.max(self.average_ns.saturating_mul(8))
    }

    /// A commit costs no more than two thread switches.
    fn is_cheap(&self) -> bool {
        let served = self.recent.iter().filter(|ended| ended.syncers > 0);
        served.map(|ended| ended.took_ns).min().is_some_and(|quickest| quickest < CHEAP_NS)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
