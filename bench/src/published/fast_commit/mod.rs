//! `fast-commit`: what fast commits are worth, in five parts.
//!
//! | part | contenders | shows |
//! |---|---|---|
//! | [`Part::Table`] | Extol with `fast_commit` and with `nofast_commit`, on one volume with the feature | the published loads, per medium; what an fsync cost |
//! | [`Part::Nfs`] | the same two, exported, and a client of NFS | the published loads over NFS; commits per second |
//! | [`Part::Log`] | the same, in this process, one thread | the log's bytes for each single fsync, by kind of change |
//! | [`Part::Peers`] | Linux's ext4 with `fast_commit`, Extol on the same block device as a library and as a mount | fs_mark with 8 and 32 threads, varmail |
//! | [`Part::Isolation`] | the same, and Linux without fast commits | how long a small fsync takes beside a heavy writer of another file |
//!
//! Every number is from runs that took turns, each on a fresh volume; ratios are taken round by
//! round. The last two parts need root and a loop device.

mod cost;
mod isolation;
mod log;
mod nfs;
mod peers;
mod table;

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::fsync_batching::Backend;
use crate::contender::{Contender, Medium};
use crate::report::{Cell, Report};
use crate::spread::Spread;
use crate::subject::SubjectKind;
use crate::versus::{Benchmark, Conduct, Entry, Run, Step};
use crate::workload::options::{millis, word};
use crate::workload::{Dbench, FsMark, VarMail, Workload, positive, seconds};
use crate::{BenchError, Result};

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub enum Part {
    /// The published loads with and without fast commits.
    Table,
    /// The published loads over NFS.
    Nfs,
    /// The log's bytes of each fsync.
    Log,
    /// Beside Linux.
    Peers,
    /// Beside a heavy writer.
    Isolation,
}

impl Part {
    /// Media, if none are named. On memory only processor time is compared, and what an emulated
    /// NVMe takes is mostly the loop device's time: both are for comparing with Linux on the same
    /// device.
    fn media(self) -> &'static [&'static str] {
        match self {
            Self::Table => &["cloud", "sata", "image"],
            Self::Nfs => &["cloud", "sata"],
            Self::Log => &["memory"],
            Self::Peers => &["image", "memory", "cloud", "sata", "nvme"],
            Self::Isolation => &["image", "memory", "cloud"],
        }
    }
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct FastCommit {
    /// What to measure.
    #[arg(long = "part", value_delimiter = ',', default_value = "table,log")]
    pub parts: Vec<Part>,
    /// Media: emulated cloud, sata, raid, nvme, ramdisk; memory, image, or a block device (it is
    /// overwritten) [default: for table cloud,sata,image; for nfs cloud,sata; for peers
    /// image,memory,cloud,sata,nvme; for isolation image,memory,cloud].
    #[arg(
        long = "profile",
        value_name = "MEDIUM",
        value_delimiter = ',',
        value_parser = Medium::parse
    )]
    pub media: Vec<Medium>,
    /// Where Extol runs in the table; elsewhere it runs as both.
    #[arg(long = "target", value_name = "TARGET", default_value = "library")]
    pub backend: Backend,
    /// Also compare with a volume without the feature in the table.
    #[arg(long)]
    pub plain: bool,
    /// What a call takes in the network there and back, in microseconds, for nfs.
    #[arg(
        long = "delay",
        value_name = "US",
        value_delimiter = ',',
        default_value = "100,300,1000"
    )]
    pub delays: Vec<u32>,
    /// Changes of each kind for log.
    #[arg(long, default_value_t = 500, value_parser = positive::<u64>)]
    pub syncs: u64,
    /// Milliseconds between small fsyncs for isolation.
    #[arg(long, default_value = "3", value_parser = millis)]
    pub pause: Duration,
    /// Seconds per run.
    #[arg(long, default_value = "5", value_parser = seconds)]
    pub seconds: Duration,
    /// One round of one second: shows that it runs, measures little.
    #[arg(long, conflicts_with = "seconds")]
    pub quick: bool,
    /// Volume and rounds; the medium is set for each.
    #[arg(skip)]
    pub conduct: Conduct,
}

/// A load with its published figures.
struct Load {
    name: &'static str,
    unit: &'static str,
    /// The unit is so many of what the load counts.
    scale: f64,
    /// Without and with the patch.
    published: (f64, f64),
    /// The gain that Extol is to reach, in per cent.
    wanted: f64,
    load: Box<dyn Workload>,
}

/// The local rows of the published table.
fn loads() -> [Load; 4] {
    [
        Load {
            name: "fs_mark, 8 threads",
            unit: "files/s",
            scale: 1.0,
            published: (1475.1, 4309.8),
            wanted: 192.0,
            load: Box::new(fs_mark(8)),
        },
        Load {
            name: "dbench, 2 clients",
            unit: "MB/s",
            scale: 1000.0,
            published: (33.32, 70.87),
            wanted: 112.0,
            load: Box::new(Dbench { clients: 2, ..Dbench::default() }),
        },
        Load {
            name: "dbench, 10 clients",
            unit: "MB/s",
            scale: 1000.0,
            published: (90.48, 110.12),
            wanted: 22.0,
            load: Box::new(Dbench { clients: 10, ..Dbench::default() }),
        },
        Load {
            name: "varmail, 16 threads",
            unit: "operations/s",
            scale: 1.0,
            published: (10442.3, 18617.8),
            wanted: 78.0,
            load: Box::new(VarMail::default()),
        },
    ]
}

fn fs_mark(threads: u32) -> FsMark {
    FsMark { threads, size: 4096, files: 2000, dirs: 64, keep: true, ..FsMark::default() }
}

/// The volume's feature, which is also the name of the mount option.
const FEATURE: &str = "fast_commit";
const OFF: &str = "nofast_commit";

/// Linux with fast commits. It has no option that turns them off; a volume without the feature
/// does.
fn linux() -> Entry {
    Entry::new("Linux FC", Contender::Mounted(SubjectKind::Kernel, String::new()), &[FEATURE])
}

fn linux_without() -> Entry {
    Entry::new("Linux no FC", Contender::Mounted(SubjectKind::Kernel, String::new()), &[])
}

/// Extol on the device that Linux gets.
fn on_node() -> Entry {
    Entry::new("library", Contender::Node(FEATURE.into()), &[FEATURE])
}

fn mounted() -> Entry {
    Entry::new("mount", Contender::Mounted(SubjectKind::Extol, FEATURE.into()), &[FEATURE])
}

/// Counts steps over all parts.
struct Steps<'a> {
    done: u64,
    total: u64,
    tell: &'a mut dyn FnMut(&Step),
}

impl Steps<'_> {
    /// All rounds of one load, `about` in front of what is told.
    fn take_turns(
        &mut self,
        conduct: &Conduct,
        entries: &[Entry],
        load: &dyn Workload,
        about: &str,
    ) -> Result<Vec<Vec<Run>>> {
        let (before, total) = (self.done, self.total);
        let mut told = |step: &Step| {
            (self.tell)(&Step {
                done: before + step.done,
                total,
                what: format!("{about}: {}", step.what),
            });
        };
        let runs = conduct.take_turns_of(entries, load, &mut told)?;
        self.done += u64::from(conduct.rounds) * entries.len() as u64;
        Ok(runs)
    }

    fn one(&mut self, what: String) {
        (self.tell)(&Step { done: self.done, total: self.total, what });
        self.done += 1;
    }
}

impl Benchmark for FastCommit {
    fn begin(&mut self, conduct: Conduct) -> Result<()> {
        self.conduct = conduct;
        self.conduct.limits.time = Some(self.seconds);
        if self.quick {
            self.conduct.rounds = 1;
            self.conduct.limits.time = Some(Duration::from_secs(1));
        }
        Ok(())
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        if self.parts.is_empty() {
            return Err(BenchError(
                "give at least one part: table, nfs, log, peers, isolation".into(),
            ));
        }
        let mut report = Report::new("fast-commit");
        self.conduct.describe(&mut report);
        report.setting.retain(|(name, _)| name != "medium");
        report.set(
            "published",
            "Harshad Shirwadkar, \"ext4: add fast commits feature\", 18 September 2020",
        );
        let mut steps = Steps { done: 0, total: self.total()?, tell: progress };
        let mut results = serde_json::Map::new();
        for part in Part::value_variants().iter().filter(|part| self.parts.contains(part)) {
            let json = match part {
                Part::Table => self.table(&mut report, &mut steps)?,
                Part::Nfs => self.nfs(&mut report, &mut steps)?,
                Part::Log => self.log(&mut report, &mut steps)?,
                Part::Peers => self.peers(&mut report, &mut steps)?,
                Part::Isolation => self.isolation(&mut report, &mut steps)?,
            };
            results.insert(word(part), json);
        }
        report.results = results.into();
        Ok(report)
    }
}

impl FastCommit {
    /// Runs of all parts.
    fn total(&self) -> Result<u64> {
        let rounds = u64::from(self.conduct.rounds);
        let mut total = 0;
        for part in &self.parts {
            let media = self.media_of(*part)?.len() as u64;
            total += match part {
                Part::Table => media * rounds * (loads().len() * self.sides().len()) as u64,
                Part::Nfs => media * rounds * 2 * (nfs::loads().len() * self.delays.len()) as u64,
                Part::Log => 2,
                Part::Peers => {
                    media * (1 + rounds * (peers::loads().len() * peers::entries().len()) as u64)
                }
                Part::Isolation => media * rounds * isolation::entries().len() as u64,
            };
        }
        Ok(total)
    }

    fn media_of(&self, part: Part) -> Result<Vec<Medium>> {
        if self.media.is_empty() || part == Part::Log {
            return part.media().iter().map(|m| Medium::parse(m)).collect();
        }
        Ok(self.media.clone())
    }

    /// Extol without and with fast commits.
    fn sides(&self) -> Vec<Entry> {
        let side = |name, options| Entry::new(name, self.backend.with(options), &[FEATURE]);
        let mut sides = vec![side(OFF, OFF), side(FEATURE, FEATURE)];
        if self.plain {
            sides.push(Entry::new("no feature", self.backend.with(""), &[]));
        }
        sides
    }
}

/// Rates of all rounds.
fn rates(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|r| r.outcome.rate()).collect()
}

/// Median, smallest and largest.
fn spread_cells(spread: Option<Spread>, digits: usize) -> [Cell; 3] {
    [spread.map(|s| s.median), spread.map(|s| s.min), spread.map(|s| s.max)]
        .map(|v| Cell::number(v, digits))
}
