//! `extol-bench fsmark`, `dbench`, `postmark`, `varmail`, `logs`, `fsync-latency`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extol_bench::Programs;
use extol_bench::contender::Contender;
use extol_bench::workload::{
    Dbench, FsMark, FsyncLatency, LoadFile, Logs, PostMark, SyncMode, VarMail, Workload,
};
use extol_cli_common::{Failure, Result};

use crate::args::{
    DbenchArgs, FsMarkArgs, FsyncLatencyArgs, LogsArgs, PostMarkArgs, TargetArgs, VarMailArgs,
};
use crate::conduct::{Where, carry_out, usage};

/// Runs a load on its targets.
pub fn run(load: &dyn Workload, args: &TargetArgs, programs: Programs) -> Result<()> {
    let place = Where { medium: &args.medium, volume: &args.volume, log: args.log, dir: &args.dir };
    let mut conduct = place.conduct(programs, args.rounds, args.seconds)?;
    conduct.volume.features.clone_from(&args.features);
    let mut contenders = args
        .targets
        .iter()
        .map(|t| Contender::parse(t))
        .collect::<extol_bench::Result<Vec<_>>>()
        .map_err(usage)?;
    if contenders.is_empty() {
        contenders.push(Contender::Library(String::new()));
    }
    let contenders = conduct.place.programs.with_before(contenders).map_err(usage)?;
    carry_out(&args.output, &conduct, |progress| conduct.report(&contenders, load, progress))
}

pub fn fsmark(args: &FsMarkArgs, programs: Programs) -> Result<()> {
    let load = FsMark {
        threads: args.threads,
        size: args.size,
        files: args.files,
        dirs: args.dirs,
        per_dir: args.per_dir,
        sync: SyncMode::from_number(args.sync).unwrap_or_default(),
        keep: args.keep,
        write_size: args.write as usize,
        loops: args.loops,
    };
    run(&load, &args.targets, programs)
}

/// Reads a load file of dbench.
pub fn loadfile(path: &Path) -> Result<Arc<LoadFile>> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::about(path.display(), e))?;
    let parsed = LoadFile::parse(&text);
    parsed.map(Arc::new).map_err(|e| Failure::usage(format_args!("{}: {e}", path.display())))
}

pub fn dbench(args: &DbenchArgs, programs: Programs) -> Result<()> {
    let loadfile = args.loadfile.as_deref().map(loadfile).transpose()?;
    run(
        &Dbench { clients: args.clients, decks: args.decks, seed: args.seed, loadfile },
        &args.targets,
        programs,
    )
}

pub fn postmark(args: &PostMarkArgs, programs: Programs) -> Result<()> {
    let size = match args.size[..] {
        [low, high] if low <= high => (low, high),
        _ => {
            return Err(Failure::usage(
                "--size must be LOW,HIGH, the smallest and the largest file in bytes",
            ));
        }
    };
    let load = PostMark {
        number: args.number,
        transactions: args.transactions,
        size,
        read: args.read as usize,
        write: args.write as usize,
        bias_read: args.bias_read,
        bias_create: args.bias_create,
        subdirectories: args.subdirectories,
        seed: args.seed,
    };
    run(&load, &args.targets, programs)
}

pub fn varmail(args: &VarMailArgs, programs: Programs) -> Result<()> {
    let load = VarMail {
        threads: args.threads,
        files: args.files,
        mean_size: args.mean_size,
        append_size: args.append_size,
        loops: args.loops,
        ..VarMail::default()
    };
    run(&load, &args.targets, programs)
}

pub fn logs(args: &LogsArgs, programs: Programs) -> Result<()> {
    let load = Logs {
        threads: args.threads,
        files: args.files,
        size: args.size as usize,
        appends: args.appends,
        close: args.close,
        data_only: args.fdatasync,
    };
    run(&load, &args.targets, programs)
}

pub fn fsync_latency(args: &FsyncLatencyArgs, programs: Programs) -> Result<()> {
    let load = FsyncLatency {
        block: args.block as usize,
        calls: args.calls,
        data_only: args.fdatasync,
        pause: Duration::from_millis(args.pause),
        fresh: args.fresh,
        alone: args.only.as_deref() != Some("beside"),
        beside: args.only.as_deref() != Some("alone"),
        ..FsyncLatency::default()
    };
    run(&load, &args.targets, programs)
}
