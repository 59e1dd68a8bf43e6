//! Shaking: threads come late to locks, late away from them and late out of their sleep, so that
//! others come in between.
//!
//! Some mistakes need a thread that is held up between two locks for as long as others take for
//! half a dozen operations. On a busy machine that is once in ten thousand runs. With
//! `EXTOL_SHAKE=SEED` in the environment a debug build makes it happen:
//!
//! ```text
//!   ──── lock ▓▓▓ work ▓▓▓ unlock ──── work ──── lock ▓▓▓
//!      ↑                         ↑             ↑
//!      before                    behind        before      each a place: a line of the source, and which of the two
//! ```
//!
//! - The seed chooses the places that are *slow* in this process: few or many of them ([`SLOW`]),
//!   because some mistakes need two that meet, and where everything is slow nothing overtakes. A
//!   thread that comes there may be held up for milliseconds: often in the beginning, seldom later,
//!   so that a lock that all threads take all the time slows a test down by seconds, not by hours.
//! - Everywhere else a thread gives way now and then.
//! - With every second seed devices in memory take up to [`REQUEST_US`] for a request ([`medium`]),
//!   before it takes effect and behind, so that requests overtake each other as those of a disk do.
//!
//! Places are locks that have a [rank](super::rank), notifications, and what comes behind a wait
//! for one; time, not order, is all that is changed, so whatever fails is a mistake. What a seed
//! does cannot be repeated exactly, but its slow places stay the same as long as the source does.
//!
//! Without the variable a debug build pays a look at a word for each lock, and a release build
//! nothing.

use std::cell::Cell;
use std::panic::Location;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One place of so many is slow: which of these, the seed says.
const SLOW: [u64; 3] = [24, 12, 6];
/// A thread that comes to a slow place is held up every so many times at most,
const OFTEN: u64 = 6;
/// and after the first visits about so many times for each doubling of their number.
const DENSE: u64 = 24;
/// For at most so long.
const LONGEST_US: u64 = 15_000;
/// What a device in memory takes at most, once before a request takes effect and once behind.
const REQUEST_US: u64 = 600;
/// One request of so many takes long.
const REQUESTS: u64 = 4;
/// A thread gives way every so many times.
const GIVE_WAY: u64 = 16;
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
    static DICE: Cell<u64> = Cell::new(mix(THREADS.fetch_add(1, Ordering::Relaxed)));
}

/// Where a thread comes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// It is about to take a lock, or to wake others.
    Before,
    /// It has given one back, or was woken.
    Behind,
}

/// What happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    GoOn,
    GiveWay,
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

/// What a request of a device in memory takes.
fn request(seed: u64, dice: u64) -> Duration {
    let (dice, how_long) = (dice >> 32, dice & 0xFFFF_FFFF);
    let slow = seed.is_multiple_of(2) && dice.is_multiple_of(REQUESTS);
    Duration::from_micros(if slow { how_long % REQUEST_US } else { 0 })
}

/// For the `visit`-th one (from 1) at a place.
fn decide(seed: u64, place: u64, visit: u64, dice: u64) -> Fate {
    let slow = mix(mix(seed) ^ place).is_multiple_of(one_of(seed));
    let (dice, how_long) = (dice >> 32, dice & 0xFFFF_FFFF);
    if slow && dice.is_multiple_of(OFTEN.max(visit / DENSE)) {
        return Fate::Wait(Duration::from_micros(how_long % LONGEST_US));
    }
    if dice.is_multiple_of(GIVE_WAY) { Fate::GiveWay } else { Fate::GoOn }
}

/// What this thread throws next.
fn throw(seed: u64) -> u64 {
    let dice = DICE.try_with(|dice| {
        let next = dice.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        dice.set(next);
        mix(next ^ seed)
    });
    // (A thread that ends has no dice any more.)
    dice.unwrap_or(1)
}

/// Is this process shaken at all?
#[cfg(not(feature = "model"))]
pub(crate) fn is_on() -> bool {
    SEED.is_some()
}

/// A device in memory is about to do a request, or has done it.
pub(crate) fn medium() {
    let Some(seed) = *SEED else { return };
    let time = request(seed, throw(seed));
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// A thread comes by there.
pub(crate) fn pause(at: &Location<'_>, moment: Moment) {
    let Some(seed) = *SEED else { return };
    let place = place_of(at, moment);
    let visit = VISITS[place as usize % COUNTERS].fetch_add(1, Ordering::Relaxed) + 1;
    match decide(seed, place, visit, throw(seed)) {
        Fate::GoOn => {}
        Fate::GiveWay => std::thread::yield_now(),
        Fate::Wait(time) => std::thread::sleep(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: u64 = 2000;

    fn waits(seed: u64, place: u64, visits: std::ops::Range<u64>) -> usize {
        visits
            .filter(|n| matches!(decide(seed, place, *n, mix(n ^ place << 20)), Fate::Wait(_)))
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
        let times = |seed| (0..1000).map(|n| request(seed, mix(n))).collect::<Vec<_>>();
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
