//! Moves blocks that no map of a file has: attribute blocks; those whose bytes depend on their
//! place: blocks of the orphan file and the MMP block; and those of the quota files.

use extol_block::BlockNr;
use extol_ondisk::{Incompat, InodeNr};
use extol_vfs::{FsError, Result};

use super::map::behind;
use super::mover::Mover;
use crate::alloc::Run;
use crate::error::{self, OpenError};
use crate::inodes::InodeState;
use crate::map::{self, Discard, Stretch};
use crate::node::Node;
use crate::ops::values;
use crate::quota::Quotas;
use crate::resize::relocate::relocate;
use crate::xattr;

impl Mover<'_> {
    /// Moves the attribute block of an inode. Each of the inodes that share one comes here by
    /// itself: the first makes the copy, the last frees the old block.
    pub(super) fn move_attributes(&mut self, st: &mut InodeState) -> Result<()> {
        if st.node.raw.file_acl < self.limit.0 {
            return Ok(());
        }
        let vol = &self.fs.vol;
        let credits = xattr::credits(vol, &st.node, 0) + 1;
        let moved = self.fs.transact(credits, |h| {
            let mut large = self.fs.values();
            let (node, shared) = (&mut st.node, &mut self.shared);
            let moved = xattr::relocate(vol, h, node, &mut large, self.limit, shared)?;
            values::end(self.fs, h, st, large)?;
            st.store(self.fs, h, false).map(|()| moved)
        })?;
        self.moved.attribute_blocks += u64::from(moved);
        Ok(())
    }

    /// Moves the blocks of a file of the volume's own that lie behind the limit, one by one or
    /// cluster by cluster, and those of its map.
    fn move_own_file(
        &mut self,
        ino: InodeNr,
        mut move_blocks: impl FnMut(&mut Self, &mut InodeState, &Stretch) -> Result<()>,
    ) -> Result<()> {
        let vol = &self.fs.vol;
        let raw = vol.read_inode(ino)?;
        let mut st = InodeState::new(Node { ino, raw }, vol.journal.newest());
        let mut at = 0;
        while let Some(run) = map::next_mapped(vol, &st.node, at, u32::MAX)? {
            let Some(run) = behind(run, self.limit) else {
                at = run.lblk.saturating_add(run.len);
                continue;
            };
            let from = Stretch::of(vol, &st.node, run, 1)?;
            move_blocks(self, &mut st, &from)?;
            at = from.end();
        }
        if map::has_tree_blocks(&st.node) { self.move_tree(&mut st) } else { Ok(()) }
    }

    /// Moves blocks of the orphan file.
    pub(super) fn move_orphan_file(&mut self) -> Result<()> {
        let Some(ino) = self.fs.orphans.file_inode() else { return Ok(()) };
        self.move_own_file(ino, Self::move_orphan_blocks)
    }

    /// Moves a block, or those of a cluster.
    fn move_orphan_blocks(&mut self, st: &mut InodeState, from: &Stretch) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let goal = vol.geo.in_place_of(vol.alloc.meta_goal(st.node.ino), from.start);
        let to = super::map::take(fs, goal, from.len, from.len)?;
        let pieces = from.pieces();
        let blocks = pieces.iter().flat_map(|piece| piece.lblk..piece.lblk + piece.len);
        let blocks = blocks.map(|lblk| (lblk, to.start.plus(u64::from(lblk - from.start))));
        let credits = map::credits_for_relocate(&st.node, from.len, pieces.len() as u32);
        let old = from.old();
        vol.alloc.unprotect(old);
        let moved = fs.transact(credits + 2 + 1 + from.blocks(), |h| {
            vol.alloc.commit_take(h, to)?;
            blocks.clone().try_for_each(|(lblk, to)| fs.orphans.copy_block(vol, h, lblk, to))?;
            map::relocate(vol, h, &mut st.node, from, to.start, Discard::FreeJournalled)?;
            st.store(fs, h, true)
        });
        if let Err(e) = moved {
            vol.alloc.protect(old);
            // The new block is in use for nothing.
            let _ = vol.journal.abort("a block of the orphan file could not be moved");
            return Err(e);
        }
        vol.alloc.protect(to);
        blocks.for_each(|(lblk, to)| fs.orphans.use_copy(lblk, to));
        self.moved.others += u64::from(from.blocks());
        Ok(())
    }

    /// Moves blocks of the quota files.
    pub(super) fn move_quota_files(&mut self) -> Result<()> {
        let Some(quotas) = self.fs.quotas.get() else { return Ok(()) };
        for ino in quotas.inodes() {
            self.move_own_file(ino, |mover, st, from| mover.move_quota_blocks(quotas, st, from))?;
        }
        Ok(())
    }

    /// Moves a block, or those of a cluster. Nothing is posted before it is known where they are.
    fn move_quota_blocks(
        &mut self,
        quotas: &Quotas,
        st: &mut InodeState,
        from: &Stretch,
    ) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let goal = vol.geo.in_place_of(vol.alloc.meta_goal(st.node.ino), from.start);
        let to = super::map::take(fs, goal, from.len, from.len)?;
        let (moved, _) = relocate(fs, st, from, to, false);
        if let Err(e) = quotas.find_blocks(vol, st.node.ino) {
            let _ = vol.journal.abort("blocks of a quota file were not found again");
            return Err(e);
        }
        moved?;
        self.moved.others += u64::from(from.blocks());
        Ok(())
    }

    /// Moves the block of multi-mount protection. Another host that reads the superblock meanwhile
    /// finds the claim in either block; it is renewed in the one that the superblock names.
    pub(super) fn move_mmp_block(&mut self) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let block = fs.sb.read(|sb| sb.mmp_block);
        if !vol.geo.incompat().contains(Incompat::MMP) || block < self.limit.0 {
            return Ok(());
        }
        // (A volume is not written without a claim if it has the feature.)
        let claim = fs.guard.as_ref().and_then(|guard| guard.claim());
        let claim = claim.ok_or(FsError::NotSupported("moving the MMP block without a claim"))?;
        let io = |e: OpenError| FsError::Io(e.line());
        let to = self.take_one(BlockNr(vol.geo.first_data_block))?;
        if let Err(e) = claim.copy_to(to.start) {
            vol.alloc.give_back(to);
            return Err(io(e));
        }
        fs.transact(5, |h| {
            vol.alloc.commit_take(h, to)?;
            vol.alloc.free(h, Run { start: BlockNr(block), len: 1 })?;
            fs.sb.update(h, |sb| sb.mmp_block = to.start.0)
        })?;
        vol.journal.commit_all().map_err(error::journal)?;
        claim.use_copy(to.start).map_err(io)?;
        self.moved.others += 1;
        Ok(())
    }
}
