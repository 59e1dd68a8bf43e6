//! `checkpoint-merge`: what a throttled caller of sync costs the others.
//!
//! Three threads on one volume: A touches a file and syncs the whole volume, 1000 times; B writes a
//! file in pieces of 128 KiB without pause and without sync; C does what A does, but its device
//! requests are held back ([`Throttle`]). Without merging, a sync that C makes is made by C, at C's
//! speed, and A waits for it. The time of A is measured, with `checkpoint=nomerge` and
//! `checkpoint=merge` in turn, for several weights of C.
//!
//! Then 100 threads that have something to sync ask for it at the same moment; counted is how many
//! checkpoints that costs.
//!
//! Only the library is measured: it does device requests in the thread that asked. Behind a FUSE
//! mount all requests are the daemon's, whatever process called.

use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::throttle::{Active, Slowed, Throttle, use_bfq};
use crate::contender::{Contender, Medium, Session};
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::target::Target;
use crate::versus::{Benchmark, Conduct, Step};
use crate::workload::{Footprint, on_threads, positive, seconds};
use crate::{BenchError, Result};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct CheckpointMerge {
    /// Syncs of the foreground thread.
    #[arg(long, default_value_t = 1000, value_parser = positive::<u64>)]
    pub syncs: u64,
    /// Weights of the throttled thread; other threads have 100.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100,20,5",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub weights: Vec<u32>,
    /// How it is throttled: auto, cgroup, ionice or model.
    #[arg(long, default_value = "auto", value_parser = Throttle::parse)]
    pub throttle: Throttle,
    /// Threads that ask at the same moment.
    #[arg(long, default_value_t = 100, value_parser = positive::<u32>)]
    pub concurrent: u32,
    /// Bytes that the writer goes over.
    #[arg(skip = 128_u64 << 20)]
    pub writer_size: u64,
    /// image, memory, a block device (it is overwritten), or an emulated nvme, sata, raid, cloud or
    /// ramdisk (model only).
    #[arg(long, default_value = "image", value_parser = Medium::parse)]
    pub medium: Medium,
    /// End a run of the foreground thread after so many seconds; its time is scaled to 1000 syncs.
    #[arg(long, default_value = "60", value_parser = seconds)]
    pub seconds: Duration,
    /// Volume and rounds; medium and time are those above.
    #[arg(skip)]
    pub conduct: Conduct,
}

/// Seconds without and with the patch, at weight 20 against 100.
const PUBLISHED: (f64, f64) = (68.0, 48.0);
const PUBLISHED_WEIGHT: u32 = 20;
/// The wanted share of the unmerged time at that weight and below.
const SHARE: f64 = 0.70;
/// The most at any other.
const NO_SLOWER: f64 = 1.05;
/// Concurrent requests may cost so many checkpoints.
const CHECKPOINTS: f64 = 3.0;
/// Times of different weights are the same if they differ by no more.
const SAME: f64 = 1.10;

const MODES: [&str; 2] = ["nomerge", "merge"];

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    /// Seconds that 1000 syncs of the foreground take.
    seconds: f64,
    /// Seconds that the run took.
    elapsed: f64,
    /// Syncs that the throttled thread had done meanwhile.
    throttled: u64,
    /// Bytes that the writer had written.
    written: u64,
    /// Transactions meanwhile.
    transactions: Option<u64>,
}

/// What many requests at the same moment cost.
#[derive(Clone, Copy, Debug, Serialize)]
struct AtOnce {
    /// Transactions committed.
    transactions: Option<u64>,
    /// Requests that the issuing thread carried out.
    issued: Option<u64>,
}

impl AtOnce {
    /// The larger number.
    fn cost(self) -> Option<f64> {
        self.transactions.max(self.issued).map(|n| n as f64)
    }
}

impl Benchmark for CheckpointMerge {
    fn begin(&mut self, conduct: Conduct) -> Result<()> {
        self.conduct = conduct;
        self.conduct.place.medium = self.medium.clone();
        self.conduct.limits.time = Some(self.seconds);
        Ok(())
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        if self.weights.is_empty() || self.syncs == 0 {
            return Err(BenchError("give at least one weight and one sync".into()));
        }
        let needs = Footprint {
            bytes: self.writer_size,
            files: u64::from(self.concurrent).saturating_add(3),
        };
        self.conduct.place.check_room(&Contender::Raw, "checkpoint-merge", needs)?;
        self.conduct.volume.check_room("checkpoint-merge", needs)?;
        let mut report = Report::new("checkpoint-merge");
        report.set(
            "load",
            format!("touch + sync {} times, beside a throttled one and a writer", self.syncs),
        );
        self.conduct.describe(&mut report);
        report.set("throttle", self.throttle.describe());
        report.set(
            "published",
            "Daeho Jeong, \"f2fs: introduce checkpoint=merge mount option\", \
            January 2021: BFQ, weights 100 and 20",
        );
        let total = u64::from(self.conduct.rounds) * self.weights.len() as u64 * 2 + 2;
        let mut done = 0;
        // [weight][mode][round]
        let mut samples: Vec<[Vec<Sample>; 2]> =
            self.weights.iter().map(|_| [Vec::new(), Vec::new()]).collect();
        for round in 0..self.conduct.rounds {
            for (weight, samples) in self.weights.iter().zip(&mut samples) {
                for (mode, samples) in MODES.iter().zip(samples) {
                    let what = format!("round {}: weight {weight}, checkpoint={mode}", round + 1);
                    progress(&Step { done, total, what });
                    samples.push(self.one(mode, *weight)?);
                    done += 1;
                }
            }
        }
        let mut costs = Vec::new();
        for mode in MODES {
            let what = format!("{} requests at once, checkpoint={mode}", self.concurrent);
            progress(&Step { done, total, what });
            costs.push(self.at_once(mode)?);
            done += 1;
        }
        self.describe(&mut report, &samples, &costs);
        Ok(report)
    }
}

impl CheckpointMerge {
    fn session(&self, mode: &str) -> Result<Session> {
        let (place, volume) = (&self.conduct.place, &self.conduct.volume);
        let options = format!("checkpoint={mode}");
        if self.throttle.needs_node() {
            Session::library_on_node(place, volume, &options, &use_bfq)
        } else {
            Session::library_through(place, volume, &options, &|device| {
                std::sync::Arc::new(Slowed(device))
            })
        }
    }

    fn one(&self, mode: &str, weight: u32) -> Result<Sample> {
        let session = self.session(mode)?;
        let throttle = Active::new(self.throttle, weight)?;
        let before = session.reading();
        let fail = |e: io::Error| match e.kind() {
            io::ErrorKind::Interrupted => BenchError("interrupted".into()),
            _ => BenchError(format!("checkpoint={mode}: {e}")),
        };
        let sample = self.threads(&**session.target(), &throttle).map_err(fail)?;
        let cost = session.reading().since(&before);
        session.finish()?;
        Ok(Sample { transactions: cost.transactions, ..sample })
    }

    fn threads(&self, target: &dyn Target, throttle: &Active) -> io::Result<Sample> {
        for dir in ["test_dir1", "test_dir2"] {
            target.create_dir(dir)?;
        }
        let limits = &self.conduct.limits;
        let end = AtomicBool::new(false);
        let (throttled, written) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut taken = (Duration::ZERO, 0);
        let over = || end.load(Ordering::Relaxed) || limits.cancel.is_set();
        std::thread::scope(|scope| {
            let back = scope.spawn(|| {
                throttle.enter_back()?;
                while !over() {
                    target.touch("test_dir2/file")?;
                    target.sync()?;
                    throttled.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
            let writer = scope.spawn(|| {
                throttle.enter_front()?;
                self.write_on(target, &over, &written)
            });
            // In a thread of its own, so that this one never enters a group.
            let front = scope.spawn(|| {
                throttle.enter_front()?;
                let began = Instant::now();
                let mut count = 0;
                while count < self.syncs && !limits.cancel.is_set() {
                    target.touch("test_dir1/file")?;
                    target.sync()?;
                    count += 1;
                    if limits.time.is_some_and(|t| began.elapsed() > t) {
                        break;
                    }
                }
                Ok((began.elapsed(), count))
            });
            let panicked = || io::Error::other("a thread of the load panicked");
            let front: io::Result<_> = front.join().map_err(|_| panicked()).and_then(|r| r);
            end.store(true, Ordering::Relaxed);
            let others: [io::Result<()>; 2] =
                [back.join(), writer.join()].map(|r| r.map_err(|_| panicked()).and_then(|r| r));
            taken = front?;
            others.into_iter().collect::<io::Result<()>>()
        })?;
        if limits.cancel.is_set() {
            return Err(crate::workload::cancelled());
        }
        Ok(Sample {
            seconds: taken.0.as_secs_f64() * 1000.0 / taken.1.max(1) as f64,
            elapsed: taken.0.as_secs_f64(),
            throttled: throttled.into_inner(),
            written: written.into_inner(),
            transactions: None,
        })
    }

    fn write_on(
        &self,
        target: &dyn Target,
        over: &dyn Fn() -> bool,
        written: &AtomicU64,
    ) -> io::Result<()> {
        const PIECE: usize = 128 << 10;
        let data = vec![b'w'; PIECE];
        let file = target.create("test_img")?;
        let places = (self.writer_size / PIECE as u64).max(1);
        for n in 0.. {
            if over() {
                break;
            }
            file.write_at(&data, n % places * PIECE as u64)?;
            written.fetch_add(PIECE as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// What many requests at the same moment cost.
    fn at_once(&self, mode: &str) -> Result<AtOnce> {
        let session = self.session(mode)?;
        let target = &**session.target();
        let barrier = Barrier::new(self.concurrent as usize);
        let before = session.reading();
        on_threads(self.concurrent, |n| {
            let made = target.create(&format!("file{n}")).map(drop);
            barrier.wait();
            made?;
            target.sync()
        })
        .map_err(|e| BenchError(format!("checkpoint={mode}: {e}")))?;
        let after = session.reading();
        session.finish()?;
        let grown =
            |pointer| Some(after.counter(pointer)?.saturating_sub(before.counter(pointer)?));
        Ok(AtOnce {
            transactions: after.since(&before).transactions,
            issued: grown("/checkpoint_merge/issued"),
        })
    }

    fn describe(&self, report: &mut Report, samples: &[[Vec<Sample>; 2]], costs: &[AtOnce]) {
        let seconds = |runs: &[Sample]| runs.iter().map(|s| s.seconds).collect::<Vec<_>>();
        let median = |runs: &[Sample]| Spread::of(seconds(runs)).map(|s| s.median);
        let mut table = Table::new(
            "seconds for 1000 syncs of the foreground thread",
            &[
                "weight",
                "published without",
                "with",
                "with/without",
                "nomerge",
                "merge",
                "merge/nomerge",
                "min",
                "max",
                "syncs of the throttled nomerge",
                "merge ",
                "writer MB/s nomerge",
                "merge  ",
            ],
        );
        for (weight, [off, on]) in self.weights.iter().zip(samples) {
            let seed = (*weight == PUBLISHED_WEIGHT).then_some(PUBLISHED);
            let ratio = Spread::of_ratios(&seconds(on), &seconds(off));
            let at_most = if *weight <= PUBLISHED_WEIGHT { SHARE } else { NO_SLOWER };
            let throttled = |runs: &[Sample]| {
                Spread::of(runs.iter().map(|s| s.throttled as f64)).map(|s| s.median)
            };
            let writer = |runs: &[Sample]| {
                let rate = |s: &Sample| s.written as f64 / 1e6 / s.elapsed;
                Spread::of(runs.iter().map(rate)).map(|s| s.median)
            };
            table.row(vec![
                Cell::number(f64::from(*weight), 0),
                Cell::number(seed.map(|s| s.0), 0),
                Cell::number(seed.map(|s| s.1), 0),
                Cell::number(seed.map(|s| s.1 / s.0), 2),
                Cell::number(median(off), 2),
                Cell::number(median(on), 2),
                Cell::number(ratio.map(|r| r.median), 2)
                    .missed_if(ratio.is_some_and(|r| r.median > at_most)),
                Cell::number(ratio.map(|r| r.min), 2),
                Cell::number(ratio.map(|r| r.max), 2),
                Cell::number(throttled(off), 0),
                Cell::number(throttled(on), 0),
                Cell::number(writer(off), 0),
                Cell::number(writer(on), 0),
            ]);
            if let Some(ratio) = ratio {
                let mut what = format!("weight {weight}: time of the foreground, merge / nomerge");
                if seed.is_some() {
                    what += " (published: 48 / 68)";
                }
                report.goals.push(Goal::at_most(what, ratio.median, at_most));
            }
        }
        let merged: Vec<f64> = samples.iter().filter_map(|[_, on]| median(on)).collect();
        if let Some(spread) = Spread::of(merged.iter().copied()).filter(|_| merged.len() > 1) {
            let what = "merge: slowest / fastest time of the foreground over all weights";
            report.goals.push(Goal::at_most(what, spread.max / spread.min, SAME));
        }
        let mut at_once = Table::new(
            format!("{} requests at the same moment", self.concurrent),
            &["checkpoint=", "issued", "transactions"],
        );
        for (mode, cost) in MODES.iter().zip(costs) {
            let number = |n: Option<u64>| {
                let n = n.map(|n| n as f64);
                Cell::number(n, 0).missed_if(*mode == "merge" && n.is_some_and(|n| n > CHECKPOINTS))
            };
            at_once.row(vec![Cell::from(*mode), number(cost.issued), number(cost.transactions)]);
        }
        if let Some(cost) = costs.get(1).and_then(|c| c.cost()) {
            let what = format!("checkpoints for {} concurrent requests, merge", self.concurrent);
            report.goals.push(Goal::at_most(what, cost, CHECKPOINTS));
        }
        report.results = json!({
            "weights": self.weights.iter().zip(samples).map(|(weight, [off, on])| json!({
                "weight": weight, "nomerge": off, "merge": on,
                "ratio": Spread::of_ratios(&seconds(on), &seconds(off)),
            })).collect::<Vec<_>>(),
            "concurrent": { "requests": self.concurrent, "nomerge": costs.first(), "merge": costs.get(1) },
        });
        report.tables.extend([table, at_once]);
        report.charts.push(Chart {
            title: "seconds for 1000 syncs of the foreground thread".into(),
            x: "weight of the throttled thread".into(),
            y: "seconds".into(),
            places: self.weights.iter().map(u32::to_string).collect(),
            series: MODES
                .iter()
                .enumerate()
                .map(|(m, mode)| {
                    ((*mode).to_owned(), samples.iter().map(|s| median(&s[m])).collect())
                })
                .collect(),
            log: false,
        });
    }
}
