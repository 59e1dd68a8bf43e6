//! `scale`: what grows with the number of files, with the dirty log, and with the volume, and what
//! must not.
//!
//! | part | what is varied | what is measured |
//! |---|---|---|
//! | `files` | files in the volume, in one directory or spread over directories | create, lookup (warm, and cold after a mount), unlink, list, unmount, mount (clean, and after a crash), memory |
//! | `recovery` | bytes in a log that a crash left, in full commits and in fast commits | the mount that recovers, beside a mount with an empty log and the time that the device needs to read the log |
//! | `large` | size of a sparse volume: 16 TiB and beyond | mkfs, mount, files across the volume, blocks above 2^32, statfs, unmount, what e2fsprogs says |
//!
//! The cost of an operation is given as wall time and as processor time (of the caller, of the
//! daemon, of the kernel's thread for the journal); the second says more on a machine that is not
//! quiet. Volumes are sparse files in a directory; the library opens them without the page cache
//! where the file system below can do that, so a read that is counted is a read. Each part makes a
//! volume per row, and removes it.

mod bed;
mod files;
mod files_report;
mod large;
mod process;
mod recovery;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::contender::Contender;
use crate::report::Report;
use crate::versus::Step;
use crate::workload::{Cancel, size};
use crate::{BenchError, Programs, Result};

/// A part of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// More and more files.
    Files,
    /// A longer and longer dirty log.
    Recovery,
    /// A larger and larger volume.
    Large,
}

/// Where the files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Layout {
    /// All in one directory.
    One,
    /// 1000 in each directory.
    Spread,
}

/// Files per directory when they are spread.
pub const PER_DIR: u64 = 1000;

impl Layout {
    fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Spread => "spread",
        }
    }
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Scale {
    /// What to measure.
    #[arg(long = "part", value_delimiter = ',', default_value = "files,recovery,large")]
    pub parts: Vec<Part>,
    /// Numbers of files, ascending.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1000,100000,1000000",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000)
    )]
    pub files: Vec<u64>,
    /// Ten million files as well.
    #[arg(long)]
    pub long: bool,
    /// Where the files are.
    #[arg(long = "layout", value_delimiter = ',', default_value = "one,spread")]
    pub layouts: Vec<Layout>,
    /// How the volume is used for files, and what recovers it beside the library: library, mount,
    /// before, kernel, fuse2fs (each with :OPTIONS).
    #[arg(
        long = "target",
        value_name = "TARGET",
        default_value = "library",
        value_parser = bed::target
    )]
    pub targets: Vec<Contender>,
    /// Operations per sample.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        value_parser = clap::value_parser!(u64).range(1..=100_000)
    )]
    pub batch: u64,
    /// Samples at most; the median counts.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 21,
        value_parser = clap::value_parser!(u64).range(1..=1000)
    )]
    pub samples: u64,
    /// Sizes of the log for recovery, in MiB.
    #[arg(
        long = "log",
        value_name = "MIB",
        value_delimiter = ',',
        default_value = "4,16,64,256",
        value_parser = clap::value_parser!(u32).range(4..=1024)
    )]
    pub logs: Vec<u32>,
    /// Sizes of the fast-commit area for recovery, in MiB.
    #[arg(
        long = "area",
        value_name = "MIB",
        value_delimiter = ',',
        default_value = "1,4,16",
        value_parser = clap::value_parser!(u32).range(1..=64)
    )]
    pub areas: Vec<u32>,
    /// Sizes of large volumes.
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        default_value = "16T,64T",
        value_parser = size
    )]
    pub large: Vec<u64>,
    /// Directories made across a large volume.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub dirs: u32,
    /// Seconds that each checker may take for a large volume; 0: none is run.
    #[arg(long = "fsck", value_name = "SECONDS", default_value_t = 120)]
    pub fsck_seconds: u64,
    /// Where images and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// The programs that are started for mounts and checks.
    #[arg(skip)]
    pub programs: Programs,
    /// Set when the user wants an end.
    #[arg(skip)]
    pub cancel: Cancel,
}

/// The number of files that `--long` adds.
const LONG: u64 = 10_000_000;

/// Tells what is being done, and stops when the user wants that.
struct Progress<'a> {
    tell: &'a mut dyn FnMut(&Step),
    cancel: Cancel,
    done: u64,
    total: u64,
}

impl Progress<'_> {
    /// What follows now.
    fn step(&mut self, what: impl Into<String>) -> Result<()> {
        (self.tell)(&Step {
            done: self.done,
            total: self.total.max(self.done + 1),
            what: what.into(),
        });
        self.done += 1;
        self.check()
    }

    fn check(&self) -> Result<()> {
        check(&self.cancel)
    }
}

fn check(cancel: &Cancel) -> Result<()> {
    if cancel.is_set() { Err(BenchError("interrupted".into())) } else { Ok(()) }
}

impl Scale {
    /// Takes over what the command line says elsewhere.
    ///
    /// # Errors
    /// If numbers of files do not ascend, or a target needs another build that was not named.
    pub fn begin(&mut self, programs: Programs, cancel: Cancel) -> Result<()> {
        self.files.extend(self.long.then_some(LONG));
        if !self.files.is_sorted_by(|a, b| a < b) {
            return Err(BenchError("--files: the numbers must ascend".into()));
        }
        self.targets = programs.with_before(std::mem::take(&mut self.targets))?;
        (self.programs, self.cancel) = (programs, cancel);
        Ok(())
    }

    /// Runs it.
    ///
    /// # Errors
    /// One line: what could not be made, or which operation failed.
    pub fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let mut report = Report::new("scale");
        report.set("images", self.dir.display().to_string());
        let has = |part| self.parts.contains(&part);
        let count = |part, n: usize| if has(part) { n as u64 } else { 0 };
        let total = count(Part::Files, self.files.len() * self.layouts.len() * self.targets.len())
            + count(Part::Recovery, self.logs.len() + self.areas.len())
            + count(Part::Large, self.large.len());
        let mut progress = Progress { tell: progress, cancel: self.cancel.clone(), done: 0, total };
        let mut results = serde_json::Map::new();
        if has(Part::Files) {
            results.insert("files".into(), files::run(self, &mut report, &mut progress)?);
        }
        if has(Part::Recovery) {
            results.insert("recovery".into(), recovery::run(self, &mut report, &mut progress)?);
        }
        if has(Part::Large) {
            results.insert("large".into(), large::run(self, &mut report, &mut progress)?);
        }
        report.results = results.into();
        Ok(report)
    }
}
