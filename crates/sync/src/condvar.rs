//! The condition variable of debug builds: parking_lot's, with delays before notifications and
//! after waits if the process is [shaken](super::shake). Release builds have parking_lot's own
//! under the same name.
//!
//! After a wait the thread has its mutex back. It unlocks it once more for the delay, as if another
//! thread were quicker to take it: a condition that holds at the notification need not hold when
//! the wait returns, and every waiter must check it again.

use std::panic::Location;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
pub use parking_lot::WaitTimeoutResult;

use crate::shake::{Moment, is_on, pause};

/// parking_lot's condition variable, with delays.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// No thread waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Unlocks the mutex and waits until notified.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
        delay(guard, Location::caller());
    }

    /// As [`wait`](Self::wait), at most for `time`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> WaitTimeoutResult {
        let result = self.0.wait_for(guard, time);
        delay(guard, Location::caller());
        result
    }

    /// As [`wait`](Self::wait), at most until `deadline`.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let result = self.0.wait_until(guard, deadline);
        delay(guard, Location::caller());
        result
    }

    /// Waits as long as `holds`.
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

fn delay<T: ?Sized>(guard: &mut MutexGuard<'_, T>, at: &Location<'_>) {
    if is_on() {
        MutexGuard::unlocked(guard, || pause(at, Moment::Behind));
    }
}
