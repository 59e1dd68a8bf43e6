//! How long a small fsync takes beside a heavy buffered writer of another file. The writer always
//! needs new blocks, so its metadata is in every transaction, and in ordered mode its data has to
//! be on the disk before one is committed.

use serde_json::json;

use super::{FastCommit, Part, Steps, linux, linux_without, mounted, on_node};
use crate::Result;
use crate::contender::Medium;
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::versus::{Entry, Run, Summary, note_late, times};
use crate::workload::{FsyncLatency, Op, Workload as _};

/// With fewer calls beside the writer than this in all rounds, the 99th percentile is that of one
/// or two of them.
const ENOUGH: u64 = 300;

/// The 99th percentile beside the writer, as a part of Linux's.
const PART: f64 = 0.5;

const LINUX: usize = 0;
const LINUX_WITHOUT: usize = 1;
const OURS: std::ops::Range<usize> = 2..4;

pub(super) fn entries() -> [Entry; 4] {
    [linux(), linux_without(), on_node(), mounted()]
}

/// The 99th percentiles of all rounds.
fn p99(runs: &[Run]) -> Vec<f64> {
    let of = |r: &Run| r.outcome.timings.of(Op::FsyncBeside).map_or(f64::NAN, |t| t.p99_ns as f64);
    runs.iter().map(of).collect()
}

impl FastCommit {
    pub(super) fn isolation(
        &self,
        report: &mut Report,
        steps: &mut Steps<'_>,
    ) -> Result<serde_json::Value> {
        let entries = entries();
        let load = FsyncLatency {
            pause: self.pause,
            // A quarter of the volume, so that there is room for the next one while the old one
            // goes.
            writer_size: self.conduct.volume.size / 4,
            fresh: true,
            ..FsyncLatency::default()
        };
        report.set("isolation", load.settings());
        let mut results = serde_json::Map::new();
        for medium in self.media_of(Part::Isolation)? {
            let conduct = self.conduct.on(&medium);
            let runs = steps.take_turns(&conduct, &entries, &load, &medium.to_string())?;
            note_late(
                report,
                &medium.to_string(),
                runs.iter().flatten().filter_map(|r| r.cost.late),
            );
            report.tables.push(table(&medium, &entries, &runs));
            for (entry, rounds) in entries.iter().zip(&runs) {
                let calls = times(rounds, Op::FsyncBeside).map_or(0, |t| t.count);
                if calls < ENOUGH {
                    report.notes.push(format!(
                        "{medium}, {}: only {calls} calls beside the writer; more --seconds or \
                            --rounds for a 99th percentile",
                        entry.name
                    ));
                }
            }
            for ours in OURS {
                if let Some(ratio) = Spread::of_ratios(&p99(&runs[ours]), &p99(&runs[LINUX])) {
                    let what = format!(
                        "{medium}: p99 of fsync beside a writer, {} / Linux FC",
                        entries[ours].name
                    );
                    report.goals.push(Goal::at_most(what, ratio.median, PART));
                }
            }
            report.charts.push(chart(&medium, &entries, &runs));
            let json: Vec<_> = entries
                .iter()
                .zip(&runs)
                .map(|(e, r)| {
                    json!({
                        "summary": Summary::of(e.name.clone(), r, &runs[LINUX]),
                        "p99_to_linux": Spread::of_ratios(&p99(r), &p99(&runs[LINUX])),
                        "p99_to_linux_without": Spread::of_ratios(&p99(r), &p99(&runs[LINUX_WITHOUT])),
                    })
                })
                .collect();
            results.insert(medium.to_string(), json.into());
        }
        Ok(results.into())
    }
}

fn table(medium: &Medium, entries: &[Entry], runs: &[Vec<Run>]) -> Table {
    let mut table = Table::new(
        format!("{medium}: latency of write 4 KiB + fsync in us"),
        &[
            "ours",
            "part",
            "count",
            "p50",
            "p99",
            "p99.9",
            "max",
            "p99 / Linux FC",
            "min",
            "max ",
            "p99 / Linux no FC",
            "writer MB/s",
        ],
    );
    for (n, (entry, rounds)) in entries.iter().zip(runs).enumerate() {
        for (op, part) in [(Op::Fsync, "alone"), (Op::FsyncBeside, "beside a writer")] {
            let beside = op == Op::FsyncBeside;
            let t = times(rounds, op);
            let to = |other: usize| {
                beside.then(|| Spread::of_ratios(&p99(rounds), &p99(&runs[other]))).flatten()
            };
            let ratio = to(LINUX);
            let missed = OURS.contains(&n) && ratio.is_some_and(|r| r.median > PART);
            let speed =
                Spread::of(rounds.iter().filter_map(|r| r.outcome.figure("MB/s written beside")));
            table.row(vec![
                entry.name.as_str().into(),
                part.into(),
                Cell::number(t.map(|t| t.count as f64), 0),
                Cell::micros(t.map(|t| t.p50_ns)),
                Cell::micros(t.map(|t| t.p99_ns)),
                Cell::micros(t.map(|t| t.p999_ns)),
                Cell::micros(t.map(|t| t.max_ns)),
                Cell::number(ratio.map(|r| r.median), 3).missed_if(missed),
                Cell::number(ratio.map(|r| r.min), 3),
                Cell::number(ratio.map(|r| r.max), 3),
                Cell::number(to(LINUX_WITHOUT).map(|r| r.median), 3),
                Cell::number(speed.filter(|_| beside).map(|s| s.median), 1),
            ]);
        }
    }
    table
}

fn chart(medium: &Medium, entries: &[Entry], runs: &[Vec<Run>]) -> Chart {
    let series = entries.iter().zip(runs).filter_map(|(entry, rounds)| {
        let t = times(rounds, Op::FsyncBeside)?;
        let us = [t.p50_ns, t.p99_ns, t.p999_ns, t.max_ns].map(|ns| Some(ns as f64 / 1000.0));
        Some((entry.name.clone(), us.into()))
    });
    Chart {
        title: format!("{medium}: fsync beside a heavy writer"),
        x: "percentile".into(),
        y: "time of an fsync in µs".into(),
        places: ["p50", "p99", "p99.9", "max"].map(str::to_owned).into(),
        series: series.collect(),
        log: true,
    }
}
