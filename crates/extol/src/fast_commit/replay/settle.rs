//! The end of a replay: what became of blocks and inodes.

use extol_ondisk::InodeNr;
use extol_vfs::{FsError, Result};

use super::runs::Blocks;
use super::{Life, Replay, data_runs};
use crate::alloc::SuperCell;
use crate::error;
use crate::fast_commit::eligibility::Change;

impl Replay<'_> {
    pub(super) fn settle(&mut self, sb: &SuperCell) -> Result<()> {
        let mut inos: Vec<u32> = self.inodes.keys().copied().collect();
        inos.sort_unstable();
        self.forget_unborn(&inos)?;
        self.blocks(&inos)?;
        self.bitmap_of_inodes(&inos)?;
        let head = self.slots(&inos, sb.read(|sb| sb.last_orphan))?;
        // Also if nothing at all has changed: an empty transaction would not be committed.
        let now = self.vol.alloc.block_counters();
        sb.update(&mut self.h, |sb| {
            sb.last_orphan = head;
            sb.free_blocks_count = now.free_on_disk;
            sb.free_inodes_count = u32::try_from(now.free_inodes).unwrap_or(u32::MAX);
        })
    }

    /// New inodes that have no name: they can never be reached, and are not open any
    /// more.
    fn forget_unborn(&mut self, inos: &[u32]) -> Result<()> {
        let (vol, h) = (self.vol, &mut self.h);
        for ino in inos {
            let Some(t) = self.inodes.get_mut(ino).filter(|t| t.base.is_none()) else { continue };
            let named = t.names > 0;
            if t.life == Life::Alive && named && t.node.raw.links > 0 {
                continue;
            }
            if named {
                return Err(FsError::corrupt("a name leads to a new inode without links")
                    .in_inode((*ino).into()));
            }
            if t.life != Life::Absent {
                Self::empty(vol, h, t)?;
            }
            self.inodes.remove(ino);
        }
        Ok(())
    }

    /// Data blocks, and the others of their clusters: those that files have now, against those that
    /// they had.
    fn blocks(&mut self, inos: &[u32]) -> Result<()> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for t in inos.iter().filter_map(|ino| self.inodes.get(ino)) {
            before.extend_from_slice(&t.before);
            if t.is_file() {
                after.extend(data_runs(self.vol, &t.node)?);
            }
        }
        let twice =
            |at: extol_block::BlockNr| FsError::corrupt("two files own one block").at_block(at.0);
        let (before, after) =
            (Blocks::disjoint(&before).map_err(twice)?, Blocks::disjoint(&after).map_err(twice)?);
        let taken = after.without(&before);
        let claimed = Blocks::disjoint(&self.claimed).map_err(twice)?;
        if let Some(at) = taken.without(&claimed).first() {
            return Err(
                FsError::corrupt("a record gives a file a block that is in use").at_block(at.0)
            );
        }
        for run in taken.runs() {
            self.check_room()?;
            self.vol.alloc.commit_claimed(&mut self.h, run)?;
        }
        for run in before.without(&after).runs() {
            self.check_room()?;
            self.vol.alloc.free(&mut self.h, run)?;
        }
        Ok(())
    }

    fn bitmap_of_inodes(&mut self, inos: &[u32]) -> Result<()> {
        for ino in inos {
            self.check_room()?;
            let Some(t) = self.inodes.get(ino).filter(|t| t.life != Life::Absent) else { continue };
            let is_dir = t.node.raw.is_dir();
            if t.base != Some(is_dir) {
                let gap = self.vol.alloc.mark_inode(&mut self.h, InodeNr(*ino), t.base, is_dir)?;
                self.clear_slots(gap)?;
            }
        }
        Ok(())
    }

    /// Slots of a table that was never zeroed come into the part that is in use: they must not look
    /// like inodes.
    fn clear_slots(&mut self, gap: std::ops::Range<u32>) -> Result<()> {
        for ino in gap {
            self.check_room()?;
            if !self.inodes.contains_key(&ino) {
                self.vol.clear_unused_inode(&mut self.h, InodeNr(ino))?;
            }
        }
        Ok(())
    }

    /// Writes the inodes. Those without a name come to the front of the orphan list; gives its new
    /// head.
    fn slots(&mut self, inos: &[u32], mut head: u32) -> Result<u32> {
        for ino in inos {
            if self.h.credits() == 0 {
                return Err(FsError::corrupt("they change more blocks than the journal can hold"));
            }
            let Some(t) = self.inodes.get_mut(ino).filter(|t| t.life != Life::Absent) else {
                continue;
            };
            if t.node.raw.links == 0 && !t.listed {
                t.node.raw.dtime = head;
                head = *ino;
            }
            let (born, values) = (t.base.is_none(), t.values);
            let change = Change { born, values, ..Change::default() };
            self.vol.write_inode(&mut self.h, t.node.ino, &t.node.raw, change)?;
        }
        Ok(head)
    }
}

impl crate::volume::Volume {
    /// Zeros in the slot of an inode that is not used.
    fn clear_unused_inode(&self, h: &mut extol_jbd2::Handle, ino: InodeNr) -> Result<()> {
        let (buf, at) = self.inode_buf(ino)?;
        let slot = at..at + usize::from(self.geo.inode_size);
        if buf.data().get(slot.clone()).is_some_and(|bytes| bytes.iter().any(|b| *b != 0)) {
            h.modify(&buf, |bytes| {
                if let Some(bytes) = bytes.get_mut(slot) {
                    bytes.fill(0);
                }
            })
            .map_err(error::journal)?;
        }
        Ok(())
    }
}
