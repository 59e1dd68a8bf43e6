//! The published loads with and without fast commits, medium by medium.

use serde_json::json;

use super::cost::FsyncCost;
use super::{FastCommit, Load, Part, Steps, loads, rates, spread_cells};
use crate::Result;
use crate::contender::Medium;
use crate::report::{Cell, Chart, Goal, Report, Table};
use crate::spread::Spread;
use crate::versus::{Entry, Run, Summary, note_late};

/// The log's bytes per fsync with fast commits, as a part of those without.
const LOG_PART: f64 = 0.25;

/// One load on one medium.
pub(super) struct Row {
    pub load: Load,
    /// In the order of the sides: without, with, and perhaps a volume without the feature.
    pub runs: Vec<Vec<Run>>,
}

impl Row {
    /// By how many per cent side `with` is faster than side `without`, round by round.
    fn gain(&self, with: usize, without: usize) -> Option<Spread> {
        let ratio =
            Spread::of_ratios(&rates(self.runs.get(with)?), &rates(self.runs.get(without)?))?;
        let per_cent = |r: f64| (r - 1.0) * 100.0;
        Some(Spread {
            median: per_cent(ratio.median),
            min: per_cent(ratio.min),
            max: per_cent(ratio.max),
        })
    }

    fn rate(&self, side: usize) -> Option<f64> {
        Some(Spread::of(rates(self.runs.get(side)?))?.median / self.load.scale)
    }
}

impl FastCommit {
    pub(super) fn table(
        &self,
        report: &mut Report,
        steps: &mut Steps<'_>,
    ) -> Result<serde_json::Value> {
        let sides = self.sides();
        let mut results = serde_json::Map::new();
        for medium in self.media_of(Part::Table)? {
            let conduct = self.conduct.on(&medium);
            let mut rows = Vec::new();
            for load in loads() {
                let about = format!("{medium}, {}", load.name);
                let runs = steps.take_turns(&conduct, &sides, &*load.load, &about)?;
                rows.push(Row { load, runs });
            }
            note_late(
                report,
                &medium.to_string(),
                rows.iter().flat_map(|r| r.runs.iter().flatten().filter_map(|r| r.cost.late)),
            );
            let tables = [
                gains(report, &medium.to_string(), &sides, &rows),
                costs(report, &medium, &sides, &rows),
            ];
            report.tables.extend(tables);
            report.charts.push(chart(&medium.to_string(), &rows));
            let json: Vec<_> = rows.iter().map(|row| row_json(row, &sides)).collect();
            results.insert(medium.to_string(), json.into());
        }
        Ok(results.into())
    }
}

pub(super) fn gains(report: &mut Report, medium: &str, sides: &[Entry], rows: &[Row]) -> Table {
    let mut columns = vec![
        "load",
        "unit",
        "published without",
        "with",
        "diff %",
        "nofast_commit",
        "fast_commit",
        "diff % ",
    ];
    columns.extend(["min", "max"]);
    if sides.len() > 2 {
        columns.extend(["no feature", "fast_commit to it, diff %"]);
    }
    let mut table = Table::new(format!("{medium}: Extol without and with fast commits"), &columns);
    for row in rows {
        let (without, with) = row.load.published;
        let gain = row.gain(1, 0);
        let missed = gain.is_some_and(|g| g.median < row.load.wanted);
        let [median, min, max] = spread_cells(gain, 1);
        let digits = if row.load.scale > 1.0 { 2 } else { 1 };
        let mut cells = vec![
            row.load.name.into(),
            row.load.unit.into(),
            Cell::number(without, digits),
            Cell::number(with, digits),
            Cell::number((with / without - 1.0) * 100.0, 1),
            Cell::number(row.rate(0), digits),
            Cell::number(row.rate(1), digits),
            median.missed_if(missed),
            min,
            max,
        ];
        if sides.len() > 2 {
            cells.push(Cell::number(row.rate(2), digits));
            cells.push(Cell::number(row.gain(1, 2).map(|g| g.median), 1));
        }
        table.row(cells);
        if let Some(gain) = gain.filter(|_| row.load.wanted > 0.0) {
            let what = format!("{medium}, {}: gain of fast commits in %", row.load.name);
            report.goals.push(Goal::at_least(what, gain.median, row.load.wanted));
        }
    }
    table
}

fn costs(report: &mut Report, medium: &Medium, sides: &[Entry], rows: &[Row]) -> Table {
    let mut table = Table::new(
        format!("{medium}: what one fsync cost"),
        &[
            "load",
            "side",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "log bytes",
            "bytes",
            "writes",
            "flushes",
            "full commits",
            "fast commits",
            "CPU us",
            "in full because",
        ],
    );
    for row in rows {
        let costs: Vec<FsyncCost> = row.runs.iter().map(|runs| FsyncCost::of(runs)).collect();
        let part = costs[1].log_bytes.zip(costs[0].log_bytes).map(|(with, without)| with / without);
        for (n, (side, cost)) in sides.iter().zip(&costs).enumerate() {
            let too_much = n == 1 && part.is_some_and(|p| p > LOG_PART);
            table.row(vec![
                row.load.name.into(),
                side.name.as_str().into(),
                Cell::micros(cost.latency.map(|t| t.p50_ns)),
                Cell::micros(cost.latency.map(|t| t.p99_ns)),
                Cell::micros(cost.latency.map(|t| t.p999_ns)),
                Cell::number(cost.log_bytes, 0).missed_if(too_much),
                Cell::number(cost.device_bytes, 0),
                Cell::number(cost.writes, 2),
                Cell::number(cost.flushes, 3),
                Cell::number(cost.transactions, 4),
                Cell::number(cost.fast_commits, 3),
                Cell::number(cost.cpu_us, 1),
                cost.why().into(),
            ]);
        }
        if let Some(part) = part {
            let what = format!("{medium}, {}: log bytes per fsync, with / without", row.load.name);
            report.goals.push(Goal::at_most(what, part, LOG_PART));
        }
    }
    table
}

/// Gains beside the published ones: units differ from load to load.
pub(super) fn chart(medium: &str, rows: &[Row]) -> Chart {
    let published =
        rows.iter().map(|r| Some((r.load.published.1 / r.load.published.0 - 1.0) * 100.0));
    Chart {
        title: format!("{medium}: gain of fast commits in per cent"),
        x: "load".into(),
        y: "gain in per cent".into(),
        places: rows.iter().map(|r| r.load.name.to_owned()).collect(),
        series: vec![
            ("published".into(), published.collect()),
            ("Extol".into(), rows.iter().map(|r| r.gain(1, 0).map(|g| g.median)).collect()),
        ],
        log: false,
    }
}

pub(super) fn row_json(row: &Row, sides: &[Entry]) -> serde_json::Value {
    let sides: Vec<_> = sides
        .iter()
        .zip(&row.runs)
        .map(|(side, runs)| {
            json!({
                "summary": Summary::of(side.name.clone(), runs, &row.runs[0]),
                "fsync": FsyncCost::of(runs),
            })
        })
        .collect();
    json!({
        "load": row.load.name,
        "settings": row.load.load.settings(),
        "published": [row.load.published.0, row.load.published.1],
        "gain_percent": row.gain(1, 0),
        "sides": sides,
    })
}
