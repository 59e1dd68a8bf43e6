//! Makes the log shorter, and frees what is behind it in its file.

use extol_jbd2::LogMap;

use super::map as journal_map;
use super::remap::{blocks_of, last, split};
use super::{JournalFile, Result};
use crate::error;

impl JournalFile<'_> {
    /// The log has its first `keep` blocks from now on, and the others are free.
    pub(super) fn shorten(&mut self, keep: u32) -> Result<()> {
        let journal = &self.fs.vol.journal;
        let mut at = 0;
        let mut extents = Vec::new();
        for run in self.runs()? {
            let len = run.len.min(keep - at);
            extents.push((at, run.start.0, len));
            at += len;
        }
        let map = LogMap::from_extents(self.fs.vol.geo.block_size, extents);
        map.and_then(|map| journal.move_log(map, || Ok(()))).map_err(error::journal)?;
        self.cut(keep)
    }

    /// Frees what lies behind the first `keep` blocks. If too little is there for another map, it
    /// stays, which does no harm.
    pub(super) fn cut(&mut self, keep: u32) -> Result<()> {
        let (kept, others) = split(&blocks_of(&self.runs()?), keep);
        if others.is_empty() {
            return Ok(());
        }
        let most = match self.has_extents() {
            true if self.fs.vol.geo.has_clusters() => 0,
            true => journal_map::IN_INODE as u64,
            false => {
                let per = self.fs.vol.geo.block_len() as u64 / 4;
                journal_map::indirect_nodes(keep.into(), per)
            }
        };
        // The map takes the last ones, which the file got last: they lie where the log is to be.
        let places = last(&others, usize::try_from(most).unwrap_or(usize::MAX));
        match self.map_of(&places, |_| kept.clone()) {
            Some((map, data)) => self.remap(&data, &map, &[]),
            None => Ok(()),
        }
    }
}
