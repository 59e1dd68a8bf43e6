//! Locks that no model run decides about and that have no rank: parking_lot's, counted in debug
//! builds.
//!
//! The cost ledger (`testing/costs`) compares how many locks an operation takes, so debug builds
//! count every lock that a thread takes or tries to take ([`locks_taken`]). The counter is the
//! thread's own, so counting orders nothing between threads. Guards are parking_lot's own, and
//! release builds have parking_lot's locks under the same names.
//!
//! A model build has parking_lot's locks here as well: they protect what its scenarios do not
//! reach.

#[cfg(debug_assertions)]
pub use counted::{Mutex, RwLock, locks_taken};
pub use parking_lot::{
    Condvar, MappedRwLockReadGuard, MappedRwLockWriteGuard, MutexGuard, RwLockReadGuard,
    RwLockWriteGuard,
};
#[cfg(not(debug_assertions))]
pub use parking_lot::{Mutex, RwLock};

#[cfg(debug_assertions)]
mod counted {
    use std::cell::Cell;
    use std::time::Instant;

    use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    std::thread_local! {
        static TAKEN: Cell<u64> = const { Cell::new(0) };
    }

    /// How many locks this thread has taken so far.
    #[must_use]
    pub fn locks_taken() -> u64 {
        TAKEN.get()
    }

    pub(crate) fn count() {
        // A thread that ends has no counter any more.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
    }

    /// parking_lot's mutex, counted.
    #[derive(Default)]
    pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Self {
            Self(parking_lot::Mutex::new(value))
        }

        /// The value.
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> Mutex<T> {
        /// Waits for the lock and takes it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            count();
            self.0.lock()
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            count();
            self.0.try_lock()
        }

        /// True if a thread holds it.
        pub fn is_locked(&self) -> bool {
            self.0.is_locked()
        }

        /// The value, without a lock: the caller has the only reference.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for Mutex<T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }

    /// parking_lot's lock for readers and writers, counted.
    #[derive(Default)]
    pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

    impl<T> RwLock<T> {
        /// An unlocked lock.
        pub const fn new(value: T) -> Self {
            Self(parking_lot::RwLock::new(value))
        }

        /// The value.
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> RwLock<T> {
        /// Waits for the lock and takes it for reading.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            count();
            self.0.read()
        }

        /// As [`read`](Self::read), also where the thread holds it for reading already.
        pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
            count();
            self.0.read_recursive()
        }

        /// Takes the lock for reading if no writer has it or waits for it.
        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            count();
            self.0.try_read()
        }

        /// Waits for the lock and takes it for writing.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            count();
            self.0.write()
        }

        /// Takes the lock for writing if it is free.
        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            count();
            self.0.try_write()
        }

        /// As [`write`](Self::write), at most until `end`.
        pub fn try_write_until(&self, end: Instant) -> Option<RwLockWriteGuard<'_, T>> {
            count();
            self.0.try_write_until(end)
        }

        /// The value, without a lock: the caller has the only reference.
        pub fn get_mut(&mut self) -> &mut T {
            self.0.get_mut()
        }
    }

    impl<T: ?Sized + std::fmt::Debug> std::fmt::Debug for RwLock<T> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_counts_its_own_locks() {
        let (mutex, shared) = (Mutex::new(1), RwLock::new(2));
        let before = locks_taken();
        *mutex.lock() += 1;
        drop(mutex.try_lock());
        drop((shared.read(), shared.try_read(), shared.read_recursive()));
        *shared.write() += 1;
        drop(shared.try_write());
        drop(shared.try_write_until(std::time::Instant::now()));
        assert_eq!(locks_taken() - before, 8);
        std::thread::scope(|s| {
            s.spawn(|| drop(mutex.lock()));
        });
        assert_eq!(locks_taken() - before, 8, "another thread's are not counted");
        assert_eq!((mutex.into_inner(), shared.into_inner()), (2, 3));
    }

    #[cfg(not(feature = "model"))]
    #[test]
    fn locks_with_ranks_count_too() {
        use crate::rank::{self, Rank};
        let ranked: rank::Mutex<u8, { Rank::Trim as u8 }> = rank::Mutex::default();
        let before = locks_taken();
        drop(ranked.lock());
        drop(crate::Mutex::new(0).lock());
        assert_eq!(locks_taken() - before, 2);
    }
}
