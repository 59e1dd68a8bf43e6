//! A counter that many threads count up and that is seldom read: each has a line of the
//! processor's cache of its own, as far as there are lines. With one word for all, every operation
//! would wait until the word comes from another processor.
//!
//! Whatever else comes in lanes, one for each thread as far as there are any, numbers them the same
//! way ([`lane`]).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// More threads than this share lanes.
pub const LANES: usize = 16;

/// A counter with a lane for each thread.
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
    /// One more.
    pub fn add(&self) {
        self.0[lane()].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
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
