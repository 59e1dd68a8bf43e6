//! `guard`: the loads in which a regression shows first, beside fuse2fs and another build, in one
//! run of about three minutes.
//!
//! *Purpose.* `speed` takes an hour and is for goals. This one is for the end of a piece of work:
//! its table says what each load reaches beside fuse2fs, whose ratio hardly depends on the machine,
//! and, given another build of Extol, which loads fell by a fifth or more. A fifth is more than two
//! runs on a quiet machine differ by.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::plan::{dbench, fs_mark, fuse2fs, metadata, mount, participants, postmark};
use super::{Comparison, Measured, Metric, Speed, Want, show};
use crate::Result;
use crate::contender::Medium;
use crate::report::Report;
use crate::subject::SubjectKind;
use crate::versus::{Benchmark, Conduct, Step};
use crate::workload::{Untar, options::defaults, seconds};

/// A load that reaches less than so much of the other build has fallen.
const FELL: f64 = 0.8;
const THREADS: u32 = 4;

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Guard {
    /// Another build of the extol command, to compare with.
    #[arg(long, value_name = "PATH")]
    pub against: Option<PathBuf>,
    /// Medium: image, memory, an emulated medium, or a block device (it is overwritten).
    #[arg(long, default_value = "image", value_parser = Medium::parse)]
    pub medium: Medium,
    /// Seconds of a run that has no end of its own.
    #[arg(long, default_value = "2", value_parser = seconds)]
    pub seconds: Duration,
    /// Files of the trees and of each thread of the metadata load.
    #[arg(long, default_value_t = 2000)]
    pub files: u64,
    /// The runner of the comparisons.
    #[arg(skip = defaults::<Speed>())]
    speed: Speed,
}

impl Guard {
    fn comparisons(&self) -> Vec<Comparison> {
        let both = || [mount(), fuse2fs()];
        let fsync = |threads| {
            let title = format!("fsync, {threads} thread{}", if threads == 1 { "" } else { "s" });
            Comparison::new(title, participants(both(), fs_mark(threads)))
        };
        let played = |clients| {
            let load = dbench(clients, self.speed.loadfile.clone());
            Comparison::new(format!("dbench, {clients} clients"), participants(both(), load))
        };
        let untar = Untar { files: self.files, ..Untar::default() };
        let stat = metadata(THREADS, self.files);
        let mut all = vec![
            fsync(1),
            fsync(8),
            played(2),
            played(10),
            Comparison::new("postmark", participants(both(), postmark())).untimed(),
            Comparison::new("tree", participants(both(), untar)).phases(&["untar"], &[]),
            Comparison::new(format!("{THREADS} threads"), participants(both(), stat))
                .phases(&["stat"], &[]),
        ];
        if self.against.is_some() {
            all.iter_mut().for_each(Comparison::add_before);
            all.iter_mut().for_each(Comparison::want_no_fall);
        }
        all
    }
}

impl Comparison {
    /// Every metric of the first participant keeps up with the other build, which is the last.
    fn want_no_fall(&mut self) {
        let to = self.participants.len() - 1;
        let want = |metric: &Metric| Want::Ratio { of: 0, to, metric: *metric, at_least: FELL };
        self.wants = self.metrics.iter().map(want).collect();
    }
}

impl Benchmark for Guard {
    fn begin(&mut self, mut conduct: Conduct) -> Result<()> {
        if let Some(path) = &self.against {
            conduct.place.programs.set_before("--against", path)?;
        }
        conduct.place.medium = self.medium.clone();
        self.speed.seconds = self.seconds;
        self.speed.begin(conduct)
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let mut report = Report::new("guard");
        self.speed.conduct.describe(&mut report);
        let comparisons = self.comparisons();
        self.speed.check_room(&self.medium, &comparisons)?;
        let runs: u64 = comparisons.iter().map(|c| c.participants.len() as u64).sum();
        let total = u64::from(self.speed.conduct.rounds) * runs;
        let (mut done, mut measured) = (0, Vec::new());
        for comparison in comparisons {
            let runs = self.speed.turns(&self.medium, &comparison, &mut report, &mut |what| {
                progress(&Step { done, total, what });
                done += 1;
            })?;
            measured.push(Measured { comparison, runs });
        }
        let about = format!("guard, {}", self.medium);
        report.results = show::beside(&mut report, &about, &measured);
        if self.against.is_some() {
            report.notes.push(fallen(&measured));
        }
        Ok(report)
    }
}

/// A line about the loads that have fallen.
fn fallen(measured: &[Measured]) -> String {
    let rows = measured.iter().flat_map(|comparison| {
        comparison.comparison.metrics.iter().filter_map(|metric| {
            let before = comparison.participant(SubjectKind::Before.name())?;
            let ratio = comparison.ratio(0, before, *metric)?.median;
            (ratio < FELL).then(|| format!("{} ({ratio:.2})", comparison.row(*metric)))
        })
    });
    let rows: Vec<String> = rows.collect();
    match rows.is_empty() {
        true => "no load fell by a fifth".into(),
        false => format!("fell by a fifth or more: {}", rows.join(", ")),
    }
}

#[cfg(test)]
mod tests;
