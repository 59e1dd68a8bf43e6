//! The header of an extent node.

use super::{ENTRY_LEN, MAGIC, MAX_DEPTH};
use crate::bytes::{get16, get32, put16, put32};
use crate::error::{Result, ensure};

/// Header of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentHeader {
    /// Entries in use.
    pub entries: u16,
    /// Entries there is room for.
    pub max: u16,
    /// Levels below; 0 is a leaf.
    pub depth: u16,
    /// Generation of the tree (not used by Linux).
    pub generation: u32,
}

impl ExtentHeader {
    /// Decodes the header of the node in `bytes` and checks that its entries lie inside.
    ///
    /// # Errors
    /// Not a node, or one whose counts do not fit.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        ensure(bytes.len() >= ENTRY_LEN, "extent node is cut short")?;
        ensure(get16(bytes, 0) == MAGIC, "extent node has a bad magic number")?;
        let header = Self {
            entries: get16(bytes, 2),
            max: get16(bytes, 4),
            depth: get16(bytes, 6),
            generation: get32(bytes, 8),
        };
        ensure(header.max > 0, "extent node without room")?;
        ensure(
            ENTRY_LEN * (1 + usize::from(header.max)) <= bytes.len(),
            "extent node larger than its block",
        )?;
        ensure(header.entries <= header.max, "extent node with too many entries")?;
        ensure(header.depth <= MAX_DEPTH, "extent tree is too deep")?;
        ensure(header.depth == 0 || header.entries > 0, "extent index without entries")?;
        Ok(header)
    }

    /// Writes the header.
    pub fn encode_into(&self, bytes: &mut [u8]) {
        put16(bytes, 0, MAGIC);
        put16(bytes, 2, self.entries);
        put16(bytes, 4, self.max);
        put16(bytes, 6, self.depth);
        put32(bytes, 8, self.generation);
    }
}
