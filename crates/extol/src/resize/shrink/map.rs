//! Moves what the map of one inode has at or behind the limit.

use extol_block::BlockNr;
use extol_vfs::{FsError, Result};

use super::mover::Mover;
use crate::alloc::Run;
use crate::error;
use crate::inodes::InodeState;
use crate::map::{self, MappedRun};
use crate::mounted::MountedFs;
use crate::resize::relocate::{relocate, stretch};

/// The part of a run that lies at or behind the limit. (A cluster lies on one side of it.)
pub(super) fn behind(run: MappedRun, limit: BlockNr) -> Option<MappedRun> {
    let before = limit.0.saturating_sub(run.pblk.0);
    let before = u32::try_from(before).ok().filter(|before| *before < run.len)?;
    Some(MappedRun {
        lblk: run.lblk.saturating_add(before),
        pblk: run.pblk.plus(u64::from(before)),
        len: run.len - before,
        ..run
    })
}

/// Up to `want` blocks in front of the limit, and `min` at least.
pub(super) fn take(fs: &MountedFs, goal: BlockNr, want: u32, min: u32) -> Result<Run> {
    match fs.vol.alloc.take(goal, want, min) {
        Err(FsError::NoSpace) if fs.vol.alloc.pending_free() > 0 => {
            fs.vol.journal.commit_all().map_err(error::journal)?;
            fs.vol.alloc.take(goal, want, min)
        }
        taken => taken,
    }
}

impl Mover<'_> {
    /// Moves the data and the tree blocks of an inode.
    pub(super) fn move_map(&mut self, st: &mut InodeState) -> Result<()> {
        if !st.node.raw.maps_blocks() {
            return Ok(());
        }
        self.move_data(st)?;
        if map::has_tree_blocks(&st.node) { self.move_tree(st) } else { Ok(()) }
    }

    fn move_data(&mut self, st: &mut InodeState) -> Result<()> {
        let vol = &self.fs.vol;
        let mut at = 0;
        let mut goal = None;
        while let Some(run) = map::next_mapped(vol, &st.node, at, u32::MAX)? {
            let Some(run) = behind(run, self.limit) else {
                at = run.lblk.saturating_add(run.len);
                goal = Some(run.pblk.plus(u64::from(run.len)));
                continue;
            };
            // (The place behind the limit that the goal may name is as good as any.)
            let near = match goal {
                Some(goal) => goal,
                None => vol.alloc.inode_goal(st.node.ino),
            };
            let all = stretch(self.fs, st, run)?;
            let to = take(self.fs, vol.geo.in_place_of(near, all.start), all.len, 1)?;
            let from = all.cut(to.len);
            relocate(self.fs, st, &from, to, false).0?;
            self.moved.blocks += u64::from(from.blocks());
            if !self.go_on() {
                return Ok(());
            }
            at = from.end();
            goal = Some(to.end());
        }
        Ok(())
    }

    pub(super) fn move_tree(&mut self, st: &mut InodeState) -> Result<()> {
        let vol = &self.fs.vol;
        let mut next = Some(0);
        while let Some(at) = next {
            let mut h = self.fs.start(map::credits_for_relocate_nodes(&st.node) + 1)?;
            let result = map::relocate_nodes(vol, &mut h, &mut st.node, at, self.limit);
            if !matches!(result, Ok((0, _))) {
                st.store(self.fs, &mut h, true)?;
            }
            h.stop().map_err(error::journal)?;
            let (moved, then) = result?;
            self.moved.tree_blocks += u64::from(moved);
            if moved > 0 && !self.go_on() {
                return Ok(());
            }
            next = then.filter(|then| *then > at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_behind_the_limit() {
        let run = |lblk, pblk, len| MappedRun { lblk, pblk: BlockNr(pblk), len, unwritten: true };
        let limit = BlockNr(100);
        assert_eq!(behind(run(7, 90, 10), limit), None);
        assert_eq!(behind(run(7, 90, 11), limit), Some(run(17, 100, 1)));
        assert_eq!(behind(run(7, 100, 11), limit), Some(run(7, 100, 11)));
        assert_eq!(behind(run(0, 5_000_000_000, 3), limit), Some(run(0, 5_000_000_000, 3)));
        assert_eq!(behind(run(0, 1, 3), BlockNr(u64::MAX)), None);
    }
}
