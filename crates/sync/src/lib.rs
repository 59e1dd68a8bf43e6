//! Locks, condition variables, atomics and threads for the code that is model-checked: the journal,
//! the background services, and the merging of flushes. That code takes them from here only.
//!
//! In a release build these are parking_lot's and the standard library's own types under other
//! names: no wrapper, no cost. Debug builds count the locks that a thread takes. With the feature
//! `model` they are those of `shuttle`, which runs all threads of a test as coroutines of one
//! thread, decides at each step which one goes on, and so tries thousands of interleavings, each of
//! which can be repeated. The API is the same, so the code under test is the code that ships.
//!
//! What the model does not see: weak memory (every atomic is sequentially consistent there) and
//! time (a wait with a deadline ends only when another thread wakes it, which is what finds a
//! missing wake-up; a scenario may ask for the opposite, that deadlines come at any moment). For
//! the first there is ThreadSanitizer (`scripts/tsan.sh`), for the second the tests on real
//! threads.
//!
//! [`rank`] checks the lock order of the whole program in debug builds. With `EXTOL_SHAKE=SEED`
//! debug builds also delay threads before locks, after unlocks and after waits, and devices in
//! memory before and after requests (`shake.rs`): this finds races that need a delay at a rare
//! moment.
//!
//! Locks of all other code that have no rank come from [`plain`].
//!
//! Counters that decide nothing (statistics) use the standard library directly: a step at each of
//! them would only make the schedules longer.

mod bell;
#[cfg(all(debug_assertions, not(feature = "model")))]
mod condvar;
pub mod plain;
pub mod rank;
#[cfg(debug_assertions)]
mod shake;

pub use bell::Bell;

#[cfg(all(debug_assertions, not(feature = "model")))]
pub use condvar::{Condvar, WaitTimeoutResult};
#[cfg(all(not(debug_assertions), not(feature = "model")))]
pub use parking_lot::{Condvar, WaitTimeoutResult};
#[cfg(not(feature = "model"))]
pub use plain::{Mutex, MutexGuard};
/// Atomics.
#[cfg(not(feature = "model"))]
pub use std::sync::atomic;
/// Threads.
#[cfg(not(feature = "model"))]
pub use std::thread;
/// Values that each thread has its own of.
#[cfg(not(feature = "model"))]
pub use std::thread_local;

#[cfg(feature = "model")]
mod model;

#[cfg(feature = "model")]
pub use model::{Condvar, Mutex, MutexGuard, WaitTimeoutResult, timers_fire};
/// The model checker itself, for the tests.
#[cfg(feature = "model")]
pub use shuttle;
/// Atomics.
#[cfg(feature = "model")]
pub use shuttle::sync::atomic;
/// Threads.
#[cfg(feature = "model")]
pub use shuttle::thread;
/// Values that each thread has its own of.
#[cfg(feature = "model")]
pub use shuttle::thread_local;

/// Called by devices in memory before and after a request. In a shaken debug build this may take a
/// while, as on a real medium.
#[inline]
pub fn medium() {
    #[cfg(debug_assertions)]
    shake::medium();
}
