//! Zeroed blocks: free blocks taken ahead, with zeros on the medium, for small files that are
//! synced as soon as they are written.
//!
//! ```text
//!   free ─ taken, zeros are written ─► coming ─ a flush, anybody's, covers them ─► ready ─ cut from the front ─► a file's
//!                                        ╰──────────────── short of space: given back ──────╯
//! ```
//!
//! Data that goes to such a block needs no flush before the records that map it: if a crash keeps
//! the records and loses the data, the block shows zeros and nothing that was once somebody else's
//! (see `DataChecksum` in the journal). That saves one of the two trips of an fsync, for the price
//! of writing the block twice; the zeros go out in one large request for many files.
//!
//! The data goes to the medium together with the fast commit that maps it, and one flush waits for
//! both. So the stock begins behind the fast-commit area: on a disk the head makes a short way
//! between the two, not one from the files' directory to the log, which lies in the middle of the
//! volume. (Files from all directories share the stock, so it is near one directory at most in any
//! case.) From there it goes on upwards until the next mount. Without such an area it begins where
//! the first file that asks would lie.
//!
//! Nothing is zeroed before a first fsync asks, and little then: each refill doubles, up to
//! [`LARGEST`] blocks. So at most twice that are held. Under pressure they are given back as
//! windows are; while zeros are being written nobody else may be told that there is no space (the
//! trim gate), since a block that was given back must not be zeroed any more.
//!
//! Files that go on growing take some ahead from here, and later have windows of their own with
//! zeros in front (`synced.rs`).
//!
//! Invariants
//! - Z1: a block is handed out as zeroed only after a flush that began behind the write of its
//!   zeros has ended (`is_durable`, asked by `cut_zeroed` and `Window::cut`).
//! - Z2: between that write and the moment it is handed out nobody writes to it: it is taken, by
//!   the stock or by a window, and while zeros are being written nobody can take it back (the trim
//!   gate, held by `refill_zeroed` and `tend`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use extol_block::{AlignedBuf, BlockDevice, BlockNr};
use extol_vfs::Result;
use parking_lot::Mutex;

use super::window::Slot;
use super::{Allocator, Run, Shared};
use crate::error;

/// Blocks of the first refill.
const FIRST: u32 = 32;
/// Most blocks of a refill: a megabyte with blocks of 4 KiB, a millisecond or two of a disk.
const LARGEST: u32 = 256;
/// Less is not worth a request.
const LEAST: u32 = 8;
/// Bytes of zeros written by one request.
const STEP: usize = 256 << 10;
/// As direct I/O wants its memory on every device.
const ALIGN: usize = 4096;

/// The zeros, for all: making some for each request cost more than writing them.
static ZEROS: LazyLock<AlignedBuf> = LazyLock::new(|| AlignedBuf::new(STEP, ALIGN));

/// The blocks that are held.
#[derive(Debug, Default)]
pub(super) struct Zeroed {
    held: Mutex<Held>,
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    ready: Option<Arc<Slot>>,
    /// With the number of the journal's data write that a flush must cover.
    coming: Option<(Arc<Slot>, u64)>,
    /// Blocks of the next refill, and where it should begin.
    next: u32,
    goal: Option<BlockNr>,
}

impl Allocator {
    /// More zeroed blocks are wanted.
    pub fn wants_zeroed(&self) -> bool {
        self.shared.zeroed.wanted.load(Ordering::Acquire)
    }

    /// Makes more if they are wanted and there is space. Opens no handle; writes to free blocks
    /// only.
    ///
    /// # Errors
    /// If the device fails.
    pub fn refill_zeroed(&self, dev: &dyn BlockDevice) -> Result<()> {
        self.shared.refill_zeroed(dev)
    }
}

impl Shared {
    /// `want` to `most` neighbouring blocks that are zero on the medium, or none if there are none
    /// now; more are made then, once somebody calls [`Allocator::refill_zeroed`]. With `at` only if
    /// they begin there. `near`: where the first ones ever should lie if there is no fast-commit
    /// area. As with `take`, the disk knows nothing of it.
    pub(super) fn take_zeroed(
        &self,
        want: u32,
        most: u32,
        at: Option<BlockNr>,
        near: BlockNr,
    ) -> Option<Run> {
        let (cut, rest) = self.cut_zeroed(want, most, at, near);
        if let Some(run) = rest {
            self.give_back(run);
        }
        cut
    }

    /// The second part must be given back.
    fn cut_zeroed(
        &self,
        want: u32,
        most: u32,
        at: Option<BlockNr>,
        near: BlockNr,
    ) -> (Option<Run>, Option<Run>) {
        let mut held = self.zeroed.held.lock();
        held.goal.get_or_insert_with(|| self.journal.behind_fast_area().unwrap_or(near));
        let (mut cut, mut rest) = (None, None);
        for _ in 0..2 {
            if let Some(slot) = &held.ready {
                let run = self.windows.peek(slot);
                if let Some(run) = run.filter(|run| run.len >= want) {
                    if at.is_none_or(|at| at == run.start) {
                        cut = self.windows.cut(slot, run.start, most, want);
                    }
                    break;
                }
            }
            // Too short, or emptied by somebody who had no space.
            let Some((next, _)) = held.coming.take_if(|(_, write)| self.is_durable(*write)) else {
                break;
            };
            rest = held.ready.replace(next).and_then(|slot| self.windows.remove(&slot));
        }
        // At once, not when little is left: the next ones need a thread, a write and a flush before
        // anybody can have them.
        if held.coming.is_none() {
            self.zeroed.wanted.store(true, Ordering::Release);
        }
        (cut, rest)
    }

    fn refill_zeroed(&self, dev: &dyn BlockDevice) -> Result<()> {
        if !self.zeroed.wanted.swap(false, Ordering::AcqRel) || self.is_tight() {
            return Ok(());
        }
        let (want, goal) = {
            let mut held = self.zeroed.held.lock();
            if held.coming.as_ref().is_some_and(|(slot, _)| self.windows.peek(slot).is_some()) {
                return Ok(());
            }
            let want = held.next.clamp(FIRST, LARGEST);
            held.next = (want * 2).min(LARGEST);
            (want, held.goal.unwrap_or(BlockNr(self.geo.first_data_block)))
        };
        // Until the zeros are written nobody may take these blocks back.
        let gate = self.trim_gate.lock();
        let Some(run) = self.search(goal, want, LEAST.min(want)) else { return Ok(()) };
        let written = self.zero(dev, run);
        let write = self.journal.note_free_write();
        if let Err(e) = written {
            self.give_back(run);
            return Err(error::device(e));
        }
        let mut held = self.zeroed.held.lock();
        held.goal = Some(run.end());
        let before = held.coming.replace((self.windows.add(run), write));
        drop(held);
        drop(gate);
        if let Some(run) = before.and_then(|(slot, _)| self.windows.remove(&slot)) {
            self.give_back(run);
        }
        Ok(())
    }

    /// A flush has covered the zeros of that data write.
    pub(super) fn is_durable(&self, write: u64) -> bool {
        #[cfg(feature = "planted-bugs")]
        if extol_jbd2::planted::has(extol_jbd2::planted::Bug::ZerosNotDurable) {
            return true;
        }
        self.journal.is_covered(write)
    }

    pub(super) fn zero(&self, dev: &dyn BlockDevice, run: Run) -> extol_block::Result<()> {
        let len = run.len as usize * self.geo.block_len();
        write_zeros(dev, run.start.offset(self.geo.block_size), len)
    }
}

/// `len` zeros at `at`. Plain writes: what the device does with a request to zero a range may cost
/// each later write of a block there.
pub(crate) fn write_zeros(dev: &dyn BlockDevice, at: u64, len: usize) -> extol_block::Result<()> {
    for from in (0..len).step_by(STEP) {
        dev.write_at(&ZEROS[..(len - from).min(STEP)], at + from as u64)?;
    }
    Ok(())
}
