//! The wall clock in two grains: the coarse one for most time stamps, the fine one for a
//! change that must not look like the one before it.
//!
//! ```text
//!   fine clock    ────┬──────────┬─────►        (read where it matters)
//!   coarse clock  ──┬─┴────────┬─┴────┬─►       (moves with the timer tick)
//!   floor             ▲ fine time that was given: the coarse clock counts from there
//! ```
//!
//! A fine time lies ahead of the coarse clock. So that no later time stamp is earlier, the greatest
//! one is the *floor* below which the coarse clock is not given any more. There is one for the
//! whole process, as time stamps of several volumes are compared.
//!
//! A floor that is further ahead than a tick belongs to a time before the clock was set back, and
//! does not count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The floor of this process.
pub(crate) static FLOOR: Floor = Floor(AtomicU64::new(0));

/// How far a time may lie ahead of a clock that was not set back: two of the longest ticks.
const MOST_AHEAD: u64 = 20_000_000;

/// The greatest fine time that was given, in nanoseconds since 1970.
#[derive(Debug)]
pub(crate) struct Floor(AtomicU64);

impl Floor {
    /// The time to give when the coarse clock says this.
    pub fn coarse(&self, clock: Duration) -> Duration {
        let floor = self.0.load(Ordering::Acquire);
        if counts(floor, nanoseconds(clock)) { Duration::from_nanos(floor) } else { clock }
    }

    /// A time later than `seen`, unless the clock was set back; the fine clock says `clock`.
    pub fn fine(&self, clock: Duration, seen: Duration) -> Duration {
        let (clock, seen) = (nanoseconds(clock), nanoseconds(seen));
        // (Two looks at a clock can give the same time.)
        let wanted = if counts(seen, clock) { seen.saturating_add(1) } else { clock };
        let raised = |floor| if counts(floor, wanted) { floor } else { wanted };
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |f| Some(raised(f)));
        Duration::from_nanos(before.map_or(wanted, raised))
    }
}

/// True if a time that was given before counts, although the clock says an earlier one or the same.
fn counts(given: u64, clock: u64) -> bool {
    given.checked_sub(clock).is_some_and(|ahead| ahead <= MOST_AHEAD)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn no_time_is_earlier_than_one_that_was_given() {
        let floor = Floor(AtomicU64::new(0));
        assert_eq!(floor.coarse(ms(1000)), ms(1000));
        assert_eq!(floor.fine(ms(1002), ms(1000)), ms(1002));
        assert_eq!(floor.coarse(ms(1000)), ms(1002), "another file looks older");
        assert_eq!(floor.coarse(ms(1004)), ms(1004));
        // Another thread was later.
        assert_eq!(floor.fine(ms(1001), ms(1000)), ms(1002));
    }

    #[test]
    fn two_changes_never_have_one_time() {
        let floor = Floor(AtomicU64::new(0));
        let mut seen = ms(1000);
        for _ in 0..5 {
            let next = floor.fine(ms(1000), seen);
            assert!(next > seen);
            seen = next;
        }
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed() {
        let floor = Floor(AtomicU64::new(0));
        floor.fine(ms(5000), ms(5000));
        assert_eq!(floor.coarse(ms(1000)), ms(1000));
        assert_eq!(floor.fine(ms(1001), ms(5000)), ms(1001));
        assert_eq!(floor.coarse(ms(1000)), ms(1001));
    }
}
