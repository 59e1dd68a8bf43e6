//! What lazy initialisation decides: when the next step is, and which volume has it. Numbers and
//! times in, decisions out.
//!
//! After a step nothing happens for N times as long as it took, so the service has about 1/(1+N) of
//! the time of a device that does nothing else. To others a step costs more than it takes: a disk's
//! head goes away and comes back, and a write cache gets full. So while file data is written,
//! pauses are 16 times as long. Only the first step is measured, with a flush in it, so that
//! it is the medium's time and not that of some cache. With N = 0 there is no pause, and every step
//! flushes: otherwise nothing would slow it down to what the medium can do.

/// Nanoseconds.
pub(crate) type Ns = u64;

/// A pause is so many times as long while file data is written.
const BUSY: Ns = 16;

/// When a volume's steps are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Schedule {
    multiplier: u32,
    /// The pause of a volume that is not written, once measured.
    pause: Option<Ns>,
    busy: bool,
    due: Ns,
}

impl Schedule {
    /// The first step is `delay` from now.
    pub fn new(multiplier: u32, now: Ns, delay: Ns) -> Self {
        Self { multiplier, pause: None, busy: false, due: now.saturating_add(delay) }
    }

    /// When the next step is.
    pub fn due(&self) -> Ns {
        self.due
    }

    /// The pause between steps, as far as it is known.
    pub fn pause(&self) -> Ns {
        self.pause.unwrap_or(0).saturating_mul(if self.busy { BUSY } else { 1 })
    }

    /// True if the next step flushes: it is measured, or nothing else slows it down.
    pub fn flushes(&self) -> bool {
        self.pause() == 0
    }

    /// A group was zeroed. `busy`: file data was written in the pause before. (A pause that comes
    /// out as nothing is measured again.)
    pub fn step_ended(&mut self, began: Ns, ended: Ns, busy: bool) {
        let took = ended.saturating_sub(began);
        let measured = || took.saturating_mul(self.multiplier.into());
        self.pause = Some(self.pause.unwrap_or_else(measured)).filter(|pause| *pause > 0);
        self.busy = busy;
        self.due = ended.saturating_add(self.pause());
    }

    /// The step could not be made: again after `delay`.
    pub fn postpone(&mut self, now: Ns, delay: Ns) {
        self.due = now.saturating_add(delay);
    }

    /// How long `groups` more groups will take, if each takes `step`.
    pub fn left(&self, groups: u64, step: Ns) -> Ns {
        groups.saturating_mul(step.saturating_add(self.pause()))
    }
}

/// What the thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// This request has a step.
    Step(usize),
    /// No request is due for so long.
    Wait(Ns),
    /// There are no requests.
    End,
}

/// Which request has the next step: the one that has been due longest.
pub(crate) fn next(dues: impl IntoIterator<Item = Ns>, now: Ns) -> Next {
    match dues.into_iter().enumerate().min_by_key(|(_, due)| *due) {
        None => Next::End,
        Some((at, due)) if due <= now => Next::Step(at),
        Some((_, due)) => Next::Wait(due - now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Ns = 1_000_000;

    /// Virtual time: the step takes 3 ms for the first group, 7 ms for the others.
    fn run(multiplier: u32, groups: u64) -> (Ns, Vec<Ns>) {
        let mut schedule = Schedule::new(multiplier, 1000, 2 * MS);
        let (mut now, mut busy, mut pauses) = (1000, 0, Vec::new());
        for group in 0..groups {
            assert!(schedule.due() >= now);
            if group > 0 {
                pauses.push(schedule.due() - now);
            } else {
                assert_eq!(schedule.due() - now, 2 * MS, "the start delay");
            }
            now = schedule.due();
            assert_eq!(
                schedule.flushes(),
                group == 0 || multiplier == 0,
                "{multiplier}: group {group}"
            );
            let took = if group == 0 { 3 * MS } else { 7 * MS };
            schedule.step_ended(now, now + took, false);
            now += took;
            busy += took;
        }
        (busy * 1000 / (now - 1000 - 2 * MS).max(1), pauses)
    }

    #[test]
    fn l6_the_pause_is_a_multiple_of_the_first_step() {
        for multiplier in [1, 2, 5, 10, 100] {
            let (_, pauses) = run(multiplier, 50);
            assert!(
                pauses.iter().all(|p| *p == u64::from(multiplier) * 3 * MS),
                "{multiplier}: {pauses:?}"
            );
        }
        let (share, pauses) = run(0, 50);
        assert!(pauses.iter().all(|p| *p == 0) && share == 1000, "no pause, all the time");
    }

    #[test]
    fn l6_the_share_of_time_follows() {
        // All steps take the same: the share is 1/(1+n), but for the pause that the last step has
        // not.
        for multiplier in [1u64, 2, 5, 10, 100] {
            let mut schedule = Schedule::new(multiplier as u32, 0, 0);
            let mut now = 0;
            for _ in 0..1000 {
                now = schedule.due().max(now);
                schedule.step_ended(now, now + 4 * MS, false);
                now += 4 * MS;
            }
            let share = 4000 * MS * 1_000_000 / schedule.due();
            assert_eq!(share, 1_000_000 / (1 + multiplier), "n = {multiplier}");
            assert_eq!(schedule.left(3, 4 * MS), 3 * (1 + multiplier) * 4 * MS);
        }
    }

    #[test]
    fn a_step_too_short_to_measure_is_measured_again() {
        let mut schedule = Schedule::new(10, 0, 0);
        schedule.step_ended(5, 5, true);
        assert!(schedule.flushes() && schedule.due() == 5);
        schedule.step_ended(5, 7, false);
        assert!(!schedule.flushes() && schedule.due() == 27);
        schedule.postpone(30, 100);
        assert_eq!(schedule.due(), 130);
        schedule.step_ended(130, 1000, false);
        assert_eq!(schedule.due(), 1020, "measured once");
        let mut wild = Schedule::new(u32::MAX, u64::MAX - 1, 5);
        wild.step_ended(0, u64::MAX, true);
        assert_eq!(wild.due(), u64::MAX);
    }

    #[test]
    fn a_volume_that_is_written_has_longer_pauses() {
        let mut schedule = Schedule::new(10, 0, 0);
        let mut due = |began, busy| {
            schedule.step_ended(began, began + 3, busy);
            (schedule.due() - began - 3, schedule.left(2, 3))
        };
        assert_eq!(due(0, false), (30, 66));
        assert_eq!(due(100, true), (480, 966));
        assert_eq!(due(1000, true), (480, 966), "it does not grow");
        assert_eq!(due(2000, false), (30, 66), "nothing is written any more");
        let mut none = Schedule::new(0, 0, 0);
        none.step_ended(0, 5, true);
        assert!(none.due() == 5 && none.flushes(), "no pauses stay none");
    }

    #[test]
    fn the_longest_waiting_comes_first() {
        assert_eq!(next([], 5), Next::End);
        assert_eq!(next([9, 3, 4], 5), Next::Step(1));
        assert_eq!(next([9, 5, 5], 5), Next::Step(1));
        assert_eq!(next([9, 7], 5), Next::Wait(2));
    }

    #[test]
    fn three_volumes_share_one_thread() {
        // Each step takes 1 ms; n = 10, 2 and 0.
        let mut schedules = [10, 2, 0].map(|n| Schedule::new(n, 0, 0));
        let (mut now, mut steps) = (0, [0u64; 3]);
        while now < 1000 * MS {
            match next(schedules.iter().map(Schedule::due), now) {
                Next::Step(at) => {
                    schedules[at].step_ended(now, now + MS, false);
                    now += MS;
                    steps[at] += 1;
                }
                Next::Wait(ns) => now += ns,
                Next::End => unreachable!("there are three"),
            }
        }
        assert_eq!(steps.iter().sum::<u64>(), 1000, "the one without pauses takes what is left");
        assert!((80..=91).contains(&steps[0]) && (240..=334).contains(&steps[1]), "{steps:?}");
    }
}
