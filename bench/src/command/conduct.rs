//! What all benchmarks have in common: places, limits, progress, output.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use extol_bench::contender::{Medium, Place, VolumeSpec};
use extol_bench::report::Report;
use extol_bench::versus::{Conduct, Step};
use extol_bench::workload::{Cancel, Limits};
use extol_bench::{Programs, Result as BenchResult};
use extol_cli_common::{Failure, Result, json_text, print, print_json, progress};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{OutputArgs, PlaceArgs};

/// Runs on this medium where the arguments say.
pub fn conduct(args: &PlaceArgs, programs: Programs, medium: Medium) -> Result<Conduct> {
    Ok(Conduct {
        place: Place { medium, dir: args.dir.clone(), programs },
        volume: VolumeSpec { size: args.volume, ..VolumeSpec::default() },
        rounds: args.rounds,
        limits: Limits { cancel: cancel()?, ..Limits::default() },
    })
}

/// The signal that came last.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

fn interrupted() -> Failure {
    Failure::interrupted(i32::try_from(SIGNAL.load(Ordering::SeqCst)).unwrap_or(SIGINT))
}

/// Set by the first SIGINT or SIGTERM, so that mounts and images are cleaned up; the second ends
/// the program at once.
pub fn cancel() -> Result<Cancel> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let code = i32::from(Failure::interrupted(signal).code);
        signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .and_then(|_| {
                let value = usize::try_from(signal).unwrap_or(0);
                signal_hook::flag::register_usize(signal, Arc::clone(&SIGNAL), value)
            })
            .map_err(|e| Failure::system(format_args!("cannot catch signals: {e}")))?;
    }
    Ok(Cancel::new(flag))
}

/// Runs a benchmark with a progress bar and puts its report out.
pub fn carry_out(
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
        true => interrupted(),
        false => Failure::new(error),
    })?;
    if let Some(file) = &output.html {
        std::fs::write(file, report.html()).map_err(|e| Failure::about(file.display(), e))?;
    }
    if let Some(dir) = &output.svg {
        report.write_pictures(dir).map_err(|e| Failure::about(dir.display(), e))?;
    }
    if output.json { print_json(json_text(&report)?) } else { print(report.text()) }
}
