//! What all benchmarks have in common: places, limits, progress, output.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use extol::mkfs::parse_size;
use extol_bench::contender::{Medium, Place, VolumeSpec};
use extol_bench::report::Report;
use extol_bench::versus::{Conduct, Step};
use extol_bench::workload::{Cancel, Limits};
use extol_bench::{BenchError, Programs, Result as BenchResult};
use extol_cli_common::{Failure, Result, print, print_json, progress};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::OutputArgs;

/// Where volumes are made, and how large.
pub struct Where<'a> {
    pub medium: &'a str,
    pub volume: &'a str,
    pub log: Option<u32>,
    pub dir: &'a Path,
}

impl Where<'_> {
    /// With rounds and a limit of time.
    pub fn conduct(
        &self,
        programs: Programs,
        rounds: u32,
        seconds: Option<f64>,
    ) -> Result<Conduct> {
        let time = seconds.map(|s| {
            let time = Duration::try_from_secs_f64(s).ok().filter(|t| !t.is_zero());
            time.ok_or_else(|| {
                Failure::usage(format_args!("--seconds {s}: it must be a time above 0"))
            })
        });
        let size = parse_size(self.volume, None)
            .map_err(|e| Failure::usage(format_args!("--volume: {e}")))?;
        Ok(Conduct {
            place: Place {
                medium: Medium::parse(self.medium).map_err(usage)?,
                dir: self.dir.to_owned(),
                programs,
            },
            volume: VolumeSpec { size, journal_mib: self.log, ..VolumeSpec::default() },
            rounds,
            limits: Limits { time: time.transpose()?, cancel: cancel()?, ..Limits::default() },
        })
    }
}

/// A mistake in an argument.
pub fn usage(error: BenchError) -> Failure {
    Failure::usage(error)
}

/// Set by the first SIGINT or SIGTERM, so that mounts and images are cleaned up; the second ends
/// the program at once.
pub fn cancel() -> Result<Cancel> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(Failure::INTERRUPTED),
            Arc::clone(&flag),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
        .map_err(|e| Failure::system(format_args!("cannot catch signals: {e}")))?;
    }
    Ok(Cancel::new(flag))
}

/// Runs a benchmark with a progress bar and puts its report out.
pub fn carry_out(
    output: &OutputArgs,
    conduct: &Conduct,
    bench: impl FnOnce(&mut dyn FnMut(&Step)) -> BenchResult<Report>,
) -> Result<()> {
    carry_out_until(output, &conduct.limits.cancel, bench)
}

/// The same with nothing but an end that the user may want.
pub fn carry_out_until(
    output: &OutputArgs,
    cancel: &Cancel,
    bench: impl FnOnce(&mut dyn FnMut(&Step)) -> BenchResult<Report>,
) -> Result<()> {
    let bar = progress::steps(1, String::new());
    let report = bench(&mut |step| {
        bar.set_length(step.total);
        bar.set_position(step.done);
        bar.set_message(step.what.clone());
    });
    bar.finish_and_clear();
    let report = report.map_err(|error| match cancel.is_set() {
        true => Failure { line: "interrupted".into(), code: Failure::INTERRUPTED },
        false => Failure::new(error),
    })?;
    if let Some(file) = &output.html {
        std::fs::write(file, report.html()).map_err(|e| Failure::about(file.display(), e))?;
    }
    if let Some(dir) = &output.svg {
        report.write_pictures(dir).map_err(|e| Failure::about(dir.display(), e))?;
    }
    if output.json { print_json(report.json()) } else { print(report.text()) }
}
