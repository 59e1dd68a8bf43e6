//! `varmail`: a mail server that syncs, as the personality of filebench of that name.
//!
//! Each of 16 threads goes round this loop on one directory of 1000 files (80 % of them made
//! beforehand), whose sizes are 16 KiB on average:
//!
//! 1. remove a file;
//! 2. make a file, append a random size up to 16 KiB, fsync, close;
//! 3. open a file, read all of it, append a random size up to 16 KiB, fsync, close;
//! 4. open a file, read all of it, close.
//!
//! A file that one thread works on is not picked by another. filebench counts each of these 13
//! steps as one operation; so does the rate here. Sizes are drawn evenly between half and one and a
//! half of the mean, while filebench draws from a gamma distribution.

use std::io;

use clap::Args;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::options::positive;
use super::outcome::{Figure, Op, Outcome, Timings};
use super::pool::{Pool, pieces};
use super::{Footprint, Limits, Watch, Workload, cancelled, on_threads};
use crate::target::{Target, TargetFile};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct VarMail {
    /// Threads.
    #[arg(long, default_value_t = 16, value_parser = positive::<u32>)]
    pub threads: u32,
    /// Files.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..))]
    pub files: u64,
    /// Mean size of a file in bytes.
    #[arg(long, default_value_t = 16384)]
    pub mean_size: u64,
    /// Largest append in bytes.
    #[arg(long, default_value_t = 16384)]
    pub append_size: u64,
    /// Bytes per call when a file is written or read as a whole.
    #[arg(skip = 1_usize << 20)]
    pub io_size: usize,
    /// Rounds of the loop per thread, without --seconds.
    #[arg(long, default_value_t = 500)]
    pub loops: u64,
}

/// What the last block of a file has free, on average.
const HALF_BLOCK: u64 = 2048;
/// Steps of one round.
const STEPS: u64 = 13;

impl Workload for VarMail {
    fn name(&self) -> &'static str {
        "varmail"
    }

    fn settings(&self) -> String {
        format!(
            "varmail nthreads={} nfiles={} meanfilesize={} meanappendsize={} iosize={}",
            self.threads, self.files, self.mean_size, self.append_size, self.io_size
        )
    }

    fn footprint(&self, _: &Limits) -> Footprint {
        // A file has its mean size at the start. Later each round removes a file, makes one, and
        // adds to another: half of an append's largest size each, so the mean becomes that size.
        // One for each thread is removed and not committed.
        let files = (self.files * 8 / 10).saturating_add(self.threads.into());
        let size = self.mean_size.max(self.append_size);
        Footprint::of(files, size.saturating_add(HALF_BLOCK))
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        let there = self.files * 8 / 10;
        let data = vec![b'm'; self.io_size.max(1)];
        let mut rng = SmallRng::seed_from_u64(1);
        for n in 0..there {
            if limits.cancel.is_set() {
                return Err(cancelled());
            }
            let file = target.create(&n.to_string())?;
            let size = rng.random_range(self.mean_size / 2..=self.mean_size * 3 / 2);
            pieces(0, size, data.len(), |at, len| file.write_at(&data[..len], at))?;
        }
        target.sync()?;
        let pool = Mutex::new(Pool::new(self.files, there));
        let watch = Watch::start(limits);
        let loops = if limits.time.is_some() { u64::MAX } else { self.loops };
        let shares = on_threads(self.threads, |thread| {
            let mut worker = Worker {
                load: self,
                target,
                pool: &pool,
                rng: SmallRng::seed_from_u64(u64::from(thread) + 2),
                data: &data,
                buf: vec![0; data.len()],
                written: 0,
                read: 0,
                timings: Timings::default(),
            };
            let mut done = 0;
            while done < loops && !watch.is_over() {
                worker.round()?;
                done += 1;
            }
            Ok((done, worker.written, worker.read, worker.timings))
        })?;
        let elapsed = watch.elapsed();
        if watch.cancel.is_set() {
            return Err(cancelled());
        }
        let mut timings = Timings::default();
        let (mut rounds, mut written, mut read) = (0, 0, 0);
        for share in &shares {
            rounds += share.0;
            written += share.1;
            read += share.2;
            timings.add(&share.3);
        }
        let figures = vec![Figure {
            name: "fsyncs/s",
            value: timings.of(Op::Fsync).map_or(0, |t| t.count) as f64
                / elapsed.as_secs_f64().max(1e-9),
        }];
        Ok(Outcome {
            unit: "operations",
            done: rounds * STEPS,
            elapsed,
            written,
            read,
            figures,
            timings,
            phases: Vec::new(),
        })
    }
}

struct Worker<'a> {
    load: &'a VarMail,
    target: &'a dyn Target,
    pool: &'a Mutex<Pool>,
    rng: SmallRng,
    data: &'a [u8],
    buf: Vec<u8>,
    written: u64,
    read: u64,
    timings: Timings,
}

impl Worker<'_> {
    fn round(&mut self) -> io::Result<()> {
        let target = self.target;
        // With few files and many threads all may be in use: then this step is left out, as in
        // filebench.
        let taken = self.pool.lock().take(&mut self.rng);
        if let Some(n) = taken {
            self.timings.time(Op::Remove, || target.remove(&n.to_string()))?;
            self.pool.lock().put_absent(n);
        }
        let taken = self.pool.lock().take_absent(&mut self.rng);
        if let Some(n) = taken {
            let file = self.timings.time(Op::Create, || target.create(&n.to_string()))?;
            self.append_and_sync(&*file)?;
            self.close(file, n)?;
        }
        for appends in [true, false] {
            let taken = self.pool.lock().take(&mut self.rng);
            let Some(n) = taken else { continue };
            let file = self.timings.time(Op::Open, || target.open(&n.to_string()))?;
            self.read_whole(&*file)?;
            if appends {
                self.append_and_sync(&*file)?;
            }
            self.close(file, n)?;
        }
        Ok(())
    }

    fn append_and_sync(&mut self, file: &dyn TargetFile) -> io::Result<()> {
        let size = self.rng.random_range(1..=self.load.append_size.max(1));
        let end = file.end()?;
        let (data, timings) = (self.data, &mut self.timings);
        pieces(end, size, data.len(), |at, len| {
            timings.time(Op::Write, || file.write_at(&data[..len], at))
        })?;
        self.written += size;
        self.timings.time(Op::Fsync, || file.sync(false))
    }

    fn read_whole(&mut self, file: &dyn TargetFile) -> io::Result<()> {
        let mut at = 0;
        loop {
            let buf = &mut self.buf[..];
            match self.timings.time(Op::Read, || file.read_at(buf, at))? {
                0 => break,
                n => at += n as u64,
            }
        }
        self.read += at;
        Ok(())
    }

    fn close(&mut self, file: Box<dyn TargetFile>, number: u64) -> io::Result<()> {
        self.timings.time(Op::Close, || {
            drop(file);
            Ok(())
        })?;
        self.pool.lock().put(number);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    #[test]
    fn thirteen_steps_and_two_fsyncs_per_round() {
        let target = Recorder::default();
        let load = VarMail { threads: 2, files: 50, loops: 10, ..VarMail::default() };
        let outcome = load.run(&target, &Limits::default()).unwrap();
        assert_eq!(outcome.done, 2 * 10 * 13);
        assert_eq!((target.count("fsync"), target.count("remove")), (40, 20));
        assert_eq!(
            (target.count("create"), target.count("open"), target.count("sync")),
            (40 + 20, 40, 1)
        );
        assert_eq!(target.files(), 40);
        assert_eq!(outcome.timings.of(Op::Fsync).unwrap().count, 40);
    }

    #[test]
    fn more_threads_than_files() {
        let load = VarMail { threads: 8, files: 3, loops: 20, ..VarMail::default() };
        load.run(&Recorder::default(), &Limits::default()).unwrap();
    }
}
