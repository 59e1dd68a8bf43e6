//! What a load did, and how long each call took.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

/// A kind of call that is timed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Making a file.
    Create,
    /// Opening a file.
    Open,
    /// Writing.
    Write,
    /// Reading.
    Read,
    /// fsync or fdatasync of a file.
    Fsync,
    /// fsync with a heavy writer beside it.
    FsyncBeside,
    /// Sync of the whole file system.
    Sync,
    /// Closing.
    Close,
    /// Removing a file.
    Remove,
    /// Renaming a file.
    Rename,
    /// Looking a name up and reading its attributes, there or not.
    Stat,
    /// Reading a whole directory.
    List,
    /// Changing the mode.
    Chmod,
    /// Setting times.
    Utimes,
    /// Giving a file one more name.
    Link,
    /// Making a symbolic link.
    Symlink,
    /// Making a directory.
    Mkdir,
    /// Removing an empty directory.
    Rmdir,
    /// Making a file with its contents: create, write, close.
    Make,
}

impl Op {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default()
    }
}

/// Latency histograms by kind of call: 1 ns to an hour, three digits.
#[derive(Clone, Debug, Default)]
pub struct Timings(BTreeMap<Op, Histogram<u64>>);

const HOUR_NS: u64 = 3_600_000_000_000;

impl Timings {
    /// Runs `call` and takes its time.
    ///
    /// # Errors
    /// Its error; a failed call is not counted.
    pub fn time<T>(&mut self, op: Op, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let began = Instant::now();
        let result = call()?;
        self.note(op, began.elapsed());
        Ok(result)
    }

    /// Counts a call that took so long.
    pub fn note(&mut self, op: Op, took: Duration) {
        let histogram = self.0.entry(op).or_insert_with(|| {
            Histogram::new_with_bounds(1, HOUR_NS, 3).expect("the bounds are constant and sound")
        });
        histogram
            .saturating_record(u64::try_from(took.as_nanos()).unwrap_or(HOUR_NS).clamp(1, HOUR_NS));
    }

    /// Adds those of another thread or run.
    pub fn add(&mut self, other: &Self) {
        for (op, theirs) in &other.0 {
            match self.0.get_mut(op) {
                Some(ours) => ours.add(theirs).expect("all histograms have the same bounds"),
                None => {
                    self.0.insert(*op, theirs.clone());
                }
            }
        }
    }

    /// The percentiles of one kind of call, if there was any.
    #[must_use]
    pub fn of(&self, op: Op) -> Option<OpTimes> {
        self.0.get(&op).map(|h| OpTimes {
            op,
            count: h.len(),
            mean_ns: h.mean() as u64,
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            p999_ns: h.value_at_quantile(0.999),
            max_ns: h.max(),
        })
    }

    /// All kinds of calls.
    #[must_use]
    pub fn all(&self) -> Vec<OpTimes> {
        self.0.keys().filter_map(|op| self.of(*op)).collect()
    }
}

/// Percentiles of one kind of call, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OpTimes {
    /// Which.
    pub op: Op,
    /// Calls.
    pub count: u64,
    /// Mean.
    pub mean_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A figure that only one load has, under the name of the tool it comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name, with the unit.
    pub name: &'static str,
    /// Value.
    pub value: f64,
}

/// One of several things that a load does one after the other.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Which.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// How many.
    pub done: f64,
    /// In how much time.
    pub elapsed: Duration,
    /// Processor time, where the [`Meter`](super::Meter) knows it.
    pub cpu: Option<Duration>,
    /// How long each call took.
    pub timings: Timings,
}

impl Phase {
    /// Units per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.done / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// What a load did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What is counted: files, transactions …
    pub unit: &'static str,
    /// How many.
    pub done: u64,
    /// In how much time.
    pub elapsed: Duration,
    /// Bytes given to write calls.
    pub written: u64,
    /// Bytes got from read calls.
    pub read: u64,
    /// Figures of its own.
    pub figures: Vec<Figure>,
    /// How long calls took.
    pub timings: Timings,
    /// Its phases, if it has any.
    pub phases: Vec<Phase>,
}

impl Outcome {
    /// Units per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The whole of several phases, `unit` being what all count together.
    #[must_use]
    pub fn of_phases(unit: &'static str, phases: Vec<Phase>) -> Self {
        let mut timings = Timings::default();
        phases.iter().for_each(|p| timings.add(&p.timings));
        Self {
            unit,
            done: phases.iter().map(|p| p.done as u64).sum(),
            elapsed: phases.iter().map(|p| p.elapsed).sum(),
            written: 0,
            read: 0,
            figures: Vec::new(),
            timings,
            phases,
        }
    }

    /// A phase by name.
    #[must_use]
    pub fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|p| p.name == name)
    }

    /// A figure by name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|f| f.name == name).map(|f| f.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_known_times() {
        let mut a = Timings::default();
        let mut b = Timings::default();
        for us in 1..=999u64 {
            if us % 2 == 0 { &mut a } else { &mut b }.note(Op::Fsync, Duration::from_micros(us));
        }
        a.note(Op::Fsync, Duration::from_secs(1));
        a.add(&b);
        let t = a.of(Op::Fsync).unwrap();
        assert_eq!(t.count, 1000);
        let near =
            |got: u64, want: u64| assert!(got.abs_diff(want) <= want / 500, "{got} for {want}");
        near(t.p50_ns, 500_000);
        near(t.p99_ns, 990_000);
        near(t.p999_ns, 999_000);
        near(t.max_ns, 1_000_000_000);
        assert!(a.of(Op::Create).is_none());
    }

    #[test]
    fn a_failed_call_is_not_counted() {
        let mut t = Timings::default();
        assert!(t.time(Op::Open, || Err::<(), _>(io::Error::other("no"))).is_err());
        assert!(t.all().is_empty());
    }
}
