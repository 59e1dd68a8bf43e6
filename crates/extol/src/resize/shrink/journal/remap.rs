//! Gives the journal's inode another map, so that its file is whole at any time (JM-3).
//!
//! ```text
//!   in place        the map blocks, where the file has none now; flush
//!   1 transaction   bitmaps, and the inode, which names them; then home, and an empty log
//! ```
//!
//! A recovery writes the blocks of a transaction in any order, and may end in between. The next
//! one then reads the inode as it is at home by then, old or new: the map blocks of both are whole.

use extol_block::BlockNr;
use extol_jbd2::{Handle, planted};

use super::super::mover::{self, settle};
use super::map::{self as journal_map, Blocks, Map};
use super::{JournalFile, Result, blocks, not_fast};
use crate::alloc::Run;
use crate::error;

impl JournalFile<'_> {
    /// A map of these blocks in this order, by the first ones of `places`, as few as suffice.
    /// `data` gets their number: it can give other blocks then. `None` if there is no such map.
    pub(super) fn map_of(
        &self,
        places: &[u64],
        data: impl Fn(usize) -> Vec<Blocks>,
    ) -> Option<(Map, Vec<Blocks>)> {
        let geo = &self.fs.vol.geo;
        let least = match self.has_extents() {
            true => 0,
            false => {
                let blocks = data(places.len()).iter().map(|(_, len)| u64::from(*len)).sum();
                journal_map::indirect_nodes(blocks, geo.block_len() as u64 / 4) as usize
            }
        };
        for used in least..=places.len() {
            let nodes = places.get(..used)?;
            let data = joined(data(used));
            let map = match self.has_extents() {
                true => {
                    let seed = self.node.raw.seed(self.node.ino, geo);
                    journal_map::by_extents(&data, nodes, geo, seed)
                }
                false => journal_map::by_blocks(&data, nodes, geo.block_len()),
            };
            if let Some(map) = map {
                return Some((map, data));
            }
        }
        None
    }

    /// The file has these blocks from now on, by this map, whose map blocks are none of the map
    /// that it has now. The log is empty, before and after. `taken`: blocks that the file gets,
    /// each run in one group, which the allocator has handed out; it gets them back after an
    /// error. What the file no longer has becomes free.
    pub(super) fn remap(&mut self, data: &[Blocks], map: &Map, taken: &[Run]) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let started = self.begin(data, map, taken);
        let (mut h, freed) = started.inspect_err(|_| {
            taken.iter().for_each(|run| vol.alloc.give_back(*run));
        })?;
        not_fast(&mut h);
        if let Err(e) = self.change(&mut h, data, map, taken, &freed) {
            let _ = vol.journal.abort("the map of the journal could not be exchanged");
            return Err(e);
        }
        h.stop().map_err(error::journal)?;
        settle(fs)?;
        if planted::has(planted::Bug::JournalMapLate) {
            self.write_map(map)?;
        }
        Ok(())
    }

    /// Writes the map blocks and starts the transaction. Gives what it frees, too.
    fn begin(&self, data: &[Blocks], map: &Map, taken: &[Run]) -> Result<(Handle, Vec<Run>)> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let old = blocks::all(vol, self.node.ino)?;
        let new = data.iter().copied().chain(map.nodes.iter().map(|(nr, _)| (*nr, 1)));
        let freed = blocks::without(&old, new.collect());
        // Bitmap and descriptor of each group, the inode, the superblock, and a revoke block.
        let groups = |run: &Run| 2 + run.len / vol.geo.blocks_per_group;
        let groups: u32 = taken.iter().chain(&freed).map(groups).sum();
        let groups = groups.min(vol.geo.groups());
        let in_use = self.nodes()?;
        if map.nodes.iter().any(|(nr, _)| in_use.contains(nr)) {
            return Err(blocks::damaged().into());
        }
        let is_logged = planted::has(planted::Bug::JournalMapLogged);
        if !planted::has(planted::Bug::JournalMapLate) && !is_logged {
            self.write_map(map)?;
        }
        let more = if is_logged { map.nodes.len() as u32 } else { 0 };
        Ok((mover::handle(fs, 2 * groups + 3 + more, "the map of the journal")?, freed))
    }

    fn write_map(&self, map: &Map) -> Result<()> {
        let vol = &self.fs.vol;
        for (nr, bytes) in &map.nodes {
            let nr = BlockNr(*nr);
            vol.journal.forget_clean(nr, 1);
            vol.dev.write_at(bytes, nr.offset(vol.geo.block_size)).map_err(error::device)?;
        }
        vol.dev.flush().map_err(error::device)?;
        Ok(())
    }

    fn change(
        &mut self,
        h: &mut Handle,
        data: &[Blocks],
        map: &Map,
        taken: &[Run],
        freed: &[Run],
    ) -> Result<()> {
        let vol = &self.fs.vol;
        for nr in self.nodes()? {
            // (What becomes data of the log is read and written without the cache.)
            h.forget(BlockNr(nr), false).map_err(error::journal)?;
        }
        taken.iter().try_for_each(|run| vol.alloc.commit_take(h, *run))?;
        for run in freed {
            vol.alloc.unprotect(*run);
            vol.alloc.free(h, *run)?;
        }
        if planted::has(planted::Bug::JournalMapLogged) {
            for (nr, bytes) in &map.nodes {
                let buf = h.create(BlockNr(*nr)).map_err(error::journal)?;
                h.modify(&buf, |to| to.copy_from_slice(bytes)).map_err(error::journal)?;
            }
        }
        let sectors = |runs: &[Run]| {
            let whole = |run: &Run| u64::from(run.whole_clusters(&vol.geo).len);
            runs.iter().map(whole).sum::<u64>() << (vol.geo.block_size.bits() - 9)
        };
        let raw = &mut self.node.raw;
        raw.i_block = map.i_block;
        raw.blocks = (raw.blocks + sectors(taken)).saturating_sub(sectors(freed));
        let blocks: u64 = data.iter().map(|(_, len)| u64::from(*len)).sum();
        let blocks = u32::try_from(blocks).map_err(|_| blocks::damaged())?;
        Ok(self.store(h, blocks)?)
    }
}

/// The same as pairs.
pub(super) fn blocks_of(runs: &[Run]) -> Vec<Blocks> {
    runs.iter().map(|run| (run.start.0, run.len)).collect()
}

/// Their numbers.
pub(super) fn numbers(runs: &[Run]) -> Vec<u64> {
    runs.iter().flat_map(|run| run.start.0..run.end().0).collect()
}

/// The numbers of the last ones, at most so many, the last one first.
pub(super) fn last(blocks: &[Blocks], most: usize) -> Vec<u64> {
    let each = |(start, len): &Blocks| (*start..start + u64::from(*len)).rev();
    blocks.iter().rev().flat_map(each).take(most).collect()
}

/// Neighbours become one run.
fn joined(blocks: Vec<Blocks>) -> Vec<Blocks> {
    let mut all: Vec<Blocks> = Vec::new();
    for (start, len) in blocks.into_iter().filter(|(_, len)| *len > 0) {
        match all.last_mut() {
            Some((first, n)) if *first + u64::from(*n) == start => *n += len,
            _ => all.push((start, len)),
        }
    }
    all
}

/// The first `len` blocks, and those behind them.
pub(super) fn split(blocks: &[Blocks], len: u32) -> (Vec<Blocks>, Vec<Blocks>) {
    let mut left = len;
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (start, len) in blocks {
        let here = left.min(*len);
        left -= here;
        first.extend((here > 0).then_some((*start, here)));
        rest.extend((here < *len).then_some((start + u64::from(here), len - here)));
    }
    (first, rest)
}
