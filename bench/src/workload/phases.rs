//! Loads that do one thing after another: threads do the same phase together, and each phase is
//! measured by itself.
//!
//! A phase of some milliseconds measures the state of the machine: whether a thread was woken on
//! this processor or on the other, whether something was just written back. So a load goes through
//! its phases in *laps*, on the same volume, until those that count have lasted [`LEAST`] each in
//! all laps together ([`Phases::laps`]). Doing one phase over and over would not do: a kernel
//! answers the second stat of a file itself. Contenders do the same with the same number of files;
//! a slow one does it less often.

use std::io;
use std::time::{Duration, Instant};

use super::outcome::{Phase, Timings};
use super::{Limits, cancelled, on_threads};

/// What each phase of a load with laps lasts at least.
pub(super) const LEAST: Duration = Duration::from_millis(300);
/// So many times that is enough for all phases, however short one of them still is.
const MOST: u32 = 40;

/// Runs phases and keeps what they did.
pub(super) struct Phases<'a> {
    limits: &'a Limits,
    threads: u32,
    /// One of each name.
    done: Vec<Phase>,
}

/// One thread's part of a phase.
pub(super) struct Part<'a> {
    /// Its number.
    pub thread: u32,
    /// When nothing new is to be started.
    end: Option<Instant>,
    limits: &'a Limits,
    pub timings: Timings,
}

impl Part<'_> {
    /// True if nothing new is to be started, because the phase had its time.
    pub fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// # Errors
    /// If the user wants an end.
    pub fn check(&self) -> io::Result<()> {
        if self.limits.cancel.is_set() { Err(cancelled()) } else { Ok(()) }
    }
}

impl<'a> Phases<'a> {
    /// None yet.
    pub fn new(limits: &'a Limits, threads: u32) -> Self {
        Self { limits, threads, done: Vec::new() }
    }

    /// Goes through phases, and again until those of these names have lasted `least` each. With a
    /// time limit once.
    pub fn laps(
        &mut self,
        least: Duration,
        names: &[&str],
        mut lap: impl FnMut(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            lap(self)?;
            let all: Duration = self.done.iter().map(|phase| phase.elapsed).sum();
            let is_short = |phase: &Phase| names.contains(&phase.name) && phase.elapsed < least;
            if !self.done.iter().any(is_short) || all >= least * MOST || self.limits.time.is_some()
            {
                return Ok(());
            }
        }
    }

    /// Runs one on all threads; each says how many units it did. [`Part::is_over`] is
    /// true after `time`. What was done under the same name before is added to.
    pub fn run(
        &mut self,
        name: &'static str,
        unit: &'static str,
        time: Option<Duration>,
        work: impl Fn(&mut Part<'_>) -> io::Result<f64> + Sync,
    ) -> io::Result<Vec<f64>> {
        let cpu = self.limits.meter.used();
        let began = Instant::now();
        let end = time.map(|t| began + t);
        let shares = on_threads(self.threads, |thread| {
            let mut part = Part { thread, end, limits: self.limits, timings: Timings::default() };
            part.check()?;
            let done = work(&mut part).map_err(|e| match e.kind() {
                io::ErrorKind::Interrupted => e,
                kind => io::Error::new(kind, format!("{name}: {e}")),
            })?;
            Ok((done, part.timings))
        })?;
        let elapsed = began.elapsed();
        let cpu = self.limits.meter.used().zip(cpu).map(|(now, then)| now.saturating_sub(then));
        let mut timings = Timings::default();
        shares.iter().for_each(|share| timings.add(&share.1));
        let done: Vec<f64> = shares.into_iter().map(|share| share.0).collect();
        self.add(Phase { name, unit, done: done.iter().sum(), elapsed, cpu, timings });
        Ok(done)
    }

    /// Adds one that was measured, to that of the same name if there is one.
    pub fn add(&mut self, phase: Phase) {
        let Some(sum) = self.done.iter_mut().find(|known| known.name == phase.name) else {
            self.done.push(phase);
            return;
        };
        sum.done += phase.done;
        sum.elapsed += phase.elapsed;
        sum.cpu = sum.cpu.zip(phase.cpu).map(|(one, other)| one + other);
        sum.timings.add(&phase.timings);
    }

    /// All of them.
    pub fn finish(self) -> Vec<Phase> {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::*;

    fn sleep(phases: &mut Phases<'_>, name: &'static str, ms: u64) -> io::Result<()> {
        let done = phases.run(name, "naps", None, |part| {
            part.timings.time(Op::Stat, || {
                std::thread::sleep(Duration::from_millis(ms));
                Ok(1.0)
            })
        });
        done.map(drop)
    }

    /// The phases that count last long enough, and all of them count what all laps did.
    #[test]
    fn laps_until_the_shortest_phase_is_long_enough() {
        let limits = Limits::default();
        let mut phases = Phases::new(&limits, 2);
        let least = Duration::from_millis(20);
        phases
            .laps(least, &["long", "short"], |phases| {
                sleep(phases, "long", 10)?;
                sleep(phases, "aside", 0)?;
                sleep(phases, "short", 4)
            })
            .unwrap();
        let done = phases.finish();
        assert_eq!(
            done.iter().map(|phase| phase.name).collect::<Vec<_>>(),
            ["long", "aside", "short"]
        );
        for phase in &done {
            assert_eq!(phase.done, done[0].done, "as often as the others");
            assert_eq!(phase.timings.of(Op::Stat).unwrap().count, phase.done as u64);
        }
        assert!(
            done[0].done >= 4.0 && done[2].elapsed >= least,
            "{} {:?}",
            done[0].done,
            done[2].elapsed
        );
    }

    /// A phase that takes no time at all is not waited for.
    #[test]
    fn laps_end_in_time() {
        let limits = Limits::default();
        let mut phases = Phases::new(&limits, 1);
        let lap = |phases: &mut Phases<'_>| {
            sleep(phases, "long", 10)?;
            phases.add(Phase {
                name: "nothing",
                unit: "naps",
                done: 0.0,
                elapsed: Duration::ZERO,
                cpu: None,
                timings: Timings::default(),
            });
            Ok(())
        };
        phases.laps(Duration::from_millis(1), &["long", "nothing"], lap).unwrap();
        let long = phases.finish().swap_remove(0);
        assert!(long.done > 1.0 && long.done <= f64::from(MOST) / 10.0, "{}", long.done);
    }

    #[test]
    fn with_a_time_limit_one_lap() {
        let limits = Limits { time: Some(Duration::from_secs(1)), ..Limits::default() };
        let mut phases = Phases::new(&limits, 1);
        phases.laps(LEAST, &["nap"], |phases| sleep(phases, "nap", 0)).unwrap();
        assert_eq!(phases.finish()[0].done, 1.0);
    }
}
