//! `seq`: bulk data from the first byte to the last: written, made durable, and read again with
//! empty caches.
//!
//! | phase | what |
//! |---|---|
//! | write | each job writes its file of `size` bytes in pieces of `bs` |
//! | write + fsync | the same and a final fsync of each file: what a program waits that needs its data |
//! | cold read | each job reads its file in pieces of `bs`, after the volume was mounted again |
//!
//! The first two are one piece of work with two ends. Parameters have the names that fio gives
//! them. `direct` goes past the kernel's page cache, where there is one: buffers begin at a page's
//! boundary then, and sizes are whole pages.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use extol_block::AlignedBuf;

use super::options::{block, bytes, positive};
use super::outcome::{Op, Outcome};
use super::phases::Phases;
use super::{Footprint, Limits, Phase, Workload};
use crate::target::Target;

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct Seq {
    /// Bytes per job.
    #[arg(long, default_value = "256M", value_parser = bytes)]
    pub size: u64,
    /// Bytes per call.
    #[arg(long = "bs", value_name = "SIZE", default_value = "1M", value_parser = block)]
    pub block: usize,
    /// Threads, each with a file of its own.
    #[arg(long = "numjobs", default_value_t = 1, value_parser = positive::<u32>)]
    pub jobs: u32,
    /// Past the page cache of the kernel (O_DIRECT).
    #[arg(long)]
    pub direct: bool,
}

/// Pages of memory, for direct I/O.
pub(super) const PAGE: usize = 4096;
const MB: f64 = 1e6;

/// The name of a job's file.
pub(super) fn job_file(job: u32) -> String {
    format!("job{job}")
}

impl Seq {
    fn pieces(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (size, block) = (self.size, self.block.max(1));
        (0..size.div_ceil(block as u64)).map(move |n| {
            let at = n * block as u64;
            (at, (size - at).min(block as u64) as usize)
        })
    }

    fn write(&self, target: &dyn Target, phases: &mut Phases<'_>) -> io::Result<()> {
        // Of each job: when the last byte was written.
        let ends = parking_lot::Mutex::new(Vec::new());
        let began = Instant::now();
        phases.run("write + fsync", "MB", None, |part| {
            let mut data = AlignedBuf::new(self.block.max(1), PAGE);
            // Not what a compressing or deduplicating medium would like.
            data.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 131 + n / 251) as u8);
            let file = target.create_bulk(&job_file(part.thread), self.size, self.direct)?;
            for (at, len) in self.pieces() {
                part.check()?;
                part.timings.time(Op::Write, || file.write_at(&data[..len], at))?;
            }
            ends.lock().push(began.elapsed());
            part.timings.time(Op::Fsync, || file.sync(false))?;
            Ok(self.size as f64 / MB)
        })?;
        let elapsed = ends.into_inner().into_iter().max().unwrap_or(Duration::ZERO);
        phases.add(Phase {
            name: "write",
            unit: "MB",
            done: self.total() as f64 / MB,
            elapsed,
            cpu: None,
            timings: super::Timings::default(),
        });
        Ok(())
    }

    fn total(&self) -> u64 {
        self.size * u64::from(self.jobs)
    }
}

impl Workload for Seq {
    fn name(&self) -> &'static str {
        "seq"
    }

    fn settings(&self) -> String {
        let direct = u8::from(self.direct);
        format!("seq, size={} bs={} numjobs={} direct={direct}", self.size, self.block, self.jobs)
    }

    fn footprint(&self, _: &Limits) -> Footprint {
        Footprint::of(self.jobs.into(), self.size)
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let mut phases = Phases::new(limits, self.jobs);
        self.write(target, &mut phases)?;
        let mut phases = phases.finish();
        let elapsed = phases[0].elapsed;
        phases.reverse();
        let written = self.total();
        let mut outcome = Outcome::of_phases("MB", phases);
        // The two phases are one piece of work.
        (outcome.done, outcome.elapsed, outcome.written) = (written / 1_000_000, elapsed, written);
        Ok(outcome)
    }

    fn goes_on_cold(&self) -> bool {
        true
    }

    fn run_cold(
        &self,
        target: &dyn Target,
        limits: &Limits,
        mut so_far: Outcome,
    ) -> io::Result<Outcome> {
        let mut phases = Phases::new(limits, self.jobs);
        phases.run("cold read", "MB", None, |part| {
            let mut buf = AlignedBuf::new(self.block.max(1), PAGE);
            let file = target.open_bulk(&job_file(part.thread), self.direct)?;
            for (at, len) in self.pieces() {
                part.check()?;
                let count = part.timings.time(Op::Read, || file.read_at(&mut buf[..len], at))?;
                if count != len {
                    return Err(io::Error::other(format!("{count} of {len} bytes at {at}")));
                }
            }
            Ok(self.size as f64 / MB)
        })?;
        for phase in phases.finish() {
            so_far.read += self.total();
            so_far.done += self.total() / 1_000_000;
            so_far.elapsed += phase.elapsed;
            so_far.timings.add(&phase.timings);
            so_far.phases.push(phase);
        }
        Ok(so_far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    #[test]
    fn all_bytes_once_each_way() {
        let target = Recorder::default();
        let load = Seq { size: 10_000_000, block: 4 << 20, jobs: 2, direct: true };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        assert_eq!((target.count("write"), target.count("fsync")), (6, 2));
        assert!(
            target.calls().iter().any(|c| c == "write job1 1611392"),
            "the last piece is shorter"
        );
        assert!(target.calls().iter().any(|c| c == "bulk job0 10000000 true"));
        assert_eq!(
            (outcome.done, outcome.written, outcome.phase("write").unwrap().done),
            (20, 20_000_000, 20.0)
        );
        let both = outcome.phase("write + fsync").unwrap();
        assert!(outcome.phase("write").unwrap().elapsed <= both.elapsed);
        assert!(load.goes_on_cold());
        let outcome = load.run_cold(&target, &Limits::default(), outcome).unwrap();
        assert_eq!(
            (target.count("read"), target.count("reopen"), outcome.read),
            (6, 2, 20_000_000)
        );
        assert_eq!((outcome.done, outcome.phase("cold read").unwrap().done), (40, 20.0));
    }

    /// A file that is shorter than what was written is an error, not a fast read.
    #[test]
    fn a_short_file_is_an_error() {
        let target = Recorder::default();
        let load = Seq { size: 8192, block: 4096, ..Seq::default() };
        load.run(&target, &Limits::default()).unwrap();
        let longer = Seq { size: 12_288, ..load };
        let error =
            longer.run_cold(&target, &Limits::default(), Outcome::of_phases("MB", Vec::new()));
        assert!(error.unwrap_err().to_string().contains("0 of 4096 bytes"));
    }
}
