//! Which way serves more requests per second: to gather, to wait for the whole crowd, or to go at
//! once? Measured, not computed.
//!
//! A model can say when gathering must pay (`sure` below), and nothing else: whether a wait of
//! about a commit's length pays depends on how many processors are busy with what, on what a commit
//! costs per request, on the scheduler. So where it is not sure, the ways are tried in turn and the
//! best one is kept. ([`Way::Whole`] only while the crowd is large and needs longer than a commit
//! takes: else it is the same as to gather.)
//!
//! ```text
//!   first look (gather) ── sure? ─► gather, try nothing
//!        │ not sure ── commits take milliseconds ─► go is the try, and gathering the best way so far
//!        ▼
//!      go │go│try gather│go│go│go│go│try gather│go …      patience doubles while the other way loses,
//!         2 epochs       4 epochs                          up to 64 epochs: then a try costs next to nothing
//! ```
//!
//! An epoch is a stretch of commits with a measured rate. The first commits after a change are not
//! counted, on a quick medium until the whole crowd has been served once: the groups that ride
//! together have to form again. A try that wins or loses clearly ends early. What holds everybody
//! up, as a full commit does between fast ones, does not count ([`Judge::interrupted`]). A pause of
//! the load makes the epoch start again. A medium or a crowd that is suddenly three times what it
//! was makes the next try come soon.

/// Commits after a change that do not count, and on a quick medium as many requests as the crowd is
/// large. (A crowd of 32 that has been waited for as a whole comes back at once; the next dozen
/// commits then say nothing about how it goes in small groups.)
const SETTLE: u32 = 2;
/// Least commits of an epoch, least requests served, least time. A try takes twice as many.
const COMMITS: u32 = 16;
const SERVED: u64 = 128;
const TIME_NS: u64 = 3_000_000;
/// Commits after which a first look or a hopeless try may end, and how often the whole crowd must
/// have been served by then.
const FEW: u32 = 4;
const FEW_TURNS: u64 = 2;
/// A try that serves so many times as much may end as early. (Two groups that become one are nearly
/// twice as much; what a few commits tell is off by some ten per cent.)
const CLEAR: f64 = 1.4;
/// Where a commit takes so long the scheduler's whims are small beside it, and the first look
/// counts as a measurement.
const SLOW_NS: u64 = 1_000_000;
/// Epochs between two tries: at first, after a change of conditions, and at most.
const PATIENCE: u32 = 2;
const PATIENCE_AFTER_CHANGE: u32 = 8;
const PATIENCE_MOST: u32 = 64;

/// The ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Commit at once.
    Go,
    /// Wait for the crowd, at most as long as a commit takes.
    Gather,
    /// Wait until the whole crowd is back, however much longer than a commit that takes.
    Whole,
}

impl Way {
    const fn next(self) -> Self {
        match self {
            Self::Go => Self::Gather,
            Self::Gather => Self::Whole,
            Self::Whole => Self::Go,
        }
    }
}

/// What a judge is told at the end of each commit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub now_ns: u64,
    /// Requests that it served.
    pub served: u32,
    /// The crowd comes back so fast that gathering must pay.
    pub sure: bool,
    /// It needs so long for that, and is so large, that waiting for all of it is a way of its own.
    pub slow: bool,
    /// Average commit time.
    pub average_ns: u64,
    /// Size of the crowd.
    pub crowd: u32,
}

#[derive(Debug)]
pub(crate) struct Judge {
    best: Way,
    using: Way,
    /// The way that was tried last.
    tried: Way,
    /// Requests per nanosecond, measured; 0: not yet.
    rates: [f64; 3],
    looked: bool,
    /// Epochs until the next try, and after it.
    left: u32,
    patience: u32,
    /// The epoch that runs: requests before it counts, commits, those that do not count included,
    /// requests that count.
    settled: u64,
    commits: u32,
    served: u64,
    began_ns: u64,
    /// End of the last commit, and the usual time between two.
    last_ns: u64,
    every: super::mean::SlowMean,
    /// Average commit time and crowd that the patience was learned with.
    learned: (u64, u32),
}

impl Default for Judge {
    fn default() -> Self {
        Self {
            best: Way::Gather,
            using: Way::Gather,
            tried: Way::Gather,
            rates: [0.0; 3],
            looked: false,
            left: 1,
            patience: PATIENCE,
            settled: 0,
            commits: 0,
            served: 0,
            began_ns: 0,
            last_ns: 0,
            every: super::mean::SlowMean::default(),
            learned: (0, 0),
        }
    }
}

impl Judge {
    /// What to do now.
    pub fn way(&self) -> Way {
        self.using
    }

    /// A commit ended.
    pub fn ended(&mut self, e: Ended) {
        let usual = self.every.get();
        let since = e.now_ns.saturating_sub(self.last_ns);
        self.last_ns = e.now_ns;
        let most = usual.saturating_mul(4);
        self.every.add(if usual == 0 { since } else { since.min(most) });
        if usual > 0 && since > most.saturating_add(1_000_000) {
            // The load paused: what was measured so far says nothing about either way.
            self.turn(self.best);
            self.left = self.left.max(1);
            return;
        }
        self.commits += 1;
        if self.using == self.best {
            self.notice_change(e.average_ns, e.crowd);
        }
        // Everybody is back before a slow commit ends.
        let turn = if e.average_ns >= SLOW_NS { 0 } else { u64::from(e.crowd) };
        if self.commits <= SETTLE || self.settled < turn {
            self.commits = self.commits.min(SETTLE);
            self.settled += u64::from(e.served);
            self.began_ns = e.now_ns;
            return;
        }
        self.served += u64::from(e.served);
        if self.commits >= SETTLE + FEW && self.served >= FEW_TURNS * turn {
            self.judge(&e);
        }
    }

    /// The commits were held up until now by something that has nothing to do with either way: that
    /// time does not count.
    pub fn interrupted(&mut self, now_ns: u64) {
        self.began_ns = self.began_ns.saturating_add(now_ns.saturating_sub(self.last_ns));
        self.last_ns = now_ns;
    }

    fn judge(&mut self, e: &Ended) {
        let trial = self.using != self.best;
        let time = e.now_ns.saturating_sub(self.began_ns);
        let rate = self.served as f64 / time.max(1) as f64;
        if !self.looked {
            self.looked = true;
            if !e.sure {
                if e.average_ns >= SLOW_NS {
                    // Worth something already: if going at once serves much less, that shows as
                    // early.
                    self.rates[Way::Gather as usize] = rate;
                } else {
                    self.best = Way::Go;
                }
                self.turn(Way::Go);
                return;
            }
        }
        // All that a large crowd does in one turn is a few commits: what they tell early is off by
        // more.
        let early = if self.using == Way::Whole { TIME_NS } else { TIME_NS / 3 };
        let hopeless = trial && time >= early && rate < 0.9 * self.rate(self.best);
        let clear = trial && time >= TIME_NS && rate > CLEAR * self.rate(self.best);
        let times = if trial { 2 } else { 1 };
        let short = self.commits < SETTLE + times * COMMITS
            || self.served < u64::from(times) * SERVED
            || time < TIME_NS;
        if short && !hopeless && !clear {
            return;
        }
        let known = &mut self.rates[self.using as usize];
        *known = if *known == 0.0 { rate } else { (3.0 * *known + rate) / 4.0 };
        if trial {
            if self.rate(self.using) > 1.02 * self.rate(self.best) {
                self.best = self.using;
                self.patience = PATIENCE;
            } else {
                self.patience = (self.patience * if hopeless { 4 } else { 2 }).min(PATIENCE_MOST);
            }
            self.left = self.patience;
            self.turn(self.best);
        } else {
            self.turn(self.best);
            if !(e.sure && self.best == Way::Gather) {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 {
                    self.tried = self.next_try(e.slow);
                    self.rates[self.tried as usize] = 0.0;
                    self.turn(self.tried);
                }
            }
        }
    }

    /// The ways take turns in being tried.
    fn next_try(&self, slow: bool) -> Way {
        let mut way = self.tried.next();
        while way == self.best || (way == Way::Whole && !slow) {
            way = way.next();
        }
        way
    }

    fn rate(&self, way: Way) -> f64 {
        self.rates[way as usize]
    }

    /// A new epoch.
    fn turn(&mut self, way: Way) {
        self.using = way;
        self.settled = 0;
        self.commits = 0;
        self.served = 0;
    }

    fn notice_change(&mut self, average_ns: u64, crowd: u32) {
        let (old_average, old_crowd) = self.learned;
        let far = |a: u64, b: u64| a > b.saturating_mul(3) || b > a.saturating_mul(3);
        if far(average_ns, old_average) || far(u64::from(crowd), u64::from(old_crowd)) {
            self.learned = (average_ns, crowd);
            self.patience = self.patience.min(PATIENCE_AFTER_CHANGE);
            self.left = self.left.min(PATIENCE_AFTER_CHANGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits at a steady pace that depends on the way; gives how many went each way.
    struct Bench {
        judge: Judge,
        now_ns: u64,
        sure: bool,
        slow: bool,
        /// Time of a commit for the whole crowd.
        whole_ns: u64,
    }

    impl Bench {
        fn new(sure: bool) -> Self {
            Self { judge: Judge::default(), now_ns: 0, sure, slow: false, whole_ns: 0 }
        }

        fn with_whole(whole_ns: u64) -> Self {
            Self { slow: true, whole_ns, ..Self::new(false) }
        }

        fn commit(&mut self, go_ns: u64, gather_ns: u64) -> Way {
            let way = self.judge.way();
            self.now_ns += match way {
                Way::Go => go_ns,
                Way::Gather => gather_ns,
                Way::Whole => self.whole_ns,
            };
            self.judge.ended(Ended {
                now_ns: self.now_ns,
                served: 8,
                sure: self.sure,
                slow: self.slow,
                average_ns: 1_000_000,
                crowd: 8,
            });
            way
        }

        fn share_of(&mut self, wanted: Way, commits: u32, go_ns: u64, gather_ns: u64) -> f64 {
            let hits = (0..commits).filter(|_| self.commit(go_ns, gather_ns) == wanted).count();
            hits as f64 / f64::from(commits)
        }
    }

    #[test]
    fn sure_is_never_tried() {
        let mut bench = Bench::new(true);
        assert_eq!(bench.share_of(Way::Gather, 1000, 1, 1_000_000), 1.0);
    }

    #[test]
    fn the_better_way_wins_and_tries_become_rare() {
        for (go, gather, winner) in [
            (1_000_000, 2_000_000, Way::Go),
            (2_000_000, 1_000_000, Way::Gather),
            (100_000, 110_000, Way::Go),
        ] {
            let mut bench = Bench::new(false);
            assert!(bench.share_of(winner, 400, go, gather) > 0.7, "{winner:?} soon");
            bench.share_of(winner, 2000, go, gather);
            assert!(bench.share_of(winner, 5000, go, gather) > 0.95, "{winner:?} in the long run");
        }
    }

    #[test]
    fn the_whole_crowd_is_waited_for_where_that_is_best() {
        for (whole, winner) in [(800_000, Way::Whole), (1_100_000, Way::Go)] {
            let mut bench = Bench::with_whole(whole);
            bench.share_of(winner, 2000, 1_000_000, 2_000_000);
            assert!(bench.share_of(winner, 5000, 1_000_000, 2_000_000) > 0.95, "{whole}");
            // It is no longer best: the tries find out.
            bench.whole_ns = 3_000_000;
            bench.share_of(Way::Go, 3000, 1_000_000, 2_000_000);
            assert!(bench.share_of(Way::Go, 5000, 1_000_000, 2_000_000) > 0.95, "{whole}, later");
        }
    }

    /// 32 threads that were waited for as a whole come back at once: it takes some twenty small
    /// commits until they go in groups again, and then that is better. Both are found out, from
    /// whichever way it begins.
    #[test]
    fn what_a_change_leaves_behind_does_not_count() {
        let (mut judge, mut now_ns, mut small, mut last) = (Judge::default(), 0, 0, Way::Go);
        let mut gathered = 0;
        for commit in 0..30_000 {
            let way = judge.way();
            small = if way == last { small + 1 } else { 0 };
            last = way;
            let (served, took_ns) = match way {
                Way::Whole => (32, 2_600_000),
                _ if small < 20 => (2, 400_000),
                Way::Go => (4, 400_000),
                Way::Gather => (8, 500_000),
            };
            now_ns += took_ns;
            judge.ended(Ended {
                now_ns,
                served,
                sure: false,
                slow: true,
                average_ns: 400_000,
                crowd: 32,
            });
            gathered += u32::from(commit >= 10_000 && way == Way::Gather);
        }
        assert!(gathered > 19_000, "{gathered} of 20,000");
    }

    #[test]
    fn a_crowd_that_is_small_or_fast_is_not_waited_for_as_a_whole() {
        let mut bench = Bench { slow: false, ..Bench::with_whole(1) };
        assert_eq!(bench.share_of(Way::Whole, 5000, 1_000_000, 2_000_000), 0.0);
    }

    #[test]
    fn a_change_is_noticed() {
        let mut bench = Bench::new(false);
        bench.share_of(Way::Go, 5000, 1_000_000, 2_000_000);
        bench.share_of(Way::Gather, 2000, 2_000_000, 1_000_000);
        assert_eq!(bench.judge.best, Way::Gather);
    }

    /// An unsure first look at a slow medium: the other way is tried at once, and not for long if
    /// it serves much less.
    #[test]
    fn a_slow_medium_is_learned_in_a_few_commits() {
        let mut bench = Bench::new(false);
        let early = bench.share_of(Way::Gather, 16, 20_000_000, 10_000_000);
        assert!(early >= 10.0 / 16.0, "{early}");
        assert_eq!((bench.judge.best, bench.judge.way()), (Way::Gather, Way::Gather));
    }

    #[test]
    fn what_holds_everybody_up_does_not_count() {
        let rates = [false, true].map(|interrupted| {
            let mut bench = Bench::new(false);
            for commit in 0..200 {
                if interrupted && commit % 12 == 0 {
                    bench.now_ns += 100_000_000;
                    bench.judge.interrupted(bench.now_ns);
                }
                bench.commit(10_000_000, 20_000_000);
            }
            assert_eq!(bench.judge.best, Way::Go);
            bench.judge.rates
        });
        assert_eq!(rates[0], rates[1]);
    }

    #[test]
    fn a_pause_decides_nothing() {
        let mut bench = Bench::new(false);
        bench.share_of(Way::Go, 200, 1_000_000, 2_000_000);
        let before = bench.judge.rates;
        bench.now_ns += 60_000_000_000;
        bench.commit(1_000_000, 2_000_000);
        assert_eq!((bench.judge.rates, bench.judge.commits), (before, 0), "the epoch starts again");
    }
}
