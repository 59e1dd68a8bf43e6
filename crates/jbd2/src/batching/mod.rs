//! How long an fsync waits for others to join its transaction.
//!
//! Everybody who asks for durability while a commit runs rides on the next one. That alone makes
//! groups, but with threads that come back sooner than a commit takes it makes two of them, and
//! each works half the time:
//!
//! ```text
//!  go at once     A ██commit██┐   ┌██commit██┐          gather   A ██commit██┐ ┌██commit██┐
//!                 B    ·asks··└██commit██┘··asks        B        ██████████┘·└██████████┘
//!                 one request each per two commits      C         ← all are back: one commit for all
//! ```
//!
//! So the first who asks (the leader) may wait for the rest before it commits. Whether that pays
//! depends on the time that they need to come back against the time that a commit takes, and on
//! much that cannot be seen from here. The rule `adaptive`, made at every durable request (fsync,
//! fdatasync, syncfs, O_SYNC, dirsync):
//!
//! 1. Alone, never wait: the crowd (`Crowd`) is how many were served by or waiting at the end of
//!    one of the last few commits. ext3 and jbd2 ask instead whether the last one to sync was the
//!    same thread. That fails behind FUSE, where one program's requests come from any of the
//!    daemon's threads, and lets one of two alternating threads go alone.
//! 2. Stop waiting as soon as the whole crowd has joined.
//! 3. Never wait longer than a commit takes (`Mean`), nor longer than `max_batch_time`;
//!    `min_batch_time` raises the limit. It counts from the moment when waiting began to cost
//!    something: the first request, or the end of the last commit if that was later. (Not from the
//!    transaction's start: beside a writer that never syncs every transaction is old.) Like who
//!    rents skis until renting has cost a pair, one never loses more than half.
//! 4. Not at all where an undisturbed commit (`Quickest`) costs no more than two thread switches
//!    (`CHEAP_NS`). On a ramdisk with more threads than processors the average says nothing: it is
//!    the time of those who ran meanwhile.
//! 5. Not where measurement says that going at once serves more requests per second (`Judge`).
//! 6. Not while the last waits cost those who waited twice as much as they saved those who came
//!    (`Account`): clients that sync now and then, each for itself.
//! 7. A large crowd may need longer than a commit takes to come back, because it waits for
//!    processors, and then 3 keeps it in pieces. Each end of a commit wakes threads in the middle
//!    of others' work (who holds a directory's lock is put aside, and the rest queue up behind
//!    him), so fewer and larger groups can take less processor time for each request. Whether they
//!    do only measurement tells: from `WHOLE_CROWD` on, waiting for all, twice as long as they
//!    need, is a third way for the judge, and 3, 4 and 6 leave it alone.
//!
//! An administrator who sets `min_batch_time` has decided otherwise: it turns 4, 5 and 6 off.
//!
//! `static` is what ext3 did before 2009: who was not the last to sync sleeps a jiffy, and again as
//! long as others joined meanwhile. A jiffy is 4 ms (Linux's usual 250 Hz); with it the figures
//! that were published for the old rule come out. It is there to be compared with. `none` never
//! waits.
//!
//! This module decides and has no threads. [`Journal`](crate::Journal) holds a `Batcher` under its
//! state lock, tells it of requests and commits, and does the waiting (`journal/wait.rs`). A fast
//! commit may be led after the same wait.

mod account;
mod crowd;
mod judge;
mod mean;
#[cfg(test)]
mod tests;

use std::time::Duration;

use extol_sync::thread::ThreadId;

use serde::{Deserialize, Serialize};

use account::{Account, Waited};
use crowd::Crowd;
use judge::{Ended, Judge, Way};
use mean::{Quickest, SlowMean};

/// A jiffy of the static rule.
const JIFFY_NS: u64 = 4_000_000;
/// A commit that takes less is not worth a wait: going to sleep and being woken takes as long.
const CHEAP_NS: u64 = 25_000;
/// A crowd of that many may be waited for as a whole, and at most so long. (16 and 32 threads in
/// memory gain by it, 8 with `min_batch_time` did not. 32 threads on two processors need a
/// millisecond.)
const WHOLE_CROWD: u32 = 12;
const WHOLE_NS: u64 = 2_000_000;
/// After a pause of this length, or of eight commits if that is longer, nobody of the old crowd is
/// expected.
const PAUSE_NS: u64 = 100_000_000;

/// The rule by which an fsync waits before it commits (`fsync_batching=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchPolicy {
    /// Never wait.
    None,
    /// Wait one jiffy as long as others join, as ext3 did before 2009.
    Static,
    /// Wait as long as measured commit times say that it pays off.
    #[default]
    Adaptive,
}

impl BatchPolicy {
    /// Every policy, as option values.
    pub const NAMES: [(&'static str, Self); 3] =
        [("none", Self::None), ("static", Self::Static), ("adaptive", Self::Adaptive)];

    /// The option value.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
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

/// What batching did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BatchingStats {
    /// The rule in force.
    pub policy: BatchPolicy,
    /// `min_batch_time`, in microseconds.
    pub min_us: u64,
    /// `max_batch_time`, in microseconds.
    pub max_us: u64,
    /// Commits whose leader waited for others.
    pub waits: u64,
    /// Time of those waits, in nanoseconds.
    pub wait_ns: u64,
    /// Threads that are thought to sync at the same time.
    pub syncers: u64,
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
    /// The leader's is not the first of its requests in a row ([`Batcher::asked`]).
    pub in_a_row: bool,
}

/// A leader's wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Gather {
    /// It ends then (the journal's clock),
    pub until_ns: u64,
    /// or as soon as that many wait.
    pub enough: u32,
    /// The static rule: it never goes on past this, and how many had joined when it last looked.
    last_ns: u64,
    handles: u64,
}

/// Decides who waits, for whom and how long. `Id` tells threads apart, for the static rule.
#[derive(Debug)]
pub(crate) struct Batcher<Id = ThreadId> {
    settings: Batching,
    average: SlowMean,
    quickest: Quickest,
    crowd: Crowd,
    judge: Judge,
    account: Account,
    last_syncer: Option<Id>,
}

impl<Id> Default for Batcher<Id> {
    fn default() -> Self {
        Self {
            settings: Batching::default(),
            average: SlowMean::default(),
            quickest: Quickest::default(),
            crowd: Crowd::default(),
            judge: Judge::default(),
            account: Account::default(),
            last_syncer: None,
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
        self.average.get()
    }

    /// Threads that are thought to sync at the same time.
    pub fn syncers(&self) -> u32 {
        self.crowd.size()
    }

    /// A thread asks for durability of the running transaction. True if it was the last to do so,
    /// too.
    pub fn asked(&mut self, now_ns: u64, who: Id) -> bool {
        let pause = PAUSE_NS.max(self.average.get().saturating_mul(8));
        if now_ns.saturating_sub(self.crowd.ended_ns()) > pause {
            self.crowd.forget();
        }
        self.crowd.asked(now_ns);
        let in_a_row = self.last_syncer.as_ref() == Some(&who);
        self.last_syncer = Some(who);
        in_a_row
    }

    /// A commit ended that took so long and served so many, while others wait for the next one.
    pub fn ended(&mut self, now_ns: u64, took_ns: u64, served: u32, waiting: u32) {
        self.average.add(took_ns);
        if served == 0 {
            // The timer's: it says nothing about those who sync.
            return;
        }
        self.quickest.add(took_ns);
        self.crowd.ended(now_ns, served, waiting);
        self.account.ended(self.crowd.size());
        let returns = self.crowd.return_ns();
        self.judge.ended(Ended {
            now_ns,
            served,
            sure: returns > 0 && returns < self.average.get() / 2,
            slow: self.is_slow(),
            average_ns: self.average.get(),
            crowd: self.crowd.size(),
        });
    }

    /// Something else than a commit of these requests ended that held all of them up, and may have
    /// served some.
    pub fn interrupted(&mut self, now_ns: u64) {
        self.crowd.interrupted(now_ns);
        self.judge.interrupted(now_ns);
    }

    /// Should the leader wait? `None`: commit now.
    pub fn begin(&self, at: &Moment) -> Option<Gather> {
        let Batching { policy, min, max } = self.settings;
        let (min, max) = (nanos(min).min(nanos(max)), nanos(max));
        if max == 0 {
            return None;
        }
        match policy {
            BatchPolicy::None => None,
            BatchPolicy::Static => (!at.in_a_row).then(|| {
                let last_ns = at.now_ns.saturating_add(max);
                Gather {
                    until_ns: at.now_ns.saturating_add(JIFFY_NS).min(last_ns),
                    enough: u32::MAX,
                    last_ns,
                    handles: at.handles,
                }
            }),
            BatchPolicy::Adaptive => {
                let (crowd, average) = (self.crowd.size(), self.average.get());
                if crowd <= 1 || at.waiting >= crowd || average == 0 {
                    return None;
                }
                let (pays, most) = match self.judge.way() {
                    Way::Go => (false, average),
                    Way::Gather => {
                        (self.quickest.get() >= CHEAP_NS && !self.account.rests(), average)
                    }
                    Way::Whole if self.is_slow() => (true, self.whole_ns().max(average)),
                    Way::Whole => (true, average),
                };
                if min == 0 && !pays {
                    return None;
                }
                let since = at.asked_ns.max(self.crowd.ended_ns());
                let until_ns = since.saturating_add(most.clamp(min, max));
                (at.now_ns < until_ns).then_some(Gather {
                    until_ns,
                    enough: crowd,
                    last_ns: until_ns,
                    handles: at.handles,
                })
            }
        }
    }

    /// Waiting for the whole crowd is worth a try: it is large, and needs longer than a commit
    /// takes to come back.
    fn is_slow(&self) -> bool {
        self.crowd.size() >= WHOLE_CROWD && self.crowd.return_ns() > self.average.get()
    }

    /// How long the whole crowd is waited for.
    fn whole_ns(&self) -> u64 {
        self.crowd.return_ns().saturating_mul(2).min(WHOLE_NS)
    }

    /// A leader has waited so long, with so many requests at first and so many in the end.
    pub fn gathered(&mut self, ns: u64, before: u32, after: u32) {
        if self.judge.way() == Way::Whole {
            // Those who joined saved more than what was left of a commit: processor time, as only
            // measurement can tell.
            return;
        }
        let joined = after.saturating_sub(before);
        self.account.waited(Waited { ns, before, joined, commit_ns: self.average.get() });
    }

    /// The last waits were not worth it.
    #[cfg(test)]
    pub fn rests(&self) -> bool {
        self.account.rests()
    }

    /// The wait's time is over. True if it goes on, until its new `until_ns`.
    pub fn goes_on(&self, gather: &mut Gather, at: &Moment) -> bool {
        let more = self.settings.policy == BatchPolicy::Static
            && at.handles != gather.handles
            && at.now_ns < gather.last_ns;
        if more {
            gather.handles = at.handles;
            gather.until_ns = at.now_ns.saturating_add(JIFFY_NS).min(gather.last_ns);
        }
        more
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
