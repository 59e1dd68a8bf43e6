//! `untar`: a tree of source code, written as a tar extractor writes it, and perhaps removed again.
//!
//! The tree is made of numbers, the same for the same seed: directories of 2 to 30 files, up to
//! seven deep; of the files, most are a few KiB, some tens or hundreds (a log-uniform draw between
//! 200 bytes and 200 KiB: half are below 6 KiB, the mean is about 30 KiB). Per file an extractor
//! creates, writes in records of 10 KiB, sets the mode and the times, and closes. Directories get
//! their modes and times in the end, the deepest first, because making files in them changes the
//! times.
//!
//! Phases: `untar` (files per second), with `fsync` a final sync of the file system in it, and `rm
//! -rf` (names per second). Each thread has a tree of its own. If the trees are removed, they are
//! written again until each phase has lasted [`LEAST`].

use std::io;
use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::options::positive;
use super::outcome::{Op, Outcome};
use super::phases::{LEAST, Part, Phases};
use super::pool::pieces;
use super::{Footprint, Limits, Workload, metadata::remove_tree};
use crate::target::Target;

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Untar {
    /// Files of a tree.
    #[arg(long, default_value_t = 5000, value_parser = positive::<u64>)]
    pub files: u64,
    /// Trees, each written by a thread of its own.
    #[arg(long, default_value_t = 1, value_parser = positive::<u32>)]
    pub threads: u32,
    /// fsync of each file before it is closed.
    #[arg(long)]
    pub fsync: bool,
    /// Sync the file system in the end; that counts.
    #[arg(long)]
    pub sync: bool,
    /// Do not remove the tree.
    #[arg(long)]
    pub keep: bool,
    /// Seed of the tree.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// What a phase lasts at least, if the trees are removed.
    #[arg(skip = LEAST)]
    pub least: Duration,
}

const RECORD: usize = 10 << 10;
const DEPTH: usize = 7;
/// Modification time of everything.
const TIME: i64 = 1_700_000_000;

/// One step of an extractor.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Item {
    Dir(String),
    File { path: String, size: u64, mode: u16 },
}

/// The tree below `root`, parents before what is in them.
fn tree(root: &str, files: u64, seed: u64) -> Vec<Item> {
    const ENDS: [&str; 5] = ["c", "h", "rs", "txt", "o"];
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut items = vec![Item::Dir(root.to_owned())];
    // The way to the directory that is being filled.
    let mut way = vec![root.to_owned()];
    let mut left = files;
    let mut number = 0;
    while left > 0 {
        let count = rng.random_range(2..=30).min(left);
        let dir = way.last().map_or("", String::as_str);
        for _ in 0..count {
            let size = (200.0 * 1000f64.powf(rng.random::<f64>())) as u64;
            let end = ENDS[rng.random_range(0..ENDS.len())];
            let mode = if rng.random_range(0..20) == 0 { 0o755 } else { 0o644 };
            items.push(Item::File { path: format!("{dir}/source_{number:05}.{end}"), size, mode });
            number += 1;
        }
        left -= count;
        // A step back or two, or none, and one down.
        way.truncate((way.len() - rng.random_range(0..way.len().min(3))).min(DEPTH - 1));
        let next = format!("{}/part{number:05}", way.last().map_or("", String::as_str));
        if left > 0 {
            items.push(Item::Dir(next.clone()));
            way.push(next);
        }
    }
    items
}

impl Workload for Untar {
    fn name(&self) -> &'static str {
        "untar"
    }

    fn settings(&self) -> String {
        let mut s =
            format!("untar, {} files, {} threads, seed {}", self.files, self.threads, self.seed);
        if self.fsync {
            s += ", fsync of each file";
        }
        if self.sync {
            s += ", a sync in the end";
        }
        if !self.keep {
            s += ", then rm -rf";
        }
        s
    }

    fn footprint(&self, _: &Limits) -> Footprint {
        // Half of the files have less than a block and a half, the mean is nine.
        Footprint::of(self.files.saturating_mul(self.threads.into()), 9 * 4096)
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let root = |thread: u32| format!("tree{thread}");
        let trees: Vec<Vec<Item>> = (0..self.threads)
            .map(|n| tree(&root(n), self.files, self.seed.wrapping_add(u64::from(n))))
            .collect();
        let mut phases = Phases::new(limits, self.threads);
        let mut laps = 0;
        let least = if self.keep { Duration::ZERO } else { self.least };
        phases.laps(least, &["untar", "rm -rf"], |phases| {
            laps += 1;
            let extract =
                |part: &mut Part<'_>| self.extract(target, &trees[part.thread as usize], part);
            phases.run("untar", "files", None, extract)?;
            if !self.keep {
                phases.run("rm -rf", "names", None, |part| {
                    remove_tree(target, &root(part.thread), part)
                })?;
            }
            Ok(())
        })?;
        let mut outcome = Outcome::of_phases("files and names", phases.finish());
        let sizes = trees.iter().flatten().map(|item| match item {
            Item::File { size, .. } => *size,
            Item::Dir(_) => 0,
        });
        outcome.written = laps * sizes.sum::<u64>();
        Ok(outcome)
    }
}

impl Untar {
    fn extract(&self, target: &dyn Target, items: &[Item], part: &mut Part<'_>) -> io::Result<f64> {
        let data = vec![b't'; RECORD];
        let mut files = 0.0;
        for item in items {
            part.check()?;
            match item {
                Item::Dir(path) => part.timings.time(Op::Mkdir, || target.create_dir(path))?,
                Item::File { path, size, mode } => {
                    let file = part.timings.time(Op::Create, || target.create(path))?;
                    pieces(0, *size, RECORD, |at, len| {
                        part.timings.time(Op::Write, || file.write_at(&data[..len], at))
                    })?;
                    part.timings.time(Op::Chmod, || target.chmod(path, *mode))?;
                    part.timings.time(Op::Utimes, || target.set_times(path, TIME))?;
                    if self.fsync {
                        part.timings.time(Op::Fsync, || file.sync(false))?;
                    }
                    part.timings.time(Op::Close, || {
                        drop(file);
                        Ok(())
                    })?;
                    files += 1.0;
                }
            }
        }
        for item in items.iter().rev() {
            if let Item::Dir(path) = item {
                part.timings.time(Op::Chmod, || target.chmod(path, 0o755))?;
                part.timings.time(Op::Utimes, || target.set_times(path, TIME))?;
            }
        }
        if self.sync {
            part.timings.time(Op::Sync, || target.sync())?;
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    #[test]
    fn a_tree_like_source_code() {
        let items = tree("t", 5000, 1);
        assert_eq!(items, tree("t", 5000, 1));
        assert_ne!(items, tree("t", 5000, 2));
        let (mut sizes, mut dirs, mut deepest) = (Vec::new(), 0, 0);
        let mut known = std::collections::BTreeSet::new();
        for item in &items {
            let path = match item {
                Item::Dir(path) => {
                    dirs += 1;
                    known.insert(path.clone());
                    path
                }
                Item::File { path, size, .. } => {
                    sizes.push(*size);
                    path
                }
            };
            deepest = deepest.max(path.split('/').count());
            let parent = path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
            assert!(parent.is_none_or(|p| known.contains(&p)), "{path} before its directory");
        }
        sizes.sort_unstable();
        assert_eq!(sizes.len(), 5000);
        assert!(
            (200..600).contains(&dirs) && (5..=DEPTH + 1).contains(&deepest),
            "{dirs} {deepest}"
        );
        let mean = sizes.iter().sum::<u64>() / 5000;
        assert!((4000..9000).contains(&sizes[2500]) && (20_000..40_000).contains(&mean), "{mean}");
    }

    #[test]
    fn everything_is_written_and_removed() {
        let target = Recorder::default();
        let load = Untar { files: 50, threads: 2, least: Duration::ZERO, ..Untar::default() };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        let dirs = target.count("mkdir");
        assert_eq!(
            (target.count("create"), target.count("remove"), target.count("rmdir")),
            (100, 100, dirs)
        );
        assert_eq!((target.count("chmod"), target.count("utimes")), (100 + dirs, 100 + dirs));
        assert_eq!((target.files(), target.dirs(), target.count("fsync")), (0, 0, 0));
        let done = |name| outcome.phase(name).unwrap().done;
        assert_eq!((done("untar"), done("rm -rf")), (100.0, (100 + dirs) as f64));
        let last = target.calls().iter().rposition(|c| c.starts_with("write")).unwrap();
        let dir = target.calls().iter().position(|c| c.starts_with("utimes tree0 ")).unwrap();
        let first_removed = target.calls().iter().position(|c| c.starts_with("remove")).unwrap();
        assert!(dir < first_removed && last < first_removed);
    }

    #[test]
    fn written_again_until_it_has_lasted() {
        let target = Recorder::default();
        let load = Untar { files: 5, least: Duration::from_millis(300), ..Untar::default() };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        let once =
            Untar { least: Duration::ZERO, ..load }.run(&target, &Limits::default()).unwrap();
        let laps = outcome.phase("untar").unwrap().done / 5.0;
        assert!(laps >= 2.0 && target.files() == 0, "{laps}");
        assert_eq!(outcome.written as f64, laps * once.written as f64);
    }

    #[test]
    fn synced_and_kept() {
        let target = Recorder::default();
        let load = Untar { files: 10, fsync: true, sync: true, keep: true, ..Untar::default() };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        assert_eq!((target.files(), target.count("fsync"), target.count("sync")), (10, 10, 1));
        assert_eq!(outcome.phases.len(), 1);
    }
}
