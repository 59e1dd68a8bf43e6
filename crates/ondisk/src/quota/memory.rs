//! The blocks of a quota file as bytes in memory.

use super::{BLOCK_LEN, Block, Blocks};
use crate::error::{OnDiskError, Result};

/// A quota file's bytes. Bytes behind the last whole block are no part of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct InMemory(pub Vec<u8>);

impl Blocks for InMemory {
    type Error = OnDiskError;

    fn count(&mut self) -> Result<u32> {
        Ok(u32::try_from(self.0.len() / BLOCK_LEN).unwrap_or(u32::MAX))
    }

    fn read(&mut self, nr: u32) -> Result<Block> {
        let at = nr as usize * BLOCK_LEN;
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.copied().ok_or(OnDiskError::bad("quota block is outside the file"))
    }

    fn write(&mut self, nr: u32, block: &Block) -> Result<()> {
        let at = nr as usize * BLOCK_LEN;
        if at > self.0.len() {
            return Err(OnDiskError::bad("quota block is outside the file"));
        }
        if self.0.len() < at + BLOCK_LEN {
            self.0.resize(at + BLOCK_LEN, 0);
        }
        self.0[at..at + BLOCK_LEN].copy_from_slice(block);
        Ok(())
    }
}
