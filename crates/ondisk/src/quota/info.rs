//! What a quota file says about itself, behind its header: grace times, size, heads of the lists.

use super::{BLOCK_LEN, LEAST_BLOCKS, ROOT, header};
use crate::bytes::{get32, put32};
use crate::error::{Result, ensure};

/// Seconds that usage may stay above a soft limit, where nothing else is said: a week.
pub const DEFAULT_GRACE: u32 = 7 * 24 * 60 * 60;

/// What a file says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Info {
    /// Seconds that space may stay above its soft limit.
    pub space_grace: u32,
    /// Seconds that inodes may stay above their soft limit.
    pub inode_grace: u32,
    /// Flags; kept as they are.
    pub flags: u32,
    /// Blocks of the file.
    pub blocks: u32,
    /// First free block, 0 if none.
    pub free_block: u32,
    /// First data block with room for an entry, 0 if none.
    pub free_entry: u32,
}

impl Info {
    /// Of a file with no entry.
    #[must_use]
    pub(super) const fn empty() -> Self {
        Self {
            space_grace: DEFAULT_GRACE,
            inode_grace: DEFAULT_GRACE,
            flags: 0,
            blocks: LEAST_BLOCKS,
            free_block: 0,
            free_entry: 0,
        }
    }

    /// Decodes block 0 of a file that has `count` blocks.
    ///
    /// # Errors
    /// The file is shorter than it says, or a list begins outside.
    pub fn decode(block: &[u8], count: u32) -> Result<Self> {
        ensure(block.len() >= BLOCK_LEN, "quota file is cut short")?;
        let field = |index: usize| get32(block, header::LEN + index * 4);
        let info = Self {
            space_grace: field(0),
            inode_grace: field(1),
            flags: field(2),
            blocks: field(3),
            free_block: field(4),
            free_entry: field(5),
        };
        ensure(info.blocks >= LEAST_BLOCKS, "quota file has no tree")?;
        ensure(info.blocks <= count, "quota file is shorter than it says")?;
        ensure(info.holds_or_none(info.free_block), "free block of a quota file is outside")?;
        ensure(info.holds_or_none(info.free_entry), "free entry of a quota file is outside")?;
        Ok(info)
    }

    /// Writes the fields into block 0, keeping other bytes.
    pub fn encode_into(&self, block: &mut [u8]) {
        let fields = [
            self.space_grace,
            self.inode_grace,
            self.flags,
            self.blocks,
            self.free_block,
            self.free_entry,
        ];
        for (index, value) in fields.into_iter().enumerate() {
            put32(block, header::LEN + index * 4, value);
        }
    }

    /// True for a number of a block behind the root.
    pub(super) const fn holds(&self, nr: u32) -> bool {
        nr > ROOT && nr < self.blocks
    }

    /// True for such a number, or for none.
    pub(super) const fn holds_or_none(&self, nr: u32) -> bool {
        nr == 0 || self.holds(nr)
    }
}
