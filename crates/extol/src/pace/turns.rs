//! Turns of large writes: one at a time, with pauses between them, while small fsyncs and heavy
//! writers are at it together.
//!
//! *Together* means that an fsync was under way at the same moment as a large write of another file
//! (or as one that waited for its turn), within the last half second. So a program that writes and
//! fsyncs one file after the other is never held up: it waits for nobody but itself. Nor is the
//! first of a file's data: a file of some megabytes that is written and fsynced is somebody's
//! document, and not a heavy writer.
//!
//! [`Duty`] decides how long the pauses are; this keeps the list of who is at it, and waits.
//!
//! Invariants
//! - T1: one large write at most has the turn, and it gives it back however it ends (`Turn::drop`).
//! - T2: nobody waits longer than for the pieces of those before it and one pause each, which has
//!   an upper bound (`Turns::enter`).
//!
//! Locking: one leaf lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_sync::Condvar;
use extol_task::Clock;
use parking_lot::Mutex;

use super::Pace;
use super::duty::Duty;

/// How long a meeting counts.
const HOLD_NS: u64 = super::HOLD_NS;
/// What a file may have written since it was fsynced itself, before it counts as a heavy writer's.
const HEAVY: u64 = 4 << 20;

/// With more than so many bytes in calls of write at one moment there are no turns. A mount's
/// kernel puts the pages of the small file behind all that it has in its queue already (it lets in
/// less than this while somebody fsyncs), and a crowd of threads in a program is no single heavy
/// writer.
const CROWD: u64 = 40 << 20;

#[derive(Debug, Default)]
struct State {
    duty: Duty,
    /// Files that are being written in large pieces, and those that are being fsynced.
    writing: Vec<u32>,
    syncing: Vec<u32>,
    met_ns: Option<u64>,
    /// Somebody has the turn.
    taken: bool,
    turns: u64,
    paused_ns: u64,
    late: u64,
}

impl State {
    fn together(&self, now_ns: u64) -> bool {
        self.met_ns.is_some_and(|at| now_ns.saturating_sub(at) < HOLD_NS)
    }
}

fn leave(list: &mut Vec<u32>, ino: u32) {
    if let Some(at) = list.iter().position(|known| *known == ino) {
        list.swap_remove(at);
    }
}

/// Who writes, who fsyncs, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    state: Mutex<State>,
    free: Condvar,
    /// Bytes in calls of write.
    calls: AtomicU64,
}

/// What was done, for users.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    pub(super) turns: u64,
    pub(super) paused_ns: u64,
    pub(super) late: u64,
    pub(super) goal_ns: u64,
    pub(super) permille: u32,
}

impl Turns {
    pub(super) fn together(&self, now_ns: u64) -> bool {
        self.state.lock().together(now_ns)
    }

    pub(super) fn done(&self) -> Done {
        let state = self.state.lock();
        Done {
            turns: state.turns,
            paused_ns: state.paused_ns,
            late: state.late,
            goal_ns: state.duty.goal_ns(),
            permille: state.duty.permille(),
        }
    }

    /// The fsync of a file begins.
    pub(super) fn sync(&self, now_ns: u64, ino: u32) {
        let mut state = self.state.lock();
        if state.writing.iter().any(|other| *other != ino) {
            state.met_ns = Some(now_ns);
        }
        state.syncing.push(ino);
    }

    #[cfg(test)]
    pub(super) fn writing(&self) -> usize {
        self.state.lock().writing.len()
    }

    /// A write of so many bytes was called for.
    pub(super) fn called(&self, bytes: u64) -> Called<'_> {
        self.calls.fetch_add(bytes, Ordering::Relaxed);
        Called { turns: self, bytes }
    }

    fn is_crowded(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > CROWD
    }

    /// A large write of a file begins when this returns. The file has had `before` bytes written
    /// since its own fsync.
    pub(super) fn enter<'a>(&'a self, clock: &'a dyn Clock, ino: u32, before: u64) -> Turn<'a> {
        let mut now = clock.now_ns();
        let mut state = self.state.lock();
        state.writing.push(ino);
        if state.syncing.iter().any(|other| *other != ino) {
            state.met_ns = Some(now);
        }
        let mut mine = false;
        if before >= HEAVY && state.together(now) && !self.is_crowded() {
            let asked = now;
            self.free.wait_while(&mut state, |state| state.taken);
            // Taken before the pause, so that those behind it are served one after the other.
            state.taken = true;
            mine = true;
            let pause = state.duty.wait_ns(clock.now_ns());
            if pause > 0 && !self.is_crowded() {
                drop(state);
                std::thread::sleep(std::time::Duration::from_nanos(pause));
                state = self.state.lock();
            }
            now = clock.now_ns();
            state.turns += 1;
            state.paused_ns += now.saturating_sub(asked);
        }
        drop(state);
        Turn { turns: self, clock, ino, began_ns: now, mine }
    }
}

/// A write that was called for.
pub(crate) struct Called<'a> {
    turns: &'a Turns,
    bytes: u64,
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        self.turns.calls.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// An fsync under way. Another thread may end it.
pub(crate) struct Sync {
    pace: Arc<Pace>,
    ino: u32,
    began_ns: u64,
    counts: bool,
}

impl Sync {
    /// It has been told of.
    pub(super) fn new(pace: Arc<Pace>, ino: u32, began_ns: u64) -> Self {
        Self { pace, ino, began_ns, counts: false }
    }

    /// It succeeded, and little of the file was dirty.
    pub(crate) fn succeeded(mut self) {
        self.counts = true;
    }
}

impl Drop for Sync {
    fn drop(&mut self) {
        let now = self.pace.clock.now_ns();
        let mut state = self.pace.turns.state.lock();
        leave(&mut state.syncing, self.ino);
        if self.counts {
            let beside = state.together(now);
            state.late +=
                u64::from(beside && now.saturating_sub(self.began_ns) > state.duty.goal_ns());
            state.duty.synced(self.began_ns, now, beside);
        }
    }
}

/// A large write under way.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    clock: &'a dyn Clock,
    ino: u32,
    began_ns: u64,
    mine: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = self.clock.now_ns();
        let mut state = self.turns.state.lock();
        leave(&mut state.writing, self.ino);
        if self.mine {
            state.duty.wrote(self.began_ns, now);
            state.taken = false;
            self.turns.free.notify_one();
        }
    }
}
