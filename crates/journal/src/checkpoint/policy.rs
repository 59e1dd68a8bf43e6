//! When to checkpoint, and how far: pure functions of numbers.

use serde::{Deserialize, Serialize};

use crate::types::Tid;

/// The part of the log, in per cent, under whose free space the asynchronous checkpoint begins (`async_checkpoint=`).
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

/// What the asynchronous checkpoint did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AsyncCheckpointStats {
    /// `async_checkpoint=`; none when off.
    pub threshold: Option<FreeThreshold>,
    /// Times that free log space fell under the threshold.
    pub runs: u64,
    /// Batches written home.
    pub batches: u64,
    /// Blocks written home.
    pub blocks: u64,
    /// Time that it worked, in nanoseconds.
    pub busy_ns: u64,
}

/// What the policy looks at.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    /// Blocks of the log, and free ones.
    pub log_len: u32,
    pub log_free: u32,
    /// Handles that wait for log space.
    pub waiters: u32,
    /// Free blocks that a waiting handle needs.
    pub needed: u32,
    /// Bytes of committed blocks held in memory, and the bound on them.
    pub pinned: usize,
    pub pinned_max: usize,
    /// Transactions oldest first: id, first log block, blocks left.
    pub waiting: &'a [(Tid, u32, usize)],
}

impl View<'_> {
    /// A handle waits for log space that is not there.
    pub fn is_short(&self) -> bool {
        self.waiters > 0 && self.log_free < self.needed
    }
}

/// The synchronous policy: act when a handle waits for log space or when committed blocks take too much memory;
/// then free half the log, so that the next wait is far away and many versions of a block cost one write.
/// `None`: do nothing now. `Some(tid)`: write home what transactions up to `tid` need.
pub(crate) fn synchronous(view: &View<'_>) -> Option<Tid> {
    let newest = view.waiting.last()?.0;
    if view.pinned > view.pinned_max {
        return Some(newest);
    }
    if !view.is_short() {
        return None;
    }
    let goal = (view.log_len / 2).max(view.needed.saturating_add(1)).min(view.log_len);
    let first = view.waiting.first()?.1;
    for pair in view.waiting.windows(2) {
        // Writing everything up to pair[0] moves the tail to the start of pair[1].
        let start = pair[1].1;
        let freed = if start >= first { start - first } else { view.log_len.saturating_sub(first - start) };
        if view.log_free.saturating_add(freed) >= goal {
            return Some(pair[0].0);
        }
    }
    Some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view<'a>(waiting: &'a [(Tid, u32, usize)]) -> View<'a> {
        View { log_len: 1000, log_free: 100, waiters: 1, needed: 300, pinned: 0, pinned_max: 1000, waiting }
    }

    #[test]
    fn acts_only_when_somebody_waits_or_memory_is_short() {
        let w = [(Tid(1), 10, 5), (Tid(2), 300, 5), (Tid(3), 600, 5)];
        assert_eq!(synchronous(&View { waiters: 0, ..view(&w) }), None);
        assert_eq!(synchronous(&View { log_free: 300, ..view(&w) }), None);
        assert_eq!(synchronous(&View { waiters: 0, pinned: 1001, ..view(&w) }), Some(Tid(3)));
        assert_eq!(synchronous(&view(&[])), None);
    }

    #[test]
    fn frees_half_the_log() {
        let w = [(Tid(1), 10, 5), (Tid(2), 300, 5), (Tid(3), 450, 5), (Tid(4), 600, 1)];
        // 100 free + (450 - 10) freed by writing T1 and T2 = 540.
        assert_eq!(synchronous(&view(&w)), Some(Tid(2)));
        let wrapped = [(Tid(1), 900, 5), (Tid(2), 100, 5), (Tid(3), 400, 5)];
        // T1 frees 200 (wraps), T1 and T2 free 500.
        assert_eq!(synchronous(&view(&wrapped)), Some(Tid(2)));
    }
}
