//! The one place that names locks, condition variables, atomics and threads for the layers that are
//! model-checked: the journal, the service loop, and the flush coalescer.
//!
//! In a release build these are parking_lot's and the standard library's own types under other
//! names: no wrapper, no cost. With the feature `model` they are those of `shuttle`, which runs all
//! threads of a test on one, decides at each of their steps which one goes on, and so tries
//! thousands of interleavings, each of which can be repeated. The API is the same, so the code
//! under test is the code that ships.
//!
//! What the model does not see: weak memory (every atomic is sequentially consistent there) and
//! time (a wait with a deadline ends only when another thread wakes it, which is what finds a
//! missing wake-up; a scenario may ask for the opposite, that deadlines come at any moment). For
//! the first there is ThreadSanitizer (`scripts/tsan.sh`), for the second the tests on real
//! threads.
//!
//! [`rank`] checks the lock order of the whole program in debug builds; with `EXTOL_SHAKE=SEED`
//! threads also come late to locks, late away from them and late out of their sleep, and devices in
//! memory take their time (`shake.rs`), which finds what needs a thread to be held up at a bad
//! moment.
//!
//! Counters that decide nothing (statistics) use the standard library directly: a step at each of
//! them would only make the schedules longer.

mod bell;
#[cfg(all(debug_assertions, not(feature = "model")))]
mod condvar;
pub mod rank;
#[cfg(debug_assertions)]
mod shake;

pub use bell::Bell;

#[cfg(all(debug_assertions, not(feature = "model")))]
pub use condvar::{Condvar, WaitTimeoutResult};
#[cfg(all(not(debug_assertions), not(feature = "model")))]
pub use parking_lot::{Condvar, WaitTimeoutResult};
#[cfg(not(feature = "model"))]
pub use parking_lot::{Mutex, MutexGuard};
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

/// A device in memory is about to do a request, or has done it. In a shaken debug build this may
/// take a while, as on a medium.
#[inline]
pub fn medium() {
    #[cfg(debug_assertions)]
    shake::medium();
}
