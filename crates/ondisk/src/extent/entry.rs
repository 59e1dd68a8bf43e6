//! The entries of an extent node: extents in a leaf, indexes above.

use super::{MAX_LEN, MAX_UNWRITTEN_LEN};
use crate::bytes::{get16, get32, hi32, join64, lo16, lo32, put16, put32};

/// A run of blocks of a file that is contiguous on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First block in the file.
    pub block: u32,
    /// Number of blocks.
    pub len: u16,
    /// First block on the device.
    pub start: u64,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The block of the file behind the last one.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.block.saturating_add(u32::from(self.len))
    }

    /// The longest an extent of this kind may be.
    #[must_use]
    pub fn max_len(unwritten: bool) -> u16 {
        if unwritten { MAX_UNWRITTEN_LEN } else { MAX_LEN }
    }

    /// Decodes the 12 bytes at `at`.
    #[must_use]
    pub fn read(bytes: &[u8], at: usize) -> Self {
        let raw = get16(bytes, at + 4);
        let unwritten = raw > MAX_LEN;
        Self {
            block: get32(bytes, at),
            len: if unwritten { raw - MAX_LEN } else { raw },
            start: join64(get32(bytes, at + 8), u32::from(get16(bytes, at + 6))),
            unwritten,
        }
    }

    /// Encodes to the 12 bytes at `at`.
    pub fn write(&self, bytes: &mut [u8], at: usize) {
        debug_assert!(
            self.len > 0 && self.len <= Self::max_len(self.unwritten),
            "extent length {}",
            self.len
        );
        let raw = if self.unwritten { self.len.wrapping_add(MAX_LEN) } else { self.len };
        put32(bytes, at, self.block);
        put16(bytes, at + 4, raw);
        put16(bytes, at + 6, lo16(hi32(self.start)));
        put32(bytes, at + 8, lo32(self.start));
    }
}

/// A reference to the node below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentIndex {
    /// First block of the file that the node below may cover.
    pub block: u32,
    /// Block of the node below.
    pub leaf: u64,
}

impl ExtentIndex {
    /// Decodes the 12 bytes at `at`.
    #[must_use]
    pub fn read(bytes: &[u8], at: usize) -> Self {
        Self {
            block: get32(bytes, at),
            leaf: join64(get32(bytes, at + 4), u32::from(get16(bytes, at + 8))),
        }
    }

    /// Encodes to the 12 bytes at `at`.
    pub fn write(&self, bytes: &mut [u8], at: usize) {
        put32(bytes, at, self.block);
        put32(bytes, at + 4, lo32(self.leaf));
        put16(bytes, at + 8, lo16(hi32(self.leaf)));
        put16(bytes, at + 10, 0);
    }
}
