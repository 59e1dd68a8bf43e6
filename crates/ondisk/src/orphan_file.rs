//! The orphan file: a preallocated file whose blocks are arrays of inode numbers.
//!
//! Each block holds le32 inode numbers (0 is a free slot) and ends with a magic number and a
//! checksum, which covers the block's own number, so that blocks cannot be mixed up.

use crate::bytes::{get32, put32};
use crate::checksum::{InodeSeed, crc32c};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::ids::InodeNr;
use crate::{BlockNr, BlockSize};

/// Magic number at the end of every block.
pub const MAGIC: u32 = 0x0B10_CA04;
/// Most blocks that Linux accepts.
pub const MAX_BLOCKS: u32 = 512;
const TAIL_LEN: usize = 8;

/// Slots per block.
#[must_use]
pub fn slots(bs: BlockSize) -> u32 {
    (bs.bytes() - TAIL_LEN as u32) / 4
}

/// The inode in a slot; 0 if free.
#[must_use]
pub fn get(block: &[u8], slot: u32) -> InodeNr {
    InodeNr(get32(block, slot as usize * 4))
}

/// Fills or frees (0) a slot. The checksum is apart: [`set_csum`].
pub fn set(block: &mut [u8], slot: u32, ino: InodeNr) {
    put32(block, slot as usize * 4, ino.0);
}

/// First free slot at or after `from`.
#[must_use]
pub fn find_free(block: &[u8], from: u32) -> Option<u32> {
    let slots = (block.len().checked_sub(TAIL_LEN)? / 4) as u32;
    (from..slots).find(|&slot| !get(block, slot).is_some())
}

/// Makes an empty block, without checksum.
pub fn init(block: &mut [u8]) {
    block.fill(0);
    let at = block.len().saturating_sub(TAIL_LEN);
    put32(block, at, MAGIC);
}

fn csum(block: &[u8], at: usize, nr: BlockNr, seed: InodeSeed) -> u32 {
    crc32c(seed.crc(&nr.0.to_le_bytes()), block.get(..at).unwrap_or_default())
}

/// Checks magic and, with metadata_csum (a seed, that of the orphan file's inode, is given), the
/// checksum.
///
/// # Errors
/// A wrong magic number or checksum.
pub fn verify(block: &[u8], nr: BlockNr, seed: Option<InodeSeed>) -> Result<()> {
    let at =
        block.len().checked_sub(TAIL_LEN).ok_or(OnDiskError::bad("orphan block is cut short"))?;
    ensure(get32(block, at) == MAGIC, "orphan block has a bad magic number")?;
    match seed {
        Some(seed) => ensure_csum("orphan block", get32(block, at + 4), csum(block, at, nr, seed)),
        None => Ok(()),
    }
}

/// Takes the checksum away: a volume without metadata_csum has zeros there, for which e2fsck looks.
pub fn clear_csum(block: &mut [u8]) {
    let at = block.len().saturating_sub(TAIL_LEN);
    put32(block, at + 4, 0);
}

/// Brings the checksum up to date. Only call with metadata_csum.
pub fn set_csum(block: &mut [u8], nr: BlockNr, seed: InodeSeed) {
    let at = block.len().saturating_sub(TAIL_LEN);
    let sum = csum(block, at, nr, seed);
    put32(block, at + 4, sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_and_checksum() {
        let mut b = vec![0xFF; 1024];
        init(&mut b);
        assert_eq!(slots(BlockSize::new(1024).unwrap()), 254);
        assert_eq!(&b[1016..1020], [0x04, 0xCA, 0x10, 0x0B]);
        set(&mut b, 0, InodeNr(12));
        assert_eq!(find_free(&b, 0), Some(1));
        (0..254).for_each(|i| set(&mut b, i, InodeNr(i + 1)));
        assert_eq!(find_free(&b, 0), None);
        set(&mut b, 253, InodeNr(0));
        assert_eq!((find_free(&b, 7), get(&b, 252)), (Some(253), InodeNr(253)));
        set_csum(&mut b, BlockNr(9), InodeSeed(5));
        verify(&b, BlockNr(9), Some(InodeSeed(5))).unwrap();
        assert!(verify(&b, BlockNr(10), Some(InodeSeed(5))).unwrap_err().is_checksum());
        b[1016] = 0;
        assert!(verify(&b, BlockNr(9), None).is_err());
    }
}
