//! A counter that many threads increment and that is seldom read. It has a number of *lanes*, each
//! a cache line of its own; a thread increments the lane that it was given when it first counted,
//! and reading adds them up. With one word for all threads, each increment would wait for the cache
//! line to come from another processor.
//!
//! Other structures with a part per thread number their parts in the same way ([`lane`]).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Lanes of a counter. With more threads, threads share lanes.
pub const LANES: usize = 16;

/// A counter with lanes.
#[derive(Debug, Default)]
pub struct Tally([CachePadded<AtomicU64>; LANES]);

thread_local! {
    static LANE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % LANES
    };
}

/// The lane of this thread, below [`LANES`].
#[must_use]
pub fn lane() -> usize {
    LANE.try_with(|lane| *lane).unwrap_or(0)
}

impl Tally {
    /// Adds one.
    pub fn add(&self) {
        self.0[lane()].fetch_add(1, Ordering::Relaxed);
    }

    /// The sum of all lanes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|lane| lane.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_many_threads_count() {
        let tally = Tally::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LANES {
                scope.spawn(|| (0..100).for_each(|_| tally.add()));
            }
        });
        assert_eq!(tally.total(), 200 * LANES as u64);
    }
}
