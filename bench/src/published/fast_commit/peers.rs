//! Beside Linux's ext4 with fast commits, on the same block device: a loop device over a file, or
//! over an emulated medium that a process of its own serves.

use serde_json::json;

use super::cost::FsyncCost;
use super::{FastCommit, Part, Steps, fs_mark, linux, mounted, on_node, rates, spread_cells};
use crate::Result;
use crate::contender::Medium;
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::versus::{Entry, Run, Summary, note_late};
use crate::workload::{VarMail, Workload};

/// Through FUSE, Linux is to be reached where a flush takes at least so long.
const SLOW_FLUSH_S: f64 = 0.0005;

const LINUX: usize = 0;
const LIBRARY: usize = 1;
const MOUNT: usize = 2;

pub(super) fn entries() -> [Entry; 3] {
    [linux(), on_node(), mounted()]
}

pub(super) fn loads() -> [(&'static str, Box<dyn Workload>); 3] {
    [
        ("fs_mark, 8 threads", Box::new(fs_mark(8))),
        ("fs_mark, 32 threads", Box::new(fs_mark(32))),
        ("varmail, 16 threads", Box::new(VarMail::default())),
    ]
}

struct Row {
    name: &'static str,
    runs: Vec<Vec<Run>>,
}

impl Row {
    /// Against Linux, round by round.
    fn ratio(&self, of: usize) -> Option<Spread> {
        Spread::of_ratios(&rates(&self.runs[of]), &rates(&self.runs[LINUX]))
    }

    fn rate(&self, of: usize) -> Option<f64> {
        Spread::of(rates(&self.runs[of])).map(|s| s.median)
    }
}

impl FastCommit {
    pub(super) fn peers(
        &self,
        report: &mut Report,
        steps: &mut Steps<'_>,
    ) -> Result<serde_json::Value> {
        let entries = entries();
        let mut results = serde_json::Map::new();
        for medium in self.media_of(Part::Peers)? {
            let conduct = self.conduct.on(&medium);
            steps.one(format!("{medium}: flush"));
            let flush = conduct.place.flush_time()?.as_secs_f64();
            let mut rows = Vec::new();
            for (name, load) in loads() {
                let about = format!("{medium}, {name}");
                rows.push(Row {
                    name,
                    runs: steps.take_turns(&conduct, &entries, &*load, &about)?,
                });
            }
            note_late(
                report,
                &medium.to_string(),
                rows.iter().flat_map(|r| r.runs.iter().flatten().filter_map(|r| r.cost.late)),
            );
            let slow = flush >= SLOW_FLUSH_S;
            let title = format!(
                "{medium}: beside Linux ext4 with fast_commit; a flush takes {:.2} ms",
                flush * 1e3
            );
            let ratios = ratios(report, title, &medium, slow, &rows);
            report.tables.extend([ratios, costs(&medium, &entries, &rows)]);
            report.charts.push(chart(&medium, &rows));
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    let contenders: Vec<_> = entries
                        .iter()
                        .zip(&row.runs)
                        .map(|(entry, runs)| {
                            json!({
                                "summary": Summary::of(entry.name.clone(), runs, &row.runs[LINUX]),
                                "fsync": FsyncCost::of(runs),
                            })
                        })
                        .collect();
                    json!({ "load": row.name, "contenders": contenders })
                })
                .collect();
            results.insert(medium.to_string(), json!({ "flush_s": flush, "loads": rows }));
        }
        Ok(results.into())
    }
}

fn ratios(report: &mut Report, title: String, medium: &Medium, slow: bool, rows: &[Row]) -> Table {
    let mut table = Table::new(
        title,
        &[
            "load", "Linux FC", "library", "/ Linux", "min", "max", "mount", "/ Linux ", "min ",
            "max ",
        ],
    );
    for row in rows {
        let mut cells = vec![row.name.into(), Cell::number(row.rate(LINUX), 1)];
        for (ours, name, counts) in [(LIBRARY, "library", true), (MOUNT, "mount", slow)] {
            let ratio = row.ratio(ours);
            let [median, min, max] = spread_cells(ratio, 3);
            let missed = counts && ratio.is_some_and(|r| r.median < 1.0);
            cells.extend([Cell::number(row.rate(ours), 1), median.missed_if(missed), min, max]);
            if let (true, Some(ratio)) = (counts, ratio) {
                let what = format!("{medium}, {}: {name} / Linux with fast_commit", row.name);
                report.goals.push(Goal::at_least(what, ratio.median, 1.0));
            }
        }
        table.row(cells);
    }
    table
}

fn costs(medium: &Medium, entries: &[Entry], rows: &[Row]) -> Table {
    let mut table = Table::new(
        format!("{medium}: what one fsync cost"),
        &[
            "load",
            "ours",
            "p50 us",
            "p99 us",
            "bytes",
            "writes",
            "flushes",
            "full commits",
            "fast commits",
            "CPU us",
        ],
    );
    for row in rows {
        for (entry, runs) in entries.iter().zip(&row.runs) {
            let cost = FsyncCost::of(runs);
            table.row(vec![
                row.name.into(),
                entry.name.as_str().into(),
                Cell::micros(cost.latency.map(|t| t.p50_ns)),
                Cell::micros(cost.latency.map(|t| t.p99_ns)),
                Cell::number(cost.device_bytes, 0),
                Cell::number(cost.writes, 2),
                Cell::number(cost.flushes, 3),
                Cell::number(cost.transactions, 4),
                Cell::number(cost.fast_commits, 3),
                Cell::number(cost.cpu_us, 1),
            ]);
        }
    }
    table
}

fn chart(medium: &Medium, rows: &[Row]) -> Chart {
    let of = |ours: usize| rows.iter().map(|r| r.ratio(ours).map(|s| s.median)).collect();
    Chart {
        title: format!("{medium}: rate, Linux with fast_commit = 1"),
        x: "load".into(),
        y: "rate, times that of Linux".into(),
        places: rows.iter().map(|r| r.name.to_owned()).collect(),
        series: vec![("library".into(), of(LIBRARY)), ("mount".into(), of(MOUNT))],
        log: false,
    }
}
