//! `extol-bench scale`.

use extol::mkfs::parse_size;
use extol_bench::Programs;
use extol_bench::scale::{Layout, Part, Scale, Way};
use extol_cli_common::{Failure, Result};

use crate::args::ScaleArgs;
use crate::conduct::{cancel, carry_out_until, usage};

/// The number of files that `--long` adds.
const LONG: u64 = 10_000_000;

pub fn scale(args: &ScaleArgs, programs: Programs) -> Result<()> {
    let mut files = args.files.clone();
    if args.long {
        files.push(LONG);
    }
    if !files.is_sorted_by(|a, b| a < b) {
        return Err(Failure::usage("--files: the numbers must ascend"));
    }
    let mut ways = args
        .targets
        .iter()
        .map(|t| Way::parse(t))
        .collect::<extol_bench::Result<Vec<_>>>()
        .map_err(usage)?;
    if ways.is_empty() {
        ways.push(Way::Library(String::new()));
    }
    let ways = programs.with_ways_before(ways).map_err(usage)?;
    let large = args.large.iter().map(|size| {
        parse_size(size, None).map_err(|e| Failure::usage(format_args!("--large: {e}")))
    });
    let cancel = cancel()?;
    let bench = Scale {
        parts: args.parts.iter().filter_map(|name| Part::parse(name)).collect(),
        files,
        layouts: args.layouts.iter().filter_map(|name| Layout::parse(name)).collect(),
        ways,
        batch: args.batch,
        samples: args.samples,
        logs: args.logs.clone(),
        areas: args.areas.clone(),
        large: large.collect::<Result<_>>()?,
        dirs: args.dirs,
        fsck_seconds: args.fsck,
        dir: args.dir.clone(),
        programs,
        cancel: cancel.clone(),
    };
    carry_out_until(&args.output, &cancel, |progress| bench.run(progress))
}
