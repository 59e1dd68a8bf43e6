//! What a campaign found.

use serde::Serialize;
use std::fmt::Write as _;

/// A crash in the recovery from a crash.
#[derive(Clone, Debug, Serialize)]
pub struct Second {
    /// Place in the recovery's own tape.
    pub cut: usize,
    /// Name of the state.
    pub fate: String,
}

/// A state that is not as it must be.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Place in the tape.
    pub cut: usize,
    /// Name of the state.
    pub state: String,
    /// The recovery was cut, too.
    pub second: Option<Second>,
    /// What is wrong.
    pub what: String,
    /// The command that tries it again.
    pub replay: String,
}

/// One load on one kind of volume.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// Name of the load.
    pub workload: String,
    /// Name of the kind of volume.
    pub variant: String,
    /// Seed.
    pub seed: u64,
    /// Operations of the load.
    pub operations: usize,
    /// Changes on the tape.
    pub changes: usize,
    /// Times that the log was filled from end to end, in hundredths.
    pub wraps_percent: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Revoke records in the log.
    pub revokes: u64,
    /// Cuts tried.
    pub cuts: usize,
    /// States built.
    pub built: u64,
    /// States with different bytes.
    pub distinct: u64,
    /// States verified: different bytes, or more promised.
    pub verified: u64,
    /// Recoveries that were cut at each of their changes.
    pub recoveries_cut: u64,
    /// States of those that were recovered a second time.
    pub second_states: u64,
    /// States that e2fsck was asked about.
    pub e2fsck: u64,
    /// States that Linux was asked about.
    pub linux: u64,
    /// Fast commits of the load.
    pub fast_commits: u64,
    /// Of them, those with data checksums.
    pub checksummed: u64,
    /// And those without a flush.
    pub each: u64,
    /// Requests for durability that could not be one, and were full commits.
    pub fallbacks: u64,
    /// States that e2fsck was not asked about: fast commits of a durable transaction, not yet
    /// cleared.
    pub superseded: u64,
    /// States in which file data of the last fast commit was not there.
    pub data_missing: u64,
    /// States in which e2fsck repaired a mark of its own: groups "uninitialized" on volumes without
    /// their checksums.
    pub marks: u64,
    /// What was wrong.
    pub failures: Vec<Failure>,
    /// Wall-clock time.
    pub seconds: f64,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.changes += other.changes;
        self.wraps_percent += other.wraps_percent;
        self.checkpoints += other.checkpoints;
        self.revokes += other.revokes;
        self.cuts += other.cuts;
        self.built += other.built;
        self.distinct += other.distinct;
        self.verified += other.verified;
        self.recoveries_cut += other.recoveries_cut;
        self.second_states += other.second_states;
        self.e2fsck += other.e2fsck;
        self.linux += other.linux;
        self.fast_commits += other.fast_commits;
        self.checksummed += other.checksummed;
        self.each += other.each;
        self.fallbacks += other.fallbacks;
        self.superseded += other.superseded;
        self.data_missing += other.data_missing;
        self.marks += other.marks;
        self.failures.extend(other.failures.iter().cloned());
        self.seconds += other.seconds;
    }
}

/// All of them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// One per load and kind of volume.
    pub rows: Vec<Row>,
    /// Wall-clock time of all of it.
    pub wall_seconds: f64,
}

impl Report {
    /// Adds a run to the row of its load and kind of volume.
    pub fn add(&mut self, run: Row) {
        match self.rows.iter_mut().find(|r| r.workload == run.workload && r.variant == run.variant)
        {
            Some(row) => row.add(&run),
            None => self.rows.push(run),
        }
    }

    /// The sums per load (`true`), or per kind of volume.
    #[must_use]
    pub fn summed(&self, by_load: bool) -> Self {
        let mut sums = Self { rows: Vec::new(), wall_seconds: self.wall_seconds };
        for row in &self.rows {
            let mut row = row.clone();
            if by_load { &mut row.variant } else { &mut row.workload }.replace_range(.., "all");
            sums.add(row);
        }
        sums
    }

    /// The sums, as one row.
    #[must_use]
    pub fn total(&self) -> Row {
        let mut total = Row { workload: "all".into(), variant: "all".into(), ..Row::default() };
        self.rows.iter().for_each(|row| total.add(row));
        total
    }

    /// States recovered and verified (second recoveries included) per minute of wall-clock time.
    #[must_use]
    pub fn per_minute(&self) -> f64 {
        let total = self.total();
        (total.verified + total.second_states) as f64 * 60.0 / self.wall_seconds.max(0.001)
    }

    /// One line.
    #[must_use]
    pub fn summary(&self) -> String {
        let total = self.total();
        format!(
            "{} crash states ({} different) and {} crashes in recovery in {:.0} s: {:.0} states \
                per minute; {} failures",
            total.verified,
            total.distinct,
            total.second_states,
            self.wall_seconds,
            self.per_minute(),
            total.failures.len(),
        )
    }

    /// A table in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| load | volume | operations | log filled | revokes | fast commits | checksummed | \
             without a flush | fallbacks | cuts | states | distinct | recoveries cut | their \
             states | e2fsck | Linux | windows | marks | failures | seconds |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in self.rows.iter().chain([&self.total()]) {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.1} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | \
                    {} | {}+{} | {} | {} | {:.1} |",
                row.workload,
                row.variant,
                row.operations,
                row.wraps_percent as f64 / 100.0,
                row.revokes,
                row.fast_commits,
                row.checksummed,
                row.each,
                row.fallbacks,
                row.cuts,
                row.verified,
                row.distinct,
                row.recoveries_cut,
                row.second_states,
                row.e2fsck,
                row.linux,
                row.superseded,
                row.data_missing,
                row.marks,
                row.failures.len(),
                row.seconds,
            );
        }
        text
    }
}
