//! How long reads take, as they come.
//!
//! Who takes a request that will wait makes sure that somebody else reads the next one, which wakes a thread. That pays for
//! a disk, where many reads can be on their way at a time; where a read takes hardly longer than waking, it is most of the work. So
//! reads count as requests that wait only while the last ones took long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Reads below this are over before somebody else who was woken would have begun with the next.
const SHORT: u32 = 50_000;
/// A longer one counts like this: it may have waited for the processor, and the next few decide.
const MOST: u32 = 1_000_000;
/// A read moves the average by this part.
const PART: u32 = 16;

/// The average of the last reads, in ns.
#[derive(Debug)]
pub(crate) struct Reads(AtomicU32);

impl Default for Reads {
    /// Nobody knows: they take long.
    fn default() -> Self {
        Self(AtomicU32::new(4 * SHORT))
    }
}

impl Reads {
    /// True if the next one should be over at once.
    pub(crate) fn are_short(&self) -> bool {
        self.0.load(Ordering::Relaxed) < SHORT
    }

    /// A read took so long. (One of two that end at the same moment may be lost.)
    pub(crate) fn note(&self, took: Duration) {
        let ns = u32::try_from(took.as_nanos()).unwrap_or(MOST).min(MOST);
        let average = self.0.load(Ordering::Relaxed);
        self.0.store(average - average / PART + ns / PART, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reads_decide() {
        let reads = Reads::default();
        assert!(!reads.are_short(), "nobody knows");
        let us = Duration::from_micros;
        for _ in 0..50 {
            reads.note(us(10));
        }
        assert!(reads.are_short());
        reads.note(us(400));
        assert!(reads.are_short(), "one does not");
        for _ in 0..6 {
            reads.note(us(200));
        }
        assert!(!reads.are_short());
        reads.note(Duration::from_secs(100));
        for _ in 0..100 {
            reads.note(us(10));
        }
        assert!(reads.are_short(), "a very long one is not remembered for ever");
    }
}
