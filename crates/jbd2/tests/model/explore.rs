//! Runs a scenario under many schedules.
//!
//! Schedules come in batches that a seed determines, half of them random and half PCT. When one
//! fails, the line that repeats its batch up to the failure is printed; with `EXTOL_MODEL` set to
//! what that line says, only that batch runs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use extol_sync::shuttle::scheduler::{PctScheduler, RandomScheduler};
use extol_sync::shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules per batch. PCT learns the length of a run from the ones before it in its batch.
const BATCH: usize = 50;
/// Changes of priority per PCT schedule, one more in every other batch.
const DEPTH: usize = 3;

/// Runs `scenario` under at least `schedules` schedules (rounded up to batches).
pub fn explore(name: &str, schedules: usize, scenario: fn()) {
    if let Ok(wanted) = std::env::var("EXTOL_MODEL") {
        let (kind, seed) = wanted.split_once(':').expect("EXTOL_MODEL=random:SEED or pct:SEED");
        batch(name, kind == "pct", seed.parse().expect("a seed"), scenario);
        return;
    }
    let long = if std::env::var_os("EXTOL_LONG").is_some() { 50 } else { 1 };
    let first: u64 = std::env::var("EXTOL_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    for i in 0..(schedules * long).div_ceil(BATCH) as u64 {
        batch(name, i % 2 == 1, first.wrapping_mul(1_000_000) + i, scenario);
    }
}

fn batch(name: &str, pct: bool, seed: u64, scenario: fn()) {
    let mut config = Config::new();
    config.stack_size = 256 * 1024;
    config.failure_persistence = FailurePersistence::None;
    // Far more than a scenario takes: reached only by threads that run in circles.
    config.max_steps = MaxSteps::FailAfter(200_000);
    config.silence_warnings = true;
    let depth = DEPTH + (seed / 2 % 2) as usize;
    let result = catch_unwind(AssertUnwindSafe(|| {
        if pct {
            Runner::new(PctScheduler::new_from_seed(seed, depth, BATCH), config).run(scenario)
        } else {
            Runner::new(RandomScheduler::new_from_seed(seed, BATCH), config).run(scenario)
        }
    }));
    if let Err(panic) = result {
        let kind = if pct { "pct" } else { "random" };
        eprintln!(
            "repeat with: EXTOL_MODEL={kind}:{seed} cargo test -p extol-jbd2 --features model \
             --test model {name}"
        );
        resume_unwind(panic);
    }
}

/// A number below `n`, the schedule's own: the same when it is repeated.
pub fn below(n: u64) -> u64 {
    use extol_sync::shuttle::rand::{Rng as _, thread_rng};
    thread_rng().r#gen::<u64>() % n
}
