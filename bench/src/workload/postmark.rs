//! `postmark`: a mail and news server's small files, as PostMark 1.5 does it.
//!
//! One thread. First `number` files of random sizes in `size` are made. Then come `transactions`:
//! each reads a whole file or appends to it (`bias read` of 10 read), and makes or removes a file
//! (`bias create` of 10 make). At last all files are removed. A bias of -1 leaves that half of a
//! transaction out. No call makes anything durable: what is measured is how much the file system's
//! own work in the background costs.

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::options::{block, low_high, positive};
use super::outcome::{Figure, Op, Outcome, Timings};
use super::pool::pieces;
use super::{Footprint, Limits, Watch, Workload, cancelled};
use crate::target::Target;

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct PostMark {
    /// Files at the start.
    #[arg(long, default_value_t = 500, value_parser = positive::<u64>)]
    pub number: u64,
    /// Transactions.
    #[arg(long, default_value_t = 500)]
    pub transactions: u64,
    /// Smallest and largest file in bytes.
    #[arg(long, value_name = "LOW,HIGH", default_value = "500,9770", value_parser = low_high)]
    pub size: (u64, u64),
    /// Bytes per read.
    #[arg(long, default_value = "512", value_parser = block)]
    pub read: usize,
    /// Bytes per write.
    #[arg(long, default_value = "512", value_parser = block)]
    pub write: usize,
    /// Of 10 transactions, how many read and do not append; -1: none does either.
    #[arg(long, default_value_t = 5, allow_negative_numbers = true, value_parser = bias)]
    pub bias_read: i32,
    /// Of 10 transactions, how many make a file and do not remove one; -1: none does either.
    #[arg(long, default_value_t = 5, allow_negative_numbers = true, value_parser = bias)]
    pub bias_create: i32,
    /// Subdirectories; 0: none.
    #[arg(long, default_value_t = 0)]
    pub subdirectories: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

fn bias(text: &str) -> Result<i32, String> {
    let bias = text.parse().ok().filter(|bias| (-1..=10).contains(bias));
    bias.ok_or_else(|| "the bias is from -1 to 10".into())
}

/// Names of the figures, in the order of the published table.
pub(crate) const FIGURES: [&str; 13] = [
    "Total_duration",
    "Duration_of_transactions",
    "Transactions/s",
    "Files_created/s",
    "Creation_alone/s",
    "Creation_mixed_with_transaction/s",
    "Read/s",
    "Append/s",
    "Deleted/s",
    "Deletion_alone/s",
    "Deletion_mixed_with_transaction/s",
    "Read_B/s",
    "Write_B/s",
];

/// A file that exists.
struct Known {
    name: String,
    size: u64,
}

#[derive(Default)]
struct Counts {
    created: u64,
    mixed_created: u64,
    read: u64,
    appended: u64,
    mixed_deleted: u64,
    deleted: u64,
    bytes_read: u64,
    bytes_written: u64,
}

struct Run<'a> {
    mark: &'a PostMark,
    target: &'a dyn Target,
    rng: SmallRng,
    files: Vec<Known>,
    made: u64,
    data: Vec<u8>,
    buf: Vec<u8>,
    counts: Counts,
    timings: Timings,
}

impl Workload for PostMark {
    fn name(&self) -> &'static str {
        "postmark"
    }

    fn settings(&self) -> String {
        format!(
            "set number {}, set transactions {}, set size {} {}, set read {}, set write {}, set \
             bias read {}, set bias create {}, set subdirectories {}, set seed {}",
            self.number,
            self.transactions,
            self.size.0,
            self.size.1,
            self.read,
            self.write,
            self.bias_read,
            self.bias_create,
            self.subdirectories,
            self.seed
        )
    }

    fn footprint(&self, _: &Limits) -> Footprint {
        // (Sizes are evenly distributed.)
        Footprint::of(self.number, self.size.0.midpoint(self.size.1))
    }

    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome> {
        for n in 0..self.subdirectories {
            target.create_dir(&format!("s{n}"))?;
        }
        let mut run = Run {
            mark: self,
            target,
            rng: SmallRng::seed_from_u64(self.seed),
            files: Vec::new(),
            made: 0,
            data: vec![b'p'; self.write.max(1)],
            buf: vec![0; self.read.max(1)],
            counts: Counts::default(),
            timings: Timings::default(),
        };
        let watch = Watch::start(limits);
        let check = || if watch.cancel.is_set() { Err(cancelled()) } else { Ok(()) };
        for _ in 0..self.number {
            check()?;
            run.create()?;
        }
        let creation = watch.elapsed();
        let began = Instant::now();
        let mut done = 0;
        while done < self.transactions && !watch.is_over() {
            run.transaction()?;
            done += 1;
        }
        check()?;
        let in_transactions = began.elapsed();
        let began = Instant::now();
        while !run.files.is_empty() {
            check()?;
            run.delete()?;
            run.counts.deleted += 1;
        }
        let deletion = began.elapsed();
        let total = watch.elapsed();
        let figures = run.figures(done, total, creation, in_transactions, deletion);
        Ok(Outcome {
            unit: "transactions",
            done,
            elapsed: in_transactions,
            written: run.counts.bytes_written,
            read: run.counts.bytes_read,
            figures,
            timings: run.timings,
            phases: Vec::new(),
        })
    }
}

impl Run<'_> {
    fn transaction(&mut self) -> io::Result<()> {
        if self.mark.bias_read >= 0 && !self.files.is_empty() {
            let at = self.rng.random_range(0..self.files.len());
            if self.rng.random_range(0..10) < self.mark.bias_read {
                self.read(at)?;
            } else {
                self.append(at)?;
            }
        }
        if self.mark.bias_create >= 0 {
            if self.rng.random_range(0..10) < self.mark.bias_create || self.files.is_empty() {
                self.create()?;
                self.counts.mixed_created += 1;
            } else {
                self.delete()?;
                self.counts.mixed_deleted += 1;
            }
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        let (low, high) = self.mark.size;
        let size = self.rng.random_range(low..=high.max(low));
        let name = match self.mark.subdirectories {
            0 => format!("{}", self.made),
            dirs => format!("s{}/{}", self.rng.random_range(0..dirs), self.made),
        };
        self.made += 1;
        let target = self.target;
        let file = self.timings.time(Op::Create, || target.create(&name))?;
        self.write(&*file, 0, size)?;
        self.close(file)?;
        self.counts.created += 1;
        self.files.push(Known { name, size });
        Ok(())
    }

    fn write(
        &mut self,
        file: &dyn crate::target::TargetFile,
        from: u64,
        size: u64,
    ) -> io::Result<()> {
        let (data, timings) = (&self.data, &mut self.timings);
        pieces(from, size, data.len(), |at, len| {
            timings.time(Op::Write, || file.write_at(&data[..len], at))
        })?;
        self.counts.bytes_written += size;
        Ok(())
    }

    fn close(&mut self, file: Box<dyn crate::target::TargetFile>) -> io::Result<()> {
        self.timings.time(Op::Close, || {
            drop(file);
            Ok(())
        })
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let (target, known) = (self.target, &self.files[at]);
        let file = self.timings.time(Op::Open, || target.open(&known.name))?;
        let mut offset = 0;
        loop {
            let buf = &mut self.buf[..];
            match self.timings.time(Op::Read, || file.read_at(buf, offset))? {
                0 => break,
                n => offset += n as u64,
            }
        }
        if offset != known.size {
            return Err(io::Error::other(format!(
                "{} has {offset} bytes, not {}",
                known.name, known.size
            )));
        }
        self.counts.bytes_read += offset;
        self.counts.read += 1;
        self.close(file)
    }

    /// Makes a file longer by a random size, but never longer than the largest file.
    fn append(&mut self, at: usize) -> io::Result<()> {
        let (target, known) = (self.target, &self.files[at]);
        let old = known.size;
        let room = self.mark.size.1.saturating_sub(old);
        if room == 0 {
            return Ok(());
        }
        let file = self.timings.time(Op::Open, || target.open(&known.name))?;
        let more = self.rng.random_range(1..=room);
        self.write(&*file, old, more)?;
        self.files[at].size += more;
        self.counts.appended += 1;
        self.close(file)
    }

    fn delete(&mut self) -> io::Result<()> {
        let at = self.rng.random_range(0..self.files.len());
        let known = self.files.swap_remove(at);
        let target = self.target;
        self.timings.time(Op::Remove, || target.remove(&known.name))
    }

    fn figures(
        &self,
        done: u64,
        total: Duration,
        creation: Duration,
        in_transactions: Duration,
        deletion: Duration,
    ) -> Vec<Figure> {
        let c = &self.counts;
        let per = |n: u64, time: Duration| n as f64 / time.as_secs_f64().max(1e-9);
        let values = [
            total.as_secs_f64(),
            in_transactions.as_secs_f64(),
            per(done, in_transactions),
            per(c.created, total),
            per(c.created - c.mixed_created, creation),
            per(c.mixed_created, in_transactions),
            per(c.read, in_transactions),
            per(c.appended, in_transactions),
            per(c.deleted + c.mixed_deleted, total),
            per(c.deleted, deletion),
            per(c.mixed_deleted, in_transactions),
            per(c.bytes_read, total),
            per(c.bytes_written, total),
        ];
        FIGURES.into_iter().zip(values).map(|(name, value)| Figure { name, value }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::recorder::Recorder;

    #[test]
    fn everything_made_is_removed_and_counted() {
        let target = Recorder::default();
        let mark =
            PostMark { number: 20, transactions: 100, subdirectories: 3, ..PostMark::default() };
        let outcome = mark.run(&target, &Limits::default()).unwrap();
        assert_eq!((outcome.done, target.files(), target.count("mkdir")), (100, 0, 3));
        assert_eq!(target.count("create"), target.count("remove"));
        let times = |op| outcome.timings.of(op).map_or(0, |t| t.count);
        assert_eq!(times(Op::Create) as usize, target.count("create"));
        // Half of the transactions make or remove; half read or append.
        let mixed = target.count("create") - 20;
        assert!((30..70).contains(&mixed), "{mixed} of 100 made a file");
        assert!((80..=100).contains(&target.count("open")), "{}", target.count("open"));
        assert_eq!(outcome.figures.len(), 13);
        assert!(outcome.written > 20 * 500 && outcome.read > 0);
    }

    #[test]
    fn biases() {
        let count = |mark: PostMark| {
            let target = Recorder::default();
            mark.run(&target, &Limits::default()).unwrap();
            (target.count("open"), target.count("read"), target.count("create"))
        };
        let mark = PostMark { number: 5, transactions: 30, read: 100_000, ..PostMark::default() };
        let (opens, reads, creates) =
            count(PostMark { bias_read: 10, bias_create: -1, ..mark.clone() });
        assert_eq!(
            (opens, reads, creates),
            (30, 60, 5),
            "reads only, each ends with an empty read"
        );
        let (opens, reads, creates) = count(PostMark { bias_read: -1, bias_create: 10, ..mark });
        assert_eq!((opens, reads, creates), (0, 0, 35));
    }

    #[test]
    fn the_same_seed_does_the_same() {
        let calls = |seed| {
            let target = Recorder::default();
            let mark = PostMark { number: 5, transactions: 20, seed, ..PostMark::default() };
            mark.run(&target, &Limits::default()).unwrap();
            target.calls()
        };
        assert_eq!(calls(1), calls(1));
        assert_ne!(calls(1), calls(2));
    }
}
