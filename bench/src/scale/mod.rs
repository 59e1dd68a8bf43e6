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

pub use bed::Way;

use crate::report::Report;
use crate::versus::Step;
use crate::workload::Cancel;
use crate::{BenchError, Programs, Result};

/// A part of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// More and more files.
    Files,
    /// A longer and longer dirty log.
    Recovery,
    /// A larger and larger volume.
    Large,
}

impl Part {
    /// By the name on the command line.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "files" => Some(Self::Files),
            "recovery" => Some(Self::Recovery),
            "large" => Some(Self::Large),
            _ => None,
        }
    }
}

/// Where the files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// All in one directory.
    One,
    /// [`PER_DIR`] in each directory.
    Spread,
}

/// Files per directory when they are spread.
pub const PER_DIR: u64 = 1000;

impl Layout {
    /// By the name on the command line.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "one" => Some(Self::One),
            "spread" => Some(Self::Spread),
            _ => None,
        }
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Spread => "spread",
        }
    }
}

/// Parameters.
#[derive(Clone, Debug)]
pub struct Scale {
    /// What to measure.
    pub parts: Vec<Part>,
    /// Numbers of files, ascending.
    pub files: Vec<u64>,
    /// Where they are.
    pub layouts: Vec<Layout>,
    /// How the volume is used in `files`; the mounts among them are peers in `recovery`.
    pub ways: Vec<Way>,
    /// Operations per sample.
    pub batch: u64,
    /// Samples at most.
    pub samples: u64,
    /// Sizes of logs in MiB, for full commits.
    pub logs: Vec<u32>,
    /// Sizes of fast-commit areas in MiB.
    pub areas: Vec<u32>,
    /// Sizes of sparse volumes in bytes.
    pub large: Vec<u64>,
    /// Directories made across a sparse volume.
    pub dirs: u32,
    /// Seconds that e2fsck may take for a sparse volume; 0: it is not run.
    pub fsck_seconds: u64,
    /// Where images and mount points are made.
    pub dir: PathBuf,
    /// The programs that are started for mounts and checks.
    pub programs: Programs,
    /// Set when the user wants an end.
    pub cancel: Cancel,
}

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
    /// Runs it.
    ///
    /// # Errors
    /// One line: what could not be made, or which operation failed.
    pub fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let mut report = Report::new("scale");
        report.set("images", self.dir.display().to_string());
        let has = |part| self.parts.contains(&part);
        let count = |part, n: usize| if has(part) { n as u64 } else { 0 };
        let total = count(Part::Files, self.files.len() * self.layouts.len() * self.ways.len())
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
