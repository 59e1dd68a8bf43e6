//! Background services: a task is [`Service::step`] plus a tiny loop.
//!
//! A service does a bounded piece of work per step and says when it wants the next one; the runner
//! only waits and calls. Tests call `step` themselves with a [`TestClock`].
mod clock;
mod histogram;
mod merge;
mod runner;
mod tally;

pub use clock::{Clock, SystemClock, TestClock};
pub use histogram::{Distribution, Histogram};
pub use merge::{Issue, MergeStats, Merger};
pub use runner::{Progress, Runner, Service, StopSignal, Wakeup};
pub use tally::{LANES, Tally, lane};
