//! Clocks that one system has and another has not.

use std::time::Duration;

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};

/// The coarse clock, which moves with the timer tick: Linux takes time stamps from it. With a finer
/// clock, a file here would look newer than one that another file system changes a moment later.
#[cfg(target_os = "linux")]
const TIME_STAMPS: ClockId = ClockId::RealtimeCoarse;
/// The fine clock, as other systems need not have another.
#[cfg(all(unix, not(target_os = "linux")))]
const TIME_STAMPS: ClockId = ClockId::Realtime;

/// The clock that goes on while the machine is suspended.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
/// The same on macOS. (Whether FreeBSD has one is not known.)
#[cfg(all(unix, not(target_os = "linux")))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

#[cfg(unix)]
fn read(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    let sec = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Wall-clock time since 1970, for time stamps.
#[cfg(unix)]
pub(crate) fn wall() -> Duration {
    read(TIME_STAMPS)
}

/// Time since some fixed point, while the machine was suspended, too.
#[cfg(unix)]
pub(crate) fn since_boot() -> Duration {
    read(SINCE_BOOT)
}

/// Wall-clock time since 1970, for time stamps.
#[cfg(not(unix))]
pub(crate) fn wall() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Time since some fixed point, while the machine was suspended, too: Windows' performance counter,
/// which is what an `Instant` reads, counts then.
#[cfg(not(unix))]
pub(crate) fn since_boot() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
