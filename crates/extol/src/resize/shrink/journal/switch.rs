//! Exchanges the maps of the two logs: steps 2 and 3 of the move.

use extol_block::BlockNr;
use extol_jbd2::{JournalError, LogMap, planted};

use super::map::{Blocks, Map};
use super::remap::{blocks_of, numbers, split};
use super::room::NewLog;
use super::{JournalFile, Result, SECTOR, pieces};
use crate::error;

impl JournalFile<'_> {
    /// Steps 2 and 3.
    pub(super) fn switch(&mut self, new: &NewLog, limit: u64) -> Result<()> {
        let (fs, vol) = (self.fs, &self.fs.vol);
        let size = vol.geo.block_size;
        let old_nodes = self.nodes()?;
        let (map, data) = self.other_map(new, &old_nodes)?.map_or_else(|| pieces(limit), Ok)?;
        let blocks: u64 = data.iter().map(|(_, len)| u64::from(*len)).sum();
        let mut raw = self.node.raw.clone();
        raw.i_block = map.i_block;
        raw.size = blocks << size.bits();
        let mut at = 0;
        let extents = new.log.iter().map(|run| {
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

    /// The map with the new log in front: all blocks that the inode has, in another order.
    fn other_map(&self, new: &NewLog, old_nodes: &[u64]) -> Result<Option<(Map, Vec<Blocks>)>> {
        let places = numbers(&new.nodes);
        let appended: u32 = new.log.iter().chain(&new.nodes).map(|run| run.len).sum();
        let (old, _) = split(&blocks_of(&self.runs()?), self.blocks().saturating_sub(appended));
        let mut data = blocks_of(&new.log);
        data.extend(old.iter().copied().chain(old_nodes.iter().map(|nr| (*nr, 1))));
        Ok(self.map_of(&places, |used| {
            let unused = places.iter().skip(used).map(|nr| (*nr, 1));
            data.iter().copied().chain(unused).collect()
        }))
    }
}
