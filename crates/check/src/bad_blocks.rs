//! The list of bad blocks, inode 1. A block of an inode table that it names is not read: e2fsck
//! takes all inodes in it for used, and a name that leads to one of them is damage.

use std::ops::Range;

use extol_ondisk::{InodeFlags, InodeNr};

use crate::error::Result;
use crate::map::Walk;
use crate::raw::Raw;
use crate::report::Findings;
use crate::vol::Vol;

/// The blocks that the list names, in order.
#[derive(Debug, Default)]
pub(crate) struct BadBlocks(Vec<Range<u64>>);

impl BadBlocks {
    /// Reads the list.
    pub(crate) fn read(vol: &Vol) -> Result<Self> {
        let ino = InodeNr::BAD_BLOCKS.0;
        let bytes = vol.inode(ino)?.unwrap_or_default();
        let raw = Raw { b: &bytes, ino };
        if raw.i_block().iter().all(|byte| *byte == 0) || raw.has(InodeFlags::INLINE_DATA) {
            return Ok(Self::default());
        }
        let mapped = Walk::new(vol, None, raw, true, &mut Findings::new(0)).run()?;
        let runs = mapped.runs.iter().map(|run| run.pblk..run.pblk.saturating_add(run.len));
        Ok(Self::merged(runs.collect()))
    }

    fn merged(mut runs: Vec<Range<u64>>) -> Self {
        runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for run in runs {
            match merged.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => merged.push(run),
            }
        }
        Self(merged)
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        let behind = self.0.partition_point(|run| run.start <= block);
        behind.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|run| block < run.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_in_runs_that_overlap() {
        let bad = BadBlocks::merged(vec![9..10, 3..5, 4..7, 7..8, 20..21]);
        let found: Vec<u64> = (0..30).filter(|block| bad.contains(*block)).collect();
        assert_eq!(found, [3, 4, 5, 6, 7, 9, 20]);
        assert!(!BadBlocks::default().contains(0));
    }
}
