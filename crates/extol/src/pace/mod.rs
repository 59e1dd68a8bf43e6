//! Pacing: heavy writers leave the device's cache clean enough for others to fsync quickly.
//!
//! A flush waits for everything that was written to the device before it, whoever wrote it. A
//! disk's cache, and even more the page cache below a loop device, take data much faster than they
//! write it, so beside somebody who writes a large file the fsync of a small one waits for all that
//! was written since the last flush. So while the two meet, large writes of file data keep within a
//! budget: bytes written and not flushed. Who would exceed it waits for the flush that is under
//! way, and if that is not enough, flushes first. The small fsync then finds little to wait for.
//!
//! ```text
//!   fsync of a small file ──► `synced`        large write ──► `room` ──► go
//!                                                     (they meet,  └──► flush, then go
//!                                                      over budget)
//!   PacedDevice: counts what is written, times flushes ──► Budget
//! ```
//!
//! They meet for half a second after an fsync of another file. A writer alone is never held up, nor
//! one that fsyncs its own file.
//!
//! That bounds what a flush has to do; it does not help a flush that stands behind a large write on
//! its way to the device, or behind the locks that it holds in the file system below an image. So a
//! writer that is heavy, and is at it at the very moment of somebody's fsync, writes small pieces,
//! one at a time, with pauses between them ([`turns`]); how long these are depends on what fsyncs
//! take ([`duty`]). Its data has to wait somewhere: not in this program's memory, but with the
//! writer, who stays in its write call. (Through a mount the kernel's pages come first, and then
//! its write(2) waits.)
//!
//! Invariants
//! - P1: a flush covers only what had been written when it began (`Pace::begin`); the count never
//!   forgets a byte that a flush has not covered.
//! - P2: for the budget nobody waits for anything but a flush under way, and for two of them at
//!   most (`Pace::room`); for turns see there.
//!
//! Pacing only adds flushes, and time; what must be durable before what is none of its business.
//!
//! Locking: three leaf locks, held for a few instructions. Waits hold the writer's inode lock, as
//! its write does.

mod budget;
mod device;
mod duty;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_sync::Condvar;
use extol_task::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use budget::Budget;
pub(crate) use device::PacedDevice;
use turns::Turns;
pub(crate) use turns::{Called, Sync, Turn};

/// Smaller writes are not held up: it is somebody's small file, or not much.
pub(crate) const BULK: u64 = 128 << 10;
/// What a large write writes at a time while it takes turns. An fsync waits for one of these at
/// most, so it should take no longer than a flush; with less, the device's rate drops.
const PIECE: u64 = 256 << 10;
/// An fsync counts for so long. Programs that fsync now and then do it many times a second, or
/// nobody minds.
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
        self.0
            .iter()
            .flatten()
            .any(|(other, at)| *other != ino && now_ns.saturating_sub(*at) < HOLD_NS)
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
    /// Thousandths of the device's time that heavy writers may have while they and small fsyncs are
    /// at it together.
    pub share: u32,
    /// Nanoseconds after which an fsync is late.
    pub goal_ns: u64,
    /// Fsyncs beside heavy writers that were late.
    pub late: u64,
    /// Pieces that heavy writers wrote in turns.
    pub turns: u64,
    /// Nanoseconds that they waited for their turns.
    pub paused_ns: u64,
}

/// The pace of large writes of one volume.
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    written: AtomicU64,
    synced: Mutex<Synced>,
    state: Mutex<Flushes>,
    flushed: Condvar,
    turns: Turns,
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
            turns: Turns::default(),
            flushes: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            held_ns: AtomicU64::new(0),
        }
    }

    /// Somebody waits for the fsync of a file, until the answer is dropped.
    pub(crate) fn synced(self: &Arc<Self>, ino: u32) -> Sync {
        let now = self.clock.now_ns();
        self.synced.lock().note(ino, now);
        self.turns.sync(now, ino);
        Sync::new(Arc::clone(self), ino, now)
    }

    /// A write of so many bytes was called for; it is over when the answer is dropped.
    pub(crate) fn called(&self, bytes: u64) -> Called<'_> {
        self.turns.called(bytes)
    }

    /// Waits until a write of so many bytes may begin; it is over when the answer is dropped. Since
    /// its own fsync the file has had `before` bytes written.
    pub(crate) fn turn(&self, ino: u32, before: u64, bytes: u64) -> Option<Turn<'_>> {
        (bytes >= BULK).then(|| self.turns.enter(&*self.clock, ino, before))
    }

    fn meets(&self, ino: u32) -> bool {
        let now = self.clock.now_ns();
        self.synced.lock().meets(ino, now)
    }

    /// Most bytes that this file should write in one piece: half of the budget while it meets
    /// somebody's fsync, and no more than a [`PIECE`] while large writes take turns.
    pub(crate) fn piece(&self, ino: u32) -> Option<u64> {
        let most = if self.turns.together(self.clock.now_ns()) { PIECE } else { u64::MAX };
        self.meets(ino).then(|| (self.state.lock().budget.bytes() / 2).min(most))
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
        let done = self.turns.done();
        let state = self.state.lock();
        PaceStats {
            budget: state.budget.bytes(),
            unflushed: self.written.load(Ordering::Relaxed).saturating_sub(state.covered),
            flushes: self.flushes.load(Ordering::Relaxed),
            waits: self.waits.load(Ordering::Relaxed),
            held_ns: self.held_ns.load(Ordering::Relaxed),
            share: done.permille,
            goal_ns: done.goal_ns,
            late: done.late,
            turns: done.turns,
            paused_ns: done.paused_ns,
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
