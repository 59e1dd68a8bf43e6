//! Excludes other writes of a sector during its read-modify-write.
//!
//! A direct write that does not cover whole sectors reads the sectors at its edges, changes a part
//! and writes them back, which would undo another write of such a sector in between. So every write
//! registers its range of whole sectors. Aligned callers make only whole writes and pay one short
//! mutex.
//!
//! Invariant
//! - BD-5: *whole* writes never wait for each other; a *partial* one waits for all that overlap it,
//!   and they wait for it ([`RangeLock::lock`]).

use extol_sync::plain::{Condvar, Mutex};
use std::ops::Range;

/// Whether a write covers the sectors of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    /// It replaces all of them.
    Whole,
    /// It reads some, changes a part and writes them back.
    Partial,
}

#[derive(Debug, Default)]
pub(crate) struct RangeLock {
    held: Mutex<Vec<(Range<u64>, Coverage)>>,
    released: Condvar,
}

impl RangeLock {
    /// Waits until `range` may be written, and keeps it until the guard drops.
    pub(crate) fn lock(&self, range: Range<u64>, coverage: Coverage) -> RangeGuard<'_> {
        let clashes = |other: &(Range<u64>, Coverage)| {
            (coverage == Coverage::Partial || other.1 == Coverage::Partial)
                && other.0.start < range.end
                && range.start < other.0.end
        };
        let mut held = self.held.lock();
        while held.iter().any(clashes) {
            self.released.wait(&mut held);
        }
        held.push((range.clone(), coverage));
        RangeGuard { lock: self, entry: (range, coverage) }
    }
}

/// The right to write a range.
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    entry: (Range<u64>, Coverage),
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut held = self.lock.held.lock();
        if let Some(at) = held.iter().position(|e| *e == self.entry) {
            held.swap_remove(at);
        }
        self.lock.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn whole_writes_do_not_wait_for_each_other() {
        let lock = RangeLock::default();
        let _a = lock.lock(0..4096, Coverage::Whole);
        let _b = lock.lock(0..4096, Coverage::Whole);
        let _c = lock.lock(8192..12288, Coverage::Partial);
        assert_eq!(lock.held.lock().len(), 3);
    }

    #[test]
    fn partial_waits_for_overlapping_and_they_for_it() {
        for (first, second) in
            [(Coverage::Whole, Coverage::Partial), (Coverage::Partial, Coverage::Whole)]
        {
            let lock = RangeLock::default();
            let freed = AtomicBool::new(false);
            std::thread::scope(|s| {
                let guard = lock.lock(0..4096, first);
                let waiter = s.spawn(|| {
                    let _g = lock.lock(2048..8192, second);
                    assert!(freed.load(Ordering::SeqCst), "entered while the other was inside");
                });
                std::thread::sleep(Duration::from_millis(30));
                freed.store(true, Ordering::SeqCst);
                drop(guard);
                waiter.join().expect("waiter");
            });
            assert!(lock.held.lock().is_empty());
        }
    }
}
