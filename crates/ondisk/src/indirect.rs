//! The block map of ext2 and ext3: 12 direct blocks, then one, two and three levels of pointer
//! blocks.
//!
//! ```text
//!  i_block: 0 … 11 │ 12 │ 13 │ 14          with n = block size / 4 pointers per block:
//!           direct │ ×n │ ×n² │ ×n³        12 + n + n² + n³ blocks
//! ```
//!
//! A pointer is le32; 0 is a hole. Pointer blocks have neither header nor checksum.

use crate::block_size::BlockSize;
use crate::bytes::{get32, put32};

/// Blocks that the inode itself points to.
pub const DIRECT: u32 = 12;
/// Most steps a path has.
pub const MAX_STEPS: usize = 4;

/// The way from the inode to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    slots: [u32; MAX_STEPS],
    len: usize,
}

impl Path {
    /// The slots on the way: the first in `i_block`, each other in the pointer block that the one
    /// before names. The last one names the data block.
    #[must_use]
    pub fn slots(&self) -> &[u32] {
        self.slots.get(..self.len).unwrap_or_default()
    }

    /// Pointer blocks on the way, 0 to 3.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.len - 1
    }
}

/// Pointers per block.
#[must_use]
pub fn pointers(bs: BlockSize) -> u32 {
    bs.bytes() / 4
}

/// Number of blocks that the map can hold (bounded by 32-bit block numbers).
#[must_use]
pub fn max_blocks(bs: BlockSize) -> u64 {
    let n = u64::from(pointers(bs));
    (u64::from(DIRECT) + n + n * n + n * n * n).min(u64::from(u32::MAX))
}

/// The way to a block of the file; `None` if the map cannot hold it.
#[must_use]
pub fn path(block: u32, bs: BlockSize) -> Option<Path> {
    let n = u64::from(pointers(bs));
    let steps = |slots: &[u64]| {
        let mut out = [0; MAX_STEPS];
        for (to, &from) in out.iter_mut().zip(slots) {
            *to = from as u32;
        }
        Some(Path { slots: out, len: slots.len() })
    };
    let mut b = u64::from(block);
    if b < u64::from(DIRECT) {
        return steps(&[b]);
    }
    b -= u64::from(DIRECT);
    if b < n {
        return steps(&[12, b]);
    }
    b -= n;
    if b < n * n {
        return steps(&[13, b / n, b % n]);
    }
    b -= n * n;
    if b < n * n * n { steps(&[14, b / (n * n), b / n % n, b % n]) } else { None }
}

/// Blocks of the file that one pointer at `levels` pointer blocks above the data covers (1 for 0
/// levels).
#[must_use]
pub fn span(levels: usize, bs: BlockSize) -> u64 {
    u64::from(pointers(bs)).pow(levels.min(3) as u32)
}

/// Pointer in a slot of `i_block` or of a pointer block; 0 is a hole.
#[must_use]
pub fn pointer(bytes: &[u8], slot: u32) -> u32 {
    get32(bytes, slot as usize * 4)
}

/// Stores a pointer.
pub fn set_pointer(bytes: &mut [u8], slot: u32, block: u32) {
    put32(bytes, slot as usize * 4, block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let bs = BlockSize::new(1024).unwrap();
        let p = |b: u32| path(b, bs).unwrap().slots().to_vec();
        assert_eq!(p(0), [0]);
        assert_eq!(p(11), [11]);
        assert_eq!(p(12), [12, 0]);
        assert_eq!(p(12 + 255), [12, 255]);
        assert_eq!(p(12 + 256), [13, 0, 0]);
        assert_eq!(p(12 + 256 + 256 * 256 - 1), [13, 255, 255]);
        assert_eq!(p(12 + 256 + 256 * 256), [14, 0, 0, 0]);
        assert_eq!(p(max_blocks(bs) as u32 - 1), [14, 255, 255, 255]);
        assert_eq!(path(max_blocks(bs) as u32, bs), None);
        assert_eq!((span(0, bs), span(2, bs)), (1, 65536));
        assert_eq!(max_blocks(BlockSize::new(65536).unwrap()), u64::from(u32::MAX));
    }
}
