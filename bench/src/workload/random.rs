//! `rand`: small reads and writes all over a file.
//!
//! Each job has a file of `size` bytes, which is laid out and made durable beforehand; then the
//! caches are emptied, as fio does. `iodepth` threads work on each file at once, each with its own
//! random places, all multiples of `bs`. Every `fsync` (or `fdatasync`) writes, a thread syncs its
//! file. Parameters have the names that fio gives them.
//!
//! With `rw` = write, one file per thread, `iodepth` 1 and `fdatasync` 1 this is also "4 KiB write
//! + fdatasync" as a device without a file system can do it.

use std::io;
use std::time::Instant;

use clap::{Args, ValueEnum};
use extol_block::AlignedBuf;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::options::{block, bytes, positive, word};
use super::outcome::{Figure, Op, Outcome, Timings};
use super::seq::{PAGE, job_file};
use super::{Footprint, Limits, Watch, Workload, cancelled, on_threads};
use crate::target::Target;

/// What is done at the random places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Direction {
    /// Reads.
    #[value(name = "randread")]
    Read,
    /// Writes.
    #[value(name = "randwrite")]
    Write,
    /// Half of each.
    #[value(name = "randrw")]
    Both,
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Rand {
    /// What is done.
    #[arg(long, default_value = "randread")]
    pub rw: Direction,
    /// Bytes of each file.
    #[arg(long, default_value = "256M", value_parser = bytes)]
    pub size: u64,
    /// Bytes per call.
    #[arg(long = "bs", value_name = "SIZE", default_value = "4k", value_parser = block)]
    pub block: usize,
    /// Files.
    #[arg(long = "numjobs", default_value_t = 1, value_parser = positive::<u32>)]
    pub jobs: u32,
    /// Threads per file.
    #[arg(
        long = "iodepth",
        alias = "depth",
        default_value_t = 1,
        value_parser = positive::<u32>
    )]
    pub depth: u32,
    /// Past the page cache of the kernel (O_DIRECT).
    #[arg(long)]
    pub direct: bool,
    /// fsync after so many writes of a thread; 0: never.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "fdatasync")]
    pub fsync: u64,
    /// fdatasync after so many writes of a thread; 0: never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fdatasync: u64,
    /// Calls of each thread, without --seconds.
    #[arg(long = "number-ios", default_value_t = 10_000, value_parser = positive::<u64>)]
    pub calls: u64,
    /// Seed of the random places.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// Bytes per call when files are laid out.
const LAYOUT: usize = 1 << 20;

#[derive(Default)]
struct Share {
    written: u64,
    read: u64,
    timings: Timings,
}

impl Workload for Rand {
    fn name(&self) -> &'static str {
        "rand"
    }

    fn settings(&self) -> String {
        let sync = match (self.fsync, self.fdatasync) {
            (0, 0) => String::new(),
            (0, n) => format!(" fdatasync={n}"),
            (n, _) => format!(" fsync={n}"),
        };
        format!(
            "rand, rw={} size={} bs={} numjobs={} iodepth={} direct={}{sync}",
            word(&self.rw),
            self.size,
            self.block,
            self.jobs,
            self.depth,
            u8::from(self.direct)
        )
    }

    fn footprint(&self, _: &Limits) -> Footprint {
        Footprint::of(self.jobs.into(), self.size)
    }

    fn prepare(&self, target: &dyn Target, limits: &Limits) -> io::Result<bool> {
        on_threads(self.jobs, |job| {
            let file = target.create_bulk(&job_file(job), self.size, self.direct)?;
            let mut data = AlignedBuf::new(LAYOUT, PAGE);
            data.fill(b'l');
            super::pool::pieces(0, self.size, LAYOUT, |at, len| {
                if limits.cancel.is_set() {
                    return Err(cancelled());
                }
                file.write_at(&data[..len], at)
            })?;
            file.sync(false)
        })?;
        Ok(true)
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let files = (0..self.jobs)
            .map(|job| target.open_bulk(&job_file(job), self.direct))
            .collect::<io::Result<Vec<_>>>()?;
        let depth = self.depth.max(1);
        let watch = Watch::start(limits);
        let shares = on_threads(self.jobs * depth, |thread| {
            self.share(&*files[(thread / depth) as usize], thread, &watch, limits)
        })?;
        let elapsed = watch.elapsed();
        if limits.cancel.is_set() {
            return Err(cancelled());
        }
        let mut all = Share::default();
        for share in &shares {
            all.written += share.written;
            all.read += share.read;
            all.timings.add(&share.timings);
        }
        let bytes = all.written + all.read;
        let done = bytes / self.block.max(1) as u64;
        let figures = vec![Figure {
            name: "MB/s",
            value: bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-9),
        }];
        Ok(Outcome {
            unit: "I/Os",
            done,
            elapsed,
            written: all.written,
            read: all.read,
            figures,
            timings: all.timings,
            phases: Vec::new(),
        })
    }
}

impl Rand {
    fn share(
        &self,
        file: &dyn crate::target::TargetFile,
        thread: u32,
        watch: &Watch,
        limits: &Limits,
    ) -> io::Result<Share> {
        let mut rng = SmallRng::seed_from_u64(self.seed.wrapping_mul(1000) + u64::from(thread));
        let mut buf = AlignedBuf::new(self.block.max(1), PAGE);
        buf.fill(b'r');
        let places = (self.size / buf.len() as u64).max(1);
        let calls = if limits.time.is_some() { u64::MAX } else { self.calls };
        let mut share = Share::default();
        let mut unsynced = 0;
        for _ in 0..calls {
            if watch.is_over() {
                break;
            }
            let at = rng.random_range(0..places) * buf.len() as u64;
            let writes = match self.rw {
                Direction::Read => false,
                Direction::Write => true,
                Direction::Both => rng.random(),
            };
            if !writes {
                share.read += share.timings.time(Op::Read, || file.read_at(&mut buf, at))? as u64;
                continue;
            }
            let began = Instant::now();
            file.write_at(&buf, at)?;
            share.timings.note(Op::Write, began.elapsed());
            share.written += buf.len() as u64;
            unsynced += 1;
            if unsynced == self.fsync.max(self.fdatasync) {
                share.timings.time(Op::Fsync, || file.sync(self.fdatasync > 0))?;
                unsynced = 0;
            }
        }
        Ok(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    fn run(load: &Rand) -> (Recorder, Outcome) {
        let target = Recorder::default();
        assert!(load.prepare(&target, &Limits::default()).unwrap(), "caches are to be empty");
        let outcome = load.run(&target, &Limits::default()).unwrap();
        (target, outcome)
    }

    #[test]
    fn reads_by_all_threads() {
        let load =
            Rand { size: 3 << 20, jobs: 2, depth: 4, direct: true, calls: 10, ..Rand::default() };
        let (target, outcome) = run(&load);
        // Two files of three pieces, which are not counted.
        assert_eq!(
            (target.count("write"), target.count("fsync"), target.count("read")),
            (6, 2, 80)
        );
        assert_eq!((outcome.done, outcome.read, outcome.written), (80, 80 * 4096, 0));
        assert_eq!(outcome.timings.of(Op::Read).unwrap().count, 80);
        assert!(target.calls().iter().any(|c| c == "reopen job1 true"));
    }

    #[test]
    fn writes_with_a_sync_after_every_second() {
        let load =
            Rand { rw: Direction::Write, size: 1 << 20, calls: 7, fdatasync: 2, ..Rand::default() };
        let (target, outcome) = run(&load);
        assert_eq!(
            (target.count("write"), target.count("fdatasync"), target.count("read")),
            (1 + 7, 3, 0)
        );
        assert_eq!((outcome.done, outcome.written), (7, 7 * 4096));
        assert!(load.settings().contains("fdatasync=2"), "{}", load.settings());
    }

    #[test]
    fn both_directions() {
        let (target, outcome) =
            run(&Rand { rw: Direction::Both, size: 1 << 20, calls: 200, ..Rand::default() });
        assert_eq!(outcome.done, 200);
        assert!(target.count("read") > 50 && target.count("write") > 50);
    }
}
