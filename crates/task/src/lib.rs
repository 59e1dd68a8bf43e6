//! Background threads and what they share with the rest: clocks, counters, merged requests.
//!
//! A background task is a [`Service`]: each [`step`](Service::step) does a bounded piece of work
//! and says when the next one is due. A [`Runner`] is the thread that calls `step`, sleeps in
//! between and ends when it is told to. Tests call `step` themselves, with a [`TestClock`].
//!
//! | file | what |
//! |---|---|
//! | `runner.rs` | [`Service`], its thread ([`Runner`]), wake-ups and the stop |
//! | `clock.rs` | monotonic and wall time |
//! | `sys.rs` | the clocks of each system |
//! | `merge.rs` | requests that one operation answers together ([`Merger`]) |
//! | `tally.rs` | a counter for many threads ([`Tally`]) |
//! | `histogram.rs` | a distribution of values ([`Histogram`]) |

mod clock;
mod histogram;
mod merge;
mod runner;
mod sys;
mod tally;

pub use clock::{Clock, SystemClock, TestClock, since_boot};
pub use histogram::{Distribution, Histogram};
pub use merge::{Issue, MergeStats, Merger};
pub use runner::{Progress, Runner, Service, Wakeup};
pub use tally::{LANES, Tally, lane};
