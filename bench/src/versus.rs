//! Contenders take turns at one load: A B, B A, A B …
//!
//! Each run is on a fresh volume. The rate of a contender is the median of its rounds; its ratio to
//! the first contender is taken round by round, so that a machine that gets slower while it is
//! measured changes the rates, but not the ratio. Latencies of all rounds are put into one
//! histogram.

use std::time::{Duration, Instant};

use crate::contender::{Contender, Cost, KernelFast, Medium, Place, Reading, Session, VolumeSpec};
use crate::report::Report;
use crate::workload::{Limits, Op, OpTimes, Outcome, Timings, Workload};
use crate::{BenchError, Programs, Result};

mod phases;
mod summary;

pub use phases::PhaseSummary;
pub use summary::{PerUnit, Summary};

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

impl Default for Conduct {
    fn default() -> Self {
        Self {
            place: Place {
                medium: Medium::Memory,
                dir: "/var/tmp".into(),
                programs: Programs::default(),
            },
            volume: VolumeSpec::default(),
            rounds: 1,
            limits: Limits::default(),
        }
    }
}

/// A benchmark of several contenders that it chooses itself. Its fields are its options.
pub trait Benchmark: Clone {
    /// Takes over where and how often to run, with what its own options say about that.
    ///
    /// # Errors
    /// If something that it needs cannot be read.
    fn begin(&mut self, conduct: Conduct) -> Result<()>;

    /// Runs it. `progress` is told before each run.
    ///
    /// # Errors
    /// If a volume cannot be made or mounted, or a load fails.
    fn run(&self, progress: &mut dyn FnMut(&Step)) -> Result<Report>;
}

/// A contender on a kind of volume of its own.
#[derive(Clone, Debug)]
pub struct Entry {
    /// How it is called in tables.
    pub name: String,
    /// What takes part.
    pub contender: Contender,
    /// Features that its volume has beyond the others' (`-O`).
    pub features: Vec<String>,
}

impl Entry {
    /// All of it.
    #[must_use]
    pub fn new(name: impl Into<String>, contender: Contender, features: &[&str]) -> Self {
        Self {
            name: name.into(),
            contender,
            features: features.iter().map(|f| (*f).to_owned()).collect(),
        }
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
    /// Counters after it; of a load with a cold part, before that.
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

/// A remark if an emulated medium was late, by these parts of its time.
pub(crate) fn note_late(report: &mut Report, about: &str, late: impl IntoIterator<Item = f64>) {
    let late = late.into_iter().fold(0.0, f64::max);
    if late > 0.05 {
        report.notes.push(format!(
            "{about}: the emulated medium came back up to {:.0} % later than it should; this \
             machine is too slow or too busy for it",
            late * 100.0
        ));
    }
}

/// The latencies of one kind of call in all these runs.
pub(crate) fn times(runs: &[Run], op: Op) -> Option<OpTimes> {
    let mut timings = Timings::default();
    runs.iter().for_each(|r| timings.add(&r.outcome.timings));
    timings.of(op)
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
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::Interrupted => BenchError("interrupted".into()),
            std::io::ErrorKind::StorageFull => about(format!(
                "the volume of {} MiB is full: give a larger --volume, or fewer seconds",
                self.volume.size >> 20
            )),
            _ => about(e.to_string()),
        };
        self.check_room(contender, load)?;
        let mut session =
            Session::start(contender, &self.place, &self.volume).map_err(|e| about(e.0))?;
        if load.prepare(&**session.target(), &self.limits).map_err(failed)? {
            session = session.go_cold().map_err(|e| about(e.0))?;
        }
        ready(&session)?;
        let limits = |session: &Session| Limits { meter: session.meter(), ..self.limits.clone() };
        let before = session.reading();
        let mut outcome = load.run(&**session.target(), &limits(&session)).map_err(failed)?;
        let after = session.reading();
        let mut cost = after.since(&before);
        if load.goes_on_cold() {
            session = session.go_cold().map_err(|e| about(e.0))?;
            let before = session.reading();
            outcome =
                load.run_cold(&**session.target(), &limits(&session), outcome).map_err(failed)?;
            cost = cost.plus(session.reading().since(&before));
        }
        let began = Instant::now();
        session.finish().map_err(|e| about(e.0))?;
        Ok(Run { outcome, cost, before, after, unmount: began.elapsed() })
    }

    /// Err if the load has no room on the volumes that are made for it, or the machine none below
    /// them.
    ///
    /// # Errors
    /// That: one line that says what to do.
    pub fn check_room(&self, contender: &Contender, load: &dyn Workload) -> Result<()> {
        let needs = load.footprint(&self.limits);
        self.place.check_room(contender, load.name(), needs)?;
        match contender {
            Contender::Noop(_) | Contender::Dir(_) => Ok(()),
            _ => self.volume.check_room(load.name(), needs),
        }
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
        let entries: Vec<Entry> =
            contenders.iter().map(|c| Entry::new(c.name(), c.clone(), &[])).collect();
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
            // None is always the first, or always follows the same one.
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
        summary::fill(&mut report, &summaries);
        Ok(report)
    }

    /// The same on another medium.
    #[must_use]
    pub fn on(&self, medium: &Medium) -> Self {
        let mut conduct = self.clone();
        conduct.place.medium = medium.clone();
        conduct
    }

    /// Medium, volume and rounds.
    pub fn describe(&self, report: &mut Report) {
        report.set("medium", self.place.medium.to_string());
        let log = self
            .volume
            .journal_mib
            .map_or("log of mkfs's choice".into(), |m| format!("log of {m} MiB"));
        report.set(
            "volume",
            format!("{} MiB, {log}, made afresh for each run", self.volume.size >> 20),
        );
        let time =
            self.limits.time.map_or(String::new(), |t| format!(", {} s each", t.as_secs_f64()));
        report.set("rounds", format!("{}{time}, contenders in turn; medians", self.rounds));
        if let Some(before) = &self.place.programs.before {
            report.set("before", before.display().to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{FsMark, FsyncLatency, Metadata, PostMark, Rand, Seq, Untar, VarMail};

    fn conduct(dir: &std::path::Path, rounds: u32) -> Conduct {
        Conduct {
            place: Place { medium: Medium::Memory, dir: dir.into(), programs: Programs::default() },
            volume: VolumeSpec { size: 64 << 20, journal_mib: Some(4), ..VolumeSpec::default() },
            rounds,
            limits: Limits::default(),
        }
    }

    /// Each load runs on the library, is measured and reported.
    #[test]
    fn every_load_on_the_library() {
        let scratch = tempfile::tempdir().unwrap();
        let loads: [(Box<dyn Workload>, u64); 8] = [
            (Box::new(FsMark { threads: 2, files: 5, size: 4096, ..FsMark::default() }), 10),
            (Box::new(PostMark { number: 10, transactions: 20, ..PostMark::default() }), 20),
            (Box::new(VarMail { threads: 2, files: 10, loops: 2, ..VarMail::default() }), 52),
            (
                Box::new(FsyncLatency {
                    calls: 5,
                    writer_size: 4 << 20,
                    ..FsyncLatency::default()
                }),
                10,
            ),
            (
                Box::new(Metadata { threads: 2, files: 3, shared: false, least: Duration::ZERO }),
                2 * (9 * 3 + 2 * 3 + 6 + 7),
            ),
            (Box::new(Untar { files: 5, keep: true, ..Untar::default() }), 5),
            // Both mount the volume again in between.
            (Box::new(Seq { size: 3_000_000, block: 1 << 16, jobs: 2, direct: true }), 12),
            (Box::new(Rand { size: 1 << 20, depth: 2, calls: 7, ..Rand::default() }), 14),
        ];
        for (load, done) in loads {
            let run =
                conduct(scratch.path(), 1).run(&Contender::Library(String::new()), &*load).unwrap();
            assert_eq!(run.outcome.done, done, "{}", load.name());
            assert!(run.grown("/operations").unwrap() > 2 && run.cost.transactions.is_some());
        }
    }

    #[test]
    fn two_take_turns_and_are_compared() {
        let scratch = tempfile::tempdir().unwrap();
        let contenders = ["library", "library:commit=30"].map(|t| Contender::parse(t).unwrap());
        let load = FsMark { files: 3, size: 100, ..FsMark::default() };
        let mut order = Vec::new();
        let report = conduct(scratch.path(), 2)
            .report(&contenders, &load, &mut |step| {
                order.push((step.done, step.total, step.what.clone()))
            })
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
            assert!(
                json.pointer(pointer).is_some_and(serde_json::Value::is_number),
                "{pointer} {json:#}"
            );
        }
        assert_eq!(json.pointer("/results/contenders/0/ratio/median"), Some(&1.0.into()));
        let text = report.text();
        assert!(text.contains("medium: memory") && text.contains("library:commit=30"), "{text}");
        assert!(report.html().matches("<svg").count() >= 2);
        let series = |report: &Report| -> Vec<String> {
            report.charts[0].series.iter().map(|s| s.0.clone()).collect()
        };
        assert_eq!(series(&report), ["median", "min", "max"]);
        let once = conduct(scratch.path(), 1).report(&contenders, &load, &mut |_| {}).unwrap();
        assert_eq!(series(&once), ["median"], "of one round all are the same");
    }
}
