//! Takes blocks for the new log and its map, and maps them behind the old log.

use extol_block::BlockNr;
use extol_ondisk::extent;
use extol_vfs::FsError;

use super::super::super::{ResizeError, refuse};
use super::map as journal_map;
use super::{JournalFile, Result, not_fast, pieces, shortest};
use crate::alloc::Run;
use crate::error;
use crate::map;

/// Most blocks that one transaction adds to the journal's inode.
const PIECE: u32 = 2048;

impl JournalFile<'_> {
    /// Takes blocks for a log of `want` blocks, or of as many as there are, and for its map.
    pub(super) fn take(
        &self,
        want: u32,
        limit: u64,
        transaction: u32,
    ) -> Result<(Vec<Run>, Vec<Run>)> {
        let vol = &self.fs.vol;
        let (old_runs, old_nodes) = (self.runs()?.len(), self.nodes()?.len());
        // As many as one map block names, beside the old ones and map blocks that are data.
        let most = match self.has_extents() {
            true => {
                let long = 2 * self.blocks() as usize / usize::from(extent::MAX_LEN);
                let others = old_runs + long + 2;
                usize::from(extent::block_max(&vol.geo)).saturating_sub(others)
            }
            false => usize::MAX,
        };
        if most == 0 || self.has_extents() && old_nodes > 1 {
            return pieces(limit);
        }
        let mut log = self.gather(want, most)?;
        let found: u32 = log.iter().map(|run| run.len).sum();
        let old = u64::from(self.blocks()) + u64::from(found);
        let extents = old_runs + log.len() + old as usize / usize::from(extent::MAX_LEN);
        let per = vol.geo.block_len() as u64 / 4;
        let wanted = match self.has_extents() {
            true if old_nodes > 0 => 1,
            // (The map that has both logs takes one of the two by itself.)
            true if extents > journal_map::IN_INODE => 2,
            true => 0,
            // (Map blocks that are not used are data, and so are those of the old map.)
            false => journal_map::indirect_nodes(old + old / (per / 8).max(1) + 16, per),
        };
        let mut nodes = self.gather(u32::try_from(wanted).unwrap_or(u32::MAX), usize::MAX)?;
        let mut short = wanted - nodes.iter().map(|run| u64::from(run.len)).sum::<u64>();
        // The log is shorter then.
        while short > 0
            && let Some(last) = log.pop()
        {
            let len = u32::try_from(short).unwrap_or(u32::MAX).min(last.len);
            let (rest, node) = last.split(last.len - len);
            short -= u64::from(len);
            if rest.len > 0 {
                log.push(rest);
            }
            nodes.extend(if last.len == len { Some(last) } else { node });
        }
        let found: u32 = log.iter().map(|run| run.len).sum();
        let least = shortest(self.fs, transaction);
        let all = || log.iter().chain(&nodes);
        if found < least.min(want) || all().any(|run| run.end().0 > limit) {
            all().for_each(|run| vol.alloc.give_back(*run));
            return Err(ResizeError::NoRoom { what: "the journal finds no room", blocks: limit });
        }
        if self.has_extents()
            && wanted == 2
            && let Some(last) = nodes.pop()
        {
            let (one, rest) = last.split(1);
            vol.alloc.give_back(one);
            nodes.extend(rest);
        }
        Ok((log, nodes))
    }

    /// Takes up to `want` blocks, in few pieces, at most so many.
    fn gather(&self, want: u32, most: usize) -> Result<Vec<Run>> {
        let alloc = &self.fs.vol.alloc;
        let mut runs: Vec<Run> = Vec::new();
        let mut left = want;
        let mut least = want;
        while left > 0 && least > 0 && runs.len() < most {
            let goal =
                runs.last().map_or(BlockNr(self.fs.vol.geo.first_data_block), |run| run.end());
            match alloc.take(goal, left, least.min(left)) {
                Ok(run) => {
                    left -= run.len;
                    runs.push(run);
                }
                Err(FsError::NoSpace) => least = least.min(left) / 2,
                Err(e) => {
                    runs.iter().for_each(|run| alloc.give_back(*run));
                    return Err(e.into());
                }
            }
        }
        Ok(runs)
    }

    /// Maps these runs, which were taken, behind the end.
    pub(super) fn append<'r>(&mut self, runs: impl Iterator<Item = &'r Run>) -> Result<()> {
        let mut left: Vec<Run> = runs.copied().collect();
        left.reverse();
        while let Some(run) = left.pop() {
            let (now, rest) = run.split(run.len.min(PIECE));
            left.extend(rest);
            if let Err(e) = self.append_one(now) {
                left.iter().for_each(|run| self.fs.vol.alloc.give_back(*run));
                return Err(e);
            }
        }
        Ok(())
    }

    fn append_one(&mut self, run: Run) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let end = self.blocks();
        let credits = map::credits_for_insert(&self.node, run.len, vol.geo.block_size.bytes()) + 6;
        if credits > vol.journal.max_credits() {
            vol.alloc.give_back(run);
            return refuse("the journal is too small to be moved");
        }
        let mut h = match fs.start(credits) {
            Ok(h) => h,
            Err(e) => {
                vol.alloc.give_back(run);
                return Err(e.into());
            }
        };
        not_fast(&mut h);
        let done = vol
            .alloc
            .commit_take(&mut h, run)
            .and_then(|()| map::insert(vol, &mut h, &mut self.node, end, run, false))
            .and_then(|()| self.store(&mut h, end + run.len));
        if let Err(e) = done {
            // The new blocks are in use for nothing.
            let _ = vol.journal.abort("the journal's inode could not get more blocks");
            return Err(e.into());
        }
        Ok(h.stop().map_err(error::journal)?)
    }
}
