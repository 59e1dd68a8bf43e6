//! Contenders take turns at one load: A B, B A, A B …
//!
//! Each run is on a fresh volume. The rate of a contender is the median of its rounds; its ratio to the first contender is
//! taken round by round, so that a machine that gets slower while it is measured changes the rates, but not the ratio.
//! Latencies of all rounds are put into one histogram.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::contender::{Contender, Cost, KernelFast, Place, Reading, Session, VolumeSpec};
use crate::report::{Cell, Chart, Report, Table};
use crate::spread::Spread;
use crate::workload::{Limits, Op, OpTimes, Outcome, Timings, Workload};
use crate::{BenchError, Result};

/// How far a benchmark is.
#[derive(Clone, Debug)]
pub struct Step {
    /// Runs done.
    pub done: u64,
    /// Runs in all.
    pub total: u64,
    /// What runs now.
    pub what: String,
}

/// Where, how often and how long.
#[derive(Clone, Debug)]
pub struct Conduct {
    /// Medium and directories.
    pub place: Place,
    /// The volume of each run.
    pub volume: VolumeSpec,
    /// Rounds.
    pub rounds: u32,
    /// Limits of each run.
    pub limits: Limits,
}

/// A contender on a kind of volume of its own.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How it is called in tables.
    pub name: String,
    /// Who.
    pub contender: Contender,
    /// Features that its volume has beyond the others' (`-O`).
    pub features: Vec<String>,
}

impl Entry {
    /// All of it.
    #[must_use]
    pub fn new(name: impl Into<String>, contender: Contender, features: &[&str]) -> Self {
        Self { name: name.into(), contender, features: features.iter().map(|f| (*f).to_owned()).collect() }
    }
}

/// One run of one contender.
#[derive(Clone, Debug)]
pub struct Run {
    /// What the load did.
    pub outcome: Outcome,
    /// What it cost.
    pub cost: Cost,
    /// Counters before the load.
    pub before: Reading,
    /// Counters after it.
    pub after: Reading,
    /// What the unmount took: the delayed work.
    pub unmount: Duration,
}

impl Run {
    /// The kernel's fast commits, on volumes that have them.
    #[must_use]
    pub fn kernel_fast(&self) -> Option<KernelFast> {
        Some(self.after.kernel_fast?.since(self.before.kernel_fast?))
    }

    /// Calls of fsync and fdatasync.
    #[must_use]
    pub fn fsyncs(&self) -> u64 {
        [Op::Fsync, Op::FsyncBeside]
            .iter()
            .filter_map(|op| self.outcome.timings.of(*op))
            .map(|t| t.count)
            .sum()
    }

    /// By how much a counter of Extol's grew.
    #[must_use]
    pub fn grown(&self, pointer: &str) -> Option<u64> {
        Some(self.after.counter(pointer)?.saturating_sub(self.before.counter(pointer)?))
    }
}

impl Conduct {
    /// One run on a fresh volume.
    ///
    /// # Errors
    /// If the volume cannot be made or mounted, or the load fails.
    pub fn run(&self, contender: &Contender, load: &dyn Workload) -> Result<Run> {
        self.run_when(contender, load, &|_| Ok(()))
    }

    /// The same; the load begins when `ready` returns.
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of `ready`.
    pub fn run_when(
        &self,
        contender: &Contender,
        load: &dyn Workload,
        ready: &dyn Fn(&Session) -> Result<()>,
    ) -> Result<Run> {
        let about = |e: String| BenchError(format!("{} on {}: {e}", load.name(), contender.name()));
        let session = Session::start(contender, &self.place, &self.volume).map_err(|e| about(e.0))?;
        ready(&session)?;
        let before = session.reading();
        let outcome = load.run(&**session.target(), &self.limits).map_err(|e| match e.kind() {
            std::io::ErrorKind::Interrupted => BenchError("interrupted".into()),
            _ => about(e.to_string()),
        })?;
        let after = session.reading();
        let began = Instant::now();
        session.finish().map_err(|e| about(e.0))?;
        Ok(Run { outcome, cost: after.since(&before), before, after, unmount: began.elapsed() })
    }

    /// All rounds: `[contender][round]`. `progress` is told before each run.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn take_turns(
        &self,
        contenders: &[Contender],
        load: &dyn Workload,
        progress: &mut dyn FnMut(&Step),
    ) -> Result<Vec<Vec<Run>>> {
        let entries: Vec<Entry> = contenders.iter().map(|c| Entry::new(c.name(), c.clone(), &[])).collect();
        self.take_turns_of(&entries, load, progress)
    }

    /// The same for contenders whose volumes differ.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn take_turns_of(
        &self,
        entries: &[Entry],
        load: &dyn Workload,
        progress: &mut dyn FnMut(&Step),
    ) -> Result<Vec<Vec<Run>>> {
        let mut runs: Vec<Vec<Run>> = entries.iter().map(|_| Vec::new()).collect();
        let total = u64::from(self.rounds) * entries.len() as u64;
        let mut done = 0;
        for round in 0..self.rounds {
            // Nobody is always the first, or always follows the same one.
            let mut order: Vec<usize> = (0..entries.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for n in order {
                let entry = &entries[n];
                let what = format!("{} round {}: {}", load.name(), round + 1, entry.name);
                progress(&Step { done, total, what });
                let mut conduct = self.clone();
                conduct.volume.features.extend(entry.features.iter().cloned());
                runs[n].push(conduct.run(&entry.contender, load)?);
                done += 1;
            }
        }
        Ok(runs)
    }

    /// All rounds of one load, as a report.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn report(
        &self,
        contenders: &[Contender],
        load: &dyn Workload,
        progress: &mut dyn FnMut(&Step),
    ) -> Result<Report> {
        let mut report = Report::new(load.name());
        report.set("load", load.settings());
        self.describe(&mut report);
        let runs = self.take_turns(contenders, load, progress)?;
        let summaries: Vec<Summary> =
            contenders.iter().zip(&runs).map(|(c, r)| Summary::of(c.name(), r, &runs[0])).collect();
        fill(&mut report, &summaries);
        Ok(report)
    }

    /// Medium, volume and rounds.
    pub fn describe(&self, report: &mut Report) {
        report.set("medium", self.place.medium.to_string());
        let log =
            self.volume.journal_mib.map_or("log of mkfs's choice".into(), |m| format!("log of {m} MiB"));
        report.set("volume", format!("{} MiB, {log}, made afresh for each run", self.volume.size >> 20));
        let time = self.limits.time.map_or(String::new(), |t| format!(", {} s each", t.as_secs_f64()));
        report.set("rounds", format!("{}{time}, contenders in turn; medians", self.rounds));
    }
}

/// All rounds of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Who.
    pub name: String,
    /// What is counted.
    pub unit: &'static str,
    /// Units per second.
    pub rate: Option<Spread>,
    /// The same, divided by the first contender's of the same round.
    pub ratio: Option<Spread>,
    /// Percentiles over all rounds.
    pub latency: Vec<OpTimes>,
    /// Medians of what one unit cost.
    pub per_unit: PerUnit,
    /// Median time of the unmount in seconds.
    pub unmount: Option<Spread>,
    /// Medians of the load's own figures.
    pub figures: Vec<(&'static str, Option<Spread>)>,
}

/// What one unit of work cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PerUnit {
    /// Processor time of this process and the daemon in microseconds.
    pub cpu_us: Option<f64>,
    /// Bytes written to the device.
    pub device_bytes: Option<f64>,
    /// Write requests.
    pub device_writes: Option<f64>,
    /// Flushes, and durable writes.
    pub flushes: Option<f64>,
    /// Transactions.
    pub transactions: Option<f64>,
    /// By what part an emulated medium was late.
    pub medium_late: Option<f64>,
}

impl Summary {
    /// Of the rounds of one contender; `first` are those to compare with.
    #[must_use]
    pub fn of(name: String, runs: &[Run], first: &[Run]) -> Self {
        let rates = |runs: &[Run]| runs.iter().map(|r| r.outcome.rate()).collect::<Vec<_>>();
        let mut timings = Timings::default();
        runs.iter().for_each(|r| timings.add(&r.outcome.timings));
        let median = |value: &dyn Fn(&Run) -> Option<f64>| {
            let done = |r: &Run| r.outcome.done.max(1) as f64;
            Spread::of(runs.iter().filter_map(|r| Some(value(r)? / done(r)))).map(|s| s.median)
        };
        let figures = runs.first().map_or(Vec::new(), |r| r.outcome.figures.clone());
        Self {
            name,
            unit: runs.first().map_or("units", |r| r.outcome.unit),
            rate: Spread::of(rates(runs)),
            ratio: Spread::of_ratios(&rates(runs), &rates(first)),
            latency: timings.all(),
            per_unit: PerUnit {
                cpu_us: median(&|r| Some(r.cost.cpu_ns as f64 / 1000.0)),
                device_bytes: median(&|r| Some(r.cost.device?.write_bytes as f64)),
                device_writes: median(&|r| Some(r.cost.device?.writes as f64)),
                flushes: median(&|r| Some(r.cost.device?.flushes as f64)),
                transactions: median(&|r| Some(r.cost.transactions? as f64)),
                medium_late: Spread::of(runs.iter().filter_map(|r| r.cost.late)).map(|s| s.median),
            },
            unmount: Spread::of(runs.iter().map(|r| r.unmount.as_secs_f64())),
            figures: figures
                .iter()
                .map(|f| (f.name, Spread::of(runs.iter().filter_map(|r| r.outcome.figure(f.name)))))
                .collect(),
        }
    }
}

/// Tables and pictures of summaries.
fn fill(report: &mut Report, summaries: &[Summary]) {
    report.results = json!({ "contenders": summaries });
    let unit = summaries.first().map_or("units", |s| s.unit);
    let first = summaries.first().map_or(String::new(), |s| s.name.clone());
    let mut rates = Table::new(
        format!("{unit} per second"),
        &["target", "median", "min", "max", &format!("/ {first}"), "min ", "max "],
    );
    let mut costs = Table::new(
        format!("cost of one of the {unit}"),
        &["target", "CPU us", "bytes to device", "writes", "flushes", "transactions", "unmount s"],
    );
    let mut latency =
        Table::new("latency in us", &["target", "call", "count", "mean", "p50", "p99", "p99.9", "max"]);
    let mut figures = Table::new("figures of the load", &["target", "figure", "median", "min", "max"]);
    for s in summaries {
        let spread = |s: Option<Spread>, digits: usize| {
            [s.map(|s| s.median), s.map(|s| s.min), s.map(|s| s.max)].map(|v| Cell::number(v, digits))
        };
        let name = || Cell::from(s.name.as_str());
        rates.row([vec![name()], spread(s.rate, 1).into(), spread(s.ratio, 3).into()].concat());
        costs.row(vec![
            name(),
            Cell::number(s.per_unit.cpu_us, 1),
            Cell::number(s.per_unit.device_bytes, 0),
            Cell::number(s.per_unit.device_writes, 2),
            Cell::number(s.per_unit.flushes, 3),
            Cell::number(s.per_unit.transactions, 3),
            Cell::number(s.unmount.map(|u| u.median), 2),
        ]);
        for t in &s.latency {
            let op = serde_json::to_value(t.op).ok().and_then(|v| v.as_str().map(str::to_owned));
            let mut row = vec![name(), op.unwrap_or_default().into(), Cell::number(t.count as f64, 0)];
            row.extend([t.mean_ns, t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns].map(Cell::micros));
            latency.row(row);
        }
        for (figure, values) in &s.figures {
            figures.row([vec![name(), Cell::from(*figure)], spread(*values, 2).into()].concat());
        }
        if let Some(late) = s.per_unit.medium_late.filter(|late| *late > 0.05) {
            report.notes.push(format!(
                "{}: the emulated medium came back {:.0} % later than it should; this machine is too slow or too busy for it",
                s.name,
                late * 100.0
            ));
        }
    }
    report.tables.extend([rates, costs, latency, figures].into_iter().filter(|t| !t.rows.is_empty()));
    report.charts = charts(unit, summaries);
}

fn charts(unit: &str, summaries: &[Summary]) -> Vec<Chart> {
    let places: Vec<String> = summaries.iter().map(|s| s.name.clone()).collect();
    let rate = |value: fn(Spread) -> f64| summaries.iter().map(|s| s.rate.map(value)).collect();
    let rates = Chart {
        title: format!("{unit} per second"),
        x: "target".into(),
        y: format!("{unit}/s"),
        places,
        series: vec![
            ("median".into(), rate(|s| s.median)),
            ("min".into(), rate(|s| s.min)),
            ("max".into(), rate(|s| s.max)),
        ],
        log: false,
    };
    let mut ops: Vec<_> = summaries.iter().flat_map(|s| s.latency.iter().map(|t| t.op)).collect();
    ops.sort_unstable();
    ops.dedup();
    let latency = ops.into_iter().map(|op| Chart {
        title: format!("latency of {}", serde_json::to_value(op).unwrap_or_default().as_str().unwrap_or("")),
        x: "percentile".into(),
        y: "us".into(),
        places: ["p50", "p99", "p99.9", "max"].map(str::to_owned).into(),
        series: summaries
            .iter()
            .filter_map(|s| s.latency.iter().find(|t| t.op == op).map(|t| (s, t)))
            .map(|(s, t)| {
                let us = [t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns].map(|ns| Some(ns as f64 / 1000.0));
                (s.name.clone(), us.into())
            })
            .collect(),
        log: true,
    });
    std::iter::once(rates).chain(latency).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Medium;
    use crate::workload::{FsMark, FsyncLatency, PostMark, VarMail};

    fn conduct(dir: &std::path::Path, rounds: u32) -> Conduct {
        Conduct {
            place: Place { medium: Medium::Memory, dir: dir.into(), extol: "extol".into() },
            volume: VolumeSpec { size: 64 << 20, journal_mib: Some(4), ..VolumeSpec::default() },
            rounds,
            limits: Limits::default(),
        }
    }

    /// Each load runs on the library, is measured and reported.
    #[test]
    fn every_load_on_the_library() {
        let scratch = tempfile::tempdir().unwrap();
        let loads: [(Box<dyn Workload>, u64); 4] = [
            (Box::new(FsMark { threads: 2, files: 5, size: 4096, ..FsMark::default() }), 10),
            (Box::new(PostMark { number: 10, transactions: 20, ..PostMark::default() }), 20),
            (Box::new(VarMail { threads: 2, files: 10, loops: 2, ..VarMail::default() }), 52),
            (Box::new(FsyncLatency { calls: 5, writer_size: 4 << 20, ..FsyncLatency::default() }), 10),
        ];
        for (load, done) in loads {
            let run = conduct(scratch.path(), 1).run(&Contender::Library(String::new()), &*load).unwrap();
            assert_eq!(run.outcome.done, done, "{}", load.name());
            assert!(run.grown("/operations").unwrap() > 10 && run.cost.transactions.is_some());
        }
    }

    #[test]
    fn two_take_turns_and_are_compared() {
        let scratch = tempfile::tempdir().unwrap();
        let contenders = ["library", "library:commit=30"].map(|t| Contender::parse(t).unwrap());
        let load = FsMark { files: 3, size: 100, ..FsMark::default() };
        let mut order = Vec::new();
        let report = conduct(scratch.path(), 2)
            .report(&contenders, &load, &mut |step| order.push((step.done, step.total, step.what.clone())))
            .unwrap();
        let want: Vec<(u64, u64, String)> =
            ["1: library", "1: library:commit=30", "2: library:commit=30", "2: library"]
                .iter()
                .enumerate()
                .map(|(n, w)| (n as u64, 4, format!("fsmark round {w}")))
                .collect();
        assert_eq!(order, want);
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        for pointer in [
            "/results/contenders/0/rate/median",
            "/results/contenders/1/ratio/min",
            "/results/contenders/0/per_unit/flushes",
            "/results/contenders/0/per_unit/cpu_us",
            "/results/contenders/0/latency/0/p999_ns",
        ] {
            assert!(json.pointer(pointer).is_some_and(serde_json::Value::is_number), "{pointer} {json:#}");
        }
        assert_eq!(json.pointer("/results/contenders/0/ratio/median"), Some(&1.0.into()));
        let text = report.text();
        assert!(text.contains("medium: memory") && text.contains("library:commit=30"), "{text}");
        assert!(report.html().matches("<svg").count() >= 2);
    }
}
