//! The `extol-bench` command: measures Extol beside its peers, and beside other builds of itself.
//!
//! ```text
//!   main ── args/          the command line, with its manual
//!     ├── conduct.rs       where, how often, how long; progress bar; where the report goes
//!     ├── loads.rs         the loads: metadata, seq, rand, untar, fsmark, dbench, postmark …
//!     ├── benchmarks.rs    speed, the benchmarks with a published table, scale
//!     ├── medium.rs        medium: an emulated disk as a file
//!     ├── noop.rs          noop: the file system that does nothing
//!     └── server.rs        how medium and noop are told to end
//! ```
//!
//! The library `extol_bench` does the work; here are arguments and messages. Mounts are those of
//! the `extol` command, a program of its own (`--extol`).

mod args;
mod benchmarks;
mod conduct;
mod loads;
mod medium;
mod noop;
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
    match line.command {
        Command::Load(load) => loads::run(*load, programs),
        Command::Benchmark(benchmark) => benchmarks::run(*benchmark, programs),
        Command::Medium(args) => medium::run(&args),
        Command::Noop(args) => noop::run(&args),
        Command::Unmount(args) => server::unmount(&args),
    }
}
