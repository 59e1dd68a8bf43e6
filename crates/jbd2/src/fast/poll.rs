//! Whether the leader of a fast commit polls for the end of its writes, or sleeps until they end.
//!
//! Being woken takes as long as a quick medium's write, or longer, so polling is faster, mostly
//! ([`extol_block::Wait`]). It is not where others keep the processor busy (who gives way to them
//! gets it back a turn later), or where the leader only takes it from threads that would make the
//! next files. A trip's own time does not tell: while the leader gives way, its own program's
//! threads may get on with what comes next, and a trip that is noticed later is worth it. So whole
//! *windows* are compared, by the requests that were served per time.
//!
//! ```text
//!   usual OTHER usual OTHER usual usual …      each a window of so many commits, one behind the other
//!                                              faster by a twentieth: a vote for the other way, and soon the next try;
//!                                                three: it is the usual one from now on
//!                                              slower: a vote against it; not faster: the next try comes twice as late, and so on
//! ```
//!
//! Neighbours in time are compared, so that little of what the load does meanwhile counts. Where
//! requests come now and then (a pause of [`PAUSE_NS`] without a commit) there is nothing to
//! compare, and the window begins again; then a leader polls, because it takes time from nobody.
//! Trips that take long are slept through: what is saved is a small part of them ([`LONG_NS`]).
//!
//! Polling is possible where a trip is without a flush ([`super::trip`]). Nothing depends on it but
//! time.
//!
//! This module decides and has no threads; the leader of a fast commit asks it and tells it.

use extol_block::Wait;

use super::preference::Preference;

/// Commits of a window: 8 ms in memory, 20 ms on a virtual disk.
const WINDOW: u32 = 48;
/// Windows of the usual way before a try while it is open which way is faster, at most, and behind
/// a change of the usual way.
const SOON: u32 = 1;
const LATEST: u32 = 128;
const CHANGED: u32 = 8;
/// Votes that decide.
const DECIDED: i32 = 3;
/// So long without a commit: the load rests.
const PAUSE_NS: u64 = 2_000_000;
/// So long takes a trip, on average, of which polling saves nothing that counts.
const LONG_NS: u64 = 1_500_000;

/// Commits of one way, one behind the other.
#[derive(Debug, Default)]
struct Window {
    began_ns: u64,
    commits: u32,
    requests: u64,
}

/// What was learned.
#[derive(Debug)]
pub(crate) struct Polls {
    policy: Preference,
    usual: Wait,
    trying: bool,
    window: Option<Window>,
    /// Requests per second in the last window of the usual way.
    known: Option<u64>,
    /// For the other way, within `DECIDED`.
    votes: i32,
    left: u32,
    patience: u32,
    /// When the last commit ended, and how long commits take, as a moving average.
    ended_ns: u64,
    average_ns: u64,
}

impl Default for Polls {
    fn default() -> Self {
        Self {
            policy: Preference::Auto,
            usual: Wait::Poll,
            trying: false,
            window: None,
            known: None,
            votes: 0,
            left: SOON,
            patience: SOON,
            ended_ns: 0,
            average_ns: 0,
        }
    }
}

fn other(wait: Wait) -> Wait {
    match wait {
        Wait::Sleep => Wait::Poll,
        Wait::Poll => Wait::Sleep,
    }
}

impl Polls {
    /// From now on by that rule; what was learned is forgotten.
    pub fn set(&mut self, policy: Preference) {
        *self = Self { policy, ..Self::default() };
    }

    /// How the leader of the next trip waits.
    pub fn wait(&self) -> Wait {
        match self.policy {
            Preference::Never => Wait::Sleep,
            Preference::Always => Wait::Poll,
            Preference::Auto if self.average_ns > LONG_NS => Wait::Sleep,
            Preference::Auto if self.trying => other(self.usual),
            Preference::Auto => self.usual,
        }
    }

    /// A fast commit ended that served so many requests and took so long.
    pub fn ended(&mut self, now_ns: u64, took_ns: u64, requests: u32) {
        let between = now_ns.saturating_sub(self.ended_ns).saturating_sub(took_ns);
        self.ended_ns = now_ns;
        self.average_ns = (self.average_ns * 15 + took_ns) / 16;
        if self.policy != Preference::Auto {
            return;
        }
        let Some(window) = self.window.as_mut().filter(|_| between < PAUSE_NS) else {
            self.rests(now_ns);
            return;
        };
        window.commits += 1;
        window.requests += u64::from(requests);
        if window.commits == WINDOW {
            let took = now_ns.saturating_sub(window.began_ns).max(1);
            let rate = window.requests.saturating_mul(1_000_000_000) / took;
            self.window = Some(Window { began_ns: now_ns, ..Window::default() });
            self.compare(rate);
        }
    }

    /// There was a pause: what is measured begins again, by the usual way.
    fn rests(&mut self, now_ns: u64) {
        self.window = Some(Window { began_ns: now_ns, ..Window::default() });
        self.trying = false;
        self.known = None;
    }

    /// A window ended with so many requests per second.
    fn compare(&mut self, rate: u64) {
        if !self.trying {
            self.known = Some(rate);
            self.left = self.left.saturating_sub(1);
            self.trying = self.left == 0;
            return;
        }
        self.trying = false;
        let Some(usual) = self.known else { return };
        if rate.saturating_mul(20) > usual.saturating_mul(21) {
            self.votes += 1;
            self.patience = SOON;
        } else {
            if rate.saturating_mul(20) < usual.saturating_mul(19) {
                self.votes = (self.votes - 1).max(-DECIDED);
            }
            self.patience = (self.patience * 2).min(LATEST);
        }
        if self.votes == DECIDED {
            self.usual = other(self.usual);
            self.known = None;
            self.votes = -DECIDED;
            self.patience = CHANGED;
        }
        self.left = self.patience;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load of so many commits, each of one request, one right behind the other, that take so
    /// long. Gives how many were polled for.
    fn run(polls: &mut Polls, now: &mut u64, commits: u32, sleep: u64, poll: u64) -> u32 {
        let mut polled = 0;
        for _ in 0..commits {
            let wait = polls.wait();
            let took = if wait == Wait::Poll { poll } else { sleep };
            polled += u32::from(wait == Wait::Poll);
            *now += took;
            polls.ended(*now, took, 1);
        }
        polled
    }

    #[test]
    fn the_faster_way_is_found_and_kept() {
        let (mut polls, mut now) = (Polls::default(), 0);
        run(&mut polls, &mut now, WINDOW * 8, 100_000, 200_000);
        assert_eq!(polls.usual, Wait::Sleep);
        let commits = WINDOW * 1000;
        assert!(run(&mut polls, &mut now, commits, 100_000, 200_000) < commits / 50);
        // And when the others have gone.
        run(&mut polls, &mut now, WINDOW * 1000, 100_000, 50_000);
        assert_eq!(polls.usual, Wait::Poll);
        assert!(run(&mut polls, &mut now, commits, 100_000, 50_000) > commits / 50 * 49);
    }

    #[test]
    fn no_difference_changes_nothing() {
        let (mut polls, mut now) = (Polls::default(), 0);
        run(&mut polls, &mut now, WINDOW * 1000, 100_000, 103_000);
        assert_eq!(polls.usual, Wait::Poll);
    }

    #[test]
    fn a_rule_is_a_rule() {
        let (mut polls, mut now) = (Polls::default(), 0);
        polls.set(Preference::Never);
        assert_eq!(run(&mut polls, &mut now, 10_000, 100_000, 10_000), 0);
        polls.set(Preference::Always);
        assert_eq!(run(&mut polls, &mut now, 10_000, 10_000, 100_000), 10_000);
    }

    #[test]
    fn more_requests_with_longer_trips_are_better() {
        let (mut polls, mut now) = (Polls::default(), 0);
        for _ in 0..WINDOW * 1000 {
            let (took, requests) =
                if polls.wait() == Wait::Poll { (90_000, 6) } else { (70_000, 4) };
            now += took;
            polls.ended(now, took, requests);
        }
        assert_eq!(polls.usual, Wait::Poll, "6 in 90 us, 4 in 70 us");
    }

    #[test]
    fn who_asks_now_and_then_is_polled_for() {
        let (mut polls, mut now) = (Polls::default(), 0);
        for _ in 0..WINDOW * 100 {
            assert_eq!(polls.wait(), Wait::Poll);
            now += 10_000_000;
            polls.ended(now, 100_000, 1);
        }
    }

    #[test]
    fn a_slow_medium_is_slept_through() {
        let (mut polls, mut now) = (Polls::default(), 0);
        let first = run(&mut polls, &mut now, 16, 8_000_000, 8_000_000);
        assert!(first < 8, "{first}");
        assert_eq!(run(&mut polls, &mut now, 10_000, 8_000_000, 8_000_000), 0);
        // Another load, or another medium.
        run(&mut polls, &mut now, 100, 100_000, 50_000);
        assert_eq!(polls.wait(), Wait::Poll);
    }

    #[test]
    fn one_odd_window_decides_nothing() {
        let (mut polls, mut now) = (Polls::default(), 0);
        for i in 0..500u64 {
            // Every seventh window is slow, whichever way.
            let slow = if i % 7 == 0 { 3 } else { 1 };
            run(&mut polls, &mut now, WINDOW, 100_000 * slow, 60_000 * slow);
        }
        assert_eq!(polls.usual, Wait::Poll);
    }
}
