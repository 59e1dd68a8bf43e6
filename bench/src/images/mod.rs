//! `image`: how long it takes to make an image out of a directory, and how much memory.
//!
//! ```text
//!   source.rs   the directories: a tree of files, many directories, many empty files, one large
//!   builder.rs  the programs that make an image of one: extol, mke2fs, genext2fs, tar on a mount
//! ```
//!
//! The builders take turns, each writes a new sparse file of the same size, and the time of each
//! ends when the file is durable: a builder that does not flush by itself is followed by an fsync
//! that counts. The directory was read once before, so that it is in the page cache for all.

mod builder;
mod source;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::report::{Cell, Goal, Report, Table};
use crate::versus::Step;
use crate::workload::{Cancel, positive};
use crate::{BenchError, Programs, Result, Spread};

pub use builder::Builder;
use builder::Work;
pub use source::Source;
use source::Tree;

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Images {
    /// What goes into the image.
    #[arg(long = "source", value_delimiter = ',', default_value = "tree,dirs,empty,large")]
    pub sources: Vec<Source>,
    /// What makes it. tar unpacks into a loop mount of Linux (root).
    #[arg(long = "builder", value_delimiter = ',', default_value = "extol,mke2fs,genext2fs,tar")]
    pub builders: Vec<Builder>,
    /// Divides the numbers of files and the bytes of each source.
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive::<u64>)]
    pub part: u64,
    /// Rounds; the median counts.
    #[arg(long, default_value = "3", value_parser = positive::<u32>)]
    pub rounds: u32,
    /// Where sources and images are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    /// The programs that are started.
    #[arg(skip)]
    pub programs: Programs,
    /// Set when the user wants an end.
    #[arg(skip)]
    pub cancel: Cancel,
}

/// One builder on one source.
#[derive(Clone, Debug, Serialize)]
struct Row {
    source: &'static str,
    builder: &'static str,
    seconds: Spread,
    /// The time of this builder to that of extol, round by round.
    ratio: Option<Spread>,
    /// Most memory that the process had, in bytes.
    peak: Option<u64>,
    /// Bytes that the host's file system gave the image.
    allocated: u64,
}

/// At most so much memory, and so much for each file.
const MEMORY: u64 = 100 << 20;
const MEMORY_PER_FILE: u64 = 200;

impl Images {
    /// Takes over what the command line says elsewhere.
    pub fn begin(&mut self, programs: Programs, cancel: Cancel) {
        (self.programs, self.cancel) = (programs, cancel);
    }

    /// Runs it.
    ///
    /// # Errors
    /// One line: what could not be made, or which builder failed.
    pub fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let mut report = Report::new("image");
        report.set("images", self.dir.display().to_string());
        report.set("rounds", self.rounds.to_string());
        let steps = self.sources.len() * (1 + self.rounds as usize * self.builders.len());
        let (total, mut done) = (steps as u64, 0);
        let mut step = |what: String| {
            progress(&Step { done, total, what });
            done += 1;
            if self.cancel.is_set() { Err(BenchError("interrupted".into())) } else { Ok(()) }
        };
        let mut rows = Vec::new();
        for source in &self.sources {
            step(format!("making {}", source.name()))?;
            let tree = Tree::make(*source, self.part, &self.dir)?;
            report.set(source.name(), tree.describe());
            let mut times = vec![Vec::new(); self.builders.len()];
            let mut last = vec![(None, 0); self.builders.len()];
            for round in 0..self.rounds {
                for turn in 0..self.builders.len() {
                    let n = (turn + round as usize) % self.builders.len();
                    let builder = self.builders[n];
                    step(format!("{} by {}", source.name(), builder.name()))?;
                    let Work { took, peak, allocated } =
                        builder.build(&tree, &self.dir, &self.programs, &self.cancel)?;
                    times[n].push(took.as_secs_f64());
                    last[n] = (last[n].0.max(peak), allocated);
                }
            }
            let own = self.builders.iter().position(|b| *b == Builder::Extol);
            for (n, builder) in self.builders.iter().enumerate() {
                let Some(seconds) = Spread::of(times[n].iter().copied()) else { continue };
                rows.push(Row {
                    source: source.name(),
                    builder: builder.name(),
                    seconds,
                    ratio: own.and_then(|own| Spread::of_ratios(&times[n], &times[own])),
                    peak: last[n].0,
                    allocated: last[n].1,
                });
            }
            goals(&mut report, *source, &rows, tree.files);
        }
        report.tables.push(table(&rows));
        report.results = serde_json::to_value(&rows).unwrap_or_default();
        Ok(report)
    }
}

/// The goals for a source, from the rows of it that are there.
fn goals(report: &mut Report, source: Source, rows: &[Row], files: u64) {
    let row = |builder: Builder| {
        rows.iter().find(|row| row.source == source.name() && row.builder == builder.name())
    };
    let wanted: &[(Builder, f64)] = match source {
        Source::Tree => &[(Builder::Mke2fs, 4.0), (Builder::Tar, 1.5)],
        Source::Dirs => &[(Builder::Mke2fs, 20.0)],
        Source::Empty | Source::Large => &[],
    };
    for (peer, times) in wanted {
        let Some(ratio) = row(*peer).and_then(|row| row.ratio) else { continue };
        let what = format!("{}: time of {} to that of extol", source.name(), peer.name());
        report.goals.push(Goal::at_least(what, ratio.median, *times));
    }
    if let Some(peak) = row(Builder::Extol).and_then(|row| row.peak) {
        let most = MEMORY + MEMORY_PER_FILE * files;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let what = format!("{}: peak memory of extol in MiB", source.name());
        report.goals.push(Goal::at_most(what, mib(peak), mib(most)));
    }
}

fn table(rows: &[Row]) -> Table {
    let columns =
        ["source", "builder", "s", "least", "most", "to extol", "peak MiB", "allocated MiB"];
    let mut table = Table::new("time to a durable image", &columns);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for row in rows {
        table.row(vec![
            row.source.into(),
            row.builder.into(),
            Cell::number(row.seconds.median, 3),
            Cell::number(row.seconds.min, 3),
            Cell::number(row.seconds.max, 3),
            Cell::number(row.ratio.map(|ratio| ratio.median), 2),
            Cell::number(row.peak.map(mib), 0),
            Cell::number(mib(row.allocated), 0),
        ]);
    }
    table
}

/// Time that a child is looked at again after.
const LOOK: Duration = Duration::from_millis(2);
