//! The benchmarks that choose their contenders: speed, guard, those with a published table, scale.

use extol_bench::Programs;
use extol_bench::contender::Medium;
use extol_bench::versus::Benchmark;
use extol_cli_common::{Failure, Result};

use crate::args::{BenchmarkArgs, BenchmarkCommand, ImageArgs, ScaleArgs};
use crate::conduct::{cancel, carry_out, conduct};

/// Runs a benchmark.
pub fn run(command: BenchmarkCommand, programs: Programs) -> Result<()> {
    match command {
        BenchmarkCommand::Speed(args) => measure(args, programs),
        BenchmarkCommand::Guard(args) => measure(args, programs),
        BenchmarkCommand::FsyncBatching(args) => measure(args, programs),
        BenchmarkCommand::AsyncCheckpoint(args) => measure(args, programs),
        BenchmarkCommand::CheckpointMerge(args) => measure(args, programs),
        BenchmarkCommand::FastCommit(args) => measure(args, programs),
        BenchmarkCommand::LazyInit(args) => measure(args, programs),
        BenchmarkCommand::Scale(ScaleArgs { mut scale, output }) => {
            let cancel = cancel()?;
            scale.begin(programs, cancel.clone()).map_err(Failure::usage)?;
            carry_out(&output, &cancel, |progress| scale.run(progress))
        }
        BenchmarkCommand::Image(ImageArgs { mut images, output }) => {
            let cancel = cancel()?;
            images.begin(programs, cancel.clone());
            carry_out(&output, &cancel, |progress| images.run(progress))
        }
    }
}

/// The benchmark sets the media of its runs.
fn measure<B>(args: BenchmarkArgs<B>, programs: Programs) -> Result<()>
where
    B: Benchmark + clap::Args,
{
    let BenchmarkArgs { mut benchmark, place } = args;
    let conduct = conduct(&place, programs, Medium::Memory)?;
    let cancel = conduct.limits.cancel.clone();
    benchmark.begin(conduct).map_err(Failure::usage)?;
    carry_out(&place.output, &cancel, |progress| benchmark.run(progress))
}
