//! A tree, many operations, one thread or many, everything compared with a model; with remounts and
//! crashes in between.
//!
//! A tester does what its seed tells it, in a directory of its own and on the model, and demands
//! the same outcome of every operation: values, contents, errnos. Between rounds the file system
//! goes down, cleanly or as in a power cut, and comes up again. Several threads also
//! make noise in a directory that all share.
//!
//! After a crash: changes of names and attributes become durable in order, so the tree must be
//! exactly as the model was after *some* operation, not before the last one that a sync covered;
//! every file must hold what its `History` (`crate::history`) allows.
//!
//! A failing run of one thread is made shorter, like those of [`fsx`](crate::fsx).

mod check;
mod model;
mod ops;
mod tester;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::place::Place;
use crate::posix::{Posix, Remount};
use crate::reduce;
pub use ops::Op;
use tester::Tester;

/// How long a failing list is made shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much a run does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Testers at the same time.
    pub threads: u64,
    /// How often the file system goes down.
    pub rounds: usize,
    /// Operations of each tester in each round.
    pub steps: usize,
}

/// Runs testers on a fresh volume; gives the number of operations.
///
/// # Errors
/// What was wrong, with the seed; of one thread also the shortest list of operations that shows it.
pub fn run(place: &Place, seed: u64, load: Load) -> Result<usize, String> {
    let mut failed = Vec::new();
    let done = place.with(|fs| {
        let mut testers: Vec<Tester> =
            (0..load.threads).map(|n| Tester::new(fs, &format!("t{n}"))).collect();
        let mut rng = SmallRng::seed_from_u64(seed ^ 0x7_2EE);
        let noise = (load.threads > 1).then_some(load.steps / 2);
        if noise.is_some() {
            fs.mkdir("shared", 0o755).expect("mkdir");
        }
        for round in 0..load.rounds {
            let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
                let workers: Vec<_> = testers
                    .iter_mut()
                    .enumerate()
                    .map(|(n, tester)| {
                        let seed = seed.wrapping_mul(1000) + round as u64 * 50 + n as u64;
                        scope.spawn(move || tester.random(fs, seed, load.steps))
                    })
                    .collect();
                for n in 0..2 {
                    if let Some(steps) = noise {
                        scope.spawn(move || make_noise(fs, seed ^ (n + 1), steps));
                    }
                }
                workers
                    .into_iter()
                    .map(|w| w.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
                    .collect()
            });
            let crash = place.has_journal() && rng.random_bool(0.6);
            let ended = results.into_iter().collect::<Result<(), String>>().and_then(|()| {
                testers.iter_mut().for_each(Tester::close);
                fs.remount(if crash { Remount::Crash } else { Remount::Clean });
                let op = if crash { Op::Crash } else { Op::Remount };
                testers.iter_mut().try_for_each(|t| t.came_up(fs, op.clone()))
            });
            if let Err(e) = ended {
                failed = testers.iter().map(|t| t.past.clone()).collect();
                return Err(e);
            }
        }
        testers.iter_mut().for_each(Tester::close);
        Ok(testers.iter().map(|t| t.past.len()).sum())
    });
    done.map_err(|message| explain(place, seed, load, &message, failed))
}

fn explain(place: &Place, seed: u64, load: Load, message: &str, failed: Vec<Vec<Op>>) -> String {
    let shown = |ops: &[Op]| ops.iter().map(|op| format!("\n  {op:?}")).collect::<String>();
    let head = format!("tree on {place}, seed {seed}, {load:?}: {message}");
    match failed.as_slice() {
        [ops] => {
            let list = reduce::shortest(ops.clone(), PATIENCE, |list| replay(place, list).is_err());
            let last =
                replay(place, &list).err().unwrap_or_else(|| "does not show again".to_owned());
            format!(
                "{head}\n{} of {} operations are enough: {last}{}",
                list.len(),
                ops.len(),
                shown(&list)
            )
        }
        _ => head,
    }
}

/// Does a list on a fresh volume.
fn replay(place: &Place, ops: &[Op]) -> Result<(), String> {
    place.with(|fs| {
        let mut tester = Tester::new(fs, "t0");
        for op in ops {
            match op {
                Op::Crash | Op::Remount => {
                    tester.close();
                    fs.remount(if *op == Op::Crash { Remount::Crash } else { Remount::Clean });
                    tester.came_up(fs, op.clone())?;
                }
                op => tester.step(fs, op.clone())?,
            }
        }
        let compared = tester.compare(fs);
        tester.close();
        compared
    })
}

/// Noise in a shared directory. Outcomes depend on the others; only errors that cannot be explained
/// count.
fn make_noise(fs: &dyn Posix, seed: u64, steps: usize) {
    let mut rng = SmallRng::seed_from_u64(seed);
    for _ in 0..steps {
        let mut name = || format!("shared/n{}", rng.random_range(0..12));
        let (a, b) = (name(), name());
        let (what, len) = (rng.random_range(0..8), rng.random_range(0..30_000));
        let act = || match what {
            0 => fs.mkdir(&a, 0o755),
            1 => fs.rmdir(&a),
            2 => fs.unlink(&a),
            3 => fs.rename(&a, &b, RenameFlags::empty()),
            4 => fs.link(&a, &b),
            5 => fs.get(&a).map(drop),
            6 => fs.names("shared").map(drop),
            _ => fs.put(&a, &vec![7; len]),
        };
        // Linux repeats what meets a file that is just deleted once. That it meets another one then
        // is told as ESTALE.
        let done = match act() {
            Err(Errno::STALE) => act(),
            done => done,
        };
        // EPERM is the answer to a hard link on a directory.
        let explained =
            [Errno::EXIST, Errno::NOTEMPTY, Errno::ISDIR, Errno::NOTDIR, Errno::NOENT, Errno::PERM];
        if let Err(e) = done {
            assert!(explained.contains(&e), "{a} {b}: {e}");
        }
    }
}
