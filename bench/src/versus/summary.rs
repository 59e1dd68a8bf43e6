//! All rounds of a contender in a few numbers, and what a report shows of them.

use serde::Serialize;
use serde_json::json;

use super::{PhaseSummary, Run, note_late, phases};
use crate::report::{Cell, Chart, Report, Table};
use crate::spread::Spread;
use crate::workload::{OpTimes, Timings};

/// All rounds of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Of the contender.
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
    /// Its phases, if it has any.
    pub phases: Vec<PhaseSummary>,
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
            phases: PhaseSummary::all(runs, first),
        }
    }
}

/// Tables and pictures of summaries.
pub(super) fn fill(report: &mut Report, summaries: &[Summary]) {
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
    let mut latency = Table::new(
        "latency in us",
        &["target", "call", "count", "mean", "p50", "p99", "p99.9", "max"],
    );
    let mut figures =
        Table::new("figures of the load", &["target", "figure", "median", "min", "max"]);
    for s in summaries {
        let spread = |s: Option<Spread>, digits: usize| {
            [s.map(|s| s.median), s.map(|s| s.min), s.map(|s| s.max)]
                .map(|v| Cell::number(v, digits))
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
            let mut row = vec![name(), t.op.name().into(), Cell::number(t.count as f64, 0)];
            row.extend([t.mean_ns, t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns].map(Cell::micros));
            latency.row(row);
        }
        for (figure, values) in &s.figures {
            figures.row([vec![name(), Cell::from(*figure)], spread(*values, 2).into()].concat());
        }
        note_late(report, &s.name, s.per_unit.medium_late);
    }
    let by_phase = phases::tables(summaries);
    let tables = by_phase.into_iter().chain([rates, costs, latency, figures]);
    report.tables.extend(tables.filter(|t| !t.rows.is_empty()));
    report.charts = phases::chart(summaries).into_iter().chain(charts(unit, summaries)).collect();
}

fn charts(unit: &str, summaries: &[Summary]) -> Vec<Chart> {
    let places: Vec<String> = summaries.iter().map(|s| s.name.clone()).collect();
    let rate = |value: fn(Spread) -> f64| summaries.iter().map(|s| s.rate.map(value)).collect();
    let mut series = vec![("median".to_owned(), rate(|s| s.median))];
    // Of one round all three are the same.
    if summaries.iter().filter_map(|s| s.rate).any(|rate| rate.min < rate.max) {
        series.push(("min".into(), rate(|s| s.min)));
        series.push(("max".into(), rate(|s| s.max)));
    }
    let rates = Chart {
        title: format!("{unit} per second"),
        x: "target".into(),
        y: format!("{unit} per second"),
        places,
        series,
        log: false,
    };
    let mut ops: Vec<_> = summaries.iter().flat_map(|s| s.latency.iter().map(|t| t.op)).collect();
    ops.sort_unstable();
    ops.dedup();
    let latency = ops.into_iter().map(|op| Chart {
        title: format!("latency of {}", op.name()),
        x: "percentile".into(),
        y: "latency in µs".into(),
        places: ["p50", "p99", "p99.9", "max"].map(str::to_owned).into(),
        series: summaries
            .iter()
            .filter_map(|s| s.latency.iter().find(|t| t.op == op).map(|t| (s, t)))
            .map(|(s, t)| {
                let us =
                    [t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns].map(|ns| Some(ns as f64 / 1000.0));
                (s.name.clone(), us.into())
            })
            .collect(),
        log: true,
    });
    std::iter::once(rates).chain(latency).collect()
}
