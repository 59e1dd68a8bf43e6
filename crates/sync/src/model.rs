//! parking_lot's API over shuttle's types: no poisoning, and `Condvar::wait` takes the guard by
//! reference.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Instant;

use shuttle::sync as sh;

thread_local! {
    // The standard library's: all threads of a scenario are coroutines of one thread.
    static TIMERS_FIRE: Cell<bool> = const { Cell::new(false) };
}

/// From now on in this test thread: waits with a deadline end by it (`on`), or by a notification
/// only. By default the deadline never comes, so a missing notification shows as a deadlock.
pub fn timers_fire(on: bool) {
    TIMERS_FIRE.set(on);
}

/// A mutex whose every step the model decides.
pub struct Mutex<T>(sh::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sh::Mutex::new(value))
    }

    /// Waits for the lock and takes it. A panic of another holder is not passed on: it has failed
    /// the test already.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)), &self.0)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    /// Never locks: printing must not be a step of the schedule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// A held [`Mutex`]. Empty only inside [`Condvar::wait`].
pub struct MutexGuard<'a, T>(Option<sh::MutexGuard<'a, T>>, &'a sh::Mutex<T>);

impl<T> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MutexGuard")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().expect("a guard is whole outside of a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("a guard is whole outside of a wait")
    }
}

/// How a wait with a deadline ended.
#[derive(Clone, Copy, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// False unless [`timers_fire`].
    #[must_use]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable without spurious wake-ups: a thread that is not notified waits for ever,
/// which shows as a deadlock.
#[derive(Default)]
pub struct Condvar(sh::Condvar);

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

impl Condvar {
    /// No thread waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(sh::Condvar::new())
    }

    /// Unlocks the mutex and waits until notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("a guard is whole outside of a wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`wait`](Self::wait): the deadline never comes. With [`timers_fire`] it comes soon,
    /// before it is notified.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _deadline: Instant,
    ) -> WaitTimeoutResult {
        let fires = TIMERS_FIRE.get();
        if fires {
            drop(guard.0.take());
            shuttle::thread::yield_now();
            guard.0 = Some(guard.1.lock().unwrap_or_else(PoisonError::into_inner));
        } else {
            self.wait(guard);
        }
        WaitTimeoutResult(fires)
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
