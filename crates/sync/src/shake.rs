//! Shaking: random delays of threads before locks, after unlocks and after waits, so that other
//! threads come in between.
//!
//! Some races need a thread that is delayed between two locks for as long as others take for half a
//! dozen operations, which a test run hardly ever shows. With `EXTOL_SHAKE=SEED` in the environment
//! a debug build makes it happen:
//!
//! ```text
//!   ──── lock ▓▓▓ work ▓▓▓ unlock ──── work ──── lock ▓▓▓
//!      ↑                         ↑             ↑
//!      before                    behind        before
//!      each is a place: a line of the source, and one of the two moments
//! ```
//!
//! - The seed chooses the *slow* places of this process: few or many of them ([`SLOW`]), because
//!   some races need two slow places, and where all are slow no thread overtakes another. A thread
//!   may be delayed there for milliseconds: often in the beginning, seldom later, so a lock that
//!   all threads take all the time slows a test down by seconds, not by hours.
//! - At all other places a thread yields now and then.
//! - With every second seed, devices in memory take up to [`REQUEST_US`] before a request takes
//!   effect and after it ([`medium`]), so requests overtake each other as those of a disk do.
//!
//! Places are locks with a [rank](super::rank), notifications, and returns from waits. Shaking
//! changes only timing, never the order that the code asks for, so each failure is a bug. The run
//! of a seed cannot be repeated exactly, but its slow places are the same for the same source.
//!
//! Without the variable a debug build reads one word per place; a release build has no such code.

use std::cell::Cell;
use std::panic::Location;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One place of so many is slow; the seed chooses which of these holds.
const SLOW: [u64; 3] = [24, 12, 6];
/// A slow place delays at most one visit of so many,
const OFTEN: u64 = 6;
/// and after the first visits about so many for each doubling of their number.
const DENSE: u64 = 24;
/// The longest delay.
const LONGEST_US: u64 = 15_000;
/// The longest delay of a request, once before it takes effect and once after.
const REQUEST_US: u64 = 600;
/// One request of so many is delayed.
const REQUESTS: u64 = 4;
/// One visit of so many to any place yields.
const YIELDS: u64 = 16;
/// Counters of visits; places share them.
const COUNTERS: usize = 1024;

static SEED: LazyLock<Option<u64>> = LazyLock::new(|| {
    if cfg!(feature = "model") {
        // There a schedule decides which thread waits, and no clock.
        return None;
    }
    let seed = std::env::var("EXTOL_SHAKE").ok().filter(|text| !text.is_empty())?;
    Some(seed.parse().unwrap_or_else(|_| panic!("EXTOL_SHAKE: '{seed}' is not a number")))
});
static VISITS: [AtomicU64; COUNTERS] = [const { AtomicU64::new(0) }; COUNTERS];
static THREADS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static STATE: Cell<u64> = Cell::new(mix(THREADS.fetch_add(1, Ordering::Relaxed)));
}

/// The moment of a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The thread is about to take a lock, or to notify.
    Before,
    /// The thread has unlocked, or was woken.
    Behind,
}

/// What a visit does to the thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    GoOn,
    Yield,
    Wait(Duration),
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ n >> 31
}

fn place_of(at: &Location<'_>, moment: Moment) -> u64 {
    let file = at.file().bytes().fold(0, |hash: u64, byte| mix(hash ^ u64::from(byte)));
    mix(file ^ u64::from(at.line()) << 32 ^ u64::from(at.column()) << 8 ^ moment as u64)
}

/// One place of so many is slow with this seed.
fn one_of(seed: u64) -> u64 {
    SLOW[(seed % SLOW.len() as u64) as usize]
}

/// The delay of a request of a device in memory.
fn request_delay(seed: u64, random: u64) -> Duration {
    let (random, how_long) = (random >> 32, random & 0xFFFF_FFFF);
    let slow = seed.is_multiple_of(2) && random.is_multiple_of(REQUESTS);
    Duration::from_micros(if slow { how_long % REQUEST_US } else { 0 })
}

/// The action of the `visit`-th visit (from 1) to a place.
fn decide(seed: u64, place: u64, visit: u64, random: u64) -> Action {
    let slow = mix(mix(seed) ^ place).is_multiple_of(one_of(seed));
    let (random, how_long) = (random >> 32, random & 0xFFFF_FFFF);
    if slow && random.is_multiple_of(OFTEN.max(visit / DENSE)) {
        return Action::Wait(Duration::from_micros(how_long % LONGEST_US));
    }
    if random.is_multiple_of(YIELDS) { Action::Yield } else { Action::GoOn }
}

/// The next random number of this thread.
fn random(seed: u64) -> u64 {
    let number = STATE.try_with(|state| {
        let next = state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        state.set(next);
        mix(next ^ seed)
    });
    // (A thread that ends has no state any more.)
    number.unwrap_or(1)
}

/// True if this process is shaken.
#[cfg(not(feature = "model"))]
pub(crate) fn is_on() -> bool {
    SEED.is_some()
}

/// Called before and after each request of a device in memory.
pub(crate) fn medium() {
    let Some(seed) = *SEED else { return };
    let time = request_delay(seed, random(seed));
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// Called at each place.
pub(crate) fn pause(at: &Location<'_>, moment: Moment) {
    let Some(seed) = *SEED else { return };
    let place = place_of(at, moment);
    let visit = VISITS[place as usize % COUNTERS].fetch_add(1, Ordering::Relaxed) + 1;
    match decide(seed, place, visit, random(seed)) {
        Action::GoOn => {}
        Action::Yield => std::thread::yield_now(),
        Action::Wait(time) => std::thread::sleep(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u64 = 2000;

    fn waits(seed: u64, place: u64, visits: std::ops::Range<u64>) -> usize {
        visits
            .filter(|n| matches!(decide(seed, place, *n, mix(n ^ place << 20)), Action::Wait(_)))
            .count()
    }

    #[test]
    fn a_seed_chooses_a_few_places_and_another_one_others() {
        let slow =
            |seed| (0..PLACES).filter(|p| waits(seed, mix(*p), 1..100) > 0).collect::<Vec<_>>();
        let (one, other) = (slow(1), slow(4));
        for (seed, slow) in [(1, &one), (4, &other), (2, &slow(2))] {
            let expected = (PLACES / one_of(seed)) as usize;
            assert!((expected / 2..expected * 2).contains(&slow.len()), "{seed}: {}", slow.len());
        }
        let both = one.iter().filter(|p| other.contains(p)).count();
        assert!(both < one.len() / 3, "{both} of {} are slow for both", one.len());
        assert_eq!(one, slow(1), "the same each time");
        assert_ne!(one_of(1), one_of(2), "few or many");
    }

    #[test]
    fn a_slow_place_that_all_come_to_holds_up_seldom() {
        let slow = (0..).map(mix).find(|p| waits(7, *p, 1..100) > 0).unwrap();
        let (first, later) = (waits(7, slow, 1..100), waits(7, slow, 1_000_000..1_100_000));
        assert!((8..30).contains(&first), "{first}");
        assert!(later < 20, "{later}");
    }

    #[test]
    fn a_medium_takes_its_time_with_every_second_seed() {
        let times = |seed| (0..1000).map(|n| request_delay(seed, mix(n))).collect::<Vec<_>>();
        assert!(times(3).iter().all(Duration::is_zero));
        let slow = times(4).iter().filter(|time| !time.is_zero()).count();
        assert!((150..350).contains(&slow), "{slow}");
        assert!(times(4).iter().all(|time| *time < Duration::from_micros(REQUEST_US)));
    }

    #[test]
    fn lines_and_moments_are_places() {
        let (here, there) = (Location::caller(), place_of(Location::caller(), Moment::Before));
        assert_ne!(place_of(here, Moment::Before), place_of(here, Moment::Behind));
        assert_ne!(place_of(here, Moment::Before), there);
    }
}
