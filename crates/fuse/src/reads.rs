//! How long reads take, as they come.
//!
//! Who takes a request that will wait makes sure that somebody else reads the next one, which wakes
//! a thread. That pays for a disk, where many reads can be on their way at a time; where a read
//! takes hardly longer than waking, it is most of the work. So reads count as requests that wait
//! only while the last ones took long. (Those that a worker does together count as if they had come
//! one after the other, each with its share of the time, or an eighth of it.)
//!
//! Where they take very long, each is better off with a worker of its own
//! ([`gather`](crate::gather)): the time of a thread more counts for nothing, and the next read of
//! whoever waits for this one could be on its way.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Reads below this are over before somebody else who was woken would have begun with the next.
const SHORT: u32 = 50_000;
/// From here on none waits for another. A disk without moving parts takes less, unless the machine
/// is busy.
const LONG: u32 = 600_000;
/// A longer one counts like this: it may have waited for the processor, and the next few decide.
const MOST: u32 = 1_000_000;
/// Of reads that are done together each has a share of the time, but not less than this part: a
/// disk that is far away does sixteen in the time of one, and yet whoever waits for them could have
/// more on their way.
const SHARED: u32 = 8;
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

    /// True if the next one may take so long that nothing should wait for it.
    pub(crate) fn are_long(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LONG
    }

    /// A read took so long. (One of two that end at the same moment may be lost.)
    pub(crate) fn note(&self, took: Duration) {
        self.note_together(took, 1);
    }

    /// So many reads took so long, together.
    pub(crate) fn note_together(&self, took: Duration, reads: u32) {
        let each = took.checked_div(reads.min(SHARED)).unwrap_or_default();
        let ns = u32::try_from(each.as_nanos()).unwrap_or(MOST).min(MOST);
        let mut average = self.0.load(Ordering::Relaxed);
        for _ in 0..reads {
            average = average - average / PART + ns / PART;
        }
        self.0.store(average, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reads_decide() {
        let reads = Reads::default();
        assert!(!reads.are_short() && !reads.are_long(), "nobody knows");
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
        for _ in 0..20 {
            reads.note(us(5000));
        }
        assert!(reads.are_long());
        reads.note(Duration::from_secs(100));
        for _ in 0..100 {
            reads.note(us(10));
        }
        assert!(
            reads.are_short() && !reads.are_long(),
            "a very long one is not remembered for ever"
        );
    }

    /// Where most reads are done together, the few that come alone and take their time do not make
    /// all of them long.
    #[test]
    fn reads_that_are_done_together_count_as_many() {
        let reads = Reads::default();
        let us = Duration::from_micros;
        for _ in 0..50 {
            reads.note(us(100));
            reads.note_together(us(8 * 20), 8);
        }
        assert!(reads.are_short());
        for _ in 0..50 {
            reads.note_together(us(8 * 100), 8);
        }
        assert!(!reads.are_short(), "each has its share, not more");
        for _ in 0..50 {
            reads.note_together(us(8 * 20), 8);
        }
        assert!(reads.are_short());
        for _ in 0..50 {
            reads.note_together(us(500), 16);
        }
        assert!(!reads.are_short(), "a disk that is far away and does many at a time");
    }
}
