//! Space for operations: blocks are reserved before they are needed, so that what begins can end.
//! All numbers are of clusters: a block of metadata takes one.

use extol_ondisk::InodeFlags;
use extol_vfs::{Creds, FsError, Result};

use crate::alloc::Claim;
use crate::data::writeback;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

/// True if the map of a file may take blocks kept for maps: as in Linux, one of extents.
fn is_kept_for(st: &InodeState) -> bool {
    st.node.raw.flags.contains(InodeFlags::EXTENTS)
}

/// Blocks that are promised to the map of a file until this goes out of scope.
pub(crate) struct MapBlocks<'a> {
    fs: &'a MountedFs,
    blocks: u64,
}

impl Drop for MapBlocks<'_> {
    fn drop(&mut self) {
        self.fs.vol.alloc.unreserve(self.blocks);
    }
}

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
        self.reserve_as(blocks, Claim::Root, 0)
    }

    /// Promises blocks for the map of a file whose data needs no new ones.
    pub fn reserve_map(&self, blocks: u64) -> Result<MapBlocks<'_>> {
        self.reserve_as(0, Claim::Map, blocks)?;
        Ok(MapBlocks { fs: self, blocks })
    }

    /// As [`reserve_map`](Self::reserve_map), or what is left: most changes need fewer, and those
    /// that free blocks must not fail before they try.
    pub fn reserve_map_up_to(&self, st: &InodeState, blocks: u64) -> MapBlocks<'_> {
        let claim = if is_kept_for(st) { Claim::Map } else { self.data_claim(st) };
        MapBlocks { fs: self, blocks: self.vol.alloc.reserve_up_to(blocks, claim) }
    }

    /// Which blocks the data of a file may use.
    pub fn data_claim(&self, st: &InodeState) -> Claim {
        if self.uses_reserve(st) { Claim::Root } else { Claim::User }
    }

    /// Promises clusters for the data of a page, and blocks for the map of its file, if there are
    /// so many at once.
    pub fn try_reserve_page(&self, st: &InodeState, clusters: u64, maps: u64) -> Result<()> {
        let claim = self.data_claim(st);
        if is_kept_for(st) {
            return self.vol.alloc.reserve_with_map(clusters, claim, maps);
        }
        self.vol.alloc.reserve(clusters.saturating_add(maps), claim)
    }

    /// Promises blocks for the data of a file, which limits of its owners must allow. What is not
    /// used goes back by [`unreserve_data`](Self::unreserve_data).
    pub fn reserve_data(&self, st: &InodeState, blocks: u64) -> Result<()> {
        self.vol.promise(&st.node, blocks)?;
        self.reserve_as(blocks, self.data_claim(st), 0).inspect_err(|_| self.settle(st))
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

    fn reserve_as(&self, blocks: u64, claim: Claim, maps: u64) -> Result<()> {
        if self.vol.alloc.reserve_with_map(blocks, claim, maps).is_ok() {
            return Ok(());
        }
        self.settle_space();
        self.vol.alloc.reserve_with_map(blocks, claim, maps)
    }

    /// Promises up to `blocks` blocks for the data of a file and exactly `maps` for its map;
    /// returns how many of the former, which go back as those of
    /// [`reserve_data`](Self::reserve_data).
    pub fn reserve_some(&self, st: &InodeState, blocks: u64, maps: u64) -> Result<u64> {
        let blocks = self.vol.promise_some(&st.node, blocks)?;
        self.reserve_part(st, blocks, maps).inspect_err(|_| self.settle(st))
    }

    fn reserve_part(&self, st: &InodeState, blocks: u64, maps: u64) -> Result<u64> {
        let claim = self.data_claim(st);
        if self.reserve_as(blocks, claim, maps).is_ok() {
            return Ok(blocks);
        }
        let counters = self.vol.alloc.counters();
        let free = if claim == Claim::Root { counters.for_root } else { counters.available };
        let free = free.min(counters.free.saturating_sub(maps)).min(blocks);
        if free == 0 {
            return Err(FsError::NoSpace);
        }
        self.vol.alloc.reserve_with_map(free, claim, maps).map(|()| free)
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
