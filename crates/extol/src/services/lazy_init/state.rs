//! What is known of the lazy initialisation of one volume, and its switch.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extol_ondisk::GroupNr;
use extol_sync::plain::Mutex;
use serde::{Deserialize, Serialize};

use super::groups::Groups;
use super::schedule::{Ns, Schedule};
use super::thread::{self, After, Request, Ticket, now};

/// The first step, and a postponed one, is a random time below this away: many volumes mounted
/// together do not all begin together.
const MOST_DELAY: Ns = 5_000_000_000;

/// How far the inode tables are zeroed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LazyInitStats {
    /// `init_itable` is on.
    pub enabled: bool,
    /// Its number: a pause is so many times as long as the first step.
    pub multiplier: u32,
    /// Groups of the volume (0 if it keeps no such record, or cannot be written).
    pub groups_total: u64,
    /// Groups whose tables are zeroed.
    pub groups_done: u64,
    /// Of those, the ones done by this mount.
    pub groups_zeroed_now: u64,
    /// Of those, the ones that were zero already, so that nothing had to be written.
    pub skipped_by_read: u64,
    /// Bytes that had to be zeroed.
    pub bytes_zeroed: u64,
    /// How long the step took that the pause is measured by, in nanoseconds; 0: none yet.
    pub first_step_ns: u64,
    /// Until the next step, in milliseconds.
    pub next_due_ms: Option<u64>,
    /// Until all groups are done, about, in seconds.
    pub estimated_end_s: Option<u64>,
    /// `off`, `waiting`, `running`, `done`, `stopped`.
    pub state: String,
    /// What stopped it.
    pub error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Phase {
    #[default]
    Off,
    Waiting,
    Running,
    Done,
    Stopped,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Done => "done",
            Self::Stopped => "stopped",
        }
    }
}

/// How the volume was mounted, as far as it matters here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setup {
    /// There are flags, and they can be written.
    pub possible: bool,
    pub threads: bool,
    /// Delay of the first step; `None`: random.
    pub delay: Option<Duration>,
    pub groups: u64,
}

/// What the device had to do for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    /// Nothing; another writer had set the flag.
    Nothing,
    /// It read as zeros already.
    Read,
    /// So many bytes were zeroed.
    Zeroed(u64),
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub setup: Setup,
    multiplier: Option<u32>,
    pub groups: Groups,
    pub phase: Phase,
    pub schedule: Option<Schedule>,
    pub error: Option<String>,
    zeroed_now: u64,
    skipped: u64,
    bytes: u64,
    first_step: Ns,
    steps: u64,
    steps_ns: Ns,
    /// Writes of file data up to the end of the last step.
    writes: Option<u64>,
}

/// The lazy initialisation of one volume.
#[derive(Debug, Default)]
pub(crate) struct LazyInit {
    request: OnceLock<Arc<dyn Request>>,
    control: Mutex<Option<Ticket>>,
    /// Held during a step. A group that was zeroed, but whose flag could not be set yet.
    pub(super) step: Mutex<Option<GroupNr>>,
    pub(super) inner: Mutex<Inner>,
    /// The step under way shall end.
    pub(super) stop: AtomicBool,
}

impl LazyInit {
    /// The volume was opened. `found`: what there is to do, if that is possible at all.
    pub(super) fn set_up(
        &self,
        request: Arc<dyn Request>,
        found: Option<(Setup, Result<Groups, String>)>,
    ) {
        let _ = self.request.set(request);
        if let Some((setup, groups)) = found {
            let mut inner = self.inner.lock();
            inner.setup = Setup { possible: groups.is_ok(), ..setup };
            match groups {
                Ok(groups) => inner.groups = groups,
                Err(e) => inner.error = Some(e),
            }
        }
    }

    /// `Some(n)`: `init_itable=n`; begins, or goes on with time measured anew. `None`:
    /// `noinit_itable`; returns when no step is under way any more. A volume that became writable
    /// again goes on this way.
    pub fn set(&self, multiplier: Option<u32>) {
        let mut ticket = self.control.lock();
        self.halt(&mut ticket);
        let mut inner = self.inner.lock();
        inner.multiplier = multiplier;
        inner.schedule = None;
        inner.first_step = 0;
        inner.writes = None;
        let (Some(n), true) = (multiplier, inner.setup.possible) else {
            inner.phase = Phase::Off;
            return;
        };
        inner.error = None;
        if inner.groups.left() == 0 {
            inner.phase = Phase::Done;
            return;
        }
        let schedule = Schedule::new(n, now(), delay(inner.setup.delay));
        inner.schedule = Some(schedule);
        inner.phase = Phase::Waiting;
        let threads = inner.setup.threads;
        drop(inner);
        if let (true, Some(request)) = (threads, self.request.get()) {
            match thread::register(Arc::clone(request), schedule.due()) {
                Ok(new) => *ticket = Some(new),
                Err(e) => self.stopped(Some(format!("cannot start a thread: {e}"))),
            }
        }
    }

    /// The volume has these groups more. `zeroed`: with tables of zeros. One that was done begins
    /// again.
    pub fn grown(&self, groups: Range<u32>, zeroed: bool) {
        let mut inner = self.inner.lock();
        if !inner.setup.possible || groups.is_empty() {
            return;
        }
        inner.setup.groups = groups.end.into();
        if zeroed {
            return;
        }
        inner.groups.extend(groups);
        let (done, multiplier) = (inner.phase == Phase::Done, inner.multiplier);
        drop(inner);
        if done {
            self.set(multiplier);
        }
    }

    /// Nothing is zeroed any more when this returns (the volume is closed or becomes read-only).
    pub fn stop(&self) {
        let mut ticket = self.control.lock();
        self.halt(&mut ticket);
        self.stopped(None);
    }

    fn halt(&self, ticket: &mut Option<Ticket>) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(ticket) = ticket.take() {
            ticket.cancel();
        }
        // A step that the program asked for.
        drop(self.step.lock());
        self.stop.store(false, Ordering::Relaxed);
    }

    fn stopped(&self, error: Option<String>) {
        let mut inner = self.inner.lock();
        if matches!(inner.phase, Phase::Waiting | Phase::Running) {
            inner.phase = Phase::Stopped;
            inner.error = error;
        }
    }

    /// What the thread does after a step.
    pub(super) fn after_step(&self) -> After {
        let inner = self.inner.lock();
        match (inner.phase, inner.schedule) {
            // A stop waits for the end of this request.
            _ if self.stop.load(Ordering::Relaxed) => After::End,
            (Phase::Waiting, Some(schedule)) => After::Again(schedule.due()),
            _ => After::End,
        }
    }

    pub fn stats(&self) -> LazyInitStats {
        let inner = self.inner.lock();
        let waits = inner.phase == Phase::Waiting && inner.setup.threads;
        let active = matches!(inner.phase, Phase::Waiting | Phase::Running);
        let step = inner.steps_ns.checked_div(inner.steps);
        let total = if inner.setup.possible { inner.setup.groups } else { 0 };
        LazyInitStats {
            enabled: inner.multiplier.is_some(),
            multiplier: inner.multiplier.unwrap_or(0),
            groups_total: total,
            groups_done: total.saturating_sub(inner.groups.left()),
            groups_zeroed_now: inner.zeroed_now,
            skipped_by_read: inner.skipped,
            bytes_zeroed: inner.bytes,
            first_step_ns: inner.first_step,
            next_due_ms: inner
                .schedule
                .filter(|_| waits)
                .map(|s| s.due().saturating_sub(now()) / 1_000_000),
            estimated_end_s: inner
                .schedule
                .zip(step)
                .filter(|_| active)
                .map(|(s, step)| s.left(inner.groups.left(), step).div_ceil(1_000_000_000)),
            state: inner.phase.name().to_owned(),
            error: inner.error.clone(),
        }
    }
}

impl Inner {
    /// A step ended. `writes`: how many writes of file data there had been when it began and when
    /// it ended.
    pub fn count(
        &mut self,
        group: GroupNr,
        work: Work,
        (began, ended): (Ns, Ns),
        writes: (u64, u64),
    ) {
        let busy = self.writes.replace(writes.1).is_some_and(|before| before != writes.0);
        self.groups.done(group);
        match work {
            Work::Nothing => {}
            Work::Read => {
                self.zeroed_now += 1;
                self.skipped += 1;
            }
            Work::Zeroed(bytes) => {
                self.zeroed_now += 1;
                self.bytes += bytes;
            }
        }
        let took = ended.saturating_sub(began);
        self.steps += 1;
        self.steps_ns = self.steps_ns.saturating_add(took);
        if let Some(schedule) = &mut self.schedule {
            schedule.step_ended(began, ended, busy);
            if self.first_step == 0 {
                self.first_step = took;
            }
        }
        if self.groups.left() == 0 {
            self.phase = Phase::Done;
        }
    }
}

/// A random one, unless it was chosen.
pub(super) fn delay(chosen: Option<Duration>) -> Ns {
    match chosen {
        Some(delay) => u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
        None => extol_proc::random_number() % MOST_DELAY,
    }
}
