//! Loads: what is done to a target, under the parameter names of the tools they come from.
//!
//! A load is a struct of parameters and a function of a [`Target`]; it says what it did as an
//! [`Outcome`]. Each thread times every call into its own histograms, which are added up at the
//! end, so measuring takes no lock. A load ends after its number of files or transactions, or when
//! its [`Limits`] say so, whichever comes first.

mod dbench;
mod fsmark;
mod fsync_latency;
mod loadfile;
mod logs;
mod metadata;
pub(crate) mod options;
mod outcome;
mod phases;
mod pool;
mod postmark;
mod random;
mod seq;
mod untar;
mod varmail;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use dbench::Dbench;
pub use fsmark::{FsMark, SyncMode};
pub use fsync_latency::{FsyncLatency, Part as FsyncPart};
pub use loadfile::LoadFile;
pub use logs::Logs;
pub use metadata::Metadata;
pub use options::{positive, seconds, size};
pub use outcome::{Figure, Op, OpTimes, Outcome, Phase, Timings};
pub use postmark::PostMark;
pub use random::{Direction, Rand};
pub use seq::Seq;
pub use untar::Untar;
pub use varmail::VarMail;

use crate::target::Target;

macro_rules! defaults_are_those_of_the_options {
    ($($load:ty),+) => {
        $(impl Default for $load {
            fn default() -> Self {
                options::defaults()
            }
        })+
    };
}
defaults_are_those_of_the_options!(
    Dbench,
    FsMark,
    FsyncLatency,
    Logs,
    Metadata,
    PostMark,
    Rand,
    Seq,
    Untar,
    VarMail
);

/// A load.
pub trait Workload: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Its parameters, as the tool it comes from would be called.
    fn settings(&self) -> String;

    /// What it has on the volume at a time, as far as that is known before it runs: what a load
    /// does until its time is over is not.
    fn footprint(&self, limits: &Limits) -> Footprint;

    /// What has to be there before it is measured, on an empty directory. True if the caches are to
    /// be empty then.
    ///
    /// # Errors
    /// If an operation fails, or if it is cancelled.
    fn prepare(&self, target: &dyn Target, limits: &Limits) -> io::Result<bool> {
        let _ = (target, limits);
        Ok(false)
    }

    /// Runs it on what [`prepare`](Self::prepare) left.
    ///
    /// # Errors
    /// If an operation fails, or if it is cancelled.
    fn run(&self, target: &dyn Target, limits: &Limits) -> io::Result<Outcome>;

    /// True if [`run_cold`](Self::run_cold) follows.
    fn goes_on_cold(&self) -> bool {
        false
    }

    /// What follows with empty caches; it adds to what was done so far.
    ///
    /// # Errors
    /// If an operation fails, or if it is cancelled.
    fn run_cold(
        &self,
        target: &dyn Target,
        limits: &Limits,
        so_far: Outcome,
    ) -> io::Result<Outcome> {
        let _ = (target, limits);
        Ok(so_far)
    }
}

/// What files take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Footprint {
    /// Bytes of their blocks.
    pub bytes: u64,
    /// How many there are.
    pub files: u64,
}

impl Footprint {
    /// So many files of so many bytes each.
    #[must_use]
    pub fn of(files: u64, size: u64) -> Self {
        const BLOCK: u64 = 4096;
        Self { bytes: files.saturating_mul(size.div_ceil(BLOCK).saturating_mul(BLOCK)), files }
    }
}

/// When to stop, and how to measure.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Start nothing new after so much time.
    pub time: Option<Duration>,
    /// Set when the user wants an end.
    pub cancel: Cancel,
    /// What was used so far; for loads with phases.
    pub meter: Meter,
}

/// Tells how much processor time the target's processes have used so far, if that is known. Cheap
/// to clone.
#[derive(Clone, Default)]
pub struct Meter(Option<Arc<dyn Fn() -> Duration + Send + Sync>>);

impl Meter {
    /// One that asks this function.
    #[must_use]
    pub fn new(used: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(used)))
    }

    /// Processor time so far.
    #[must_use]
    pub fn used(&self) -> Option<Duration> {
        self.0.as_ref().map(|used| used())
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Meter").field(&self.0.is_some()).finish()
    }
}

/// Says that the user wants an end. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// One that is set when this flag is (by a signal, for instance).
    #[must_use]
    pub fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// True once it is over.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Limits with their clock running.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    began: Instant,
    end: Option<Instant>,
    cancel: Cancel,
}

impl Watch {
    pub fn start(limits: &Limits) -> Self {
        let began = Instant::now();
        Self { began, end: limits.time.map(|t| began + t), cancel: limits.cancel.clone() }
    }

    /// True if nothing new is to be started.
    pub fn is_over(&self) -> bool {
        self.cancel.is_set() || self.end.is_some_and(|end| Instant::now() >= end)
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// Runs `work(0..threads)` at once and gives what each returned; the first error counts.
pub(crate) fn on_threads<T: Send>(
    threads: u32,
    work: impl Fn(u32) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|n| {
                std::thread::Builder::new()
                    .name(format!("load{n}"))
                    .spawn_scoped(scope, move || work(n))
            })
            .collect();
        let mut results = Vec::new();
        for thread in running {
            let joined =
                thread?.join().map_err(|_| io::Error::other("a load's thread panicked"))?;
            results.push(joined);
        }
        results.into_iter().collect()
    })
}

/// The error of a load that the user ended.
pub(crate) fn cancelled() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted")
}
