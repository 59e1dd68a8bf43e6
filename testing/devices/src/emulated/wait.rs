//! Sleeping until a moment, as exactly as the machine allows.
//!
//! The kernel may end a sleep up to the thread's timer slack (50 us by default) late. So the slack
//! goes to its least for the sleep, and back: other sleeps of the thread stay as they are. The last
//! stretch is spent giving the processor away in a loop, so that a machine with few of them is not
//! stolen from the ones under test.

use rustix::thread::{current_timer_slack, set_current_timer_slack};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// Waking up takes this long where it is slow (virtual machines).
const WAKE: Duration = Duration::from_micros(50);

/// Returns at `end`, or at once if that is over.
pub fn until(end: Instant) {
    let left = end.saturating_duration_since(Instant::now());
    if left > 2 * WAKE {
        sleep_exactly(left - WAKE);
    }
    while Instant::now() < end {
        std::thread::yield_now();
    }
}

fn sleep_exactly(time: Duration) {
    // Without permission to change it the sleep is a little longer, that is all.
    let slack = current_timer_slack().ok().and_then(NonZeroU64::new);
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    std::thread::sleep(time);
    let _ = set_current_timer_slack(slack);
}
