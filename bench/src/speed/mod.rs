//! `speed`: the targets, each beside its peers on one device in one run.
//!
//! | part | participants | goal |
//! |---|---|---|
//! | [`Part::FsyncMount`] | mount, Linux with `fast_commit`, *nothing*; with 8 threads fuse2fs, too | 0.7 of Linux, all of it on slow media; 10 times fuse2fs; never slower with more threads |
//! | [`Part::MetadataMount`] | mount, *nothing*, fuse2fs | 0.8 of the one, 8 times the other |
//! | [`Part::LoadsMount`] | mount, fuse2fs, *nothing* | dbench 5 times, varmail 3 times, PostMark 10 times |
//! | [`Part::DataMount`] | mount, Linux, *nothing* | 0.8 sequential, 0.6 direct random reads at depth 16 |
//! | [`Part::FsyncLibrary`] | library, Linux with `fast_commit`, the raw device | as Linux with 1 thread, twice with more; half of the device with 32; two round trips per group |
//! | [`Part::MetadataLibrary`] | library, Linux | as Linux |
//! | [`Part::DataLibrary`] | library, the raw device | 0.9 of the device |
//! | [`Part::Isolation`] | library, mount, Linux without fast commits, the same with little memory for dirty pages, fuse2fs | p99 beside a writer 3 times p99 alone |
//!
//! *Nothing* is a FUSE file system that does nothing. It is the baseline of what FUSE allows on
//! this machine: beside each target of a mount the report says what it reaches itself in the same
//! run, so that a target that cannot be reached through FUSE is seen as such. (Its fsync is an
//! empty request, its data are zeros.)
//!
//! A part is a list of comparisons (`plan`): participants with a load each, which take turns, and
//! the goals. `show` compares what was measured with them. `guard` is a short choice of them.

mod guard;
mod plan;
mod show;

pub use guard::Guard;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::contender::{Contender, Medium};
use crate::report::Report;
use crate::versus::{Benchmark, Conduct, Entry, Run, Step};
use crate::workload::options::{bytes, word};
use crate::workload::{LoadFile, Workload, positive, seconds};
use crate::{BenchError, Result};

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Part {
    /// Small durable files through the mount.
    FsyncMount,
    /// Names and inodes through the mount.
    MetadataMount,
    /// dbench, varmail, PostMark through the mount.
    LoadsMount,
    /// Bulk data through the mount.
    DataMount,
    /// Small durable files in this process.
    FsyncLibrary,
    /// Names and inodes in this process.
    MetadataLibrary,
    /// Bulk data in this process.
    DataLibrary,
    /// A small fsync beside a heavy writer.
    Isolation,
}

impl Part {
    /// Media, if none are named.
    fn media(self) -> &'static [&'static str] {
        match self {
            Self::FsyncMount => &["image", "memory", "cloud", "sata"],
            _ => &["image", "memory"],
        }
    }
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Speed {
    /// What to measure [default: all].
    #[arg(long = "part", value_delimiter = ',')]
    pub parts: Vec<Part>,
    /// Media: image, memory, an emulated cloud, sata, raid, nvme or ramdisk, or a block device (it
    /// is overwritten) [default: image,memory; for fsync-mount cloud and sata, too]
    #[arg(
        long = "medium",
        value_name = "MEDIUM",
        value_delimiter = ',',
        value_parser = Medium::parse
    )]
    pub media: Vec<Medium>,
    /// Bytes of bulk data.
    #[arg(long, default_value = "256M", value_parser = pages)]
    pub size: u64,
    /// Files per thread of the metadata parts; files of the tree of untar.
    #[arg(long, default_value_t = 1000, value_parser = positive::<u64>)]
    pub files: u64,
    /// Further options of Extol's mount, and of noop, as `extol mount -o` knows them.
    #[arg(long, short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Seconds of a run that has no end of its own.
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub seconds: Duration,
    /// What dbench plays; without it, its proportions.
    #[arg(skip)]
    pub loadfile: Option<Arc<LoadFile>>,
    /// Volume and rounds; the medium is set for each.
    #[arg(skip)]
    pub conduct: Conduct,
}

/// What the package dbench has.
const CLIENT: &str = "/usr/share/dbench/client.txt";

/// Bytes of direct I/O.
fn pages(text: &str) -> std::result::Result<u64, String> {
    match bytes(text)? {
        size if size.is_multiple_of(4096) => Ok(size),
        _ => Err("it must be a multiple of 4k".into()),
    }
}

/// A contender and its load.
struct Participant {
    entry: Entry,
    load: Arc<dyn Workload>,
    /// A runner-up takes part for one ratio only, and may lack the tools: what it cannot do is a
    /// remark.
    optional: bool,
}

/// What a comparison measures of each run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    /// The load's units per second.
    Rate,
    /// A phase's.
    Phase(&'static str),
}

impl Metric {
    fn of(self, run: &Run) -> f64 {
        match self {
            Self::Rate => run.outcome.rate(),
            Self::Phase(name) => {
                run.outcome.phase(name).map_or(f64::NAN, crate::workload::Phase::rate)
            }
        }
    }
}

/// What is wanted of a comparison. Participants by number.
#[derive(Clone, Debug)]
enum Want {
    /// The rate of the first to that of the second, at least.
    Ratio { of: usize, to: usize, metric: Metric, at_least: f64 },
    /// p99 of an fsync beside a writer to its p99 alone, at most.
    Beside { of: usize, at_most: f64 },
    /// Flushes and durable writes per commit, at most.
    Flushes { of: usize, at_most: f64 },
}

/// Participants that take turns.
struct Comparison {
    title: String,
    participants: Vec<Participant>,
    metrics: Vec<Metric>,
    wants: Vec<Want>,
    /// Runs end by themselves: no limit of time.
    untimed: bool,
}

/// A comparison with what came out of it: `[participant][round]`. Without a run: it could not take
/// part.
struct Measured {
    comparison: Comparison,
    runs: Vec<Vec<Run>>,
}

impl Comparison {
    /// The one that does nothing, if it takes part.
    fn baseline(&self) -> Option<usize> {
        self.participants.iter().position(|p| matches!(p.entry.contender, Contender::Noop(_)))
    }
}

impl Benchmark for Speed {
    fn begin(&mut self, conduct: Conduct) -> Result<()> {
        self.conduct = conduct;
        self.conduct.limits.time = Some(self.seconds);
        if self.parts.is_empty() {
            self.parts = Part::value_variants().to_vec();
        }
        if Path::new(CLIENT).exists() {
            let read = LoadFile::read(CLIENT);
            self.loadfile = Some(read.map_err(|e| BenchError(format!("{CLIENT}: {e}")))?);
        }
        Ok(())
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let mut report = Report::new("speed");
        self.conduct.describe(&mut report);
        report.setting.retain(|(name, _)| name != "medium");
        let dbench = match &self.loadfile {
            Some(file) => format!("plays a load file of {} lines", file.len()),
            None => "plays the proportions of client.txt, which is not here".into(),
        };
        report.set("dbench", dbench);
        if !self.options.is_empty() {
            report.set("options of the mount", self.options.join(","));
        }
        let mut parts = Vec::new();
        for part in Part::value_variants().iter().filter(|part| self.parts.contains(part)) {
            for medium in self.media_of(*part)? {
                let comparisons = self.plan(*part, &medium);
                parts.push((word(part), *part, medium, comparisons));
            }
        }
        for (_, _, medium, comparisons) in &parts {
            self.check_room(medium, comparisons)?;
        }
        let runs = |comparisons: &Vec<Comparison>| {
            comparisons.iter().map(|c| c.participants.len() as u64).sum::<u64>()
        };
        let total = u64::from(self.conduct.rounds) * parts.iter().map(|p| runs(&p.3)).sum::<u64>();
        let mut done = 0;
        let mut results = serde_json::Map::new();
        for (name, part, medium, comparisons) in parts {
            let mut measured = Vec::new();
            for comparison in comparisons {
                let about = format!("{name}, {medium}");
                let runs = self.turns(&medium, &comparison, &mut report, &mut |what| {
                    progress(&Step { done, total, what: format!("{about}: {what}") });
                    done += 1;
                })?;
                measured.push(Measured { comparison, runs });
            }
            let json = show::part(&mut report, &name, part, &medium, &measured);
            let by_medium = results.entry(name).or_insert_with(|| serde_json::json!({}));
            if let Some(map) = by_medium.as_object_mut() {
                map.insert(medium.to_string(), json);
            }
        }
        report.results = results.into();
        Ok(report)
    }
}

impl Speed {
    fn media_of(&self, part: Part) -> Result<Vec<Medium>> {
        if self.media.is_empty() {
            return part.media().iter().map(|m| Medium::parse(m)).collect();
        }
        Ok(self.media.clone())
    }

    /// How a participant is run.
    fn conduct_of(
        &self,
        medium: &Medium,
        comparison: &Comparison,
        participant: &Participant,
    ) -> Conduct {
        let mut conduct = self.conduct.on(medium);
        conduct.volume.features.extend(participant.entry.features.iter().cloned());
        if comparison.untimed {
            conduct.limits.time = None;
        }
        conduct
    }

    /// Refuses what has no room on its volume, before the first run.
    fn check_room(&self, medium: &Medium, comparisons: &[Comparison]) -> Result<()> {
        for comparison in comparisons {
            for participant in &comparison.participants {
                let conduct = self.conduct_of(medium, comparison, participant);
                conduct.check_room(&participant.entry.contender, &*participant.load)?;
            }
        }
        Ok(())
    }

    /// All rounds of a comparison.
    fn turns(
        &self,
        medium: &Medium,
        comparison: &Comparison,
        report: &mut Report,
        tell: &mut dyn FnMut(String),
    ) -> Result<Vec<Vec<Run>>> {
        let mut runs: Vec<Vec<Run>> = comparison.participants.iter().map(|_| Vec::new()).collect();
        let mut away = vec![false; comparison.participants.len()];
        for round in 0..self.conduct.rounds {
            let mut order: Vec<usize> = (0..comparison.participants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for n in order {
                let participant = &comparison.participants[n];
                tell(format!(
                    "{} round {}: {}",
                    comparison.title,
                    round + 1,
                    participant.entry.name
                ));
                if away[n] {
                    continue;
                }
                let conduct = self.conduct_of(medium, comparison, participant);
                match conduct.run(&participant.entry.contender, &*participant.load) {
                    Ok(run) => runs[n].push(run),
                    Err(BenchError(why))
                        if participant.optional && !self.conduct.limits.cancel.is_set() =>
                    {
                        away[n] = true;
                        report.notes.push(format!("{medium}, {}: {why}", comparison.title));
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests;
