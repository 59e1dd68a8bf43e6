//! When to checkpoint, and how far: pure functions of numbers.
//!
//! Two policies. The synchronous one acts when a handle already waits for log space. The
//! asynchronous one acts earlier:
//!
//! ```text
//!   free log space   0 ───────── tight ────────── threshold ───────── goal ──────── all
//!                    │ hot blocks    │ hot blocks stay, │ goes on once   │ idle
//!                    │ too, own      │ a commit's flush │ begun          └ threshold + 1/8
//!                    │ flush
//!                    └ a handle that waits is served first, with just what it needs
//! ```
//!
//! A log that does not wrap (there are fast commits behind it) comes free all at once, when nothing
//! in it is needed any more. Its free space is what is left before its end. Under the threshold,
//! what is cold goes home as usual; when it is tight, or a handle waits, the rest follows with no
//! commit in between, and the log begins anew. So what stalls are commits, for the time of a few
//! hot blocks, and no handle.
//!
//! *Tight* is half the threshold, or room for the largest transaction if that is more (but not more
//! than the threshold). *Hot* blocks are those that the running or the committing transaction has
//! changed again. Their committed versions need no write: the log cannot become fuller before that
//! commit, and the commit replaces them.

use serde::{Deserialize, Serialize};

use crate::types::Tid;

/// The part of the log, in per cent, under whose free space the asynchronous checkpoint begins
/// (`async_checkpoint=`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FreeThreshold(u8);

impl Default for FreeThreshold {
    fn default() -> Self {
        Self(50)
    }
}

impl FreeThreshold {
    /// From 1 to 99.
    #[must_use]
    pub fn new(percent: u64) -> Option<Self> {
        u8::try_from(percent).ok().filter(|p| (1..=99).contains(p)).map(Self)
    }

    /// Per cent.
    #[must_use]
    pub fn percent(self) -> u8 {
        self.0
    }
}

/// Home writes wait this long for a flush that another thread makes.
pub(crate) const SHARE_NS: u64 = 25_000_000;
/// Once begun, a run frees this part of the log beyond the threshold; a round frees at most so
/// much, so that the tail moves often enough, and not at every commit.
const ROUND: u32 = 8;

/// A durable transaction whose blocks are not all home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub tid: Tid,
    /// First log block.
    pub start: u32,
    /// Blocks whose newest committed version is this transaction's, and which are not home for
    /// sure.
    pub left: usize,
    /// Of these, blocks that were not yet written home.
    pub unwritten: usize,
}

/// What the policy looks at.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// The end of the log is followed by its beginning.
    pub wraps: bool,
    /// Blocks of the log, free ones, and where the tail is.
    pub log_len: u32,
    pub log_free: u32,
    pub tail: u32,
    /// Where the tail is once all of `waiting` is home.
    pub end: u32,
    /// Handles that wait for log space.
    pub waiters: u32,
    /// Free blocks that a waiting handle may need.
    pub needed: u32,
    /// Bytes of committed blocks held in memory, and the bound on them.
    pub pinned: usize,
    pub pinned_max: usize,
    /// Bytes of a block.
    pub block: usize,
    /// Oldest first.
    pub waiting: &'a [Waiting],
    /// Newest durable transaction, and whether another is on its way.
    pub committed: Tid,
    pub committing: bool,
    /// None: synchronous.
    pub threshold: Option<FreeThreshold>,
    /// A run goes on.
    pub running: bool,
    /// Age of the oldest home write that no flush has covered, in nanoseconds.
    pub unflushed: Option<u64>,
    /// Time since the tail moved, in nanoseconds.
    pub since_move: u64,
    /// Nothing can be written but what is hot.
    pub dry: bool,
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Nothing.
    Rest,
    /// Write what transactions up to this one need, flush, move the tail, all at once: a thread
    /// waits.
    Now(Tid),
    /// Write home what transactions up to `through` need, in batches; with `spare`, not the hot
    /// blocks.
    Round { through: Tid, spare: bool },
    /// Keep commits out, write everything home, flush, and let the log begin anew (one that does
    /// not wrap).
    Rewind,
    /// Flush, if home writes are not durable, and move the tail.
    Finish,
    /// Another thread is going to flush; look again after this time at the latest.
    Share(u64),
}

impl View<'_> {
    /// A handle waits for log space that is not there.
    pub fn is_short(&self) -> bool {
        self.waiters > 0 && self.log_free < self.needed
    }

    /// Log blocks from `from` forward to `to`.
    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { self.log_len.saturating_sub(from - to) }
    }

    /// Free blocks once the tail is at `start`.
    fn free_from(&self, start: u32) -> u32 {
        if !self.wraps {
            return self.log_free;
        }
        self.log_free.saturating_add(self.distance(self.tail, start))
    }

    /// Free blocks once everything that was written home is durable.
    pub fn promised(&self) -> u32 {
        let oldest = self.waiting.iter().find(|t| t.unwritten > 0);
        if !self.wraps && oldest.is_none() && !self.committing {
            return self.log_len;
        }
        self.free_from(oldest.map_or(self.end, |t| t.start))
    }

    /// The transaction up to which everything must be home for this many free blocks; the newest if
    /// nothing is enough.
    fn through(&self, goal: u32) -> Option<Tid> {
        let enough =
            |pair: &&[Waiting]| matches!(pair, [_, next] if self.free_from(next.start) >= goal);
        self.waiting
            .windows(2)
            .find(enough)
            .and_then(<[_]>::first)
            .or(self.waiting.last())
            .map(|t| t.tid)
    }

    /// The transaction up to which everything must be home for committed blocks to take three
    /// quarters of their bound.
    fn through_for_memory(&self) -> Option<Tid> {
        let mut pinned = self.pinned;
        let enough = |t: &&Waiting| {
            pinned = pinned.saturating_sub(t.left * self.block);
            pinned <= self.pinned_max / 4 * 3
        };
        self.waiting.iter().find(enough).or(self.waiting.last()).map(|t| t.tid)
    }
}

/// What to do now.
pub(crate) fn decide(view: &View<'_>) -> Decision {
    let lags = view.is_short() && view.waiting.is_empty() && !view.committing;
    if lags && view.log_free < view.log_len {
        // A checkpoint that ended together with a commit named that as the tail. Nothing is left to
        // write, but the tail may move on, and nothing else would move it.
        return if view.wraps { Decision::Now(view.committed) } else { Decision::Rewind };
    }
    match view.threshold {
        _ if view.is_short() && !view.wraps => Decision::Rewind,
        Some(threshold) => asynchronous(view, threshold),
        None => synchronous(view).map_or_else(|| leftover(view, false), Decision::Now),
    }
}

/// The synchronous policy: act when a handle waits for log space or when committed blocks take too
/// much memory; then free half the log, so that the next wait is far away and many versions of a
/// block cost one write. `None`: do nothing now. `Some(tid)`: write home what transactions up to
/// `tid` need.
fn synchronous(view: &View<'_>) -> Option<Tid> {
    let newest = view.waiting.last()?.tid;
    if view.pinned > view.pinned_max {
        return Some(newest);
    }
    if !view.is_short() {
        return None;
    }
    view.through((view.log_len / 2).max(view.needed.saturating_add(1)).min(view.log_len))
}

fn asynchronous(view: &View<'_>, threshold: FreeThreshold) -> Decision {
    let part = |percent: u8| (u64::from(view.log_len) * u64::from(percent) / 100) as u32;
    let promised = view.promised();
    if view.is_short() {
        // With just what is needed, so that no thread waits for more; the run goes on afterwards.
        let enough = promised > view.needed && promised > view.log_free;
        return match view.through(view.needed.saturating_add(1)) {
            Some(through) if !enough => Decision::Now(through),
            _ => Decision::Finish,
        };
    }
    let low = part(threshold.percent());
    // Less, and the next large transaction may not fit.
    let tight = (low / 2).max(view.needed.min(low));
    let round = view.log_len / ROUND;
    let goal = low.saturating_add(round).min(view.log_len);
    let starts = if view.running { goal } else { low };
    if !view.wraps && view.log_free < tight && !view.committing {
        return Decision::Rewind;
    }
    if promised < starts && !view.dry {
        let aim = promised.saturating_add(round).min(goal);
        if let Some(through) = view.through(aim) {
            return Decision::Round { through, spare: promised >= tight || !view.wraps };
        }
    }
    if view.pinned > view.pinned_max
        && !view.dry
        && let Some(through) = view.through_for_memory()
    {
        return Decision::Round { through, spare: true };
    }
    // The tail can pass what newer versions replaced, without a home write. Not at every commit,
    // though.
    let gains = promised.saturating_sub(view.log_free);
    if view.unflushed.is_none() && view.log_free < starts && gains > 0 {
        let at_once = gains >= round || view.since_move >= SHARE_NS;
        return if at_once {
            Decision::Finish
        } else {
            Decision::Share(SHARE_NS - view.since_move)
        };
    }
    leftover(view, view.log_free < tight && gains > 0)
}

/// Home writes that are not durable yet: a commit's flush will do, unless none comes or the space
/// is wanted soon.
fn leftover(view: &View<'_>, soon: bool) -> Decision {
    match view.unflushed {
        None => Decision::Rest,
        Some(age) if soon || age >= SHARE_NS => Decision::Finish,
        Some(age) => Decision::Share(SHARE_NS - age),
    }
}

#[cfg(test)]
mod tests;
