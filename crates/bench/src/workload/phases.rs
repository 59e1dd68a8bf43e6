//! Loads that do one thing after another: threads do the same phase together, and each phase is measured by itself.

use std::io;
use std::time::{Duration, Instant};

use super::outcome::{Phase, Timings};
use super::{Limits, cancelled, on_threads};

/// Runs phases and keeps what they did.
pub(super) struct Phases<'a> {
    limits: &'a Limits,
    threads: u32,
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

    /// Runs one on all threads; each says how many units it did. Whoever looks at [`Part::is_over`] is told so after `time`.
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
        self.done.push(Phase { name, unit, done: done.iter().sum(), elapsed, cpu, timings });
        Ok(done)
    }

    /// Adds one that was measured elsewhere.
    pub fn add(&mut self, phase: Phase) {
        self.done.push(phase);
    }

    /// All of them.
    pub fn finish(self) -> Vec<Phase> {
        self.done
    }
}
