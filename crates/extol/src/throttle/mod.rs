//! Throttle of large writes: bounds the bytes that a flush has to write for an fsync of another
//! file.
//!
//! A flush waits for every write that the device completed before it. A disk's cache, and even more
//! the page cache below a loop device, takes data much faster than the medium, so beside a writer
//! of a large file the fsync of a small one waits for all that was written since the last flush.
//! While fsyncs and large writes of different files meet, the writes keep within a budget of bytes
//! written and not flushed. A write that would exceed it waits for the flush under way, and flushes
//! first if that is not enough.
//!
//! ```text
//!   fsync ──► `fsynced`           large write ──► `room` ──► write
//!                                       (over budget) └────► flush, then write
//!   ThrottledDevice: counts bytes written, times flushes ──► Budget
//! ```
//!
//! An fsync counts for half a second. A writer without fsyncs of other files is never held up.
//! Large writes go in pieces of at most half of the budget (`max_write`), so that one fits beside
//! bytes that are unflushed already.
//!
//! The throttle only adds flushes, and time. The order in which data becomes durable does not
//! depend on it.
//!
//! Invariants
//! - TH-1: a flush covers only bytes written before it began (`Throttle::begin_flush`); a byte
//!   stays counted until a successful flush covers it.
//! - TH-2: a write waits for at most two flushes under way, then flushes itself
//!   (`Throttle::room`).
//! - TH-3: the budget has bounds on both sides (`Budget::flushed`).
//!
//! Locking: two leaf locks, held for a few instructions. A write that waits holds its inode's lock.

mod budget;
mod device;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use extol_task::Clock;
use serde::{Deserialize, Serialize};

use budget::Budget;
pub(crate) use device::ThrottledDevice;

/// Smaller writes are not held up: they add little to a flush.
const LARGE: u64 = 128 << 10;
/// How long an fsync counts. Programs that depend on the time of an fsync do several in a second.
const HOLD_NS: u64 = 500_000_000;
/// Flushes under way that a write waits for before it flushes itself.
const WAITS: u32 = 2;

/// What a large write does first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    Write,
    FlushFirst,
}

/// The last fsyncs of two different files: inode and time. (With only one, a writer's own fsyncs
/// would hide those of the other file.)
#[derive(Clone, Copy, Debug, Default)]
struct RecentFsyncs([Option<(u32, u64)>; 2]);

impl RecentFsyncs {
    fn note(&mut self, ino: u32, now_ns: u64) {
        if self.0[0].is_some_and(|(last, _)| last != ino) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some((ino, now_ns));
    }

    fn of_other_file(&self, ino: u32, now_ns: u64) -> bool {
        self.0
            .iter()
            .flatten()
            .any(|(other, at)| *other != ino && now_ns.saturating_sub(*at) < HOLD_NS)
    }
}

#[derive(Debug, Default)]
struct Flushes {
    /// Bytes written before the last successful flush began.
    covered: u64,
    running: u32,
    ended: u64,
    budget: Budget,
}

/// Figures of the throttle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ThrottleStats {
    /// Bytes that large writes may leave unflushed beside fsyncs of other files.
    pub budget: u64,
    /// Bytes written and not flushed.
    pub unflushed: u64,
    /// Large writes that flushed first.
    pub flushes: u64,
    /// Waits of large writes for a flush under way.
    pub waits: u64,
    /// Nanoseconds that large writes were held up.
    pub held_ns: u64,
}

/// The throttle of one mounted file system.
pub(crate) struct Throttle {
    clock: Arc<dyn Clock>,
    written: AtomicU64,
    fsyncs: Mutex<RecentFsyncs>,
    state: Mutex<Flushes>,
    flushed: Condvar,
    flushes: AtomicU64,
    waits: AtomicU64,
    held_ns: AtomicU64,
}

impl std::fmt::Debug for Throttle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Throttle").field(&self.stats()).finish()
    }
}

impl Throttle {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            written: AtomicU64::new(0),
            fsyncs: Mutex::default(),
            state: Mutex::default(),
            flushed: Condvar::new(),
            flushes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
        }
    }

    /// An fsync of this file begins.
    pub(crate) fn fsynced(&self, ino: u32) {
        let now = self.clock.now_ns();
        self.fsyncs.lock().note(ino, now);
    }

    fn is_active(&self, ino: u32) -> bool {
        let now = self.clock.now_ns();
        self.fsyncs.lock().of_other_file(ino, now)
    }

    /// Most bytes of one write of this file; `None`: no bound.
    pub(crate) fn max_write(&self, ino: u32) -> Option<u64> {
        self.is_active(ino).then(|| self.state.lock().budget.bytes() / 2)
    }

    /// What the file does before it writes so many bytes. Asked once per write: after a flush the
    /// write goes ahead.
    pub(crate) fn room(&self, ino: u32, bytes: u64) -> Room {
        if bytes < LARGE || !self.is_active(ino) {
            return Room::Write;
        }
        let mut state = self.state.lock();
        let mut since = None;
        for waits in 0..=WAITS {
            let unflushed = self.written.load(Ordering::Relaxed).saturating_sub(state.covered);
            if unflushed.saturating_add(bytes) <= state.budget.bytes() {
                break;
            }
            if state.running == 0 || waits == WAITS {
                drop(state);
                self.count_held(since);
                self.flushes.fetch_add(1, Ordering::Relaxed);
                return Room::FlushFirst;
            }
            since.get_or_insert_with(|| self.clock.now_ns());
            self.waits.fetch_add(1, Ordering::Relaxed);
            let ended = state.ended;
            self.flushed.wait_while(&mut state, |state| state.ended == ended && state.running > 0);
        }
        drop(state);
        self.count_held(since);
        Room::Write
    }

    fn count_held(&self, since_ns: Option<u64>) {
        if let Some(since) = since_ns {
            self.held_ns.fetch_add(self.clock.now_ns().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// The flush of [`Room::FlushFirst`] began at `since_ns` and has ended.
    pub(crate) fn flushed_first(&self, since_ns: u64) {
        self.count_held(Some(since_ns));
    }

    pub(crate) fn stats(&self) -> ThrottleStats {
        let state = self.state.lock();
        ThrottleStats {
            budget: state.budget.bytes(),
            unflushed: self.written.load(Ordering::Relaxed).saturating_sub(state.covered),
            flushes: self.flushes.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            held_ns: self.held_ns.load(Ordering::Relaxed),
        }
    }

    fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    fn begin_flush(&self) -> Flush<'_> {
        let mut state = self.state.lock();
        state.running += 1;
        Flush {
            throttle: self,
            covers: self.written.load(Ordering::Relaxed),
            began_ns: self.clock.now_ns(),
            alone: state.running == 1,
            succeeded: false,
        }
    }
}

/// A flush under way; it ends when this is dropped.
struct Flush<'a> {
    throttle: &'a Throttle,
    covers: u64,
    began_ns: u64,
    /// No other flush was under way when it began: its time is its own.
    alone: bool,
    succeeded: bool,
}

impl Flush<'_> {
    fn succeeded(mut self) {
        self.succeeded = true;
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        let took = self.throttle.clock.now_ns().saturating_sub(self.began_ns);
        let mut state = self.throttle.state.lock();
        if self.succeeded {
            if self.alone {
                let bytes = self.covers.saturating_sub(state.covered);
                state.budget.flushed(bytes, took);
            }
            state.covered = state.covered.max(self.covers);
        }
        state.running -= 1;
        state.ended += 1;
        self.throttle.flushed.notify_all();
    }
}
