//! `extol bench`: measurements beside peers.

mod contest;
mod loads;
mod noop;
mod scale;
mod seeds;
mod storms;

use crate::args::BenchCommand;
use crate::error::Result;

/// Runs a benchmark and prints its table.
pub fn run(command: &BenchCommand) -> Result<()> {
    match command {
        BenchCommand::Metadata(args) => storms::metadata(args),
        BenchCommand::Seq(args) => storms::seq(args),
        BenchCommand::Rand(args) => storms::rand(args),
        BenchCommand::Untar(args) => storms::untar(args),
        BenchCommand::Speed(args) => storms::speed(args),
        BenchCommand::Medium(args) => crate::medium::run(args),
        BenchCommand::Noop(args) => noop::run(args),
        BenchCommand::Fsmark(args) => loads::fsmark(args),
        BenchCommand::Dbench(args) => loads::dbench(args),
        BenchCommand::Postmark(args) => loads::postmark(args),
        BenchCommand::Varmail(args) => loads::varmail(args),
        BenchCommand::Logs(args) => loads::logs(args),
        BenchCommand::FsyncLatency(args) => loads::fsync_latency(args),
        BenchCommand::FsyncBatching(args) => seeds::fsync_batching(args),
        BenchCommand::AsyncCheckpoint(args) => seeds::async_checkpoint(args),
        BenchCommand::CheckpointMerge(args) => seeds::checkpoint_merge(args),
        BenchCommand::FastCommit(args) => seeds::fast_commit(args),
        BenchCommand::LazyInit(args) => seeds::lazy_init(args),
        BenchCommand::Scale(args) => scale::scale(args),
    }
}
