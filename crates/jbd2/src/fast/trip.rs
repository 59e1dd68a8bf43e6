//! How the one trip of a fast commit becomes durable: by a flush behind its writes, or because each
//! of them is durable.
//!
//! ```text
//!   flush    data ────┐                          each    data FUA ────┐
//!            records ─┴─ both back ── FLUSH ──┤          records FUA ─┴─ both back ┤
//! ```
//!
//! *Each* saves waking up between the writes and the flush, and where the medium knows durable
//! writes it writes these bytes through and leaves the rest of its cache alone. Where it knows
//! none, the kernel sends a flush behind each write: one for both if they end together, and two,
//! one after the other, if not. Nothing that can be asked tells which is faster, so it is measured:
//! now and then a trip goes the other way and is compared with the last ones that went the usual
//! one.
//!
//! ```text
//!   usual usual usual usual OTHER usual …      faster by a twentieth: a vote for the other way, slower: one against it
//!                                              three votes for it: it is the usual one from now on
//!                                              three against it: the next try comes twice as late, and so on
//! ```
//!
//! Neighbours in time are compared, so what the load does meanwhile hardly matters. One odd trip is
//! one vote.
//!
//! *Each* vouches for the batch alone. So it is open only to a trip behind which no other write
//! waits for a flush: no file data, nothing that a checkpoint wrote home
//! (`Journal::may_settle_each`). Whoever waits for more than the fast commit checks what is covered
//! himself, as behind any other.
//!
//! `fua=never` and `fua=always` leave nothing to measure.
//!
//! This module decides and has no threads; the leader of a fast commit asks it and tells it.

use super::preference::Preference;

/// Trips of the usual way that are remembered.
const RECENT: usize = 7;
/// Trips between two tries while it is open which way is faster, and behind how many the first one
/// comes.
const SOON: u32 = 4;
/// Trips between two tries at most: then they cost next to nothing, even on a disk whose flush is a
/// turn.
const LATEST: u32 = 512;
/// Votes that decide.
const DECIDED: i32 = 3;

/// The two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// The writes, and a flush behind them.
    Flush,
    /// Each write is durable.
    Each,
}

impl Way {
    fn other(self) -> Self {
        match self {
            Self::Flush => Self::Each,
            Self::Each => Self::Flush,
        }
    }
}

/// What was learned.
#[derive(Debug)]
pub(crate) struct Trips {
    policy: Preference,
    usual: Way,
    /// Times of the last trips of the usual way, in nanoseconds.
    recent: [u64; RECENT],
    known: usize,
    /// For the other way, within `DECIDED`.
    votes: i32,
    left: u32,
    patience: u32,
}

impl Default for Trips {
    fn default() -> Self {
        Self {
            policy: Preference::Auto,
            usual: Way::Flush,
            recent: [0; RECENT],
            known: 0,
            votes: 0,
            left: SOON,
            patience: SOON,
        }
    }
}

impl Trips {
    /// From now on by that rule; what was learned is forgotten.
    pub fn set(&mut self, policy: Preference) {
        *self = Self { policy, ..Self::default() };
    }

    /// The way of the next trip that both are open to.
    pub fn way(&self) -> Way {
        match self.policy {
            Preference::Never => Way::Flush,
            Preference::Always => Way::Each,
            Preference::Auto if self.left == 0 => self.usual.other(),
            Preference::Auto => self.usual,
        }
    }

    /// Such a trip took so long.
    pub fn took(&mut self, way: Way, ns: u64) {
        if way == self.usual {
            self.recent[self.known % RECENT] = ns;
            self.known += 1;
            self.left = self.left.saturating_sub(1);
            return;
        }
        let usual = self.median();
        if ns.saturating_mul(20) < usual.saturating_mul(19) {
            self.votes += 1;
            self.patience = SOON;
        } else if ns.saturating_mul(20) > usual.saturating_mul(21) {
            self.votes = (self.votes - 1).max(-DECIDED);
        }
        if self.votes == DECIDED {
            *self = Self { policy: self.policy, usual: way, ..Self::default() };
            return;
        }
        if self.votes == -DECIDED {
            self.patience = (self.patience * 2).min(LATEST);
        }
        self.left = self.patience;
    }

    fn median(&self) -> u64 {
        let mut known = self.recent;
        let known = &mut known[..self.known.min(RECENT)];
        known.sort_unstable();
        known.get(known.len() / 2).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many trips on a medium where they take so long; gives how many went the way `Each`.
    fn run(
        trips: &mut Trips,
        count: u32,
        flush: impl Fn(u32) -> u64,
        each: impl Fn(u32) -> u64,
    ) -> u32 {
        let mut went = 0;
        for i in 0..count {
            let way = trips.way();
            trips.took(way, if way == Way::Flush { flush(i) } else { each(i) });
            went += u32::from(way == Way::Each);
        }
        went
    }

    #[test]
    fn the_faster_way_is_found_in_a_few_trips() {
        let mut trips = Trips::default();
        assert_eq!(run(&mut trips, SOON, |_| 100, |_| 80), 0, "first it must know something");
        run(&mut trips, 11, |_| 100, |_| 80);
        assert_eq!(trips.usual, Way::Each);
        assert!(run(&mut trips, 1000, |_| 100, |_| 80) > 970);
    }

    #[test]
    fn a_rule_is_a_rule() {
        let mut trips = Trips::default();
        trips.set(Preference::Never);
        assert_eq!(run(&mut trips, 100, |_| 100, |_| 10), 0);
        trips.set(Preference::Always);
        assert_eq!(run(&mut trips, 100, |_| 10, |_| 100), 100);
        trips.set(Preference::Auto);
        assert_eq!(run(&mut trips, SOON, |_| 100, |_| 10), 0, "from the beginning");
    }

    #[test]
    fn the_slower_way_is_hardly_taken() {
        let mut trips = Trips::default();
        assert!(run(&mut trips, 100, |_| 8_000_000, |_| 16_000_000) <= 7);
        assert!(run(&mut trips, 100_000, |_| 8_000_000, |_| 16_000_000) < 250);
    }

    #[test]
    fn no_difference_changes_nothing_and_costs_nothing() {
        let mut trips = Trips::default();
        run(&mut trips, 10_000, |_| 100, |_| 102);
        assert_eq!(trips.usual, Way::Flush);
    }

    #[test]
    fn one_odd_trip_decides_nothing() {
        let mut trips = Trips::default();
        // Every 50th trip takes a hundred times as long, whichever it is.
        let odd = |ns: u64| move |i: u32| if i % 50 == 49 { ns * 100 } else { ns };
        run(&mut trips, 2000, odd(100), odd(60));
        assert_eq!(trips.usual, Way::Each);
        assert!(run(&mut trips, 5000, odd(100), odd(60)) > 4500);
    }

    #[test]
    fn another_load_does_not_count_as_another_way() {
        let mut trips = Trips::default();
        // All trips get slower, and faster again.
        let slower = |ns: u64| move |i: u32| ns * (1 + u64::from(i / 300 % 3));
        run(&mut trips, 1000, slower(100), slower(80));
        assert_eq!(trips.usual, Way::Each);
        assert!(run(&mut trips, 3000, slower(100), slower(80)) > 2700);
    }

    #[test]
    fn a_change_of_the_medium_is_noticed() {
        let mut trips = Trips::default();
        run(&mut trips, 100_000, |_| 100, |_| 200);
        assert_eq!(trips.usual, Way::Flush);
        run(&mut trips, 2000, |_| 200, |_| 100);
        assert_eq!(trips.usual, Way::Each);
    }
}
