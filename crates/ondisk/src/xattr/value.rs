//! The value of an attribute in an inode of its own (ea_inode).

use crate::checksum::FsSeed;
use crate::error::{Result, ensure_csum};

/// Longest value that an attribute inode holds.
pub const MAX_INODE_VALUE: u32 = 1 << 24;

/// Checks the value of an attribute inode against the hash that the inode holds in its access time.
///
/// # Errors
/// A wrong hash.
pub fn verify_inode_value(value: &[u8], stored: u32, seed: FsSeed) -> Result<()> {
    ensure_csum("attribute value", stored, seed.crc(value))
}
