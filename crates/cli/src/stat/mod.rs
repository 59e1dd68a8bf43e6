//! `extol stat`: the state of a mounted volume.
//!
//! The mount gives it as JSON in a virtual extended attribute of its root. The text form begins
//! with what Linux shows in `/proc/fs/jbd2/<device>/info`, line for line, and, where there are fast
//! commits, in `/proc/fs/ext4/<device>/fc_info` (with Extol's own reasons behind Linux's); then
//! come the mechanisms of the commit pipeline, and then a table of everything else. With `--watch`
//! it is shown again and again, with what happened per second in between.

mod text;
mod watch;

use extol_cli_common::{Failure, Result, print, print_json};

use crate::args::StatArgs;
use crate::mounted::MountedVolume;

pub use text::{free_percent, time};
pub use watch::Rates;

/// Shows it.
pub fn run(args: &StatArgs) -> Result<()> {
    let (dir, watch) = args.places()?;
    let mounted = MountedVolume::of(&dir)?;
    if let Some(seconds) = watch {
        return watch::run(&mounted, seconds, args.json);
    }
    if args.json {
        return print_json(json(&mounted.json()?)? + "\n");
    }
    let stats = mounted.stats()?;
    print(text::render(&stats, mounted.transport()?, &mounted.sandbox()?))
}

/// The same JSON, indented.
fn json(text: &str) -> Result<String> {
    let fail =
        |error| Failure { line: format!("the mount's counters: {error}"), code: Failure::INTERNAL };
    let value: serde_json::Value = serde_json::from_str(text).map_err(fail)?;
    serde_json::to_string_pretty(&value).map_err(fail)
}
