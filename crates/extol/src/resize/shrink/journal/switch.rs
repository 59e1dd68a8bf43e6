//! Exchanges the maps of the two logs: steps 2 and 3 of the move.

use extol_block::BlockNr;
use extol_jbd2::{JournalError, LogMap, planted};

use super::map::{self as journal_map, Blocks, Map};
use super::{JournalFile, Result, SECTOR, pieces};
use crate::alloc::Run;
use crate::error;

impl JournalFile<'_> {
    /// Steps 2 and 3.
    pub(super) fn switch(&mut self, log: &[Run], nodes: &[Run], limit: u64) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let size = vol.geo.block_size;
        let old_nodes = self.nodes()?;
        let other = self.other_map(log, nodes, &old_nodes);
        let (map, blocks) = other?.map_or_else(|| pieces(limit), Ok)?;
        let mut raw = self.node.raw.clone();
        raw.i_block = map.i_block;
        raw.size = blocks << size.bits();
        let mut at = 0;
        let extents = log.iter().map(|run| {
            let first = at;
            at += run.len;
            (first, run.start.0, run.len)
        });
        let log_map = LogMap::from_extents(size, extents.collect()).map_err(error::journal)?;
        // Nothing of what changes below the cache may be in it.
        let in_nodes = map.nodes.iter().map(|(nr, _)| *nr);
        for nr in old_nodes.into_iter().chain(in_nodes) {
            vol.journal.forget_clean(BlockNr(nr), 1);
        }
        vol.journal
            .move_log(log_map, || {
                for (nr, bytes) in &map.nodes {
                    vol.dev.write_at(bytes, BlockNr(*nr).offset(size))?;
                }
                if !planted::has(planted::Bug::LogSwitchNotFlushed) {
                    vol.dev.flush()?;
                }
                let (buf, at) = vol
                    .inode_buf(self.node.ino)
                    .map_err(|e| JournalError::Unsupported(e.to_string()))?;
                let (nr, mut block) = (buf.nr(), buf.data().to_vec());
                drop(buf);
                let slot = at..at + usize::from(vol.geo.inode_size);
                if let Some(slot) = block.get_mut(slot) {
                    raw.encode_into(slot, self.node.ino, &vol.geo);
                }
                let first = at / SECTOR * SECTOR;
                let sector = block.get(first..first + SECTOR).unwrap_or_default();
                vol.dev.write_at(sector, nr.offset(size) + first as u64)?;
                vol.dev.flush()?;
                match vol.journal.forget_clean(nr, 1) {
                    true => Ok(()),
                    false => Err(JournalError::Unsupported("the inode is in use".into())),
                }
            })
            .map_err(error::journal)?;
        *self = Self::read(fs, self.node.ino)?;
        Ok(())
    }

    /// The map with the new log in front: all blocks that the inode has, in another order. Gives
    /// how many of them are data, too; `None` if the inode cannot hold it.
    fn other_map(
        &self,
        log: &[Run],
        nodes: &[Run],
        old_nodes: &[u64],
    ) -> Result<Option<(Map, u64)>> {
        let geo = &self.fs.vol.geo;
        let places: Vec<u64> = nodes.iter().flat_map(|run| run.start.0..run.end().0).collect();
        let appended: u32 = log.iter().chain(nodes).map(|run| run.len).sum();
        let mut old = Vec::new();
        let mut left = self.blocks().saturating_sub(appended);
        for run in self.runs()? {
            let len = run.len.min(left);
            left -= len;
            old.push((run.start.0, len));
        }
        for used in 0..=places.len() {
            let (used, unused) = places.split_at(used);
            let mut data: Vec<Blocks> = log.iter().map(|run| (run.start.0, run.len)).collect();
            data.extend(old.iter().filter(|(_, len)| *len > 0));
            data.extend(old_nodes.iter().chain(unused).map(|nr| (*nr, 1)));
            let data = joined(data);
            let map = match self.has_extents() {
                true => {
                    let seed = self.node.raw.seed(self.node.ino, geo);
                    journal_map::by_extents(&data, used, geo, seed)
                }
                false => journal_map::by_blocks(&data, used, geo.block_len()),
            };
            if let Some(map) = map {
                let blocks = data.iter().map(|(_, len)| u64::from(*len)).sum();
                return Ok(Some((map, blocks)));
            }
        }
        Ok(None)
    }
}

/// Neighbours become one run.
pub(super) fn joined(blocks: Vec<Blocks>) -> Vec<Blocks> {
    let mut all: Vec<Blocks> = Vec::new();
    for (start, len) in blocks {
        match all.last_mut() {
            Some((first, n)) if *first + u64::from(*n) == start => *n += len,
            _ => all.push((start, len)),
        }
    }
    all
}
