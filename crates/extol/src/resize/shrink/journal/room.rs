//! Takes blocks for the new log and its map, and maps them behind the old log.

use extol_block::BlockNr;
use extol_ondisk::extent;
use extol_vfs::FsError;

use super::super::super::ResizeError;
use super::map as journal_map;
use super::remap::{blocks_of, numbers};
use super::{JournalFile, Place, Result, pieces, shortest};
use crate::alloc::Run;

/// Blocks that were taken.
pub(super) struct NewLog {
    /// The log.
    pub log: Vec<Run>,
    /// Map blocks behind the switch; data in front of it.
    pub nodes: Vec<Run>,
    /// Map blocks in front of the switch; data behind it.
    between: Vec<Run>,
}

impl JournalFile<'_> {
    /// Takes blocks for a log of `want` blocks, or of as many as there are, and for its maps.
    pub(super) fn take(&self, want: u32, place: &Place) -> Result<NewLog> {
        let (limit, within) = (place.limit, place.within);
        let vol = &self.fs.vol;
        let old_runs = self.runs()?.len();
        // As many as one map block names, beside the old ones and map blocks that are data.
        let most = match self.has_extents() {
            true if vol.geo.has_clusters() => {
                let long = self.blocks() as usize / usize::from(extent::MAX_LEN);
                journal_map::IN_INODE.saturating_sub(old_runs + long)
            }
            true => {
                let long = 2 * self.blocks() as usize / usize::from(extent::MAX_LEN);
                let others = old_runs + long + 2;
                usize::from(extent::block_max(&vol.geo)).saturating_sub(others)
            }
            false => usize::MAX,
        };
        if most == 0 {
            return pieces(limit);
        }
        let mut log = self.gather(want, most, within)?;
        let found: u32 = log.iter().map(|run| run.len).sum();
        let (nodes, between) = self.map_blocks(old_runs + log.len(), found);
        let wanted = u32::try_from(nodes + between).unwrap_or(u32::MAX);
        let mut places = self.gather(wanted, usize::MAX, within)?;
        let mut short = wanted - places.iter().map(|run| run.len).sum::<u32>();
        // The log is shorter then.
        while short > 0
            && let Some(last) = log.pop()
        {
            let len = short.min(last.len);
            let (rest, node) = last.split(last.len - len);
            short -= len;
            if rest.len > 0 {
                log.push(rest);
            }
            places.extend(if last.len == len { Some(last) } else { node });
        }
        let found: u32 = log.iter().map(|run| run.len).sum();
        let least = shortest(self.fs, place.transaction)?;
        let all = || log.iter().chain(&places);
        if found < least.min(want) || all().any(|run| run.end().0 > limit) {
            all().for_each(|run| vol.alloc.give_back(*run));
            return Err(ResizeError::NoRoom { what: "the journal finds no room", blocks: limit });
        }
        let (nodes, between) = divide(places, nodes);
        Ok(NewLog { log, nodes, between })
    }

    /// Most map blocks of the file with `found` more blocks: behind the switch, and in front of it.
    /// `runs`: how many pieces it is in.
    fn map_blocks(&self, runs: usize, found: u32) -> (u64, u64) {
        let all = u64::from(self.blocks()) + u64::from(found);
        if self.fs.vol.geo.has_clusters() {
            return (0, 0);
        }
        if self.has_extents() {
            let extents = runs + all as usize / usize::from(extent::MAX_LEN);
            let needed = u64::from(extents > journal_map::IN_INODE);
            return (needed, needed);
        }
        let per = self.fs.vol.geo.block_len() as u64 / 4;
        // (Map blocks that are not used are data.)
        let nodes = journal_map::indirect_nodes(all + all / (per / 8).max(1) + 16, per);
        (nodes, journal_map::indirect_nodes(all + nodes, per))
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

    /// The file gets a new log, which was taken, behind the old one.
    pub(super) fn append(&mut self, new: &NewLog, limit: u64) -> Result<()> {
        let alloc = &self.fs.vol.alloc;
        let mut data = blocks_of(&self.runs()?);
        data.extend(blocks_of(&new.log).into_iter().chain(blocks_of(&new.nodes)));
        let places = numbers(&new.between);
        let found = self.map_of(&places, |_| data.clone());
        let unused = places.len() - found.as_ref().map_or(0, |(map, _)| map.nodes.len());
        let mut taken = new.between.clone();
        self.give_back(&mut taken, unused as u64);
        taken.extend(new.log.iter().chain(&new.nodes));
        let Some((map, data)) = found else {
            taken.iter().for_each(|run| alloc.give_back(*run));
            return pieces(limit);
        };
        self.remap(&data, &map, &taken)
    }
}

/// The first `len` blocks, and those behind them.
fn divide(runs: Vec<Run>, len: u64) -> (Vec<Run>, Vec<Run>) {
    let mut left = u32::try_from(len).unwrap_or(u32::MAX);
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for run in runs {
        let (here, rest) = run.split(left);
        left -= here.len;
        first.extend((here.len > 0).then_some(here));
        others.extend(rest);
    }
    (first, others)
}
