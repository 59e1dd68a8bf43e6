//! Takes blocks for the new log and its map, and maps them behind the old log.

use extol_block::BlockNr;
use extol_ondisk::extent;
use extol_vfs::FsError;

use super::super::super::{ResizeError, refuse};
use super::map as journal_map;
use super::{JournalFile, Place, Result, not_fast, pieces, shortest};
use crate::alloc::Run;
use crate::error;
use crate::map;

/// Most blocks that one transaction adds to the journal's inode.
const PIECE: u32 = 2048;

impl JournalFile<'_> {
    /// Takes blocks for a log of `want` blocks, or of as many as there are, and for its map.
    pub(super) fn take(&self, want: u32, place: &Place) -> Result<(Vec<Run>, Vec<Run>)> {
        let (limit, within) = (place.limit, place.within);
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
        let mut log = self.gather(want, most, within)?;
        let found: u32 = log.iter().map(|run| run.len).sum();
        let old = u64::from(self.blocks()) + u64::from(found);
        let extents = old_runs + log.len() + old as usize / usize::from(extent::MAX_LEN);
        let per = vol.geo.block_len() as u64 / 4;
        // `others`: what the map of both logs takes by itself, which stays free for it.
        let (wanted, others) = match self.has_extents() {
            true if old_nodes > 0 => (1, 0),
            true if extents > journal_map::IN_INODE => (2, 1),
            true => (0, 0),
            // (Map blocks that are not used are data, and so are those of the old map.)
            false => {
                let nodes = journal_map::indirect_nodes(old + old / (per / 8).max(1) + 16, per);
                let others = nodes.saturating_sub(old_nodes as u64);
                (nodes + others, others)
            }
        };
        let mut nodes =
            self.gather(u32::try_from(wanted).unwrap_or(u32::MAX), usize::MAX, within)?;
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
        let least = shortest(self.fs, place.transaction)?;
        let all = || log.iter().chain(&nodes);
        if found < least.min(want) || all().any(|run| run.end().0 > limit) {
            all().for_each(|run| vol.alloc.give_back(*run));
            return Err(ResizeError::NoRoom { what: "the journal finds no room", blocks: limit });
        }
        self.give_back(&mut nodes, others);
        Ok((log, nodes))
    }

    /// Gives back so many blocks of runs.
    fn give_back(&self, runs: &mut Vec<Run>, mut blocks: u64) {
        while blocks > 0
            && let Some(last) = runs.pop()
        {
            let len = u32::try_from(blocks).unwrap_or(u32::MAX).min(last.len);
            let (some, rest) = last.split(len);
            blocks -= u64::from(len);
            self.fs.vol.alloc.give_back(some);
            runs.extend(rest);
        }
    }

    /// Takes up to `want` blocks, in few pieces, at most so many.
    fn gather(&self, want: u32, most: usize, within: Option<Run>) -> Result<Vec<Run>> {
        if let Some(within) = within {
            return self.claim(want, most, within);
        }
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

    /// As that, the first ones that are free in a run.
    fn claim(&self, want: u32, most: usize, within: Run) -> Result<Vec<Run>> {
        let alloc = &self.fs.vol.alloc;
        let (mut runs, mut left) = (Vec::new(), want);
        for run in alloc.claim_free(within)? {
            if left == 0 || runs.len() == most {
                alloc.give_back(run);
                continue;
            }
            let (taken, rest) = run.split(run.len.min(left));
            rest.iter().for_each(|rest| alloc.give_back(*rest));
            left -= taken.len;
            runs.push(taken);
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
