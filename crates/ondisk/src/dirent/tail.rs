//! The checksum at the end of a directory block, in the form of an unused entry.

use crate::bytes::{get8, get16, get32, put8, put16, put32};
use crate::checksum::InodeSeed;
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::geometry::Geometry;

/// Length of the checksum tail.
pub const TAIL_LEN: usize = 12;
const TAIL_TYPE: u8 = 0xDE;

/// Bytes that the tail takes in the volume's directory blocks.
#[must_use]
pub fn tail_size(geo: &Geometry) -> usize {
    if geo.has_metadata_csum() { TAIL_LEN } else { 0 }
}

/// Writes the tail of a directory block and its checksum. Only call with metadata_csum, for a whole
/// block that is no dx node (those have their own checksum, see [`htree`](crate::htree)).
pub fn set_csum(block: &mut [u8], seed: InodeSeed) {
    let at = block.len().saturating_sub(TAIL_LEN);
    put32(block, at, 0);
    put16(block, at + 4, TAIL_LEN as u16);
    put8(block, at + 6, 0);
    put8(block, at + 7, TAIL_TYPE);
    let sum = seed.crc(block.get(..at).unwrap_or_default());
    put32(block, at + 8, sum);
}

/// Verifies tail and checksum of a directory block. Only call with metadata_csum.
///
/// # Errors
/// A missing tail or a wrong checksum.
pub fn verify_csum(block: &[u8], seed: InodeSeed) -> Result<()> {
    let at = block
        .len()
        .checked_sub(TAIL_LEN)
        .ok_or(OnDiskError::bad("directory block is cut short"))?;
    let tail_ok = get32(block, at) == 0
        && usize::from(get16(block, at + 4)) == TAIL_LEN
        && get8(block, at + 6) == 0
        && get8(block, at + 7) == TAIL_TYPE;
    ensure(tail_ok, "directory block without a checksum")?;
    ensure_csum(
        "directory block",
        get32(block, at + 8),
        seed.crc(block.get(..at).unwrap_or_default()),
    )
}
