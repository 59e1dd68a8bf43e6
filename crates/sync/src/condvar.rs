//! The condition variable of debug builds: parking_lot's, whose waiters come late back and whose
//! notifications come late when a run is [shaken](super::shake). Release builds have parking_lot's
//! own under the same name.
//!
//! A woken thread gets the lock back, gives it away once more and is held up without it, as if
//! another thread had been quicker to take it. So what was true when it was notified need not be
//! true any more, which every waiter must bear.

use std::panic::Location;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
pub use parking_lot::WaitTimeoutResult;

use crate::shake::{Moment, is_on, pause};

/// See the module's story.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// No thread waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Lets go of the lock until it is notified.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
        come_late(guard, Location::caller());
    }

    /// As [`wait`](Self::wait), for at most so long.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        let result = self.0.wait_for(guard, time);
        come_late(guard, Location::caller());
        result
    }

    /// As [`wait`](Self::wait), until then at most.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let result = self.0.wait_until(guard, deadline);
        come_late(guard, Location::caller());
        result
    }

    /// Waits as long as that holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut holds: impl FnMut(&mut T) -> bool,
    ) {
        while holds(guard) {
            self.wait(guard);
        }
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        pause(Location::caller(), Moment::Before);
        self.0.notify_one();
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        pause(Location::caller(), Moment::Before);
        self.0.notify_all();
    }
}

fn come_late<T: ?Sized>(guard: &mut MutexGuard<'_, T>, at: &Location<'_>) {
    if is_on() {
        MutexGuard::unlocked(guard, || pause(at, Moment::Behind));
    }
}
