//! `extol-bench fsync-batching`, `async-checkpoint`, `checkpoint-merge`, `fast-commit`,
//! `lazy-init`.

use extol_bench::Programs;
use extol_bench::contender::{Contender, Medium};
use extol_bench::published::{
    AsyncCheckpoint, Backend, CheckpointMerge, FastCommit, FsyncBatching, LazyInit, Part, Throttle,
};
use extol_bench::workload::SyncMode;
use extol_cli_common::{Failure, Result};

use crate::args::{
    AsyncCheckpointArgs, CheckpointMergeArgs, FastCommitArgs, FsyncBatchingArgs, LazyInitArgs,
};
use crate::conduct::{Where, carry_out, usage};

fn backend(name: &str) -> Backend {
    if name == "mount" { Backend::Mount } else { Backend::Library }
}

pub fn fsync_batching(args: &FsyncBatchingArgs, programs: Programs) -> Result<()> {
    // Each profile sets its own medium.
    let place =
        Where { medium: "memory", volume: &args.volume, log: None, dir: &args.published.dir };
    let all = |texts: &[String]| {
        texts.iter().map(|t| Contender::parse(t)).collect::<extol_bench::Result<_>>()
    };
    let bench = FsyncBatching {
        media: args
            .profiles
            .iter()
            .map(|m| Medium::parse(m))
            .collect::<extol_bench::Result<_>>()
            .map_err(usage)?,
        threads: args.threads.clone(),
        policies: args.policies.clone(),
        peers: all(&args.peers).map_err(usage)?,
        conduct: place.conduct(programs, args.published.rounds, Some(args.seconds))?,
    };
    carry_out(&args.published.output, &bench.conduct, |progress| bench.run(progress))
}

pub fn async_checkpoint(args: &AsyncCheckpointArgs, programs: Programs) -> Result<()> {
    let place = Where {
        medium: &args.medium,
        volume: &args.volume,
        log: Some(args.log),
        dir: &args.published.dir,
    };
    let bench = AsyncCheckpoint {
        modes: args.modes.iter().filter_map(|n| SyncMode::from_number(*n)).collect(),
        threads: args.threads,
        files: args.files,
        threshold: args.threshold,
        backend: backend(&args.target),
        conduct: place.conduct(programs, args.published.rounds, Some(args.seconds))?,
    };
    carry_out(&args.published.output, &bench.conduct, |progress| bench.run(progress))
}

pub fn checkpoint_merge(args: &CheckpointMergeArgs, programs: Programs) -> Result<()> {
    let place =
        Where { medium: &args.medium, volume: &args.volume, log: None, dir: &args.published.dir };
    let bench = CheckpointMerge {
        syncs: args.syncs,
        weights: args.weights.clone(),
        throttle: Throttle::parse(&args.throttle).map_err(usage)?,
        concurrent: args.concurrent,
        writer_size: 128 << 20,
        conduct: place.conduct(programs, args.published.rounds, Some(args.seconds))?,
    };
    carry_out(&args.published.output, &bench.conduct, |progress| bench.run(progress))
}

pub fn fast_commit(args: &FastCommitArgs, programs: Programs) -> Result<()> {
    // Each part and profile sets its own medium.
    let place =
        Where { medium: "memory", volume: &args.volume, log: None, dir: &args.published.dir };
    let media = args.profiles.iter().map(|m| Medium::parse(m)).collect::<extol_bench::Result<_>>();
    let (rounds, seconds) =
        if args.quick { (1, 1.0) } else { (args.published.rounds, args.seconds) };
    let bench = FastCommit {
        parts: args.parts.iter().filter_map(|name| Part::parse(name)).collect(),
        media: media.map_err(usage)?,
        backend: backend(&args.target),
        plain: args.plain,
        syncs: args.syncs,
        pause_ms: args.pause,
        conduct: place.conduct(programs, rounds, Some(seconds))?,
    };
    carry_out(&args.published.output, &bench.conduct, |progress| bench.run(progress))
}

pub fn lazy_init(args: &LazyInitArgs, programs: Programs) -> Result<()> {
    if !(args.scale > 0.0 && args.scale <= 100.0) {
        return Err(Failure::usage("--scale must be above 0 and at most 100"));
    }
    let place =
        Where { medium: &args.medium, volume: &args.volume, log: None, dir: &args.published.dir };
    let bench = LazyInit {
        multipliers: args.multipliers.clone(),
        scale: args.scale,
        mkfs: !args.no_mkfs,
        conduct: place.conduct(programs, args.published.rounds, None)?,
    };
    carry_out(&args.published.output, &bench.conduct, |progress| bench.run(progress))
}
