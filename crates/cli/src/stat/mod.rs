//! `extol stat`: the state of a volume that is mounted or exported.
//!
//! The mount gives it as JSON in a virtual extended attribute of its root, an export over its
//! socket (`export/control.rs`). There are two forms as
//! text. The summary fits a screen of 24 lines and 80 columns (`summary.rs`);
//! what has no room there is left out, but not into a pipe or a file. With `--all` comes
//! everything (`text.rs`): first what Linux shows in `/proc/fs/jbd2/<device>/info`, line for line,
//! and, where there are fast commits, in `/proc/fs/ext4/<device>/fc_info` (with Extol's own reasons
//! behind Linux's); then the mechanisms of the commit pipeline, and then a table of everything
//! else. With `--watch` it is shown again and again, with what happened per second in between.
//!
//! The first line of both forms says whether the volume may be written, and why not.

mod fit;
mod summary;
mod text;
mod watch;

use std::io::IsTerminal as _;
use std::path::PathBuf;

use extol::Stats;
use extol_cli_common::{Failure, Result, json_text, print, print_json};
use extol_proc::Shown as _;

use crate::args::StatArgs;
use crate::export::control;
use crate::mounted::MountedVolume;
use crate::options::Part;
use crate::volume;

pub use fit::fit;
pub use summary::{advice, state_line};
pub use text::{free_percent, time};
pub use watch::Rates;

/// Shows it.
pub fn run(args: &StatArgs) -> Result<()> {
    let (path, watch) = args.places()?;
    let served = Served::at(path)?;
    if let Some(seconds) = watch {
        return watch::run(&served, seconds, args);
    }
    if args.json {
        return print_json(json_text(&value(&served.json()?)?)?);
    }
    print(served.shown()?.text(args.all))
}

/// A volume that a process serves.
#[derive(Debug)]
enum Served {
    Mount(MountedVolume),
    /// The image or device that is exported.
    Export(PathBuf),
}

impl Served {
    /// The volume on whose mount this is, or that is exported from here.
    fn at(path: PathBuf) -> Result<Self> {
        if path.is_dir() {
            return MountedVolume::of(&path, "stat").map(Self::Mount);
        }
        let path = volume::untagged(&path)?;
        match control::find(&path, Part::default()) {
            Ok(Some(_)) => Ok(Self::Export(path)),
            // A file on a mount is as good as a directory.
            _ => MountedVolume::of(&path, "stat").map(Self::Mount),
        }
    }

    fn json(&self) -> Result<String> {
        match self {
            Self::Mount(mounted) => mounted.json(),
            Self::Export(path) => control::find(path, Part::default())?
                .ok_or_else(|| Failure::about(path.shown(), "the export has ended"))?
                .json(),
        }
    }

    fn shown(&self) -> Result<Shown> {
        let path = match self {
            Self::Mount(mounted) => return Shown::of(mounted),
            Self::Export(path) => path,
        };
        let value = value(&self.json()?)?;
        let sandbox = value["export"]["sandbox"].as_str().unwrap_or("off").to_owned();
        let stats = serde_json::from_value(value).map_err(bad_counters)?;
        Ok(Shown { dir: path.shown().to_string(), stats, transport: "NFS", sandbox })
    }
}

/// Counters as a value of JSON.
fn value(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).map_err(bad_counters)
}

fn bad_counters(error: serde_json::Error) -> Failure {
    Failure { line: format!("the counters of the volume: {error}"), code: Failure::INTERNAL }
}

/// The counters of a volume that are shown.
#[derive(Debug)]
struct Shown {
    dir: String,
    stats: Stats,
    transport: &'static str,
    sandbox: String,
}

impl Shown {
    fn of(mounted: &MountedVolume) -> Result<Self> {
        Ok(Self {
            dir: mounted.root.shown().to_string(),
            stats: mounted.stats()?,
            transport: mounted.transport()?,
            sandbox: mounted.sandbox()?,
        })
    }

    fn text(&self, all: bool) -> String {
        // Programs that read a line want all of it.
        let width = std::io::stdout().is_terminal().then_some(summary::WIDTH);
        if all { text::render(self) } else { summary::render(self, width) }
    }
}
