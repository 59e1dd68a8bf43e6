//! Where ext4 keeps the tree and the descriptor of a file: behind its end, where only the file
//! system itself reads.
//!
//! ```text
//!   contents │ i_size … next 64 KiB │ tree │ descriptor, signature │ … │ length of the latter
//!            hole                    ▲      ▲                            ▲
//!                             tree_at()     next block          last 4 bytes of the last block
//! ```
//!
//! The place of the descriptor is not stored: the last block that the file maps ends with its
//! length, and the descriptor begins with a block.

use crate::descriptor::DESCRIPTOR_LEN;
use crate::error::{Result, VerityError};

/// The tree begins at a multiple of this, so that it is aligned to pages of any size.
const ALIGN: u64 = 65_536;
/// Bytes of the field with the length of the descriptor.
pub const LENGTH_LEN: u64 = 4;
/// Most bytes of a descriptor with its signature that Linux reads.
pub const MAX_LEN: usize = 16_384;

/// Where the tree of a file of so many bytes begins.
///
/// # Errors
/// A size near the end of 64 bits.
pub fn tree_at(size: u64) -> Result<u64> {
    size.checked_next_multiple_of(ALIGN).ok_or(VerityError::TooLarge)
}

/// The places of what is written behind a file, as bytes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The tree.
    pub tree: u64,
    /// The descriptor.
    pub descriptor: u64,
    /// The length of the descriptor.
    pub length: u64,
    /// The end of all of it, and of a block.
    pub end: u64,
}

impl Layout {
    /// For a file of `size` bytes on a volume with blocks of `block_size`, whose tree and
    /// descriptor have so many bytes.
    ///
    /// # Errors
    /// A size near the end of 64 bits.
    pub fn new(size: u64, tree: u64, descriptor: usize, block_size: u32) -> Result<Self> {
        let block = u64::from(block_size);
        let start = tree_at(size)?;
        let sum = || {
            let after = start.checked_add(tree)?.checked_next_multiple_of(block)?;
            let end = after.checked_add(descriptor as u64)?.checked_add(LENGTH_LEN)?;
            Some((after, end.checked_next_multiple_of(block)?))
        };
        let (descriptor, end) = sum().ok_or(VerityError::TooLarge)?;
        Ok(Self { tree: start, descriptor, length: end - LENGTH_LEN, end })
    }
}

/// The descriptor of a file of `size` bytes whose last mapped block ends at byte `end`, where the
/// length stored there is `length`: its first byte and its length.
///
/// # Errors
/// A length that leads elsewhere than behind the file.
pub fn locate(size: u64, end: u64, length: u32, block_size: u32) -> Result<(u64, usize)> {
    let len = length as usize;
    if !(DESCRIPTOR_LEN..=MAX_LEN).contains(&len) {
        return Err(VerityError::Descriptor("has an impossible length"));
    }
    let at = end.checked_sub(LENGTH_LEN).and_then(|field| field.checked_sub(u64::from(length)));
    let at = at.ok_or(VerityError::Place("before the file"))?;
    let at = at - at % u64::from(block_size.max(1));
    if at < tree_at(size)? {
        return Err(VerityError::Place("within the file"));
    }
    Ok((at, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_laid_out_is_found() {
        for size in [0, 1, 4096, 65_536, 65_537, 1 << 40] {
            for (tree, len, block) in [(0, 256, 1024), (4096, 5000, 4096), (1024, 16_384, 65_536)] {
                let layout = Layout::new(size, tree, len, block).unwrap();
                assert_eq!(layout.tree % ALIGN, 0);
                assert!(layout.tree >= size && layout.descriptor >= layout.tree + tree);
                assert!(layout.length >= layout.descriptor + len as u64);
                let found = locate(size, layout.end, len as u32, block);
                assert_eq!(found, Ok((layout.descriptor, len)));
            }
        }
    }

    #[test]
    fn a_length_that_leads_elsewhere_is_refused() {
        for (size, end, length) in
            [(0, 4096, 0), (0, 4096, 255), (0, 65_536, 16_385), (0, 0, 256), (0, 256, 256)]
        {
            assert!(locate(size, end, length, 4096).is_err(), "{size} {end} {length}");
        }
        assert_eq!(
            locate(65_537, 2 * 65_536, 256, 4096),
            Err(VerityError::Place("within the file"))
        );
        assert_eq!(locate(65_536, 65_536 + 4096, 256, 4096), Ok((65_536, 256)));
        assert!(Layout::new(u64::MAX, 0, 256, 4096).is_err());
        assert!(Layout::new(1 << 63, u64::MAX >> 1, 256, 4096).is_err());
        assert!(tree_at(u64::MAX).is_err());
    }
}
