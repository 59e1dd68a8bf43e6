//! One change of a quota file, on copies of its blocks until all of it is known to be possible.

use std::collections::BTreeMap;

use super::header::Header;
use super::{Block, Blocks, Info, ROOT};
use crate::error::{OnDiskError, ensure};

/// The blocks of a file with the changes so far.
pub(super) struct Change<'a, B> {
    blocks: &'a mut B,
    pub(super) header: Header,
    pub(super) info: Info,
    before: Info,
    changed: BTreeMap<u32, Block>,
}

impl<'a, B: Blocks> Change<'a, B> {
    /// Begins a change.
    pub(super) fn new(blocks: &'a mut B, header: Header, info: Info) -> Self {
        Self { blocks, header, info, before: info, changed: BTreeMap::new() }
    }

    /// A block of the tree or with data, as it is by now.
    pub(super) fn read(&mut self, nr: u32) -> Result<Block, B::Error> {
        ensure(nr == ROOT || self.info.holds(nr), "number of a quota block is outside the file")?;
        match self.changed.get(&nr) {
            Some(block) => Ok(*block),
            None => self.blocks.read(nr),
        }
    }

    /// Changes a block to this.
    pub(super) fn put(&mut self, nr: u32, block: Block) {
        debug_assert!(nr == ROOT || self.info.holds(nr), "block {nr} is outside");
        self.changed.insert(nr, block);
    }

    /// The block behind the last one, from now on part of the file.
    pub(super) fn lengthen(&mut self) -> Result<u32, B::Error> {
        let nr = self.info.blocks;
        let blocks = nr.checked_add(1).ok_or(OnDiskError::bad("quota file is full"))?;
        self.info.blocks = blocks;
        self.put(nr, [0; super::BLOCK_LEN]);
        Ok(nr)
    }

    /// Writes all that changed, in the order of the blocks, and gives the new state of the file.
    pub(super) fn finish(mut self) -> Result<Info, B::Error> {
        if self.info != self.before {
            let mut first = self.blocks.read(0)?;
            self.info.encode_into(&mut first);
            self.changed.insert(0, first);
        }
        for (&nr, block) in &self.changed {
            self.blocks.write(nr, block)?;
        }
        Ok(self.info)
    }
}
