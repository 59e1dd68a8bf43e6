//! Zeroed blocks: a pool of free blocks with zeros on the medium, taken ahead for small files under
//! fsync.
//!
//! ```text
//!   free ─ taken, zeros are written ─► coming ─ a flush covers them ─► ready ─► cut for a file
//!                                        ╰───── short of space: given back ──────╯
//! ```
//!
//! Data written to a zeroed block needs no flush before the records that map it: if a crash keeps
//! the records and loses the data, the block shows zeros and no bytes of another file, and the data
//! checksum of the fast commit does not match. That saves one of the two flushes of an fsync, for
//! the price of writing the block twice; one large request zeroes blocks for many files.
//!
//! The data goes to the medium together with the fast commit that maps it, and one flush waits for
//! both. So the pool begins behind the fast-commit area: on a disk the head moves little between
//! the two. (All directories share the pool, so it is near one of them at most.) From there it goes
//! upwards until the next mount. Without a fast-commit area it begins at the goal of the first file
//! that asks.
//!
//! Nothing is zeroed before the first fsync asks. Each refill doubles, up to [`LARGEST`] blocks,
//! and at most twice that are held. Under pressure the blocks are given back as those of windows.
//! While zeros are being written, no request may fail for lack of space (the trim gate): a block
//! that was given back must not be zeroed any more.
//!
//! Growing files take a few more blocks from here, and later have windows of their own with zeros
//! in front (`synced.rs`).
//!
//! Invariants
//! - ZB-1: a block is handed out as zeroed only after the end of a flush that began after the write
//!   of its zeros (`is_durable`, called by `cut_zeroed` and `Window::cut`).
//! - ZB-2: between that write and the hand-out no other write reaches it: the pool or a window
//!   holds it, and while its zeros are being written it cannot be taken back (the trim gate, held
//!   by `refill_zeroed` and `prepare_window`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use extol_block::{AlignedBuf, BlockDevice, BlockNr};
use extol_sync::plain::Mutex;
use extol_vfs::Result;

use super::window::Slot;
use super::{Allocator, Run};
use crate::error;

/// Blocks of the first refill.
const FIRST: u32 = 32;
/// Most blocks of a refill: a megabyte with blocks of 4 KiB, a few milliseconds of a disk.
const LARGEST: u32 = 256;
/// Less is not worth a request.
const LEAST: u32 = 8;
/// Bytes of zeros written by one request.
const STEP: usize = 256 << 10;
/// Alignment that direct I/O accepts on every device.
const ALIGN: usize = 4096;

/// The zeros. Allocating them for each request costs more than writing them.
static ZEROS: LazyLock<AlignedBuf> = LazyLock::new(|| AlignedBuf::new(STEP, ALIGN));

/// The pool.
#[derive(Debug, Default)]
pub(super) struct Zeroed {
    held: Mutex<Held>,
    wanted: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    ready: Option<Arc<Slot>>,
    /// With the number of the data write that a flush must cover (ZB-1).
    coming: Option<(Arc<Slot>, u64)>,
    /// Length and goal of the next refill.
    next: u32,
    goal: Option<BlockNr>,
}

impl Allocator {
    /// The pool wants a refill.
    pub fn wants_zeroed(&self) -> bool {
        self.zeroed.wanted.load(Ordering::Acquire)
    }

    /// Takes `want` to `most` neighbouring zeroed blocks; `None` if the pool has none, until
    /// [`Allocator::refill_zeroed`]. With `at` only if they begin there. `near`: goal of the first
    /// refill if there is no fast-commit area. As with `take`, only memory changes.
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

    /// The second run is to be given back.
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
            // Too short, or emptied under pressure.
            let Some((next, _)) = held.coming.take_if(|(_, write)| self.is_durable(*write)) else {
                break;
            };
            rest = held.ready.replace(next).and_then(|slot| self.windows.remove(&slot));
        }
        // At once: the next blocks need a write and a flush before they are ready.
        if held.coming.is_none() {
            self.zeroed.wanted.store(true, Ordering::Release);
        }
        (cut, rest)
    }

    /// Refills the pool if it wants that and there is space. Opens no handle; writes to free blocks
    /// only.
    ///
    /// # Errors
    /// If the device fails.
    pub fn refill_zeroed(&self, dev: &dyn BlockDevice) -> Result<()> {
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
        // ZB-2.
        let gate = self.trim_gate.lock();
        let want = want.next_multiple_of(self.geo.cluster_ratio);
        let goal = self.geo.cluster_start(goal);
        let Some(run) = self.search(goal, want, LEAST.min(want)) else { return Ok(()) };
        let written = self.zero(dev, run);
        let write = self.journal.note_unordered_write();
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

    /// A flush has covered that data write.
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

/// Writes `len` zeros at `at`. Plain writes: after a request to zero a range, each later write of a
/// block there may cost more.
pub(crate) fn write_zeros(dev: &dyn BlockDevice, at: u64, len: usize) -> extol_block::Result<()> {
    for from in (0..len).step_by(STEP) {
        dev.write_at(&ZEROS[..(len - from).min(STEP)], at + from as u64)?;
    }
    Ok(())
}
