//! `extol stat`: the state of a mounted volume.
//!
//! The mount gives it as JSON in a virtual extended attribute of its root. There are two forms as
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

use extol::Stats;
use extol_cli_common::{Failure, Result, json_text, print, print_json};
use extol_proc::Shown as _;

use crate::args::StatArgs;
use crate::mounted::MountedVolume;

pub use fit::fit;
pub use summary::{advice, state_line};
pub use text::{free_percent, time};
pub use watch::Rates;

/// Shows it.
pub fn run(args: &StatArgs) -> Result<()> {
    let (dir, watch) = args.places()?;
    let mounted = MountedVolume::of(&dir, "stat")?;
    if let Some(seconds) = watch {
        return watch::run(&mounted, seconds, args);
    }
    if args.json {
        return print_json(json_text(&value(&mounted.json()?)?)?);
    }
    print(Shown::of(&mounted)?.text(args.all))
}

/// The counters of a mount as a value of JSON.
fn value(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).map_err(|error| Failure {
        line: format!("the mount's counters: {error}"),
        code: Failure::INTERNAL,
    })
}

/// What is shown of a mount.
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
