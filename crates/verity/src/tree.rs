//! The shape of a tree: its levels, and where each block of them lies.

use crate::error::{Result, VerityError};
use crate::params::Params;

/// Most levels of a tree that Linux reads.
pub const MAX_LEVELS: usize = 8;

/// One level of a tree, in blocks of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Its first block.
    pub start: u64,
    /// Its number of blocks.
    pub blocks: u64,
}

/// The shape of the tree of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    block_size: u64,
    hash_len: u64,
    data_size: u64,
    data_blocks: u64,
    /// From the level above the data to the root.
    levels: Vec<Level>,
    blocks: u64,
}

/// Where the hash of a block stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The block of the tree.
    pub block: u64,
    /// The byte in it.
    pub byte: usize,
}

impl Tree {
    /// The tree of a file of so many bytes.
    ///
    /// # Errors
    /// A file that needs more levels than Linux reads, or a tree whose end has no 64-bit offset.
    pub fn new(params: &Params, data_size: u64) -> Result<Self> {
        let block_size = u64::from(params.block_size());
        let per_block = params.hashes_per_block();
        let data_blocks = data_size.div_ceil(block_size);
        let mut counts = Vec::new();
        let mut below = data_blocks;
        while below > 1 {
            if counts.len() == MAX_LEVELS {
                return Err(VerityError::TooLarge);
            }
            below = below.div_ceil(per_block);
            counts.push(below);
        }
        // The root is first in the tree.
        let mut start = 0;
        let mut levels = Vec::with_capacity(counts.len());
        for blocks in counts.into_iter().rev() {
            levels.push(Level { start, blocks });
            start += blocks;
        }
        levels.reverse();
        let end = start.checked_mul(block_size).and_then(|tree| tree.checked_add(data_size));
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(VerityError::TooLarge);
        }
        let hash_len = params.algorithm().len() as u64;
        Ok(Self { block_size, hash_len, data_size, data_blocks, levels, blocks: start })
    }

    /// Its levels, from that above the data to the root.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// Bytes of all its blocks.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.blocks * self.block_size
    }

    /// Bytes of the file.
    #[must_use]
    pub fn data_size(&self) -> u64 {
        self.data_size
    }

    /// Blocks of the file's contents, of the size of the tree's blocks.
    #[must_use]
    pub fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// Where, on that level, the hash above data block `index` stands.
    pub(crate) fn place(&self, level: usize, index: u64) -> Option<Place> {
        let per_block = self.block_size / self.hash_len;
        let shift = u32::try_from(level).ok()?.checked_mul(per_block.trailing_zeros())?;
        let hash = index.checked_shr(shift)?;
        let Level { start, blocks } = *self.levels.get(level)?;
        let block = hash / per_block;
        let byte = usize::try_from(hash % per_block * self.hash_len).ok()?;
        (block < blocks).then_some(Place { block: start + block, byte })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Salt};

    fn tree(algorithm: Algorithm, block_size: u32, data_size: u64) -> Tree {
        Tree::new(&Params::new(algorithm, block_size, Salt::default()).unwrap(), data_size).unwrap()
    }

    #[test]
    fn the_root_comes_first_and_the_leaves_last() {
        // 128 hashes to a block: 20000 blocks, 157 above them, 2 above those, 1.
        let tree = tree(Algorithm::Sha256, 4096, 20_000 * 4096);
        let levels = [(3, 157), (1, 2), (0, 1)].map(|(start, blocks)| Level { start, blocks });
        assert_eq!(tree.levels(), levels);
        assert_eq!((tree.size(), tree.data_blocks()), (160 * 4096, 20_000));
        assert_eq!(tree.place(0, 129), Some(Place { block: 4, byte: 32 }));
        assert_eq!(tree.place(1, 19_999), Some(Place { block: 2, byte: (156 - 128) * 32 }));
        assert_eq!(tree.place(2, 19_999), Some(Place { block: 0, byte: 32 }));
        assert_eq!(tree.place(3, 0), None);
        assert_eq!(tree.place(0, 157 * 128), None);
    }

    #[test]
    fn files_of_at_most_one_block_have_no_tree() {
        for size in [0, 1, 4096] {
            assert_eq!(tree(Algorithm::Sha512, 4096, size).size(), 0);
        }
        assert_eq!(tree(Algorithm::Sha512, 4096, 4097).size(), 4096);
    }

    #[test]
    fn a_file_has_no_more_levels_than_linux_reads() {
        // 16 hashes to a block: 8 levels reach 2^32 blocks of data.
        let params = Params::new(Algorithm::Sha512, 1024, Salt::default()).unwrap();
        let most = 1_u64 << 42;
        assert_eq!(Tree::new(&params, most).unwrap().levels().len(), MAX_LEVELS);
        assert_eq!(Tree::new(&params, most + 1), Err(VerityError::TooLarge));
        let params = Params::new(Algorithm::Sha256, 65536, Salt::default()).unwrap();
        for size in [u64::MAX, i64::MAX as u64, i64::MAX as u64 - 65536] {
            assert_eq!(Tree::new(&params, size), Err(VerityError::TooLarge));
        }
    }
}
