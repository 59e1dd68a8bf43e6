//! Extent trees: the map of a file, as a B+tree whose root is in the inode.
//!
//! ```text
//!  i_block (60 bytes)              index block                    leaf block
//!  ┌────────┬─────────────┐        ┌────────┬────────────…┬────┐  ┌────────┬─────────────…┬────┐
//!  │ header │ ≤ 4 entries │ ─────► │ header │ indexes     │tail│─►│ header │ extents      │tail│
//!  └────────┴─────────────┘        └────────┴────────────…┴────┘  └────────┴─────────────…┴────┘
//! ```
//!
//! A node is a 12-byte header and 12-byte entries: extents in leaves (depth 0), indexes above. The
//! tail is a checksum, only in blocks and only with metadata_csum; it lies behind the room for
//! `max` entries. An extent covers up to 32768 blocks; unwritten ones (up to 32767) are stored with
//! 32768 added to the length.
//!
//! [`Node`] is the checked, editable form.

mod entry;
mod header;

pub use entry::{Extent, ExtentIndex};
pub use header::ExtentHeader;

use crate::bytes::{get16, get32, put32};
use crate::checksum::InodeSeed;
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::geometry::Geometry;
use crate::ids::BlockNr;

/// Magic number of a node.
pub const MAGIC: u16 = 0xF30A;
/// Greatest depth of a root.
pub const MAX_DEPTH: u16 = 5;
/// Longest written extent.
pub const MAX_LEN: u16 = 32768;
/// Longest unwritten extent.
pub const MAX_UNWRITTEN_LEN: u16 = 32767;
/// Number of logical blocks a file can have: the last one has the number before this.
pub const MAX_BLOCKS: u32 = u32::MAX;

/// Length of the header and of every entry.
pub const ENTRY_LEN: usize = 12;
const TAIL_LEN: usize = 4;

/// The entries of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entries {
    /// Depth 0.
    Leaf(Vec<Extent>),
    /// Depth 1 and more.
    Index(Vec<ExtentIndex>),
}

/// A checked node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Entries there is room for.
    pub max: u16,
    /// Levels below; 0 is a leaf.
    pub depth: u16,
    /// Generation.
    pub generation: u32,
    /// The entries, in order.
    pub entries: Entries,
}

impl Node {
    /// Decodes a node (the 60 bytes of `i_block`, or a block) and checks it: entries in order,
    /// without overlap, inside the volume. The checksum of a block is checked apart, by
    /// [`verify_csum`].
    ///
    /// # Errors
    /// Anything that may not be used.
    pub fn decode(bytes: &[u8], geo: &Geometry) -> Result<Self> {
        let header = ExtentHeader::decode(bytes)?;
        let offsets = (1..=usize::from(header.entries)).map(|i| i * ENTRY_LEN);
        let entries = if header.depth == 0 {
            let all: Vec<Extent> = offsets.map(|at| Extent::read(bytes, at)).collect();
            let mut next = 0u32;
            for e in &all {
                ensure(e.len > 0, "extent of length 0")?;
                ensure(e.block >= next, "extents overlap or are out of order")?;
                next = e
                    .block
                    .checked_add(u32::from(e.len))
                    .ok_or(OnDiskError::bad("extent goes beyond the largest file"))?;
                ensure(
                    geo.is_valid_range(BlockNr(e.start), u64::from(e.len)),
                    "extent is outside the volume",
                )?;
            }
            Entries::Leaf(all)
        } else {
            let all: Vec<ExtentIndex> = offsets.map(|at| ExtentIndex::read(bytes, at)).collect();
            ensure(
                all.windows(2).all(|w| w[0].block < w[1].block),
                "extent indexes are out of order",
            )?;
            ensure(
                all.iter().all(|i| geo.is_valid_block(BlockNr(i.leaf))),
                "extent index points outside the volume",
            )?;
            Entries::Index(all)
        };
        Ok(Self { max: header.max, depth: header.depth, generation: header.generation, entries })
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.entries {
            Entries::Leaf(all) => all.len(),
            Entries::Index(all) => all.len(),
        }
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if there is no room for one more entry.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= usize::from(self.max)
    }

    /// Writes header and entries over `bytes` and zeros the room behind them. The checksum is
    /// apart: [`set_csum`].
    pub fn encode_into(&self, bytes: &mut [u8]) {
        debug_assert!(self.len() <= usize::from(self.max));
        let header = ExtentHeader {
            entries: self.len() as u16,
            max: self.max,
            depth: self.depth,
            generation: self.generation,
        };
        bytes.fill(0);
        header.encode_into(bytes);
        match &self.entries {
            Entries::Leaf(all) => {
                all.iter().enumerate().for_each(|(i, e)| e.write(bytes, (i + 1) * ENTRY_LEN));
            }
            Entries::Index(all) => {
                all.iter().enumerate().for_each(|(i, e)| e.write(bytes, (i + 1) * ENTRY_LEN));
            }
        }
    }
}

/// Entries that fit into a block.
#[must_use]
pub fn block_max(geo: &Geometry) -> u16 {
    ((geo.block_len() - ENTRY_LEN) / ENTRY_LEN) as u16
}

/// Where the checksum of a node block lies, if it fits.
fn tail_at(bytes: &[u8]) -> Option<usize> {
    let at = ENTRY_LEN * (1 + usize::from(get16(bytes, 4)));
    (at + TAIL_LEN <= bytes.len()).then_some(at)
}

/// Verifies the checksum of a node block. Only call with metadata_csum, and never for `i_block`.
///
/// # Errors
/// A wrong checksum, or no room for one.
pub fn verify_csum(bytes: &[u8], seed: InodeSeed) -> Result<()> {
    let at = tail_at(bytes).ok_or(OnDiskError::bad("extent node larger than its block"))?;
    ensure_csum("extent node", get32(bytes, at), seed.crc(bytes.get(..at).unwrap_or_default()))
}

/// Brings the checksum of a node block up to date. Only call with metadata_csum.
pub fn set_csum(bytes: &mut [u8], seed: InodeSeed) {
    let Some(at) = tail_at(bytes) else {
        debug_assert!(false, "extent node without room for its checksum");
        return;
    };
    let sum = seed.crc(bytes.get(..at).unwrap_or_default());
    put32(bytes, at, sum);
}
