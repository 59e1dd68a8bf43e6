//! Loads with phases: each phase of each contender, and the first contender's ratio to every other.

use serde::Serialize;

use super::{Run, Summary};
use crate::report::{Cell, Chart, Table};
use crate::spread::Spread;
use crate::workload::{OpTimes, Phase, Timings};

/// All rounds of one phase of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseSummary {
    /// Which.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// Units per second.
    pub rate: Option<Spread>,
    /// The first contender's rate divided by this one's, round by round.
    pub first_to_this: Option<Spread>,
    /// Median processor time of one unit, of this process and the daemon, in microseconds.
    pub cpu_us: Option<f64>,
    /// Latency of the call that the phase is about, over all rounds.
    pub latency: Option<OpTimes>,
}

/// Rates of a phase, round by round.
pub(crate) fn rates(runs: &[Run], phase: &str) -> Vec<f64> {
    runs.iter().map(|r| r.outcome.phase(phase).map_or(f64::NAN, Phase::rate)).collect()
}

impl PhaseSummary {
    /// All phases of these rounds; `first` are those to compare with.
    #[must_use]
    pub(super) fn all(runs: &[Run], first: &[Run]) -> Vec<Self> {
        let phases = runs.first().map_or(&[][..], |r| &r.outcome.phases);
        phases.iter().map(|phase| Self::of(phase, runs, first)).collect()
    }

    fn of(phase: &Phase, runs: &[Run], first: &[Run]) -> Self {
        let own = rates(runs, phase.name);
        let mut timings = Timings::default();
        let mut cpu = Vec::new();
        for phase in runs.iter().filter_map(|r| r.outcome.phase(phase.name)) {
            timings.add(&phase.timings);
            cpu.extend(phase.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / phase.done));
        }
        Self {
            name: phase.name,
            unit: phase.unit,
            first_to_this: Spread::of_ratios(&rates(first, phase.name), &own),
            rate: Spread::of(own),
            cpu_us: Spread::of(cpu).map(|s| s.median),
            // The first of those that are called most often.
            latency: timings.all().into_iter().rev().max_by_key(|t| t.count),
        }
    }
}

/// Rates with ratios, and what one unit took. Nothing for loads without phases.
pub(super) fn tables(summaries: &[Summary]) -> Vec<Table> {
    let Some(first) = summaries.first().filter(|s| !s.phases.is_empty()) else { return Vec::new() };
    let mut columns = vec!["phase".to_owned(), "unit".to_owned()];
    columns.extend(summaries.iter().map(|s| s.name.clone()));
    columns.extend(summaries[1..].iter().map(|s| format!("{} / {}", first.name, s.name)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("phases: units per second", &columns);
    for (n, phase) in first.phases.iter().enumerate() {
        let of = |s: &Summary| s.phases.get(n).cloned();
        let mut row: Vec<Cell> = vec![phase.name.into(), phase.unit.into()];
        row.extend(
            summaries.iter().map(|s| Cell::number(of(s).and_then(|p| p.rate).map(|r| r.median), 0)),
        );
        let ratio = |s: &Summary| of(s).and_then(|p| p.first_to_this).map(|r| r.median);
        row.extend(summaries[1..].iter().map(|s| Cell::number(ratio(s), 2)));
        table.row(row);
    }
    if first.phases.len() > 2 && summaries.len() > 1 {
        let mut row: Vec<Cell> = vec!["geometric mean".into(), "".into()];
        row.extend(summaries.iter().map(|_| Cell::Missing));
        row.extend(summaries[1..].iter().map(|s| Cell::number(geometric_mean(s), 2)));
        table.row(row);
    }
    let mut costs = Table::new(
        "phases: what one unit took",
        &["phase", "target", "call", "p50 us", "p99 us", "CPU us"],
    );
    for n in 0..first.phases.len() {
        for s in summaries {
            // A phase that is a part of another has no costs of its own.
            let Some(phase) = s.phases.get(n).filter(|p| p.latency.is_some()) else { continue };
            costs.row(vec![
                phase.name.into(),
                s.name.as_str().into(),
                phase.latency.map_or(String::new(), |t| t.op.name()).into(),
                Cell::micros(phase.latency.map(|t| t.p50_ns)),
                Cell::micros(phase.latency.map(|t| t.p99_ns)),
                Cell::number(phase.cpu_us, 2),
            ]);
        }
    }
    vec![table, costs]
}

/// Of the first contender's ratios to this one.
fn geometric_mean(summary: &Summary) -> Option<f64> {
    let logs: Vec<f64> = summary
        .phases
        .iter()
        .filter_map(|p| Some(p.first_to_this?.median.ln()))
        .filter(|l| l.is_finite())
        .collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Rates of all phases.
pub(super) fn chart(summaries: &[Summary]) -> Option<Chart> {
    let first = summaries.first().filter(|s| !s.phases.is_empty())?;
    Some(Chart {
        title: "units per second, by phase".into(),
        x: "phase".into(),
        y: "units per second".into(),
        places: first.phases.iter().map(|p| p.name.to_owned()).collect(),
        series: summaries
            .iter()
            .map(|s| (s.name.clone(), s.phases.iter().map(|p| p.rate.map(|r| r.median)).collect()))
            .collect(),
        log: true,
    })
}
