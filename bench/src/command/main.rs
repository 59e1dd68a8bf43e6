//! The `extol-bench` command: measures Extol beside its peers, and beside other builds of itself.
//!
//! ```text
//!   main ── args/          the command line, with its manual
//!     ├── conduct.rs       where, how often, how long; progress bar; where the report goes
//!     ├── loads.rs         fsmark, dbench, postmark, varmail, logs, fsync-latency
//!     ├── operations.rs    metadata, seq, rand, untar, and speed, which runs all
//!     ├── published.rs     the benchmarks with a published table
//!     ├── scale.rs         scale
//!     ├── medium.rs        medium: an emulated disk as a file
//!     ├── noop.rs          noop: the file system that does nothing
//!     └── server.rs        how medium and noop are told to end
//! ```
//!
//! The library `extol_bench` does the work; here are arguments and messages. Mounts are those of
//! the `extol` command, a program of its own (`--extol`).

mod args;
mod conduct;
mod loads;
mod medium;
mod noop;
mod operations;
mod published;
mod scale;
mod server;

use std::ffi::OsString;
use std::process::ExitCode;

use args::{Command, CommandLine};
use extol_bench::Programs;
use extol_cli_common::{Failure, Result};

/// The allocator of the `extol` command, so that the library is measured with what it has there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    extol_cli_common::main("extol-bench", run)
}

fn run(words: &[OsString]) -> Result<()> {
    let line: CommandLine = extol_cli_common::parse(words)?;
    let named = &line.programs;
    let programs = Programs::find(named.extol.as_deref(), named.extol_before.as_deref())
        .map_err(Failure::usage)?;
    match &line.command {
        Command::Metadata(args) => operations::metadata(args, programs),
        Command::Seq(args) => operations::seq(args, programs),
        Command::Rand(args) => operations::rand(args, programs),
        Command::Untar(args) => operations::untar(args, programs),
        Command::Speed(args) => operations::speed(args, programs),
        Command::Medium(args) => medium::run(args),
        Command::Noop(args) => noop::run(args),
        Command::Unmount(args) => server::unmount(args),
        Command::Fsmark(args) => loads::fsmark(args, programs),
        Command::Dbench(args) => loads::dbench(args, programs),
        Command::Postmark(args) => loads::postmark(args, programs),
        Command::Varmail(args) => loads::varmail(args, programs),
        Command::Logs(args) => loads::logs(args, programs),
        Command::FsyncLatency(args) => loads::fsync_latency(args, programs),
        Command::FsyncBatching(args) => published::fsync_batching(args, programs),
        Command::AsyncCheckpoint(args) => published::async_checkpoint(args, programs),
        Command::CheckpointMerge(args) => published::checkpoint_merge(args, programs),
        Command::FastCommit(args) => published::fast_commit(args, programs),
        Command::LazyInit(args) => published::lazy_init(args, programs),
        Command::Scale(args) => scale::scale(args, programs),
    }
}
