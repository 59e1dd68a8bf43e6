//! Preallocation windows: blocks taken ahead for a growing file.
//!
//! Files that grow at the same time would interleave their blocks if each took only what it needs
//! now. A window holds a run behind the file's last block, so the next piece continues where the
//! last one ended.
//!
//! - A window belongs to an open inode. Empty, it costs a pointer.
//! - Only growing files fill it: a large first piece takes as much again, later ones up to the
//!   double each time, to a limit. Near a full volume nothing is taken ahead. The window of a file
//!   synced as it grows is extended in place, and has zeros in front (`synced.rs`).
//! - Only the holder of `&mut Window` takes from it; but under pressure any thread may empty all
//!   windows, so the run lies in a [`Slot`] that the registry shares. The slot's lock is a leaf:
//!   blocks are given back after its release.
//! - Blocks in a window are *taken*: free on disk. A crash, or dropping the window, loses none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use extol_block::BlockNr;
use extol_sync::plain::Mutex;
use foldhash::fast::RandomState;

use super::{Allocator, Run};

/// Blocks taken ahead for one inode.
#[derive(Debug, Default)]
pub(crate) struct Window {
    held: Option<Held>,
    /// How much was taken ahead last.
    ahead: u32,
    /// Where the last piece ended.
    next: Option<BlockNr>,
}

#[derive(Debug)]
struct Held {
    slot: Arc<Slot>,
    owner: Weak<Allocator>,
}

/// How far the front of a window's run is zeroed.
#[derive(Clone, Copy, Debug, Default)]
struct Zeros {
    /// Durable, up to this block.
    ready: Option<BlockNr>,
    /// Written up to this block; durable once this data write is (ZB-1).
    coming: Option<(BlockNr, u64)>,
}

impl Zeros {
    fn settle(&mut self, is_durable: impl Fn(u64) -> bool) {
        if let Some((end, _)) = self.coming.take_if(|(_, write)| is_durable(*write)) {
            self.ready = Some(end);
        }
    }
}

/// The run of a window, of whole clusters; `None` once it was emptied.
#[derive(Debug)]
pub(super) struct Slot {
    id: u64,
    run: Mutex<Option<Run>>,
    /// Used by its window only.
    zeros: Mutex<Zeros>,
}

/// All windows that hold blocks.
#[derive(Debug, Default)]
pub(super) struct Registry {
    slots: Mutex<HashMap<u64, Arc<Slot>, RandomState>>,
    ids: AtomicU64,
    blocks: AtomicU64,
    /// Blocks of a cluster; 0 stands for 1.
    ratio: u32,
}

impl Registry {
    /// For clusters of so many blocks.
    pub fn new(ratio: u32) -> Self {
        Self { ratio, ..Self::default() }
    }

    /// Blocks in windows.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, run: Run) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            run: Mutex::new(Some(run)),
            zeros: Mutex::default(),
        });
        self.blocks.fetch_add(u64::from(run.len), Ordering::Relaxed);
        self.slots.lock().insert(slot.id, Arc::clone(&slot));
        slot
    }

    fn empty(&self, slot: &Slot) -> Option<Run> {
        let run = slot.run.lock().take()?;
        self.blocks.fetch_sub(u64::from(run.len), Ordering::Relaxed);
        Some(run)
    }

    pub(super) fn remove(&self, slot: &Slot) -> Option<Run> {
        self.slots.lock().remove(&slot.id);
        self.empty(slot)
    }

    /// Empties all windows.
    pub fn drain(&self) -> Vec<Run> {
        let slots: Vec<_> = self.slots.lock().drain().map(|(_, slot)| slot).collect();
        slots.iter().filter_map(|slot| self.empty(slot)).collect()
    }

    /// The run of a slot.
    pub fn peek(&self, slot: &Slot) -> Option<Run> {
        *slot.run.lock()
    }

    /// Adds a run behind that of a slot. False: the slot was emptied.
    #[must_use]
    fn extend(&self, slot: &Slot, more: Run) -> bool {
        let mut held = slot.run.lock();
        let Some(run) = held.as_mut().filter(|run| run.end() == more.start) else { return false };
        run.len += more.len;
        self.blocks.fetch_add(u64::from(more.len), Ordering::Relaxed);
        true
    }

    /// Cuts up to `want` blocks off the front if the run begins at `goal` and has at least `min`.
    /// What is left of their last cluster goes with them.
    pub(super) fn cut(&self, slot: &Slot, goal: BlockNr, want: u32, min: u32) -> Option<Run> {
        let mut held = slot.run.lock();
        let run = held.as_mut().filter(|run| run.start == goal && run.len >= min)?;
        let cut = Run { start: run.start, len: run.len.min(want) };
        let gone = cut.len.next_multiple_of(self.ratio.max(1)).min(run.len);
        if gone == run.len {
            *held = None;
        } else {
            *run = Run { start: run.start.plus(u64::from(gone)), len: run.len - gone };
        }
        self.blocks.fetch_sub(u64::from(gone), Ordering::Relaxed);
        Some(cut)
    }
}

impl Window {
    /// Blocks held.
    #[cfg(test)]
    pub fn blocks(&self) -> u32 {
        self.held.as_ref().and_then(|h| h.slot.run.lock().map(|run| run.len)).unwrap_or(0)
    }

    /// Cuts from the front, if the run begins at `goal`. The second part: the blocks are zeroed.
    pub(super) fn cut(
        &mut self,
        shared: &Allocator,
        goal: BlockNr,
        want: u32,
        min: u32,
    ) -> Option<(Run, bool)> {
        let held = self.held.as_ref()?;
        let run = shared.windows.cut(&held.slot, goal, want, min)?;
        self.next = Some(run.end());
        let mut zeros = held.slot.zeros.lock();
        zeros.settle(|write| shared.is_durable(write));
        Some((run, zeros.ready.is_some_and(|end| run.end() <= end)))
    }

    /// Its run.
    pub(super) fn run(&self, shared: &Allocator) -> Option<Run> {
        self.held.as_ref().and_then(|held| shared.windows.peek(&held.slot))
    }

    /// How much was taken ahead last.
    pub(super) fn ahead(&self) -> u32 {
        self.ahead
    }

    /// The part of `run`, its own, that was not zeroed.
    pub(super) fn without_zeros(&self, run: Run) -> Run {
        let zeros = self.held.as_ref().map(|held| *held.slot.zeros.lock()).unwrap_or_default();
        let end = zeros.coming.map(|(end, _)| end).max(zeros.ready);
        let skip = end.map_or(0, |end| end.0.saturating_sub(run.start.0)).min(u64::from(run.len));
        Run { start: run.start.plus(skip), len: run.len - u32::try_from(skip).unwrap_or(run.len) }
    }

    /// Zeros were written up to `end`, by that data write.
    pub(super) fn zeroed(&self, end: BlockNr, write: u64) {
        if let Some(held) = &self.held {
            held.slot.zeros.lock().coming = Some((end, write));
        }
    }

    /// Adds a run behind its own. False: it was emptied.
    #[must_use]
    pub(super) fn extend(&mut self, shared: &Allocator, more: Run) -> bool {
        self.held.as_ref().is_some_and(|held| shared.windows.extend(&held.slot, more))
    }

    /// How much to take ahead of a request for `want` blocks at `goal`.
    pub(super) fn plan(&mut self, goal: BlockNr, want: u32, limit: u32) -> u32 {
        let grows = self.next == Some(goal);
        self.ahead = if grows {
            self.ahead.saturating_mul(2).max(want).max(8).min(limit)
        } else if want >= 16 {
            want.min(limit)
        } else {
            0
        };
        self.ahead
    }

    /// How much to take ahead for a file synced as it grows: the double each time, at least
    /// `least`.
    pub(super) fn plan_more(&mut self, least: u32, limit: u32) -> u32 {
        self.ahead = self.ahead.saturating_mul(2).max(least).min(limit);
        self.ahead
    }

    /// As [`keep`](Self::keep), for zeroed blocks.
    pub(super) fn keep_zeroed(&mut self, shared: &Arc<Allocator>, piece: Run, rest: Option<Run>) {
        self.keep(shared, piece, rest);
        if let (Some(held), Some(rest)) = (&self.held, rest) {
            self.ahead = rest.len;
            held.slot.zeros.lock().ready = Some(rest.end());
        }
    }

    /// Notes where a piece ended, and keeps the blocks taken behind it.
    pub(super) fn keep(&mut self, shared: &Arc<Allocator>, piece: Run, rest: Option<Run>) {
        debug_assert!(self.held.is_none(), "a window holds two runs");
        self.next = Some(piece.end());
        self.held =
            rest.map(|rest| Held { slot: shared.windows.add(rest), owner: Arc::downgrade(shared) });
    }

    /// Gives its run back (the last close of a file, truncate, eviction), as dropping it does. How
    /// the file grows stays known.
    pub fn empty(&mut self) {
        if let Some(held) = self.held.take()
            && let Some(shared) = held.owner.upgrade()
            && let Some(run) = shared.windows.remove(&held.slot)
        {
            shared.give_back(run);
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u32) -> Run {
        Run { start: BlockNr(start), len }
    }

    #[test]
    fn grows_with_the_file_and_forgets_after_a_jump() {
        let mut window = Window::default();
        assert_eq!(window.plan(BlockNr(100), 4, 2048), 0, "a small new file takes nothing ahead");
        window.next = Some(BlockNr(104));
        assert_eq!(window.plan(BlockNr(104), 4, 2048), 8);
        assert_eq!(window.plan(BlockNr(104), 4, 2048), 16);
        assert_eq!(window.plan(BlockNr(104), 4, 20), 20);
        assert_eq!(window.plan(BlockNr(7), 4, 20), 0);
        assert_eq!(window.plan(BlockNr(7), 500, 2048), 500, "a large new file takes as much again");
    }

    #[test]
    fn cut_and_drain() {
        let registry = Registry::default();
        let a = registry.add(run(10, 8));
        let b = registry.add(run(50, 4));
        assert_eq!(registry.blocks(), 12);
        assert_eq!(registry.cut(&a, BlockNr(11), 4, 1), None, "not where the file goes on");
        assert_eq!(registry.cut(&a, BlockNr(10), 20, 9), None, "too few");
        assert_eq!(registry.cut(&a, BlockNr(10), 3, 1), Some(run(10, 3)));
        assert_eq!(registry.cut(&a, BlockNr(13), 20, 1), Some(run(13, 5)));
        assert_eq!(registry.cut(&a, BlockNr(18), 1, 1), None);
        assert_eq!(registry.drain(), [run(50, 4)]);
        assert_eq!(registry.blocks(), 0);
        assert_eq!(registry.remove(&b), None);
    }
}
