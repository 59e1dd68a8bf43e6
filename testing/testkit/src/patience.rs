//! Limits of waits that a busy machine does not cut short.
//!
//! A limit in seconds is a guess about the machine: beside other work the same wait takes ten times
//! as long. [`Patience`] counts only the quiet time of a wait, in which the test and its daemons
//! made no progress:
//!
//! ```text
//!  begin                                                    over
//!    │ works ░░ works, or waits for a processor ░░░ works ░░░░│
//!             2                                 3         20    = the limit
//! ```
//!
//! - QW-1: Progress is time on a processor, time in the queue for one
//!   (`/proc/PID/task/*/schedstat`), and blocks read and written (`/proc/PID/io`), of all
//!   processes in this mount namespace, which is the test program's own (`scripts/own-mounts.sh`).
//!   Less than [`WORKING`] of the time between two looks is quiet: polling is no work.
//! - QW-2: A wait ends, whatever happens: at [`MOST`] times its limit.
//! - QW-3: A process that works without an end ends sooner: its children and it may use the limit
//!   on each processor ([`Patience::of`]).
//!
//! Nothing is read from `/proc` before a wait has lasted for half a second.

use extol_proc::{Process, number, processes, words};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time between two looks at the processes, at least; for long limits it is a part of them.
const LOOK: Duration = Duration::from_millis(500);
const LOOKS: u32 = 100;
/// Pause between two looks at what is waited for.
const PAUSE: Duration = Duration::from_millis(5);
/// What part of the time processes work that make progress.
const WORKING: f64 = 0.2;
/// How many times its limit a wait lasts at most.
const MOST: u32 = 10;
/// Clock ticks per second in `/proc/PID/stat`.
const TICKS: u64 = 100;

/// What a process has done so far.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    parent: u32,
    /// On a processor, and in the queue for one.
    active: Duration,
    /// On a processor, by itself and by the children that it has waited for.
    processor: Duration,
    /// Bytes of block devices.
    bytes: u64,
}

impl Work {
    fn of(process: Process) -> Option<Self> {
        let ticks = |field| {
            let count: u64 = number(&process.stat_field(field)?)?;
            Some(Duration::from_millis(count * 1000 / TICKS))
        };
        let children = ticks(16)? + ticks(17)?;
        let io = extol_proc::read(process.file("io")).unwrap_or_default();
        let of_io = |name| -> u64 {
            extol_proc::field(&io, name).and_then(|value| number(value.trim_ascii())).unwrap_or(0)
        };
        Some(Self {
            parent: number(&process.stat_field(4)?)?,
            active: children + Self::active(process),
            processor: children + ticks(14)? + ticks(15)?,
            bytes: of_io("read_bytes") + of_io("write_bytes"),
        })
    }

    fn active(process: Process) -> Duration {
        let tasks = std::fs::read_dir(process.file("task")).into_iter().flatten().flatten();
        tasks
            .filter_map(|task| extol_proc::read(task.path().join("schedstat")))
            .map(|text| words(&text).take(2).filter_map(number::<u64>).sum())
            .map(Duration::from_nanos)
            .sum()
    }

    /// What all processes of this mount namespace have done.
    fn of_all() -> HashMap<u32, Self> {
        let own = Process::own().mount_namespace();
        let near = processes().into_iter().filter(|process| process.mount_namespace() == own);
        near.filter_map(|process| Some((process.0, Self::of(process)?))).collect()
    }
}

/// The limit of one wait.
#[derive(Debug)]
pub struct Patience {
    limit: Duration,
    begun: Instant,
    looked: Instant,
    quiet: Duration,
    seen: Option<HashMap<u32, Work>>,
    process: Option<u32>,
    processor: Duration,
}

impl Patience {
    /// Begins a wait with so much quiet time.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Self {
            limit,
            begun: now,
            looked: now,
            quiet: Duration::ZERO,
            seen: None,
            process: None,
            processor: Duration::ZERO,
        }
    }

    /// Begins a wait for a process, whose work is limited, too.
    #[must_use]
    pub fn of(process: u32, limit: Duration) -> Self {
        Self { process: Some(process), ..Self::new(limit) }
    }

    /// True if nothing more is to be waited for.
    pub fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let since = now - self.looked;
        if since >= LOOK.max(self.limit / LOOKS).min(self.limit) {
            let work = Work::of_all();
            if !self.seen.as_ref().is_some_and(|seen| has_worked(seen, &work, since)) {
                self.quiet += since;
            }
            self.processor = self.process.map_or(Duration::ZERO, |root| used_by(&work, root));
            self.seen = Some(work);
            self.looked = now;
        }
        self.quiet >= self.limit
            || now - self.begun >= self.limit * MOST
            || self.processor >= self.limit * processors()
    }

    /// Waits until something holds; false if the wait is over before.
    pub fn waits_for(mut self, mut holds: impl FnMut() -> bool) -> bool {
        loop {
            if holds() {
                return true;
            }
            if self.is_over() {
                return holds();
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Waits until something holds, with so much quiet time.
///
/// # Panics
/// If it does not come to hold.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, holds: impl FnMut() -> bool) {
    assert!(Patience::new(limit).waits_for(holds), "not within {limit:?} of quiet time: {what}");
}

fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1))
}

fn has_worked(before: &HashMap<u32, Work>, now: &HashMap<u32, Work>, since: Duration) -> bool {
    let (mut active, mut bytes) = (Duration::ZERO, 0);
    for (process, work) in now {
        let was = before.get(process).copied().unwrap_or_default();
        active += work.active.saturating_sub(was.active);
        bytes += work.bytes.saturating_sub(was.bytes);
    }
    bytes > 0 || active >= since.mul_f64(WORKING)
}

/// Time on processors of a process and of those that it has started.
fn used_by(work: &HashMap<u32, Work>, root: u32) -> Duration {
    let is_below = |mut process: u32| {
        // (A number may come back, so there is a bound.)
        for _ in 0..work.len() {
            if process == root {
                return true;
            }
            let Some(next) = work.get(&process) else { return false };
            process = next.parent;
        }
        false
    };
    let below = work.iter().filter(|(process, _)| is_below(**process));
    below.map(|(_, work)| work.processor).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn work(parent: u32, active: u64, bytes: u64) -> Work {
        let active = Duration::from_millis(active);
        Work { parent, active, processor: active, bytes }
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn shell(script: &str) -> Killed {
        Killed(Command::new("sh").args(["-c", script]).spawn().expect("a shell"))
    }

    #[test]
    fn work_is_told_from_polling() {
        let second = Duration::from_secs(1);
        let before = HashMap::from([(1, work(0, 100, 0)), (2, work(1, 50, 4096))]);
        let after = |active, bytes| HashMap::from([(1, work(0, active, bytes)), (3, before[&2])]);
        assert!(!has_worked(&before, &HashMap::from([(1, before[&1])]), second));
        assert!(!has_worked(&before, &HashMap::from([(1, work(0, 190, 0))]), second), "polls");
        assert!(has_worked(&before, &HashMap::from([(1, work(0, 400, 0))]), second));
        assert!(has_worked(&before, &HashMap::from([(1, work(0, 100, 512))]), second), "reads");
        assert!(has_worked(&before, &after(300, 0), second), "one that is new");
    }

    #[test]
    fn what_a_process_has_started_is_its_own() {
        let all = [(1, 0, 9), (10, 1, 5), (11, 10, 6), (12, 11, 7), (20, 1, 50)];
        let all = all.map(|(process, parent, active)| (process, work(parent, active, 0)));
        assert_eq!(used_by(&HashMap::from(all), 10), Duration::from_millis(18));
    }

    /// A process that sleeps ends its wait after the limit, one that works does not, and one that
    /// works for ever ends it all the same.
    #[test]
    fn quiet_time_counts_and_work_does_not() {
        let limit = Duration::from_millis(1200);
        let begun = Instant::now();
        assert!(!Patience::new(limit).waits_for(|| begun.elapsed() > limit * MOST * 2));
        assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());

        let busy = shell("while :; do :; done");
        let mut patience = Patience::of(busy.0.id(), limit);
        let begun = Instant::now();
        while !patience.is_over() {
            std::thread::sleep(PAUSE);
        }
        // (The first look compares with nothing. Beside much other work the process has not had its
        // part of the processors when all waits end.)
        assert!(patience.quiet < limit && begun.elapsed() > limit, "{patience:?}");
        let is_last = begun.elapsed() >= limit * MOST;
        assert!(patience.processor >= limit || is_last, "{patience:?}");
    }

    /// The numbers of `/proc` are those of this machine.
    #[test]
    fn a_busy_process_is_seen() {
        let busy = shell("while :; do :; done");
        let process = Process(busy.0.id());
        let used = |least: u64| {
            let least = Duration::from_millis(least);
            wait_until("work", Duration::from_secs(20), || {
                Work::of(process)
                    .is_some_and(|work| work.active >= least && work.processor >= least)
            });
        };
        used(300);
        assert_eq!(Work::of(process).map(|work| work.parent), Some(std::process::id()));
    }
}
