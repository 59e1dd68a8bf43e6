//! The file of a journal gets blocks behind its log, which the log does not use.

use super::remap::{blocks_of, last, split};
use super::{JournalFile, Result, pieces};
use crate::alloc::Run;

impl JournalFile<'_> {
    /// Gets all blocks of `tail` that are free, behind the log.
    pub(in crate::resize::shrink) fn swallow(&mut self, tail: Run) -> Result<()> {
        let alloc = &self.fs.vol.alloc;
        self.cut(self.fs.vol.journal.log_blocks())?;
        let taken = alloc.claim_free(tail)?;
        if taken.is_empty() {
            return Ok(());
        }
        let free = blocks_of(&taken);
        let gained: u32 = free.iter().map(|(_, len)| *len).sum();
        let log = blocks_of(&self.runs()?);
        let old_nodes: Vec<_> = self.nodes()?.into_iter().map(|nr| (nr, 1)).collect();
        // The last ones become map blocks, the old map blocks data.
        let per = self.fs.vol.geo.block_len() / 4;
        let most = (self.blocks() as usize + gained as usize) / per + 3;
        let places = last(&free, most);
        let found = self.map_of(&places, |used| {
            let (data, _) = split(&free, gained.saturating_sub(used as u32));
            log.iter().chain(&data).chain(&old_nodes).copied().collect()
        });
        let Some((map, data)) = found else {
            taken.iter().for_each(|run| alloc.give_back(*run));
            return pieces(tail.start.0);
        };
        self.remap(&data, &map, &taken)
    }
}
