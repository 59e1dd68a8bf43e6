//! What a part showed: rates and ratios, costs, goals, a picture.

use serde_json::json;

use super::plan::THREADS;
use super::{Measured, Metric, Part, Want};
use crate::contender::Medium;
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::versus::{Run, Summary, note_late, times};
use crate::workload::Op;

/// With more threads the rate may be so much lower before it counts as falling: repeated runs
/// differ by that much.
const NOISE: f64 = 0.05;
/// The baseline's name in goals.
const NOTHING: &str = "what does nothing";

fn values(runs: &[Run], metric: Metric) -> Vec<f64> {
    runs.iter().map(|run| metric.of(run)).collect()
}

fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Spread::of(values).map(|s| s.median)
}

impl Measured {
    fn rate(&self, participant: usize, metric: Metric) -> Option<f64> {
        median(values(&self.runs[participant], metric))
    }

    /// Round by round.
    pub(super) fn ratio(&self, of: usize, to: usize, metric: Metric) -> Option<Spread> {
        Spread::of_ratios(&values(&self.runs[of], metric), &values(&self.runs[to], metric))
    }

    /// p99 of an fsync beside a writer to its p99 alone, round by round.
    fn beside(&self, participant: usize) -> Option<Spread> {
        Spread::of(self.runs[participant].iter().filter_map(|run| {
            let p99 = |op| run.outcome.timings.of(op).map(|t| t.p99_ns as f64);
            Some(p99(Op::FsyncBeside)? / p99(Op::Fsync)?)
        }))
    }

    /// Flushes and durable writes per commit, full or fast.
    fn flushes(&self, participant: usize) -> Option<f64> {
        median(self.runs[participant].iter().filter_map(|run| {
            let ours = run.grown("/journal/fast_commit/commits");
            let fast = ours.or_else(|| Some(run.kernel_fast()?.commits)).unwrap_or(0);
            let commits = run.cost.transactions? + fast;
            (commits > 0).then(|| run.cost.device.map(|d| d.flushes as f64 / commits as f64))?
        }))
    }

    pub(super) fn row(&self, metric: Metric) -> String {
        match metric {
            Metric::Rate => self.comparison.title.clone(),
            Metric::Phase(name) => format!("{}: {name}", self.comparison.title),
        }
    }

    fn unit(&self, metric: Metric) -> &'static str {
        let run = self.runs.iter().flatten().next();
        run.map_or("", |run| match metric {
            Metric::Rate => run.outcome.unit,
            Metric::Phase(name) => run.outcome.phase(name).map_or("", |p| p.unit),
        })
    }

    /// What the participant that does nothing reaches of a goal; `None` where it takes no part,
    /// or is the one to be compared with.
    fn nothing(&self, want: &Want) -> Option<f64> {
        let nothing = self.comparison.baseline()?;
        match *want {
            Want::Ratio { of, to, metric, .. } if of != nothing && to != nothing => {
                self.ratio(nothing, to, metric).map(|s| s.median)
            }
            _ => None,
        }
    }

    /// What is wanted, the measured value, and its bound.
    fn reached(&self, want: &Want, about: &str) -> (String, Option<f64>, Bound) {
        let name = |participant: usize| &self.comparison.participants[participant].entry.name;
        let title = &self.comparison.title;
        match *want {
            Want::Ratio { of, to, metric, at_least } => (
                format!("{about}, {}: {} / {}", self.row(metric), name(of), name(to)),
                self.ratio(of, to, metric).map(|s| s.median),
                Bound::AtLeast(at_least),
            ),
            Want::Beside { of, at_most } => (
                format!("{about}, {title}: p99 beside a writer / alone, {}", name(of)),
                self.beside(of).map(|s| s.median),
                Bound::AtMost(at_most),
            ),
            Want::Flushes { of, at_most } => (
                format!(
                    "{about}, {title}: flushes per group, {} (2 for a fast commit, 3 for a full \
                        one)",
                    name(of)
                ),
                self.flushes(of),
                Bound::AtMost(at_most),
            ),
        }
    }
}

enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// Adds a part on a medium to the report; gives its JSON.
pub(super) fn part(
    report: &mut Report,
    name: &str,
    part: Part,
    medium: &Medium,
    measured: &[Measured],
) -> serde_json::Value {
    let about = format!("{name}, {medium}");
    let names = names(measured);
    report.tables.push(rates(&about, &names, measured));
    if part == Part::Isolation {
        report.tables.push(latencies(&about, measured));
        report.charts.push(latency_chart(&about, measured));
    } else {
        report.charts.push(chart(&about, &names, measured));
    }
    report.tables.push(costs(&about, measured));
    goals(report, &about, measured);
    if part == Part::FsyncMount {
        threads(report, &about, measured);
    }
    note_late(
        report,
        &about,
        measured.iter().flat_map(|c| c.runs.iter().flatten().filter_map(|r| r.cost.late)),
    );
    measured.iter().map(json_of).collect()
}

/// Adds what was wanted, and whether it was reached.
fn goals(report: &mut Report, about: &str, measured: &[Measured]) {
    for comparison in measured {
        for want in &comparison.comparison.wants {
            match comparison.reached(want, about) {
                (what, None, _) => report.notes.push(format!("{what}: not measured")),
                (what, Some(measured), Bound::AtLeast(bound)) => {
                    let goal = Goal::at_least(what, measured, bound);
                    report.goals.push(goal.beside(NOTHING, comparison.nothing(want)));
                }
                (what, Some(measured), Bound::AtMost(bound)) => {
                    report.goals.push(Goal::at_most(what, measured, bound));
                }
            }
        }
    }
}

/// Adds one table of rates and ratios, and the goals; gives its JSON.
pub(super) fn beside(report: &mut Report, about: &str, measured: &[Measured]) -> serde_json::Value {
    report.tables.push(rates(about, &names(measured), measured));
    goals(report, about, measured);
    measured.iter().map(json_of).collect()
}

/// All participants, in the order of appearance.
fn names(measured: &[Measured]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for participant in measured.iter().flat_map(|p| &p.comparison.participants) {
        if !names.contains(&participant.entry.name) {
            names.push(participant.entry.name.clone());
        }
    }
    names
}

impl Measured {
    pub(super) fn participant(&self, name: &str) -> Option<usize> {
        self.comparison.participants.iter().position(|p| p.entry.name == name)
    }
}

fn rates(about: &str, names: &[String], measured: &[Measured]) -> Table {
    let mut columns = vec!["what".to_owned(), "unit".to_owned()];
    columns.extend(names.iter().cloned());
    columns.extend(names[1..].iter().map(|n| format!("{} / {n}", names[0])));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(format!("{about}: units per second"), &columns);
    for comparison in measured {
        for metric in &comparison.comparison.metrics {
            let mut row: Vec<Cell> =
                vec![comparison.row(*metric).into(), comparison.unit(*metric).into()];
            let rate = |name: &String| {
                comparison.participant(name).and_then(|n| comparison.rate(n, *metric))
            };
            row.extend(names.iter().map(|name| Cell::number(rate(name), 1)));
            row.extend(names[1..].iter().map(|name| {
                let to = comparison.participant(name);
                let ratio = to.and_then(|to| comparison.ratio(0, to, *metric)).map(|s| s.median);
                Cell::number(ratio, 3).missed_if(
                    ratio.zip(to).is_some_and(|(r, to)| comparison.misses(to, *metric, r)),
                )
            }));
            table.row(row);
        }
    }
    table
}

impl Measured {
    /// True if the ratio of the first participant to another misses a goal.
    fn misses(&self, other: usize, on: Metric, ratio: f64) -> bool {
        self.comparison.wants.iter().any(|want| match *want {
            Want::Ratio { of: 0, to, metric, at_least } => {
                to == other && metric == on && ratio < at_least
            }
            _ => false,
        })
    }
}

fn costs(about: &str, measured: &[Measured]) -> Table {
    let columns = [
        "what",
        "target",
        "unit",
        "CPU us",
        "bytes to device",
        "writes",
        "flushes",
        "per commit",
        "unmount s",
    ];
    let mut table = Table::new(format!("{about}: cost of one unit"), &columns);
    for comparison in measured {
        for (n, participant) in comparison.comparison.participants.iter().enumerate() {
            let s = Summary::of(
                participant.entry.name.clone(),
                &comparison.runs[n],
                &comparison.runs[0],
            );
            table.row(vec![
                comparison.comparison.title.as_str().into(),
                participant.entry.name.as_str().into(),
                s.unit.into(),
                Cell::number(s.per_unit.cpu_us, 2),
                Cell::number(s.per_unit.device_bytes, 0),
                Cell::number(s.per_unit.device_writes, 2),
                Cell::number(s.per_unit.flushes, 3),
                Cell::number(comparison.flushes(n), 2),
                Cell::number(s.unmount.map(|u| u.median), 2),
            ]);
        }
    }
    table
}

/// p99 alone and beside a writer.
fn latencies(about: &str, measured: &[Measured]) -> Table {
    let columns = [
        "target",
        "alone p50 us",
        "p99",
        "beside p50 us",
        "p99 ",
        "calls beside",
        "p99 beside / alone",
        "min",
        "max",
        "writer MB/s",
    ];
    let mut table = Table::new(format!("{about}: latency of write 4 KiB + fsync"), &columns);
    for comparison in measured {
        for (n, participant) in comparison.comparison.participants.iter().enumerate() {
            let [alone, beside] =
                [Op::Fsync, Op::FsyncBeside].map(|op| times(&comparison.runs[n], op));
            let ratio = comparison.beside(n);
            // How much the writer got done, so that no calm is bought by starving it unseen.
            let written =
                comparison.runs[n].iter().filter_map(|r| r.outcome.figure("MB/s written beside"));
            table.row(vec![
                participant.entry.name.as_str().into(),
                Cell::micros(alone.map(|t| t.p50_ns)),
                Cell::micros(alone.map(|t| t.p99_ns)),
                Cell::micros(beside.map(|t| t.p50_ns)),
                Cell::micros(beside.map(|t| t.p99_ns)),
                Cell::number(beside.map(|t| t.count as f64), 0),
                Cell::number(ratio.map(|r| r.median), 2),
                Cell::number(ratio.map(|r| r.min), 2),
                Cell::number(ratio.map(|r| r.max), 2),
                Cell::number(median(written), 1),
            ]);
        }
    }
    table
}

fn latency_chart(about: &str, measured: &[Measured]) -> Chart {
    let p99 = |comparison: &Measured, n: usize, op: Op| {
        times(&comparison.runs[n], op).map(|t| t.p99_ns as f64 / 1000.0)
    };
    let series = measured.iter().flat_map(|comparison| {
        comparison.comparison.participants.iter().enumerate().map(move |(n, participant)| {
            let values = [Op::Fsync, Op::FsyncBeside].map(|op| p99(comparison, n, op));
            (participant.entry.name.clone(), values.into())
        })
    });
    Chart {
        title: format!("{about}: p99 of write 4 KiB + fsync"),
        x: "what runs beside it".into(),
        y: "99th percentile in µs".into(),
        places: ["nothing", "a heavy writer"].map(str::to_owned).into(),
        series: series.collect(),
        log: true,
    }
}

fn chart(about: &str, names: &[String], measured: &[Measured]) -> Chart {
    let rows = || measured.iter().flat_map(|c| c.comparison.metrics.iter().map(move |m| (c, *m)));
    let values = |name: &String| {
        rows().map(|(c, m)| c.participant(name).and_then(|n| c.rate(n, m))).collect()
    };
    Chart {
        title: format!("{about}: units per second"),
        x: "load".into(),
        y: "units per second".into(),
        places: rows().map(|(c, m)| c.row(m)).collect(),
        series: names.iter().map(|name| (name.clone(), values(name))).collect(),
        log: true,
    }
}

/// Rates over numbers of threads, each to the one before: of the mount, and of what does nothing,
/// which says whether FUSE itself falls.
fn threads(report: &mut Report, about: &str, measured: &[Measured]) {
    let of = |participant: &dyn Fn(&Measured) -> Option<usize>| -> Vec<Option<f64>> {
        measured.iter().map(|c| c.rate(participant(c)?, Metric::Rate)).collect()
    };
    let mount = of(&|_| Some(0));
    let nothing = of(&|c| c.comparison.baseline());
    let columns =
        ["threads", "files/s", "to the row before", "does nothing, files/s", "to the row before "];
    let mut table = Table::new(format!("{about}: mount, by threads"), &columns);
    let step =
        |rates: &[Option<f64>], n: usize| steps(rates).get(n.checked_sub(1)?).copied().flatten();
    for (n, threads) in THREADS.iter().enumerate() {
        let ratio = step(&mount, n);
        table.row(vec![
            Cell::number(f64::from(*threads), 0),
            Cell::number(mount.get(n).copied().flatten(), 1),
            Cell::number(ratio, 3).missed_if(ratio.is_some_and(|r| r < 1.0 - NOISE)),
            Cell::number(nothing.get(n).copied().flatten(), 1),
            Cell::number(step(&nothing, n), 3),
        ]);
    }
    report.tables.push(table);
    if let Some(least) = smallest(&steps(&mount)) {
        let what =
            format!("{about}: never slower with more threads; smallest step (5 % are noise)");
        let goal = Goal::at_least(what, least, 1.0 - NOISE);
        report.goals.push(goal.beside(NOTHING, smallest(&steps(&nothing))));
    }
}

fn smallest(values: &[Option<f64>]) -> Option<f64> {
    values.iter().copied().flatten().min_by(f64::total_cmp)
}

/// Each value to the one before.
pub(super) fn steps(rates: &[Option<f64>]) -> Vec<Option<f64>> {
    rates.windows(2).map(|pair| Some(pair[1]? / pair[0]?)).collect()
}

fn json_of(comparison: &Measured) -> serde_json::Value {
    let participants = comparison.comparison.participants.iter().zip(&comparison.runs);
    let participants: Vec<_> = participants
        .map(|(participant, runs)| {
            json!({
                "load": participant.load.settings(),
                "summary": Summary::of(participant.entry.name.clone(), runs, &comparison.runs[0]),
            })
        })
        .collect();
    json!({ "title": comparison.comparison.title, "participants": participants })
}
