//! `async-checkpoint`: `fs_mark -D 16 -t 32 -s 4096 -N 256 -k` in every sync mode, with a small log
//! that wraps all the time.
//!
//! Without `async_checkpoint` an operation that finds the log full writes old transactions home
//! itself, while it has its inode locked and others queue behind it. With it the log should never
//! be full. So the waits for log space and the time to start a handle are shown beside files per
//! second. Numbers of transactions are per 1000 files, since runs end by time.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::NOISE;
use super::fsync_batching::Backend;
use crate::Result;
use crate::contender::Medium;
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::versus::{Benchmark, Conduct, Run, Step, Summary};
use crate::workload::{FsMark, SyncMode, Workload as _, positive, seconds};

/// Parameters.
#[derive(Clone, Debug, Args)]
pub struct AsyncCheckpoint {
    /// Sync modes of fs_mark.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0,1,2,3,4,5,6",
        value_parser = SyncMode::parse
    )]
    pub modes: Vec<SyncMode>,
    /// Threads.
    #[arg(long, default_value_t = 32, value_parser = positive::<u32>)]
    pub threads: u32,
    /// Files per thread and loop: what follows a loop (modes 2 to 6) is done that often. With more
    /// than 250 of 32 threads, writeback begins in the middle of a loop, and what it has written
    /// costs no fsync: then its moment, which is chance, decides about modes 3 to 6.
    #[arg(long, default_value_t = 200, value_parser = positive::<u64>)]
    pub files: u64,
    /// async_checkpoint=PERCENT [default: that of the option].
    #[arg(long, value_name = "PERCENT")]
    pub threshold: Option<u32>,
    /// Size of the log in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    pub log: u32,
    /// Where Extol runs.
    #[arg(long = "target", value_name = "TARGET", default_value = "library")]
    pub backend: Backend,
    /// Emulated nvme, sata, raid, cloud or ramdisk; memory, image, or a block device (it is
    /// overwritten).
    #[arg(long, default_value = "nvme", value_parser = Medium::parse)]
    pub medium: Medium,
    /// Seconds per run; the loop that is under way then is cut short.
    #[arg(long, default_value = "3", value_parser = seconds)]
    pub seconds: Duration,
    /// Whole loops per run, however long they take, instead of seconds. What a loop costs changes
    /// while it runs, so parts of loops are hard to compare.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = positive::<u32>)]
    pub loops: Option<u32>,
    /// Rounds; medium, log and time are those above.
    #[arg(skip)]
    pub conduct: Conduct,
}

/// By mode: files/s without and with the patch, transactions without and with it.
const PUBLISHED: [(f64, f64, u64, u64); 7] = [
    (96898.0, 97727.0, 177, 177),
    (46780.0, 49510.0, 1_210_422, 1_053_905),
    (71072.0, 72464.0, 190, 189),
    (61977.0, 70962.0, 282_973, 88_148),
    (69796.0, 70708.0, 190, 189),
    (61523.0, 66785.0, 411_394, 280_367),
    (70129.0, 69194.0, 189, 190),
];

/// The published gain in mode 3.
const MODE_3_GAIN: f64 = 1.144;

const HANDLE_START: &str = "/journal/distributions/handle_start_ns/p999";
const SPACE_WAITS: &str = "/journal/space_waits";
const SPACE_WAIT_NS: &str = "/journal/space_wait_ns";

/// What is shown of one side.
struct Side {
    rate: Option<Spread>,
    /// Transactions per 1000 files.
    transactions: Option<f64>,
    /// Waits for log space per run, worst run.
    waits: Option<f64>,
    /// Their time in milliseconds, worst run.
    wait_ms: Option<f64>,
    /// 99.9 % of handle starts took at most so many microseconds; median run.
    start_us: Option<f64>,
}

impl Side {
    fn of(runs: &[Run]) -> Self {
        let spread =
            |value: &dyn Fn(&Run) -> Option<f64>| Spread::of(runs.iter().filter_map(value));
        Self {
            rate: spread(&|r| Some(r.outcome.rate())),
            transactions: spread(&|r| {
                Some(r.cost.transactions? as f64 * 1000.0 / r.outcome.done.max(1) as f64)
            })
            .map(|s| s.median),
            waits: spread(&|r| Some(r.grown(SPACE_WAITS)? as f64)).map(|s| s.max),
            wait_ms: spread(&|r| Some(r.grown(SPACE_WAIT_NS)? as f64 / 1e6)).map(|s| s.max),
            start_us: spread(&|r| Some(r.after.counter(HANDLE_START)? as f64 / 1000.0))
                .map(|s| s.median),
        }
    }
}

impl Benchmark for AsyncCheckpoint {
    fn begin(&mut self, conduct: Conduct) -> Result<()> {
        self.conduct = conduct;
        self.conduct.place.medium = self.medium.clone();
        self.conduct.volume.journal_mib = Some(self.log);
        self.conduct.limits.time = self.loops.is_none().then_some(self.seconds);
        Ok(())
    }

    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report> {
        let on = self
            .threshold
            .map_or("async_checkpoint".to_owned(), |t| format!("async_checkpoint={t}"));
        let contenders = [self.backend.with("noasync_checkpoint"), self.backend.with(&on)];
        let mut report = Report::new("async-checkpoint");
        report.set("load", self.load(SyncMode::None).settings().replace("-S 0", "-S MODE"));
        self.conduct.describe(&mut report);
        report.set("compared", format!("noasync_checkpoint and {on}"));
        report.set(
            "published",
            "Xiaoguang Wang, \"ext4: add async_checkpoint mount option\", September 2019, an NVMe",
        );

        let mut rates = Table::new(
            "files/s",
            &[
                "mode",
                "published without",
                "with",
                "with/without",
                "noasync",
                "async",
                "async/noasync",
                "min",
                "max",
            ],
        );
        let mut costs = Table::new(
            "what operations waited for",
            &[
                "mode",
                "space waits noasync",
                "async",
                "ms noasync",
                "ms async",
                "handle start p99.9 us noasync",
                "us async",
                "async/noasync",
                "transactions per 1000 files noasync",
                "per 1000 async",
                "published with/without",
            ],
        );
        let per_mode = u64::from(self.conduct.rounds) * 2;
        let mut results = Vec::new();
        let (mut plain, mut async_rates) = (Vec::new(), Vec::new());
        for (n, mode) in self.modes.iter().enumerate() {
            let mut told = |step: &Step| {
                progress(&Step {
                    done: n as u64 * per_mode + step.done,
                    total: self.modes.len() as u64 * per_mode,
                    what: format!("mode {}: {}", mode.number(), step.what),
                });
            };
            let runs = self.conduct.take_turns(&contenders, &self.load(*mode), &mut told)?;
            let summaries: Vec<Summary> = contenders
                .iter()
                .zip(&runs)
                .map(|(c, r)| Summary::of(c.name(), r, &runs[0]))
                .collect();
            let sides = [Side::of(&runs[0]), Side::of(&runs[1])];
            plain.push(sides[0].rate.map(|r| r.median));
            async_rates.push(sides[1].rate.map(|r| r.median));
            results.push(json!({
                "mode": mode.number(),
                "contenders": summaries,
                "space_waits": [sides[0].waits, sides[1].waits],
                "space_wait_ms": [sides[0].wait_ms, sides[1].wait_ms],
                "handle_start_p999_us": [sides[0].start_us, sides[1].start_us],
            }));
            Self::add_rows(&mut report, &mut rates, &mut costs, *mode, &sides, summaries[1].ratio);
        }
        report.results = json!({ "modes": results });
        report.tables.extend([rates, costs]);
        let seed = |value: fn(&(f64, f64, u64, u64)) -> f64| {
            self.modes.iter().map(|m| PUBLISHED.get(usize::from(m.number())).map(value)).collect()
        };
        report.charts.push(Chart {
            title: "files per second".into(),
            x: "sync mode of fs_mark".into(),
            y: "files per second".into(),
            places: self.modes.iter().map(|m| format!("mode {}", m.number())).collect(),
            series: vec![
                ("noasync_checkpoint".into(), plain),
                (on, async_rates),
                ("published without".into(), seed(|p| p.0)),
                ("published with".into(), seed(|p| p.1)),
            ],
            log: false,
        });
        Ok(report)
    }
}

impl AsyncCheckpoint {
    fn load(&self, sync: SyncMode) -> FsMark {
        FsMark {
            threads: self.threads,
            size: 4096,
            files: self.files,
            dirs: 16,
            per_dir: 256,
            sync,
            keep: true,
            loops: self.loops.unwrap_or(1),
            ..FsMark::default()
        }
    }

    fn add_rows(
        report: &mut Report,
        rates: &mut Table,
        costs: &mut Table,
        mode: SyncMode,
        [off, on]: &[Side; 2],
        ratio: Option<Spread>,
    ) {
        let number = mode.number();
        let seed = PUBLISHED[usize::from(number)];
        let wanted = if number == 3 { MODE_3_GAIN } else { 1.0 - NOISE };
        let quotient =
            |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b).filter(|q| q.is_finite());
        let starts = quotient(on.start_us, off.start_us);
        let transactions = quotient(on.transactions, off.transactions);
        let median = ratio.map(|r| r.median);
        rates.row(vec![
            Cell::number(f64::from(number), 0),
            Cell::number(seed.0, 0),
            Cell::number(seed.1, 0),
            Cell::number(seed.1 / seed.0, 3),
            Cell::number(off.rate.map(|r| r.median), 0),
            Cell::number(on.rate.map(|r| r.median), 0),
            Cell::number(median, 3).missed_if(median.is_some_and(|m| m < wanted)),
            Cell::number(ratio.map(|r| r.min), 3),
            Cell::number(ratio.map(|r| r.max), 3),
        ]);
        costs.row(vec![
            Cell::number(f64::from(number), 0),
            Cell::number(off.waits, 0),
            Cell::number(on.waits, 0).missed_if(on.waits.is_some_and(|w| w > 0.0)),
            Cell::number(off.wait_ms, 1),
            Cell::number(on.wait_ms, 1),
            Cell::number(off.start_us, 1),
            Cell::number(on.start_us, 1),
            Cell::number(starts, 3).missed_if(starts.is_some_and(|s| s > 0.1)),
            Cell::number(off.transactions, 2),
            Cell::number(on.transactions, 2)
                .missed_if(transactions.is_some_and(|t| t > 1.0 + NOISE)),
            Cell::number(seed.3 as f64 / seed.2 as f64, 3),
        ]);
        let mut goal =
            |value: Option<f64>, make: &dyn Fn(f64) -> Goal| report.goals.extend(value.map(make));
        goal(median, &|m| {
            Goal::at_least(format!("mode {number}: files/s, async / noasync"), m, wanted)
        });
        goal(on.waits, &|w| {
            Goal::at_most(format!("mode {number}: waits for log space with async"), w, 0.0)
        });
        goal(starts, &|s| {
            Goal::at_most(format!("mode {number}: p99.9 of handle start, async / noasync"), s, 0.1)
        });
        goal(transactions, &|t| {
            Goal::at_most(
                format!("mode {number}: transactions per file, async / noasync"),
                t,
                1.0 + NOISE,
            )
        });
    }
}
