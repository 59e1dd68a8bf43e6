//! The limit of the allocator: nothing at or behind it is handed out, so that what lies there can
//! be moved in front of it.
//!
//! In memory the free blocks behind the limit are busy, as if they were taken; on disk nothing
//! changes. Blocks that are freed behind the limit stay busy. A group that begins behind the limit
//! hands out no inode either.
//!
//! Invariants
//! - LM-1: between `set_limit` and its end no block at or behind the limit is taken: every bitmap
//!   that is in memory or comes in has those bits set (`Allocator::load_blocks`), and
//!   `Group::mark_free` never clears them.
//!
//! The counters still count free blocks behind the limit, so a reservation may be granted that
//! cannot be filled: `take` says `NoSpace` then. So only what needs no exact ENOSPC works while
//! there is a limit.

use std::sync::atomic::Ordering;

use extol_block::BlockNr;
use extol_ondisk::GroupNr;
use extol_vfs::{FsError, Result};

use super::table::Table;
use super::{Allocator, Run};

impl Table {
    /// How many clusters from the beginning of a group may be handed out.
    pub fn usable(&self, nr: GroupNr) -> u32 {
        let clusters = self.geo.group_clusters(nr);
        let end = self.end.load(Ordering::Acquire);
        let before = end.saturating_sub(self.geo.group_first_block(nr).0);
        let before = before / u64::from(self.geo.cluster_ratio);
        u32::try_from(before).map_or(clusters, |before| before.min(clusters))
    }
}

impl Allocator {
    /// From now on no block at or behind `end` is handed out, and no inode of a group that begins
    /// there; `None`: all may be again. `Busy` if blocks are in flight: all handles have ended, and
    /// a commit has made the frees durable.
    pub fn set_limit(&self, end: Option<BlockNr>) -> Result<()> {
        self.empty_windows();
        let _no_trim = self.trim_gate.lock();
        let before = self.table.end.swap(end.map_or(u64::MAX, |end| end.0), Ordering::AcqRel);
        let done = self.table.known().try_for_each(|group| {
            let mut state = group.lock();
            if !state.is_idle() {
                return Err(FsError::Busy);
            }
            state.shrink();
            let Ok(desc) = state.desc() else { return Ok(()) };
            if state.bad_blocks.is_some() {
                return Ok(());
            }
            let free = desc.free_blocks.min(self.table.usable(group.nr));
            group.free.store(free, Ordering::Relaxed);
            group.longest.store(free, Ordering::Relaxed);
            group.row.blocks.raise(free);
            Ok(())
        });
        if done.is_ok() {
            self.table.forget_resident();
        } else {
            // (Groups that were looked at have too low bounds; no later than at the next mount they
            // are right.)
            self.table.end.store(before, Ordering::Release);
        }
        done
    }

    /// Blocks that [`protect`](Self::protect) named are about to be freed.
    pub fn unprotect(&self, run: Run) {
        self.table.unprotect(&self.journal, run);
    }
}
