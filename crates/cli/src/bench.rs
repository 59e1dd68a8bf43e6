//! `extol bench`: measurements beside peers.

mod contest;
mod loads;
mod scale;
mod seeds;

use extol_bench::{MetadataBench, SubjectKind};

use crate::args::{BenchCommand, BenchMetadataArgs};
use crate::error::{Failure, Result, print};

/// Runs a benchmark and prints its table.
pub fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Metadata(args) => metadata(args),
        BenchCommand::Medium(args) => crate::medium::run(args),
        BenchCommand::Fsmark(args) => loads::fsmark(args),
        BenchCommand::Dbench(args) => loads::dbench(args),
        BenchCommand::Postmark(args) => loads::postmark(args),
        BenchCommand::Varmail(args) => loads::varmail(args),
        BenchCommand::FsyncLatency(args) => loads::fsync_latency(args),
        BenchCommand::FsyncBatching(args) => seeds::fsync_batching(args),
        BenchCommand::AsyncCheckpoint(args) => seeds::async_checkpoint(args),
        BenchCommand::CheckpointMerge(args) => seeds::checkpoint_merge(args),
        BenchCommand::FastCommit(args) => seeds::fast_commit(args),
        BenchCommand::LazyInit(args) => seeds::lazy_init(args),
        BenchCommand::Scale(args) => scale::scale(args),
    }
}

fn metadata(args: &BenchMetadataArgs) -> Result<()> {
    let subjects = args.subjects.iter().map(|s| subject(s)).collect::<Result<Vec<_>>>()?;
    if args.files == 0 || args.threads == 0 || args.rounds == 0 {
        return Err(Failure::usage("--files, --threads and --rounds must not be 0"));
    }
    let extol = std::env::current_exe()
        .map_err(|e| Failure::system(format_args!("cannot find this program: {e}")))?;
    let bench = MetadataBench {
        files: args.files,
        threads: args.threads,
        rounds: args.rounds,
        megabytes: args.megabytes,
        dir: args.dir.clone(),
        extol,
        subjects,
    };
    let report = bench.run(&mut |what| eprintln!("{what}")).map_err(Failure::new)?;
    if args.json {
        return print(serde_json::to_string_pretty(&report).unwrap_or_default() + "\n");
    }
    print(report.table())
}

fn subject(name: &str) -> Result<SubjectKind> {
    match name {
        "extol" => Ok(SubjectKind::Extol),
        "fuse2fs" => Ok(SubjectKind::Fuse2fs),
        "kernel" => Ok(SubjectKind::Kernel),
        _ => Err(Failure::usage(format_args!("unknown subject \"{name}\": extol, fuse2fs or kernel"))),
    }
}
