//! What was measured, as text, as a page and for programs.
//!
//! A [`Report`] holds tables, charts, goals and the results as JSON; [`text`](Report::text) is for
//! the terminal, [`html`](Report::html) one file that needs nothing else,
//! [`pictures`](Report::pictures) its charts as files, [`json`](Report::json) for programs.
//! Machine, medium and command are part of each, so a figure can be understood and measured again.

mod chart;
mod html;
mod picture;
mod table;

use serde::Serialize;

pub use chart::Chart;
pub use table::{Cell, Table};

use crate::machine::Machine;

/// A wanted value, and whether it was reached.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What is wanted.
    pub what: String,
    /// The measured value.
    pub measured: f64,
    /// Its bound.
    pub wanted: f64,
    /// Reached.
    pub met: bool,
    /// What the contender reaches that bounds what can be reached at all, if it takes part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
}

/// A contender that bounds what can be reached: a missed goal is shown beside it.
#[derive(Clone, Debug, Serialize)]
pub struct Baseline {
    /// Its name.
    pub name: &'static str,
    /// The value that it reaches in the same run.
    pub measured: f64,
    /// It would reach the goal.
    pub met: bool,
}

impl Goal {
    /// A value that must be at least so large.
    #[must_use]
    pub fn at_least(what: impl Into<String>, measured: f64, wanted: f64) -> Self {
        Self { what: what.into(), measured, wanted, met: measured >= wanted, baseline: None }
    }

    /// A value that must be at most so large.
    #[must_use]
    pub fn at_most(what: impl Into<String>, measured: f64, wanted: f64) -> Self {
        Self { what: what.into(), measured, wanted, met: measured <= wanted, baseline: None }
    }

    /// Of a goal that is a least value: the baseline `name` reaches this much of it in
    /// the same run.
    #[must_use]
    pub fn beside(mut self, name: &'static str, reaches: Option<f64>) -> Self {
        let baseline = |measured| Baseline { name, measured, met: measured >= self.wanted };
        self.baseline = reaches.filter(|r| r.is_finite()).map(baseline);
        self
    }

    /// What is to be said of a missed goal: whether the baseline would meet it.
    fn remark(&self) -> Option<String> {
        let baseline = self.baseline.as_ref().filter(|_| !self.met)?;
        let verb = if baseline.met { "meets it with" } else { "reaches" };
        Some(format!("{} {verb} {:.2} of {}", baseline.name, baseline.measured, self.wanted))
    }
}

/// Everything about one benchmark run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the benchmark.
    pub bench: String,
    /// The command that made it.
    pub command: String,
    /// Where.
    pub machine: Machine,
    /// Medium, volume, load, rounds: name and value.
    pub setting: Vec<(String, String)>,
    /// The results, in a form of each benchmark's own.
    pub results: serde_json::Value,
    /// The same as text.
    pub tables: Vec<Table>,
    /// What was wanted.
    pub goals: Vec<Goal>,
    /// Remarks.
    pub notes: Vec<String>,
    /// Pictures.
    #[serde(skip)]
    pub charts: Vec<Chart>,
}

impl Report {
    /// An empty one about this machine.
    #[must_use]
    pub fn new(bench: &str) -> Self {
        Self {
            bench: bench.into(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            machine: Machine::this(),
            setting: Vec::new(),
            results: serde_json::Value::Null,
            tables: Vec::new(),
            goals: Vec::new(),
            notes: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// Adds a line to the setting.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.setting.push((name.into(), value.into()));
    }

    /// For the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut s = format!("{}\nmachine: {}\n", self.bench, self.machine.line());
        for (name, value) in &self.setting {
            s += &format!("{name}: {value}\n");
        }
        for table in &self.tables {
            s += &format!("\n{}", table.text());
        }
        if !self.goals.is_empty() {
            s += "\ngoals:\n";
        }
        for goal in &self.goals {
            let outcome = if goal.met { "met   " } else { "MISSED" };
            let remark = goal.remark().map_or(String::new(), |line| format!(" ({line})"));
            s += &format!(
                "  {outcome}  {}: {:.3} (wanted {:.3}){remark}\n",
                goal.what, goal.measured, goal.wanted
            );
        }
        for note in &self.notes {
            s += &format!("\nnote: {note}\n");
        }
        s
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// A page with everything in it.
    #[must_use]
    pub fn html(&self) -> String {
        html::page(self)
    }
}

#[cfg(test)]
mod tests;
