//! What part of the time heavy writers may keep the device busy, decided from how long fsyncs take.
//! Pure: numbers in, numbers out.
//!
//! A device works off one request after the other, so an fsync that comes while a large write is
//! under way takes longer by as much; and where a host file system lies below (an image file, above
//! all a sparse one), the large write holds its locks besides. So large writes take turns, one at a
//! time, in small pieces, and after each they leave the device alone for a while. How long is found
//! out: fsyncs should rarely take more than a *goal*. Each that does cuts the share by a quarter,
//! each that does not lets it grow by a little, and these two are in balance when one fsync in a
//! hundred is late.
//!
//! The goal is twice what one in a hundred takes without writers beside it. If that was never seen
//! it is a multiple of what the fastest take, which are those that met no large write.
//!
//! Whatever fsyncs take, a writer gets a sixteenth of the device's time ([`LEAST`]), and a piece
//! every 25 ms ([`LONGEST_PAUSE_NS`]): with pieces of 256 KiB, 10 MB/s.

/// The share is in parts of this.
const WHOLE: u32 = 1 << 16;
/// The writer must not starve, whatever fsyncs take, and they may be late for reasons that have
/// nothing to do with it.
const LEAST: u32 = WHOLE / 16;
/// Half of the fsyncs may meet a large write then; with more the typical one would become slow, and
/// not only one in a hundred.
const MOST: u32 = WHOLE / 2;
/// Where it begins.
const FIRST: u32 = WHOLE / 8;
/// Longest pause between two pieces: what stalled for once (a processor that was busy, a disk that
/// tidied up) is no measure.
const LONGEST_PAUSE_NS: u64 = 25_000_000;
/// What is late, as a multiple of one fsync in a hundred alone.
const TO_LATE: u64 = 2;
/// The same as a multiple of the fastest tenth.
const TO_FAST: u64 = 8;
/// Fsyncs alone before their hundredth is known.
const ENOUGH: u32 = 200;
/// What is late at least: an fsync waits for a processor as well, for which no writer is to blame.
/// (With 300 us one in a hundred took just three times as long in memory as alone, 0.10 ms.)
const LEAST_GOAL_NS: u64 = 200_000;

/// Follows a quantile of a stream of times in one number: up by much or down by little, in the
/// proportion of the quantile.
#[derive(Clone, Copy, Debug)]
struct Quantile {
    ns: u64,
    /// Of 128.
    part: u64,
}

impl Quantile {
    fn note(&mut self, took_ns: u64) {
        if self.ns == 0 {
            self.ns = took_ns;
        }
        let step = self.ns / 16;
        if took_ns > self.ns {
            self.ns = self.ns.saturating_add((step / 128 * self.part).max(1));
        } else {
            self.ns -= step / 128 * (128 - self.part);
        }
    }
}

/// The share of heavy writers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duty {
    share: u32,
    /// When it was cut the last time.
    cut_ns: u64,
    /// What the fastest tenth takes.
    fast: Quantile,
    /// What one in a hundred takes, alone.
    late: Quantile,
    alone: u32,
    /// Before this no piece begins.
    next_ns: u64,
}

impl Default for Duty {
    fn default() -> Self {
        Self {
            share: FIRST,
            cut_ns: 0,
            fast: Quantile { ns: 0, part: 13 },
            late: Quantile { ns: 0, part: 127 },
            alone: 0,
            next_ns: 0,
        }
    }
}

impl Duty {
    /// An fsync that takes longer is late.
    pub(super) fn goal_ns(&self) -> u64 {
        let known = self.alone >= ENOUGH;
        let (ns, times) = if known { (self.late.ns, TO_LATE) } else { (self.fast.ns, TO_FAST) };
        ns.saturating_mul(times).max(LEAST_GOAL_NS)
    }

    /// Thousandths of the time.
    pub(super) fn permille(&self) -> u32 {
        self.share * 1000 / WHOLE
    }

    /// The fsync of a file of which little was dirty is over.
    pub(super) fn synced(&mut self, began_ns: u64, now_ns: u64, beside: bool) {
        let took = now_ns.saturating_sub(began_ns);
        self.fast.note(took);
        if !beside {
            self.late.note(took);
            self.alone = self.alone.saturating_add(1);
        } else if took <= self.goal_ns() {
            self.share = (self.share + self.share / 384).min(MOST);
        } else if began_ns >= self.cut_ns {
            // (One cut for all that waited for the same.)
            self.share = (self.share - self.share / 4).max(LEAST);
            self.cut_ns = now_ns;
        }
    }

    /// How long the next piece has to wait.
    pub(super) fn wait_ns(&self, now_ns: u64) -> u64 {
        self.next_ns.saturating_sub(now_ns)
    }

    /// A piece was written.
    pub(super) fn wrote(&mut self, began_ns: u64, now_ns: u64) {
        let took = u128::from(now_ns.saturating_sub(began_ns));
        let pause = took * u128::from(WHOLE - self.share) / u128::from(self.share);
        let pause = u64::try_from(pause).unwrap_or(u64::MAX).min(LONGEST_PAUSE_NS);
        self.next_ns = now_ns.saturating_add(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Numbers that look random, below `end`.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// Fsyncs that take `alone_ns`, and `more_ns` if as many of `dice` as are asked for fall into
    /// the writer's share.
    fn settle(alone_ns: u64, more_ns: u64, needed: u32) -> Duty {
        let (mut duty, mut dice, mut now) = (Duty::default(), Dice(1), 0);
        for n in 0..60_000 {
            let meets = n >= 1000
                && (0..needed).all(|_| dice.below(u64::from(WHOLE)) < u64::from(duty.share));
            let took = alone_ns + dice.below(alone_ns / 4) + if meets { more_ns } else { 0 };
            duty.synced(now, now + took, n >= 1000);
            now += took;
        }
        duty
    }

    #[test]
    fn the_writer_gets_as_much_as_fsyncs_bear() {
        assert_eq!(settle(MS, MS / 2, 1).share, MOST, "pieces that cost little");
        let rare = settle(MS, 10 * MS, 2).share;
        // One in a hundred: a tenth of the time each.
        assert!((WHOLE / 16..WHOLE / 6).contains(&rare), "{rare}");
        let starved = settle(MS, 10 * MS, 1).share;
        assert!((LEAST..LEAST * 4 / 3 + 1).contains(&starved), "but never less: {starved}");
    }

    #[test]
    fn who_waits_for_the_same_stall_complains_once() {
        let mut duty = settle(MS, MS / 2, 1);
        for n in 0..32 {
            duty.synced(1000 * MS + n, 1100 * MS, true);
        }
        assert_eq!(duty.share, MOST - MOST / 4);
        duty.synced(1100 * MS, 1200 * MS, true);
        assert!(duty.share < MOST / 8 * 5);
    }

    #[test]
    fn late_is_twice_the_hundredth_or_a_multiple_of_the_fastest() {
        let mut duty = Duty::default();
        assert_eq!(duty.goal_ns(), LEAST_GOAL_NS);
        let mut dice = Dice(7);
        for _ in 0..5000 {
            duty.synced(0, MS + dice.below(9 * MS), true);
        }
        let goal = duty.goal_ns();
        assert!((12 * MS..20 * MS).contains(&goal), "beside a writer from the start: {goal}");
        for _ in 0..20_000 {
            duty.synced(0, MS + dice.below(9 * MS), false);
        }
        let goal = duty.goal_ns();
        assert!((17 * MS..22 * MS).contains(&goal), "{goal}");
    }

    #[test]
    fn pauses_leave_the_share_and_have_an_end() {
        let mut duty = Duty::default();
        assert_eq!(duty.wait_ns(0), 0);
        duty.wrote(10 * MS, 11 * MS);
        assert_eq!(duty.wait_ns(11 * MS), 7 * MS, "an eighth");
        assert_eq!(duty.wait_ns(15 * MS), 3 * MS);
        assert_eq!(duty.wait_ns(19 * MS), 0);
        duty.wrote(100 * MS, 900 * MS);
        assert_eq!(duty.wait_ns(900 * MS), LONGEST_PAUSE_NS);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut duty = Duty::default();
        for beside in [false, true] {
            for took in [0, 1, u64::MAX] {
                for _ in 0..300 {
                    duty.synced(0, took, beside);
                    duty.wrote(0, took);
                    assert!((LEAST..=MOST).contains(&duty.share));
                }
            }
        }
    }
}
