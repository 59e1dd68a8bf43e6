//! Moves blocks that no map of a file has: attribute blocks; and those whose bytes depend on their
//! place: blocks of the orphan file and the MMP block.

use extol_block::BlockNr;
use extol_ondisk::Incompat;
use extol_vfs::{FsError, Result};

use super::map::behind;
use super::mover::Mover;
use crate::alloc::Run;
use crate::error::{self, OpenError};
use crate::inodes::InodeState;
use crate::map::{self, Discard, MappedRun};
use crate::node::Node;
use crate::ops::values;
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

    /// Moves blocks of the orphan file.
    pub(super) fn move_orphan_file(&mut self) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let Some(ino) = fs.orphans.file_inode() else { return Ok(()) };
        let raw = vol.read_inode(ino)?;
        let mut st = InodeState::new(Node { ino, raw }, vol.journal.newest());
        let mut at = 0;
        while let Some(run) = map::next_mapped(vol, &st.node, at, u32::MAX)? {
            let Some(run) = behind(run, self.limit) else {
                at = run.lblk.saturating_add(run.len);
                continue;
            };
            let block = MappedRun { len: 1, ..run };
            self.move_orphan_block(&mut st, block)?;
            at = block.lblk.saturating_add(1);
        }
        if map::has_tree_blocks(&st.node) { self.move_tree(&mut st) } else { Ok(()) }
    }

    fn move_orphan_block(&mut self, st: &mut InodeState, from: MappedRun) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let to = self.take_one(vol.alloc.meta_goal(st.node.ino))?;
        let old = Run { start: from.pblk, len: 1 };
        vol.alloc.unprotect(old);
        let moved = fs.transact(map::credits_for_relocate(&st.node, 1) + 2 + 1 + 1, |h| {
            vol.alloc.commit_take(h, to)?;
            fs.orphans.copy_block(vol, h, from.lblk, to.start)?;
            let place = (from.lblk, 1);
            map::relocate(vol, h, &mut st.node, place, to.start, Discard::FreeJournalled)?;
            st.store(fs, h, true)
        });
        if let Err(e) = moved {
            vol.alloc.protect(old);
            // The new block is in use for nothing.
            let _ = vol.journal.abort("a block of the orphan file could not be moved");
            return Err(e);
        }
        vol.alloc.protect(to);
        fs.orphans.use_copy(from.lblk, to.start);
        self.moved.others += 1;
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
        let io = |e: OpenError| FsError::Io(e.0);
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
