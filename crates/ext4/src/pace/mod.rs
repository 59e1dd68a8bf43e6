//! Pacing: heavy writers leave the device's cache clean enough for others to fsync quickly.
//!
//! A flush waits for everything that was written to the device before it, whoever wrote it. A disk's cache, and even more the
//! page cache below a loop device, take data much faster than they write it, so beside somebody who writes a large
//! file the fsync of a small one waits for all that was written since the last flush. So while the two meet, large
//! writes of file data keep within a budget: bytes written and not flushed. Who would exceed it waits for the flush that is
//! under way, and if that is not enough, flushes first. The small fsync then finds little to wait for.
//!
//! ```text
//!   fsync of a small file ──► `synced`        large write ──► `room` ──► go
//!                                                     (they meet,  └──► flush, then go
//!                                                      over budget)
//!   PacedDevice: counts what is written, times flushes ──► Budget
//! ```
//!
//! They meet for half a second after an fsync of another file. A writer alone is never held up, nor one that fsyncs its own file.
//!
//! Invariants
//! - P1: a flush covers only what had been written when it began (`Pace::begin`); the count never forgets a byte that a flush
//!   has not covered.
//! - P2: nobody waits for anything but a flush under way, and for two of them at most (`Pace::room`).
//!
//! Pacing only adds flushes; what must be durable before what is none of its business.
//!
//! Locking: two leaf locks, held for a few instructions. Waits hold the writer's inode lock, as its write does.

mod budget;
mod device;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_service::Clock;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use budget::Budget;
pub(crate) use device::PacedDevice;

/// Smaller writes are not held up: it is somebody's small file, or not much.
pub(crate) const BULK: u64 = 128 << 10;
/// An fsync counts for so long. Programs that fsync now and then do it many times a second, or nobody minds.
const HOLD_NS: u64 = 500_000_000;
/// Flushes under way that a writer waits for before it asks for one itself.
const WAITS: u32 = 2;

/// What a large write should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Write.
    Go,
    /// Flush, then write.
    Flush,
}

/// The last fsyncs of two different files: inode, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Synced([Option<(u32, u64)>; 2]);

impl Synced {
    fn note(&mut self, ino: u32, now_ns: u64) {
        if self.0[0].is_some_and(|(last, _)| last != ino) {
            self.0[1] = self.0[0];
        }
        self.0[0] = Some((ino, now_ns));
    }

    /// Somebody has fsynced another file lately.
    fn meets(&self, ino: u32, now_ns: u64) -> bool {
        self.0.iter().flatten().any(|(other, at)| *other != ino && now_ns.saturating_sub(*at) < HOLD_NS)
    }
}

#[derive(Debug, Default)]
struct Flushes {
    /// Bytes written before the last flush that succeeded began.
    covered: u64,
    /// Under way.
    running: u32,
    /// Ended.
    ended: u64,
    budget: Budget,
}

/// What pacing has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PaceStats {
    /// Bytes that may be written and not flushed while a small fsync and a heavy writer meet.
    pub budget: u64,
    /// Bytes written and not flushed.
    pub unflushed: u64,
    /// Large writes that had to flush first.
    pub flushes: u64,
    /// Large writes that waited for a flush under way.
    pub waits: u64,
    /// Nanoseconds that large writes were held up.
    pub held_ns: u64,
}

/// The pace of large writes of one volume.
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    written: AtomicU64,
    synced: Mutex<Synced>,
    state: Mutex<Flushes>,
    flushed: Condvar,
    flushes: AtomicU64,
    waits: AtomicU64,
    held_ns: AtomicU64,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pace").field(&self.stats()).finish()
    }
}

impl Pace {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            written: AtomicU64::new(0),
            synced: Mutex::default(),
            state: Mutex::default(),
            flushed: Condvar::new(),
            flushes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
        }
    }

    /// Somebody waits for the fsync of a file.
    pub(crate) fn synced(&self, ino: u32) {
        let now = self.clock.now_ns();
        self.synced.lock().note(ino, now);
    }

    fn meets(&self, ino: u32) -> bool {
        let now = self.clock.now_ns();
        self.synced.lock().meets(ino, now)
    }

    /// Most bytes that this file should write in one piece: half of the budget while it meets somebody's fsync.
    pub(crate) fn piece(&self, ino: u32) -> Option<u64> {
        self.meets(ino).then(|| self.state.lock().budget.bytes() / 2)
    }

    /// What the file should do before it writes so many bytes. Ask once: who has flushed may write.
    pub(crate) fn room(&self, ino: u32, bytes: u64) -> Room {
        if bytes < BULK || !self.meets(ino) {
            return Room::Go;
        }
        let mut state = self.state.lock();
        let mut asked = None;
        for waits in 0..=WAITS {
            let unflushed = self.written.load(Ordering::Relaxed).saturating_sub(state.covered);
            if unflushed.saturating_add(bytes) <= state.budget.bytes() {
                break;
            }
            if state.running == 0 || waits == WAITS {
                drop(state);
                self.held(asked);
                self.flushes.fetch_add(1, Ordering::Relaxed);
                return Room::Flush;
            }
            asked.get_or_insert_with(|| self.clock.now_ns());
            self.waits.fetch_add(1, Ordering::Relaxed);
            let ended = state.ended;
            self.flushed.wait_while(&mut state, |state| state.ended == ended && state.running > 0);
        }
        drop(state);
        self.held(asked);
        Room::Go
    }

    fn held(&self, since_ns: Option<u64>) {
        if let Some(since) = since_ns {
            self.held_ns.fetch_add(self.clock.now_ns().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// The write that was told to flush began to do so then, and has done it.
    pub(crate) fn was_held(&self, since_ns: u64) {
        self.held(Some(since_ns));
    }

    /// Figures for users.
    pub(crate) fn stats(&self) -> PaceStats {
        let state = self.state.lock();
        PaceStats {
            budget: state.budget.bytes(),
            unflushed: self.written.load(Ordering::Relaxed).saturating_sub(state.covered),
            flushes: self.flushes.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            held_ns: self.held_ns.load(Ordering::Relaxed),
        }
    }

    /// The device has taken so many bytes.
    fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A flush begins.
    fn begin(&self) -> Flush<'_> {
        let mut state = self.state.lock();
        state.running += 1;
        Flush {
            pace: self,
            covers: self.written.load(Ordering::Relaxed),
            began_ns: self.clock.now_ns(),
            alone: state.running == 1,
            done: false,
        }
    }
}

/// A flush under way; it ends when this is dropped, also by a panic.
struct Flush<'a> {
    pace: &'a Pace,
    covers: u64,
    began_ns: u64,
    /// No other was under way when it began, so it waited for none.
    alone: bool,
    done: bool,
}

impl Flush<'_> {
    /// It succeeded.
    fn succeeded(mut self) {
        self.done = true;
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        let took = self.pace.clock.now_ns().saturating_sub(self.began_ns);
        let mut state = self.pace.state.lock();
        if self.done {
            if self.alone {
                let bytes = self.covers.saturating_sub(state.covered);
                state.budget.flushed(bytes, took);
            }
            state.covered = state.covered.max(self.covers);
        }
        state.running -= 1;
        state.ended += 1;
        self.pace.flushed.notify_all();
    }
}
