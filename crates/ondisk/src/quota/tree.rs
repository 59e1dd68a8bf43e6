//! Blocks of the tree: 256 numbers of blocks, 0 where there is nothing.

use super::{BLOCK_LEN, Block};
use crate::bytes::{get32, put32};

/// Levels of tables between the root, which is one, and the data blocks.
pub(super) const LEVELS: usize = 4;
/// Numbers in a block.
pub(super) const SLOTS: usize = BLOCK_LEN / 4;

/// The slot of an id in a table of a level; the root is level 0.
pub(super) const fn slot(id: u32, level: usize) -> usize {
    (id >> ((LEVELS - 1 - level) * 8)) as usize & (SLOTS - 1)
}

/// The number in a slot.
pub(super) fn get(block: &Block, slot: usize) -> u32 {
    get32(block, slot * 4)
}

/// Sets the number in a slot.
pub(super) fn set(block: &mut Block, slot: usize, nr: u32) {
    put32(block, slot * 4, nr);
}

/// True if the table names no block.
pub(super) fn is_empty(block: &Block) -> bool {
    block.iter().all(|&byte| byte == 0)
}
