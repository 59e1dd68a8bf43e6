//! Numbers of blocks, inodes and groups: one type each, so that they cannot be mixed up.

use std::fmt;

use crate::block_size::BlockSize;

/// Number of a block on the volume, in units of the volume's block size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockNr(pub u64);

impl BlockNr {
    /// The block `n` blocks further on. Saturates, so that hostile numbers fail the later range
    /// check.
    #[must_use]
    pub fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }

    /// Byte offset of this block.
    #[must_use]
    pub fn offset(self, size: BlockSize) -> u64 {
        self.0.saturating_mul(u64::from(size.bytes()))
    }
}

impl fmt::Debug for BlockNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}", self.0)
    }
}

impl fmt::Display for BlockNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of an inode; the first is 1, and 0 means "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct InodeNr(pub u32);

/// Number of a block group; the first is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupNr(pub u32);

impl InodeNr {
    /// List of bad blocks.
    pub const BAD_BLOCKS: Self = Self(1);
    /// Root directory.
    pub const ROOT: Self = Self(2);
    /// User quota.
    pub const USER_QUOTA: Self = Self(3);
    /// Group quota.
    pub const GROUP_QUOTA: Self = Self(4);
    /// Blocks reserved for descriptor growth.
    pub const RESIZE: Self = Self(7);
    /// Journal.
    pub const JOURNAL: Self = Self(8);
    /// First inode for ordinary files in revision 0, and the usual one in revision 1.
    pub const GOOD_OLD_FIRST: Self = Self(11);

    /// True unless this is the "none" value.
    #[must_use]
    pub fn is_some(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Debug for InodeNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.0)
    }
}

impl fmt::Display for InodeNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for GroupNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}

impl fmt::Display for GroupNr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
