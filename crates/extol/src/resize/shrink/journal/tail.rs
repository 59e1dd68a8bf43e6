//! The file of a journal gets blocks behind its log, which the log does not use.

use extol_block::BlockNr;

use super::super::super::refuse;
use super::super::mover::settle;
use super::map::{self as journal_map, Blocks, Map};
use super::switch::joined;
use super::{JournalFile, Result, not_fast, pieces};
use crate::alloc::Run;
use crate::error;

impl JournalFile<'_> {
    /// Gets all blocks of `tail` that are free, behind the log. Their bits change in one
    /// transaction with the map, of which nothing changes that leads to the log.
    pub(in crate::resize::shrink) fn swallow(&mut self, tail: Run) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        self.cut(vol.journal.log_blocks())?;
        let free = vol.alloc.claim_free(tail)?;
        if free.is_empty() {
            return Ok(());
        }
        let mut data: Vec<Blocks> = self.runs()?.iter().map(|run| (run.start.0, run.len)).collect();
        data.extend(free.iter().map(|run| (run.start.0, run.len)));
        let found = self.longer_map(&joined(data));
        let Ok(Some((map, blocks))) = found else {
            free.iter().for_each(|run| vol.alloc.give_back(*run));
            return found.and_then(|_| pieces(tail.start.0));
        };
        let old = self.nodes()?;
        let inode = vol.inode_buf(self.node.ino)?.0.nr();
        let groups = free.len() as u32;
        let credits = map.nodes.len() as u32 + 2 * groups.min(2) + 2;
        if credits > vol.journal.max_credits() {
            return refuse("the journal is too small to get what is free behind the new end");
        }
        vol.journal.set_home_last(Some(inode));
        let done = fs.transact(credits, |h| {
            not_fast(h);
            free.iter().try_for_each(|run| vol.alloc.commit_claimed(h, *run))?;
            for (nr, bytes) in &map.nodes {
                let nr = BlockNr(*nr);
                let is_old = old.contains(&nr.0);
                let buf = if is_old { vol.journal.read(nr) } else { h.create(nr) };
                let buf = buf.map_err(error::journal)?;
                h.modify(&buf, |to| to.copy_from_slice(bytes)).map_err(error::journal)?;
            }
            let gained: u64 = free.iter().map(|run| u64::from(run.len)).sum();
            self.node.raw.i_block = map.i_block;
            self.node.raw.blocks += gained << (vol.geo.block_size.bits() - 9);
            self.store(h, blocks)
        });
        if done.is_err() {
            let _ = vol.journal.abort("the journal's inode could not get what is free");
        }
        let home = settle(fs);
        vol.journal.set_home_last(None);
        Ok(done.and(home)?)
    }

    /// A map of these blocks: the last ones become map blocks where the old ones do not suffice.
    /// Gives how many are data, too.
    fn longer_map(&self, blocks: &[Blocks]) -> Result<Option<(Map, u32)>> {
        let geo = &self.fs.vol.geo;
        let old = self.nodes()?;
        let per = geo.block_len() / 4;
        let all: usize = blocks.iter().map(|(_, len)| *len as usize).sum();
        let mut data = blocks.to_vec();
        for more in 0..=all / per + 3 {
            let mut nodes = old.clone();
            let behind = data.last().map_or(0, |(start, len)| start + u64::from(*len));
            nodes.extend(behind..behind + more as u64);
            let map = match self.has_extents() {
                true => {
                    let seed = self.node.raw.seed(self.node.ino, geo);
                    journal_map::by_extents(&data, &nodes, geo, seed)
                }
                false => journal_map::by_blocks(&data, &nodes, geo.block_len()),
            };
            if let Some(map) = map {
                return Ok(Some((map, (all - more) as u32)));
            }
            match data.last_mut() {
                Some((_, len)) if *len > 1 => *len -= 1,
                _ => break,
            }
        }
        Ok(None)
    }
}
