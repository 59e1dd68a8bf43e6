//! The freeze gate: every operation that changes the volume passes it, and a freeze closes it.
//!
//! ```text
//!   open ── close: lanes closed one by one, each when it is empty ──► closed
//!     ▲                                                                 │ enter: waits, or Frozen
//!     └────────────── open: deferred work is handed out ◄───────────────┘ enter_or: deferred
//! ```
//!
//! The gate is the outermost lock of all: a thread that passes holds nothing, and stays inside
//! until its operation is over, so when the gate is closed no change is half done and no thread
//! waits for a handle with an inode locked. The gate has several lanes, each a reader-writer lock.
//! Closing locks one lane after the other and waits for the threads inside; passing costs no more
//! than a counter that few other threads change.
//!
//! Changes that must not wait are handled otherwise: a time stamp of a read is left out
//! ([`FreezeGate::try_enter`]), the end of an unlinked inode and the record of an error are done
//! after the thaw ([`FreezeGate::enter_or`]).
//!
//! The threads of a front end must not all wait here, because one of them must receive the thaw. So
//! a front end asks for errors instead ([`FreezeGate::refuse`]), and tries again when
//! [`FreezeGate::wait_open`] returns.
//!
//! Invariants
//! - FZ-1: no thread is inside between the return of `close` and `open` (the value of a lane is
//!   read under its lock).
//! - FZ-2: no deferred work is lost: it is added under the lock under which the opening takes it
//!   all (`Waiting`).

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use extol_sync::Condvar;
use extol_sync::plain::{Mutex, RwLock, RwLockReadGuard};
use extol_sync::rank::{self, Rank, Ranked};
use extol_task::{LANES, lane};
use extol_vfs::{FsError, Result};

/// Something that would write, and can wait for the thaw.
#[derive(Debug)]
pub(crate) enum Deferred {
    /// The last reference on this inode has gone.
    Unused(u32),
    /// An error to be recorded.
    Error(FsError),
}

#[derive(Debug, Default)]
struct Waiting {
    closed: bool,
    deferred: Vec<Deferred>,
}

/// See the module's story.
#[derive(Debug, Default)]
pub(crate) struct FreezeGate {
    /// True while it is closed.
    lanes: [CachePadded<RwLock<bool>>; LANES],
    waiting: Mutex<Waiting>,
    opened: Condvar,
    refuses: AtomicBool,
}

/// While this lives its operation is inside.
pub(crate) type Inside<'a> = Ranked<RwLockReadGuard<'a, bool>>;

impl FreezeGate {
    /// The lane of this thread.
    fn lane(&self) -> &RwLock<bool> {
        &self.lanes[lane()]
    }

    /// Passes; waits while the gate is closed, or returns `Frozen` if that was asked for.
    #[track_caller]
    pub fn enter(&self) -> Result<Inside<'_>> {
        loop {
            let held = rank::enter(Rank::Gate, 0);
            let guard = self.lane().read();
            if !*guard {
                return Ok(Ranked::new(guard, held));
            }
            drop(guard);
            drop(held);
            if self.refuses.load(Ordering::Relaxed) {
                return Err(FsError::Frozen);
            }
            self.wait_open();
        }
    }

    /// Passes unless the gate is closed or being closed.
    #[track_caller]
    pub fn try_enter(&self) -> Option<Inside<'_>> {
        let guard = self.lane().try_read().filter(|closed| !**closed)?;
        Some(Ranked::new(guard, rank::note(Rank::Gate, 0)))
    }

    /// Passes, or leaves work for after the opening.
    #[track_caller]
    pub fn enter_or(&self, otherwise: impl FnOnce() -> Deferred) -> Option<Inside<'_>> {
        loop {
            if let Some(inside) = self.try_enter() {
                return Some(inside);
            }
            let mut waiting = self.waiting.lock();
            if waiting.closed {
                waiting.deferred.push(otherwise());
                return None;
            }
            // It has been opened meanwhile.
        }
    }

    /// Closes the gate and waits until no thread is inside.
    pub fn close(&self) -> Result<()> {
        {
            let mut waiting = self.waiting.lock();
            if waiting.closed {
                return Err(FsError::Busy);
            }
            waiting.closed = true;
        }
        self.lanes.iter().for_each(|lane| *lane.write() = true);
        Ok(())
    }

    /// Opens the gate, and returns what was deferred. Harmless if it is open.
    pub fn open(&self) -> Vec<Deferred> {
        self.lanes.iter().for_each(|lane| *lane.write() = false);
        let mut waiting = self.waiting.lock();
        waiting.closed = false;
        self.opened.notify_all();
        std::mem::take(&mut waiting.deferred)
    }

    /// True from the beginning of a closing to the opening.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    /// Returns when the gate is open.
    pub fn wait_open(&self) {
        let mut waiting = self.waiting.lock();
        self.opened.wait_while(&mut waiting, |waiting| waiting.closed);
    }

    /// From now on no thread waits at the gate: it gets an error.
    pub fn refuse(&self) {
        self.refuses.store(true, Ordering::Relaxed);
    }

    /// True if it does ([`refuse`](Self::refuse)).
    pub fn refuses(&self) -> bool {
        self.refuses.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_to_all_and_nothing_is_lost() {
        let gate = FreezeGate::default();
        drop(gate.enter().unwrap());
        assert!(gate.open().is_empty());
        gate.close().unwrap();
        assert_eq!(gate.close(), Err(FsError::Busy));
        assert!(gate.try_enter().is_none());
        assert!(gate.enter_or(|| Deferred::Unused(7)).is_none());
        gate.refuse();
        assert_eq!(gate.enter().err(), Some(FsError::Frozen));
        assert!(matches!(gate.open()[..], [Deferred::Unused(7)]));
        gate.wait_open();
        assert!(gate.enter_or(|| Deferred::Unused(8)).is_some());
        assert!(gate.open().is_empty());
    }

    #[test]
    fn a_closing_waits_for_those_inside_and_others_for_the_opening() {
        let gate = FreezeGate::default();
        let (order, seen) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let inside = gate.enter().unwrap();
            let (gate, theirs) = (&gate, order.clone());
            scope.spawn(move || {
                gate.close().unwrap();
                theirs.send("closed").unwrap();
            });
            while gate.try_enter().is_some() {
                std::thread::yield_now();
            }
            // A thread inside may still defer work.
            assert!(gate.enter_or(|| Deferred::Unused(1)).is_none());
            assert!(seen.try_recv().is_err(), "closed with a thread inside");
            drop(inside);
            assert_eq!(seen.recv().unwrap(), "closed");
            scope.spawn(move || {
                drop(gate.enter().unwrap());
                order.send("passed").unwrap();
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(seen.try_recv().is_err(), "passed a closed gate");
            assert_eq!(gate.open().len(), 1);
            assert_eq!(seen.recv().unwrap(), "passed");
        });
    }

    #[test]
    fn a_closing_waits_for_every_lane() {
        let gate = FreezeGate::default();
        let left = std::sync::atomic::AtomicUsize::new(0);
        let all_in = std::sync::Barrier::new(LANES + 1);
        std::thread::scope(|scope| {
            // Each new thread gets the next lane; so many threads in a row have all of them.
            for n in 0..LANES {
                let (gate, left, all_in) = (&gate, &left, &all_in);
                scope.spawn(move || {
                    let inside = gate.enter().unwrap();
                    all_in.wait();
                    std::thread::sleep(std::time::Duration::from_millis(n as u64));
                    left.fetch_add(1, Ordering::SeqCst);
                    drop(inside);
                });
            }
            all_in.wait();
            gate.close().unwrap();
            assert_eq!(left.load(Ordering::SeqCst), LANES, "closed with a thread inside");
            let enters = scope.spawn(|| gate.try_enter().is_some());
            assert!(!enters.join().unwrap(), "closed on every lane");
            gate.open();
        });
    }
}
