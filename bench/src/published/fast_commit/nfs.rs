//! The published loads over NFS, with and without fast commits: the client and the export are in
//! this process, and each call takes a while in the network.
//!
//! A server of NFS makes each change of names and attributes durable before it answers. So without
//! fast commits nearly each call is a commit of the journal, and what fast commits are worth
//! depends on what the network takes beside that.

use std::time::Duration;

use serde_json::json;

use super::table::{Row, chart, gains, row_json};
use super::{FEATURE, FastCommit, Load, OFF, Part, Steps, fs_mark};
use crate::Result;
use crate::contender::Contender;
use crate::report::{Cell, Goal, Report, Table};
use crate::spread::Spread;
use crate::versus::{Entry, Run, note_late};
use crate::workload::{Dbench, Untar, VarMail};

/// Full commits per second of an untar with fast commits.
const UNTAR_COMMITS: f64 = 2.5;
const UNTAR: &str = "untar";

/// The rows over NFS of the published table, and the untar, of which only commits were published.
pub(super) fn loads() -> [Load; 5] {
    let load = |name, unit, scale, published, wanted, load| Load {
        name,
        unit,
        scale,
        published,
        wanted,
        load,
    };
    let dbench = |clients| Box::new(Dbench { clients, ..Dbench::default() });
    let untar = Untar { files: 300, keep: true, ..Untar::default() };
    [
        load("fs_mark, 4 threads", "files/s", 1.0, (299.4, 409.45), 36.8, Box::new(fs_mark(4))),
        load("dbench, 2 clients", "MB/s", 1000.0, (8.84, 11.88), 34.4, dbench(2)),
        load("dbench, 10 clients", "MB/s", 1000.0, (34.62, 52.83), 52.6, dbench(10)),
        load(
            "varmail, 16 threads",
            "operations/s",
            1.0,
            (1531.3, 2681.5),
            75.1,
            Box::<VarMail>::default(),
        ),
        load(UNTAR, "files/s", 1.0, (f64::NAN, f64::NAN), 0.0, Box::new(untar)),
    ]
}

impl FastCommit {
    pub(super) fn nfs(
        &self,
        report: &mut Report,
        steps: &mut Steps<'_>,
    ) -> Result<serde_json::Value> {
        let mut results = serde_json::Map::new();
        for medium in self.media_of(Part::Nfs)? {
            let conduct = self.conduct.on(&medium);
            for delay in &self.delays {
                let place = format!("{medium}, network {} ms", f64::from(*delay) / 1000.0);
                let delay = Duration::from_micros((*delay).into());
                let side = |name: &str| {
                    Entry::new(name, Contender::Exported(name.into(), delay), &[FEATURE])
                };
                let sides = [side(OFF), side(FEATURE)];
                let mut rows = Vec::new();
                for load in loads() {
                    let about = format!("{place}, {}", load.name);
                    let runs = steps.take_turns(&conduct, &sides, &*load.load, &about)?;
                    rows.push(Row { load, runs });
                }
                let late = rows.iter().flat_map(|r| r.runs.iter().flatten());
                note_late(report, &place, late.filter_map(|r| r.cost.late));
                let tables = [gains(report, &place, &sides, &rows), commits(report, &place, &rows)];
                report.tables.extend(tables);
                report.charts.push(chart(&place, &rows));
                let json: Vec<_> = rows.iter().map(|row| row_json(row, &sides)).collect();
                results.insert(place, json.into());
            }
        }
        Ok(json!(results))
    }
}

/// What the journal did meanwhile.
fn commits(report: &mut Report, place: &str, rows: &[Row]) -> Table {
    let mut table = Table::new(
        format!("{place}: commits per second"),
        &["load", "full, without", "full, with", "fast, with", "flushes, without", "with"],
    );
    for row in rows {
        let full = |run: &Run| run.grown("/journal/transactions");
        let fast = |run: &Run| run.grown("/journal/fast_commit/commits");
        let flushes = |run: &Run| run.cost.device.map(|device| device.flushes);
        let with = per_second(&row.runs[1], full);
        let is_untar = row.load.name == UNTAR;
        let missed = is_untar && with.is_some_and(|rate| rate > UNTAR_COMMITS);
        table.row(vec![
            row.load.name.into(),
            Cell::number(per_second(&row.runs[0], full), 1),
            Cell::number(with, 1).missed_if(missed),
            Cell::number(per_second(&row.runs[1], fast), 1),
            Cell::number(per_second(&row.runs[0], flushes), 1),
            Cell::number(per_second(&row.runs[1], flushes), 1),
        ]);
        if let (true, Some(rate)) = (is_untar, with) {
            let what = format!("{place}, untar: full commits per second with fast commits");
            report.goals.push(Goal::at_most(what, rate, UNTAR_COMMITS));
        }
    }
    table
}

/// The median of the rounds.
fn per_second(runs: &[Run], count: impl Fn(&Run) -> Option<u64>) -> Option<f64> {
    let rates = runs
        .iter()
        .filter_map(|run| Some(count(run)? as f64 / run.outcome.elapsed.as_secs_f64().max(1e-9)));
    Spread::of(rates).map(|spread| spread.median)
}
