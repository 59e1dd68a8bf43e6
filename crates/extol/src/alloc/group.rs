//! One block group in memory.
//!
//! ```text
//!   Group                      made with its descriptor block, lives as long as the volume is open
//!   ├── summary (atomics)      for choosing a group without its lock; right at its last unlock
//!   └── State (mutex)
//!       ├── desc               the descriptor with all changes of running transactions
//!       ├── blocks: BlockMap   made at first use; dropped again when many others are in memory
//!       └── inodes: InodeMap   and nothing of it is in flight
//! ```
//!
//! The bitmap in memory says which blocks may not be handed out. It begins as the on-disk bitmap
//! and then runs ahead of it and behind it:
//!
//! ```text
//!                  take               commit_take
//!      free ───────────────► taken ─────────────────► used
//!       ▲  ◄─────────────────  │                        │
//!       │       give_back                               │ free
//!       │                                               ▼
//!       └───────────────────────────────────────── pending
//!               the freeing transaction is durable
//!
//!   busy bit   0               1                        1          pending: 1
//!   disk bit   0               0                        1          pending: 0
//! ```
//!
//! A group whose descriptor or bitmap is wrong is *bad*: it hands nothing out and takes nothing
//! back; the rest of the volume works.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_block::BlockNr;
use extol_jbd2::{Buf, Tid};
use extol_ondisk::{GroupDesc, GroupNr};
use extol_sync::Mutex;
use extol_sync::rank::{self, Rank, Ranked};
use extol_vfs::{FsError, Result};

use super::bits::{Bits, Span};
use super::pick::Ask;
use super::row::Row;

/// A block group.
#[derive(Debug)]
pub(super) struct Group {
    pub nr: GroupNr,
    /// Bounds of its row.
    pub row: Arc<Row>,
    /// See [`inode_table`](Self::inode_table).
    table: AtomicU64,
    /// Fixed metadata in it, computed at the first use (see `zones.rs`).
    pub zones: OnceLock<Box<[Span]>>,
    /// Blocks that may be handed out now.
    pub free: AtomicU32,
    /// Upper bound for the longest run of such blocks.
    pub longest: AtomicU32,
    /// Inodes that may be handed out now.
    pub free_inodes: AtomicU32,
    /// Inodes freed by transactions that are not durable yet.
    pub pending_inodes: AtomicU32,
    /// Directories.
    pub dirs: AtomicU32,
    /// Looked at since residency was last checked.
    pub recent: AtomicBool,
    pub state: Mutex<State>,
}

/// What a group's lock protects.
#[derive(Debug)]
pub(super) struct State {
    desc: std::result::Result<GroupDesc, Box<FsError>>,
    pub blocks: Option<Box<BlockMap>>,
    pub inodes: Option<Box<InodeMap>>,
    pub bad_blocks: Option<Box<FsError>>,
    pub bad_inodes: Option<Box<FsError>>,
    /// The inode table is being zeroed: no inode may be handed out (see `itable.rs`).
    pub zeroing: bool,
}

/// Which blocks of a group may not be handed out.
#[derive(Debug)]
pub(super) struct BlockMap {
    pub busy: Bits,
    /// Metadata in fixed places: superblock copy, descriptors, bitmaps, inode tables. Sorted,
    /// merged.
    pub zones: Box<[Span]>,
    pub taken: u32,
    pub pending: u32,
    /// Everything below is busy.
    pub first_free: u32,
    /// Nothing from here on is handed out (`limit.rs`).
    pub usable: u32,
    /// The bitmap's buffer, once it was changed.
    pub home: Home,
}

/// Which inodes of a group may not be handed out.
#[derive(Debug)]
pub(super) struct InodeMap {
    pub busy: Bits,
    /// Freed, and by which transaction.
    pub pending: BTreeMap<u32, Tid>,
    pub first_free: u32,
    /// The bitmap's buffer, once it was changed.
    pub home: Home,
}

/// A bitmap's buffer, kept to save the lookup in the block cache, which writes words shared by all
/// threads. (A kept buffer stays in memory; bitmap blocks are never freed.)
pub(super) type Home = Option<Arc<Buf>>;

impl Group {
    /// Waits for the group's lock. Groups ascend.
    #[track_caller]
    pub fn lock(&self) -> rank::Guard<'_, State> {
        let held = rank::enter(Rank::Group, self.nr.0.into());
        Ranked::new(self.state.lock(), held)
    }

    /// A group from its decoded descriptor; `blocks` and `inodes` are how many it can have at most.
    pub fn new(
        nr: GroupNr,
        row: &Arc<Row>,
        desc: Result<GroupDesc>,
        blocks: u32,
        inodes: u32,
    ) -> Self {
        let summary =
            desc.as_ref().map(|d| (d.free_blocks, d.free_inodes, d.used_dirs)).unwrap_or_default();
        let free = AtomicU32::new(summary.0.min(blocks));
        Self {
            nr,
            row: Arc::clone(row),
            table: AtomicU64::new(desc.as_ref().map_or(0, |desc| desc.inode_table)),
            zones: OnceLock::new(),
            longest: AtomicU32::new(summary.0.min(blocks)),
            free,
            free_inodes: AtomicU32::new(summary.1.min(inodes)),
            pending_inodes: AtomicU32::new(0),
            dirs: AtomicU32::new(summary.2.min(inodes)),
            recent: AtomicBool::new(true),
            state: Mutex::new(State {
                desc: desc.map_err(Box::new),
                blocks: None,
                inodes: None,
                bad_blocks: None,
                bad_inodes: None,
                zeroing: false,
            }),
        }
    }

    /// First block of the inode table; it changes only while nothing else uses the volume
    /// (`cut.rs`). `None` if the descriptor is bad.
    pub fn inode_table(&self) -> Option<BlockNr> {
        Some(self.table.load(Ordering::Acquire)).filter(|nr| *nr != 0).map(BlockNr)
    }

    /// The inode table was moved.
    pub fn move_table(&self, to: BlockNr) {
        self.table.store(to.0, Ordering::Release);
    }

    /// Blocks that may be handed out now.
    pub fn free(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Inodes that may be handed out now.
    pub fn free_inodes(&self) -> u32 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    /// Upper bound for the longest run.
    pub fn bound(&self) -> u32 {
        self.longest.load(Ordering::Relaxed)
    }

    /// From now on no block can be handed out.
    pub fn close_blocks(&self) {
        self.free.store(0, Ordering::Relaxed);
        self.longest.store(0, Ordering::Relaxed);
    }

    /// The same for inodes.
    pub fn close_inodes(&self) {
        self.free_inodes.store(0, Ordering::Relaxed);
        self.pending_inodes.store(0, Ordering::Relaxed);
    }

    /// Chooses and marks a run. Call with the group's lock held.
    pub fn claim(&self, map: &mut BlockMap, ask: Ask) -> std::result::Result<Span, u32> {
        match choose(&map.busy, map.first_free, ask) {
            Ok(run) => {
                self.mark_taken(map, run);
                Ok(run)
            }
            Err(longest) => {
                self.longest.store(longest, Ordering::Relaxed);
                Err(longest)
            }
        }
    }

    /// Marks a free run as taken.
    pub fn mark_taken(&self, map: &mut BlockMap, run: Span) {
        debug_assert!(map.busy.all_clear(run), "{:?} {run:?} taken twice", self.nr);
        map.busy.set(run);
        map.taken += run.len;
        if run.start <= map.first_free {
            map.first_free = run.end();
        }
        let free = self.free().saturating_sub(run.len);
        self.free.store(free, Ordering::Relaxed);
        self.longest.fetch_min(free, Ordering::Relaxed);
    }

    /// Marks busy blocks as free.
    pub fn mark_free(&self, map: &mut BlockMap, run: Span) {
        debug_assert!(map.busy.all_set(run), "{:?} {run:?} freed twice", self.nr);
        let run = Span { len: run.len.min(map.usable.saturating_sub(run.start)), ..run };
        if run.len == 0 {
            return;
        }
        map.busy.clear(run);
        map.first_free = map.first_free.min(run.start);
        self.free.fetch_add(run.len, Ordering::Relaxed);
        let run = map.busy.run_around(run);
        self.longest.fetch_max(run, Ordering::Relaxed);
        self.row.blocks.raise(run);
    }
}

impl State {
    /// The descriptor.
    pub fn desc(&self) -> Result<&GroupDesc> {
        self.desc.as_ref().map_err(|e| (**e).clone())
    }

    /// A copy of the descriptor, and the block bitmap, which must be in memory.
    pub fn parts(&mut self) -> Result<(GroupDesc, &mut BlockMap)> {
        let desc = *self.desc()?;
        let map =
            self.blocks.as_deref_mut().ok_or_else(|| FsError::corrupt("block bitmap is gone"))?;
        Ok((desc, map))
    }

    /// Puts a changed descriptor in place.
    pub fn set_desc(&mut self, desc: GroupDesc) {
        self.desc = Ok(desc);
    }

    /// True if the maps hold nothing that the disk does not know.
    pub fn is_idle(&self) -> bool {
        self.blocks.as_ref().is_none_or(|m| m.taken == 0 && m.pending == 0)
            && self.inodes.as_ref().is_none_or(|m| m.pending.is_empty())
    }

    /// Drops the maps.
    pub fn shrink(&mut self) {
        self.blocks = None;
        self.inodes = None;
    }
}

impl BlockMap {
    /// True if the range touches fixed metadata.
    pub fn in_zone(&self, span: Span) -> bool {
        let at = self.zones.partition_point(|z| z.end() <= span.start);
        self.zones.get(at).is_some_and(|z| z.overlaps(span))
    }
}

/// Finds a run of zeros; else returns the length of the longest.
pub(super) fn choose(busy: &Bits, first_free: u32, ask: Ask) -> std::result::Result<Span, u32> {
    let cut = |run: Span, want: u32| Span { len: run.len.min(want), ..run };
    match ask {
        Ask::Near { bit, want, min } => {
            let here = busy.run_at(bit, want);
            if here >= min.max(1) {
                return Ok(Span { start: bit, len: here });
            }
            let behind = match busy.find(bit.max(first_free), busy.len(), want) {
                Ok(run) => return Ok(cut(run, want)),
                Err(best) => best.len,
            };
            let before = match busy.find(first_free, bit.min(busy.len()), want) {
                Ok(run) => return Ok(cut(run, want)),
                Err(best) => best.len,
            };
            Err(behind.max(before))
        }
        Ask::Whole { want } => {
            busy.find(first_free, busy.len(), want).map(|run| cut(run, want)).map_err(|b| b.len)
        }
        Ask::Longest { want, floor } => match busy.find(first_free, busy.len(), want) {
            Ok(run) => Ok(cut(run, want)),
            Err(best) if best.len >= floor.max(1) => Ok(best),
            Err(best) => Err(best.len),
        },
        Ask::Amid { want, room } => {
            let longest = busy.largest();
            if longest.len < room.max(want) {
                return Err(longest.len);
            }
            Ok(Span { start: longest.start + (longest.len - want) / 2, len: want })
        }
    }
}

/// Sorts spans and merges those that touch.
pub(super) fn merge(mut spans: Vec<Span>) -> Box<[Span]> {
    spans.retain(|s| s.len > 0);
    spans.sort_unstable_by_key(|s| s.start);
    let mut out: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.start <= last.end() => {
                let end = last.end().max(span.end());
                last.len = end - last.start;
            }
            _ => out.push(span),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_merge() {
        let s = |start, len| Span { start, len };
        let merged = merge(vec![s(10, 5), s(0, 3), s(15, 1), s(12, 2), s(3, 1), s(40, 0)]);
        assert_eq!(&*merged, [s(0, 4), s(10, 6)]);
        let map = BlockMap {
            busy: Bits::zeros(64),
            zones: merged,
            taken: 0,
            pending: 0,
            first_free: 0,
            usable: 64,
            home: None,
        };
        assert!(map.in_zone(s(3, 1)) && map.in_zone(s(4, 7)) && map.in_zone(s(15, 30)));
        assert!(!map.in_zone(s(4, 6)) && !map.in_zone(s(16, 40)));
    }

    #[test]
    fn a_run_that_holds_the_goal_counts_whole() {
        // The goal lies inside a run that is too short behind it: the run's beginning is taken.
        let mut busy = Bits::zeros(100);
        busy.set(Span { start: 60, len: 40 });
        assert_eq!(
            choose(&busy, 0, Ask::Near { bit: 50, want: 30, min: 30 }),
            Ok(Span { start: 0, len: 30 })
        );
        assert_eq!(choose(&busy, 0, Ask::Near { bit: 50, want: 61, min: 61 }), Err(60));
    }
}
