//! Space for operations: blocks are reserved before they are needed, so that what begins can end.
//! All numbers are of clusters: a block of metadata takes one.

use extol_vfs::{Creds, FsError, Result};

use crate::data::writeback;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

impl MountedFs {
    /// Err if a process that may not use reserved blocks needs one block now, and there are no
    /// others.
    pub fn check_room_for(&self, creds: Creds) -> Result<()> {
        let out_of_room = || self.vol.alloc.counters().available == 0;
        if self.may_use_reserve(creds) || !out_of_room() {
            return Ok(());
        }
        self.settle_space();
        if out_of_room() { Err(FsError::NoSpace) } else { Ok(()) }
    }

    /// Promises blocks to an operation; if there are none, after everything that can free some was
    /// tried.
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        self.reserve_as(blocks, true)
    }

    /// Promises blocks for the data of a file, which limits of its owners must allow. What is not
    /// used goes back by [`unreserve_data`](Self::unreserve_data).
    pub fn reserve_data(&self, st: &InodeState, blocks: u64) -> Result<()> {
        self.vol.promise(&st.node, blocks)?;
        self.reserve_as(blocks, self.uses_reserve(st)).inspect_err(|_| self.settle(st))
    }

    /// Gives back what was reserved for data of a file and was not used, or belongs to pages that
    /// are gone.
    pub fn unreserve_data(&self, st: &InodeState, blocks: u64) {
        self.vol.alloc.unreserve(blocks);
        self.settle(st);
    }

    /// Limits of its owners have promised a file what its dirty pages will take, and no more.
    pub fn settle(&self, st: &InodeState) {
        self.vol.settle(&st.node, st.pages.reserved());
    }

    fn reserve_as(&self, blocks: u64, root: bool) -> Result<()> {
        if self.vol.alloc.reserve(blocks, root).is_ok() {
            return Ok(());
        }
        self.settle_space();
        self.vol.alloc.reserve(blocks, root)
    }

    /// Promises up to `blocks` blocks for the data of a file and exactly `beside` others; returns
    /// how many of the former. They go back as those of [`reserve_data`](Self::reserve_data).
    pub fn reserve_some(&self, st: &InodeState, blocks: u64, beside: u64) -> Result<u64> {
        let blocks = self.vol.promise_some(&st.node, blocks)?;
        self.reserve_part(st, blocks, beside).inspect_err(|_| self.settle(st))
    }

    fn reserve_part(&self, st: &InodeState, blocks: u64, beside: u64) -> Result<u64> {
        let root = self.uses_reserve(st);
        if self.reserve_as(blocks + beside, root).is_ok() {
            return Ok(blocks);
        }
        let counters = self.vol.alloc.counters();
        let free = if root { counters.free } else { counters.available };
        let free = free.saturating_sub(beside).min(blocks);
        if free == 0 {
            return Err(FsError::NoSpace);
        }
        self.vol.alloc.reserve(free + beside, root).map(|()| free)
    }

    /// Called when space is short: allocates the blocks of delayed writes, which frees what was
    /// reserved beyond them, and commits, so that blocks freed by the running transactions can be
    /// used. No handle may be open. Inodes that another thread has locked are left out.
    pub fn settle_space(&self) {
        writeback::flush_unlocked(self);
        if self.vol.alloc.pending_free() > 0 {
            let _ = self.vol.journal.commit_all();
        }
    }
}
