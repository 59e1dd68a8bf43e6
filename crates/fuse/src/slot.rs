//! A worker as others see it.
//!
//! The worker begins and ends a request here, and the tender may mark it as away in between;
//! whoever changes the slot first tells the crew, so each leave is told once.

use std::sync::atomic::{AtomicU64, Ordering};

use extol_sync::Condvar;
use parking_lot::Mutex;

/// What a worker is doing; the rest of the word counts its requests.
const ACTIVE: u64 = 1;
const AWAY: u64 = 2;
const DOING: u64 = 3;

/// A worker as others see it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    doing: AtomicU64,
    /// What the tender saw the last time.
    seen: AtomicU64,
    called: Mutex<bool>,
    wake: Condvar,
}

impl Slot {
    /// A request begins.
    pub(crate) fn begin(&self, away: bool) {
        let next = (self.doing.load(Ordering::Relaxed) | DOING) + 1;
        self.doing.store(next | if away { AWAY } else { ACTIVE }, Ordering::Release);
    }

    /// Marks the worker, who asks, as away. False if it was before.
    pub(crate) fn leaves(&self) -> bool {
        self.leave(self.doing.load(Ordering::Acquire))
    }

    /// Marks the worker as away. False if it was away before, or is not working.
    fn leave(&self, word: u64) -> bool {
        word & DOING == ACTIVE
            && self
                .doing
                .compare_exchange(word, (word & !DOING) | AWAY, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    /// The request is over. False if the worker was away.
    pub(crate) fn end(&self) -> bool {
        self.doing.fetch_and(!DOING, Ordering::AcqRel) & DOING == ACTIVE
    }

    /// True, and it is marked as away, if it is at the same request as when this was asked the last
    /// time.
    pub(crate) fn takes_long(&self) -> bool {
        let word = self.doing.load(Ordering::Acquire);
        self.seen.swap(word, Ordering::Relaxed) == word && self.leave(word)
    }

    /// True if it works.
    pub(crate) fn works(&self) -> bool {
        self.doing.load(Ordering::Acquire) & DOING != 0
    }

    /// True if it works on a request that waits.
    pub(crate) fn is_away(&self) -> bool {
        self.doing.load(Ordering::Acquire) & DOING == AWAY
    }

    /// True if it works, and at the same request as when this was asked the last time.
    pub(crate) fn same_request(&self) -> bool {
        let word = self.doing.load(Ordering::Acquire);
        self.seen.swap(word, Ordering::Relaxed) == word && word & DOING != 0
    }

    /// Wakes the worker.
    pub(crate) fn call(&self) {
        *self.called.lock() = true;
        self.wake.notify_one();
    }

    /// Sleeps until it is called.
    pub(crate) fn sleep(&self) {
        let mut called = self.called.lock();
        while !std::mem::take(&mut *called) {
            self.wake.wait(&mut called);
        }
    }
}
