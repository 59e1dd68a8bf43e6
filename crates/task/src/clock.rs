//! Time: monotonic nanoseconds for waiting, wall-clock time for time stamps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

/// Time since some fixed point, as another host counts it: it goes on while this machine is
/// suspended. (FreeBSD may have no such clock.)
#[must_use]
pub fn since_boot() -> Duration {
    sys::since_boot()
}

/// A source of time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Monotonic nanoseconds since some fixed point.
    fn now_ns(&self) -> u64;
    /// Wall-clock time since 1970, for time stamps.
    fn wall(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn wall(&self) -> Duration {
        sys::wall()
    }
}

/// A clock that moves only when a test moves it.
#[derive(Debug, Default)]
pub struct TestClock {
    ns: AtomicU64,
}

impl TestClock {
    /// Moves time on.
    pub fn advance(&self, by: Duration) {
        self.ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now_ns(&self) -> u64 {
        self.ns.load(Ordering::SeqCst)
    }

    fn wall(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }
}
