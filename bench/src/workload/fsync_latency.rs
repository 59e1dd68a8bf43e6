//! `fsync-latency`: how long one small durable write takes, alone and beside a heavy writer.
//!
//! One thread writes 4 KiB and calls fsync (or fdatasync), again and again: to the end of a file
//! until it has its full size, from then on over its old contents. Then the same beside a thread
//! that writes another file without pause, and never syncs it. The writer goes over its file again
//! and again, or (`fresh`) begins a new file whenever one is full and removes the old one, so that
//! it always needs new blocks and its metadata is in every transaction. Each part ends after its
//! number of calls or its half of the time limit.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::options::{block, millis, positive};
use super::outcome::{Figure, Op, Outcome, Timings};
use super::{Footprint, Limits, Watch, Workload, cancelled};
use crate::target::Target;

/// A part of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// Without a writer beside it.
    Alone,
    /// Beside a heavy writer.
    Beside,
}

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct FsyncLatency {
    /// Bytes per write.
    #[arg(long, default_value = "4096", value_parser = block)]
    pub block: usize,
    /// Size up to which the synced file grows.
    #[arg(skip = 16_u64 << 20)]
    pub size: u64,
    /// Writes and fsyncs in each part, without --seconds.
    #[arg(long, default_value_t = 1000, value_parser = positive::<u64>)]
    pub calls: u64,
    /// fdatasync instead of fsync.
    #[arg(long = "fdatasync")]
    pub data_only: bool,
    /// Milliseconds between one call and the next write.
    #[arg(long, default_value = "0", value_parser = millis)]
    pub pause: Duration,
    /// The heavy writer begins a new file when one is full, so that it always needs new blocks.
    #[arg(long)]
    pub fresh: bool,
    /// Only one part.
    #[arg(long, value_name = "PART")]
    pub only: Option<Part>,
    /// Size of the file that the heavy writer goes over.
    #[arg(skip = 128_u64 << 20)]
    pub writer_size: u64,
    /// Bytes per write of the heavy writer.
    #[arg(skip = 1_usize << 20)]
    pub writer_block: usize,
}

impl Workload for FsyncLatency {
    fn name(&self) -> &'static str {
        "fsync-latency"
    }

    fn settings(&self) -> String {
        let call = if self.data_only { "fdatasync" } else { "fsync" };
        let parts = match self.only {
            None => "alone, then beside a heavy writer",
            Some(Part::Beside) => "beside a heavy writer",
            Some(Part::Alone) => "alone",
        };
        let pause = match self.pause.as_secs_f64() * 1000.0 {
            0.0 => String::new(),
            ms => format!(" every {ms} ms"),
        };
        let fresh = if self.fresh { " of new files" } else { "" };
        format!("write {} bytes + {call}{pause}, {parts}{fresh}", self.block)
    }

    fn footprint(&self, limits: &Limits) -> Footprint {
        let files = if self.fresh && limits.time.is_none() { self.calls } else { 1 };
        let synced = Footprint::of(files, self.size.max(self.block as u64));
        let writer = if self.only == Some(Part::Alone) { 0 } else { self.writer_size };
        Footprint { bytes: synced.bytes.saturating_add(writer), files: files + 1 }
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let parts = if self.only.is_none() { 2 } else { 1 };
        let part = Limits { time: limits.time.map(|t| t / parts.max(1)), ..limits.clone() };
        let mut timings = Timings::default();
        let (mut done, mut elapsed, mut written, mut beside, mut speed) =
            (0, Duration::ZERO, 0, 0, 0.0);
        if self.only != Some(Part::Beside) {
            let watch = Watch::start(&part);
            done += self.sync_loop(target, "alone", Op::Fsync, &watch, &mut timings)?;
            elapsed += watch.elapsed();
        }
        if self.only != Some(Part::Alone) {
            let end = AtomicBool::new(false);
            let bytes = AtomicU64::new(0);
            let watch = Watch::start(&part);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| self.write_on(target, &end, &bytes));
                let result =
                    self.sync_loop(target, "beside", Op::FsyncBeside, &watch, &mut timings);
                elapsed += watch.elapsed();
                end.store(true, Ordering::Relaxed);
                let writer =
                    writer.join().map_err(|_| io::Error::other("the heavy writer panicked"))?;
                done += result?;
                writer
            })?;
            beside = bytes.into_inner();
            speed = beside as f64 / 1e6 / watch.elapsed().as_secs_f64().max(1e-9);
            written += beside;
        }
        if limits.cancel.is_set() {
            return Err(cancelled());
        }
        written += done * self.block as u64;
        let figures = vec![
            Figure { name: "bytes written beside", value: beside as f64 },
            Figure { name: "MB/s written beside", value: speed },
        ];
        Ok(Outcome {
            unit: "fsyncs",
            done,
            elapsed,
            written,
            read: 0,
            figures,
            timings,
            phases: Vec::new(),
        })
    }
}

impl FsyncLatency {
    fn sync_loop(
        &self,
        target: &dyn Target,
        name: &str,
        op: Op,
        watch: &Watch,
        timings: &mut Timings,
    ) -> io::Result<u64> {
        let data = vec![b's'; self.block.max(1)];
        let file = target.create(name)?;
        let places = (self.size / data.len() as u64).max(1);
        let calls = if watch.end.is_some() { u64::MAX } else { self.calls };
        let mut done = 0;
        while done < calls && !watch.is_over() {
            let began = Instant::now();
            file.write_at(&data, done % places * data.len() as u64)?;
            file.sync(self.data_only)?;
            timings.note(op, began.elapsed());
            done += 1;
            if !self.pause.is_zero() {
                std::thread::sleep(self.pause);
            }
        }
        Ok(done)
    }

    fn write_on(&self, target: &dyn Target, end: &AtomicBool, bytes: &AtomicU64) -> io::Result<()> {
        let data = vec![b'w'; self.writer_block.max(1)];
        let mut file = target.create("writer")?;
        let places = (self.writer_size / data.len() as u64).max(1);
        for n in 0.. {
            if end.load(Ordering::Relaxed) {
                break;
            }
            if self.fresh && n > 0 && n % places == 0 {
                drop(file);
                target.remove("writer")?;
                file = target.create("writer")?;
            }
            file.write_at(&data, n % places * data.len() as u64)?;
            bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    #[test]
    fn both_parts() {
        let target = Recorder::default();
        let load = FsyncLatency { calls: 20, size: 8192, ..FsyncLatency::default() };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        assert_eq!((outcome.done, target.count("fsync")), (40, 40));
        for op in [Op::Fsync, Op::FsyncBeside] {
            assert_eq!(outcome.timings.of(op).unwrap().count, 20);
        }
        let synced =
            |name: &str| target.calls().iter().filter(|c| **c == format!("fsync {name}")).count();
        assert_eq!((synced("alone"), synced("beside"), synced("writer")), (20, 20, 0));
    }

    #[test]
    fn a_fresh_writer_leaves_one_file() {
        let target = Recorder::default();
        let end = AtomicBool::new(false);
        let bytes = AtomicU64::new(0);
        let load = FsyncLatency { writer_size: 2 << 20, fresh: true, ..FsyncLatency::default() };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| load.write_on(&target, &end, &bytes));
            while bytes.load(Ordering::Relaxed) < 7 << 20 {
                std::thread::yield_now();
            }
            end.store(true, Ordering::Relaxed);
            writer.join().unwrap().unwrap();
        });
        assert!(target.count("remove") >= 3, "{}", target.count("remove"));
        assert_eq!((target.count("create"), target.files()), (target.count("remove") + 1, 1));
    }

    #[test]
    fn one_part_with_fdatasync() {
        let target = Recorder::default();
        let load = FsyncLatency {
            calls: 5,
            only: Some(Part::Alone),
            data_only: true,
            ..FsyncLatency::default()
        };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        assert_eq!((outcome.done, outcome.written), (5, 5 * 4096));
        assert_eq!(
            (target.count("fdatasync"), target.count("fsync"), target.count("create")),
            (5, 0, 1)
        );
    }
}
