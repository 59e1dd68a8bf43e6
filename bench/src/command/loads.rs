//! The loads: metadata, seq, rand, untar, fsmark, dbench, postmark, varmail, logs, fsync-latency.

use extol_bench::Programs;
use extol_cli_common::{Failure, Result};

use crate::args::LoadCommand;
use crate::conduct::{carry_out, conduct};

/// Runs a load on its targets.
pub fn run(command: LoadCommand, programs: Programs) -> Result<()> {
    command.check()?;
    let (load, args) = command.parts();
    let mut conduct = conduct(&args.place, programs, args.medium.clone())?;
    conduct.volume.journal_mib = args.log;
    conduct.volume.features.clone_from(&args.features);
    conduct.limits.time = args.seconds;
    let contenders = conduct.place.programs.with_before(args.targets.clone());
    let contenders = contenders.map_err(Failure::usage)?;
    carry_out(&args.place.output, &conduct.limits.cancel, |progress| {
        conduct.report(&contenders, load, progress)
    })
}
