//! Lazy inode-table initialisation: what mkfs left out, done while the volume is in use.
//!
//! mkfs need not zero the inode tables: unused slots are known from the descriptors, and zeroing
//! them takes most of the time of making a large volume. But if a descriptor is lost, a checker has
//! to look at every slot, and must not take an inode of the device's earlier life for one of this
//! volume. So the tables are zeroed sooner or later: one group per turn, and long pauses between
//! the turns.
//!
//! ```text
//!   Ext4 ─ Fs ─ LazyInit ──── request ────► thread.rs     one for all volumes of the process
//!                  │  ▲                        │ a turn is due
//!         policy.rs│  │groups.rs               ▼
//!           (when) │  │(which)            LazyInit::step ─► turn.rs ─► alloc/itable.rs (what may be zeroed)
//! ```
//!
//! | state | meaning | leaves it |
//! |---|---|---|
//! | off | `noinit_itable`, read-only, or a volume without the flag | option changed |
//! | waiting | for its next turn | time |
//! | running | a turn | its end |
//! | done | every group is zeroed; no request, and no thread if it was the last | never |
//! | stopped | an error, or the volume became read-only or was closed | option set again, next mount |
//!
//! Progress is nowhere but in the descriptors (`INODE_ZEROED`), so after an unmount or a crash it
//! goes on where it stopped.
//!
//! Locking: `control` (who changes the option) comes before everything; `turn` is held during a
//! turn, outside of all locks of the volume; `inner` is a leaf. Nobody waits for a turn but who
//! stops it, and that ends it within one piece.

mod groups;
pub(crate) mod policy;
mod thread;
mod turn;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use extol_ondisk::GroupNr;
use extol_vfs::{FsError, Result};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::fs::Fs;
use groups::Groups;
use policy::{Ns, Pace};
use thread::{After, Request, Ticket, now};
use turn::{Memory, Turned, Work};

/// The first turn, and one after a bad moment, is a random time below this away: many volumes
/// mounted together shall not all begin together.
const MOST_DELAY: Ns = 5_000_000_000;

/// How far the inode tables are zeroed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LazyInitStats {
    /// `init_itable` is on.
    pub enabled: bool,
    /// Its number: a pause is so many times as long as the first turn.
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
    /// How long the turn took that the pause is measured by, in nanoseconds; 0: none yet.
    pub turn_ns_first: u64,
    /// Until the next turn, in milliseconds.
    pub next_due_ms: Option<u64>,
    /// Until all groups are done, about, in seconds.
    pub estimated_end_s: Option<u64>,
    /// `off`, `waiting`, `running`, `done`, `stopped`.
    pub state: String,
    /// What stopped it.
    pub error: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
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
struct Setup {
    /// There are flags, and they can be written.
    possible: bool,
    threads: bool,
    /// Delay of the first turn; `None`: random.
    delay: Option<Duration>,
    groups: u64,
}

#[derive(Debug, Default)]
struct Inner {
    setup: Setup,
    multiplier: Option<u32>,
    groups: Groups,
    phase: Phase,
    pace: Option<Pace>,
    error: Option<String>,
    zeroed_now: u64,
    skipped: u64,
    bytes: u64,
    first_turn: Ns,
    turns: u64,
    turns_ns: Ns,
}

/// The service of one volume.
#[derive(Debug, Default)]
pub(crate) struct LazyInit {
    fs: OnceLock<Weak<Fs>>,
    control: Mutex<Option<Ticket>>,
    turn: Mutex<Memory>,
    inner: Mutex<Inner>,
    /// The turn under way shall end.
    stop: AtomicBool,
}

/// The thread's view of a volume: it does not keep it open.
struct Volume(Weak<Fs>);

impl Request for Volume {
    fn turn(&self) -> After {
        match self.0.upgrade() {
            Some(fs) => fs.lazy_init.timed_step(&fs),
            None => After::End,
        }
    }
}

impl LazyInit {
    /// The volume was opened: looks what there is to do, and begins if `init_itable` is on.
    pub fn start(&self, fs: &Arc<Fs>, options: &crate::options::MountOptions) {
        let _ = self.fs.set(Arc::downgrade(fs));
        let geo = &fs.vol.geo;
        let possible = !fs.limits.read_only() && geo.has_gdt_csum();
        if possible {
            let read = Groups::read(&*fs.vol.dev, geo);
            let mut inner = self.inner.lock();
            inner.setup = Setup {
                possible: read.is_ok(),
                threads: options.threads,
                delay: options.init_itable_delay,
                groups: u64::from(geo.groups),
            };
            match read {
                Ok(groups) => inner.groups = groups,
                Err(e) => inner.error = Some(e.to_string()),
            }
        }
        self.set(options.init_itable);
    }

    /// `Some(n)`: `init_itable=n`; begins, or goes on with time measured anew. `None`:
    /// `noinit_itable`; returns when no turn is under way any more. For a volume that became
    /// writable again, this is how to go on.
    pub fn set(&self, multiplier: Option<u32>) {
        let mut ticket = self.control.lock();
        self.halt(&mut ticket);
        let mut inner = self.inner.lock();
        inner.multiplier = multiplier;
        inner.pace = None;
        inner.first_turn = 0;
        let (Some(n), true) = (multiplier, inner.setup.possible) else {
            inner.phase = Phase::Off;
            return;
        };
        inner.error = None;
        if inner.groups.left() == 0 {
            inner.phase = Phase::Done;
            return;
        }
        let pace = Pace::new(n, now(), delay(inner.setup.delay));
        inner.pace = Some(pace);
        inner.phase = Phase::Waiting;
        let threads = inner.setup.threads;
        drop(inner);
        if let (true, Some(fs)) = (threads, self.fs.get()) {
            match thread::register(Arc::new(Volume(Weak::clone(fs))), pace.due()) {
                Ok(new) => *ticket = Some(new),
                Err(e) => self.stopped(Some(format!("cannot start a thread: {e}"))),
            }
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
        // A step that was asked for by the program.
        drop(self.turn.lock());
        self.stop.store(false, Ordering::Relaxed);
    }

    fn stopped(&self, error: Option<String>) {
        let mut inner = self.inner.lock();
        if matches!(inner.phase, Phase::Waiting | Phase::Running) {
            inner.phase = Phase::Stopped;
            inner.error = error;
        }
    }

    fn timed_step(&self, fs: &Fs) -> After {
        let _ = self.step(fs);
        let inner = self.inner.lock();
        match (inner.phase, inner.pace) {
            // Whoever asked waits for the end of this request.
            _ if self.stop.load(Ordering::Relaxed) => After::End,
            (Phase::Waiting, Some(pace)) => After::Again(pace.due()),
            _ => After::End,
        }
    }

    /// One turn, whether it is due or not. The group that was done; `None` if there was none, or
    /// this is no good moment.
    pub fn step(&self, fs: &Fs) -> Result<Option<GroupNr>> {
        let mut memory = self.turn.lock();
        let (group, flush) = {
            let mut inner = self.inner.lock();
            let Some(pace) = inner.pace.filter(|_| inner.phase == Phase::Waiting) else {
                return Ok(None);
            };
            let Some(group) = inner.groups.first() else {
                inner.phase = Phase::Done;
                return Ok(None);
            };
            inner.phase = Phase::Running;
            (group, pace.flushes())
        };
        let began = now();
        let turned = match fs.whole.gate.try_enter() {
            Some(_open) => fs.note(turn::turn(fs, group, flush, &mut memory, &self.stop)),
            // The volume is frozen: nothing is written now.
            None => Ok(Turned::Postponed),
        };
        let ended = now();
        let mut inner = self.inner.lock();
        inner.phase = Phase::Waiting;
        match turned {
            Ok(Turned::Done(work)) => {
                inner.count(group, work, began, ended);
                Ok(Some(group))
            }
            Ok(Turned::Postponed) => {
                let delay = delay(inner.setup.delay.map(|d| d.max(Duration::from_millis(1))));
                if let Some(pace) = &mut inner.pace {
                    pace.postpone(ended, delay);
                }
                Ok(None)
            }
            Ok(Turned::Stopped) => Ok(None),
            Err(e) => {
                inner.phase = Phase::Stopped;
                inner.error = Some(e.to_string());
                if e == FsError::ReadOnly { Ok(None) } else { Err(e) }
            }
        }
    }

    pub fn stats(&self) -> LazyInitStats {
        let inner = self.inner.lock();
        let waits = inner.phase == Phase::Waiting && inner.setup.threads;
        let active = matches!(inner.phase, Phase::Waiting | Phase::Running);
        let turn = inner.turns_ns.checked_div(inner.turns);
        LazyInitStats {
            enabled: inner.multiplier.is_some(),
            multiplier: inner.multiplier.unwrap_or(0),
            groups_total: if inner.setup.possible { inner.setup.groups } else { 0 },
            groups_done: if inner.setup.possible {
                inner.setup.groups - inner.groups.left()
            } else {
                0
            },
            groups_zeroed_now: inner.zeroed_now,
            skipped_by_read: inner.skipped,
            bytes_zeroed: inner.bytes,
            turn_ns_first: inner.first_turn,
            next_due_ms: inner
                .pace
                .filter(|_| waits)
                .map(|p| p.due().saturating_sub(now()) / 1_000_000),
            estimated_end_s: inner
                .pace
                .zip(turn)
                .filter(|_| active)
                .map(|(pace, turn)| pace.left(inner.groups.left(), turn).div_ceil(1_000_000_000)),
            state: inner.phase.name().to_owned(),
            error: inner.error.clone(),
        }
    }
}

impl Inner {
    fn count(&mut self, group: GroupNr, work: Work, began: Ns, ended: Ns) {
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
        self.turns += 1;
        self.turns_ns = self.turns_ns.saturating_add(took);
        if let Some(pace) = &mut self.pace {
            pace.turn_ended(began, ended);
            if self.first_turn == 0 {
                self.first_turn = took;
            }
        }
        if self.groups.left() == 0 {
            self.phase = Phase::Done;
        }
    }
}

/// A random one, unless it was chosen.
fn delay(chosen: Option<Duration>) -> Ns {
    match chosen {
        Some(delay) => u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
        None => rand::random::<u64>() % MOST_DELAY,
    }
}
