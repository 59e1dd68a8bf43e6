//! The block of extended attributes: header, entries, checksum.

use super::area::{build, parse, renumber};
use super::entry::{XattrEntry, entry_space};
use super::{END_LEN, MAGIC};
use crate::bytes::{get32, put32};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{Result, ensure, ensure_csum};
use crate::ids::{BlockNr, InodeNr};

/// Header of a block.
pub const BLOCK_HEADER_LEN: usize = 32;
/// Most inodes that share a block.
pub const MAX_REFCOUNT: u32 = 1024;
const CHECKSUM_AT: usize = 0x10;

/// Bytes that entries take in a block, with header and end mark.
#[must_use]
pub fn block_space(entries: &[XattrEntry]) -> usize {
    BLOCK_HEADER_LEN + END_LEN + entries.iter().map(XattrEntry::space).sum::<usize>()
}

/// Header of an attribute block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Inodes that share the block.
    pub refcount: u32,
    /// Hash of all entries; 0 if it may not be shared.
    pub hash: u32,
}

impl BlockHeader {
    /// Decodes and checks the header.
    ///
    /// # Errors
    /// Not an attribute block.
    pub fn decode(block: &[u8]) -> Result<Self> {
        ensure(block.len() > BLOCK_HEADER_LEN, "attribute block is cut short")?;
        ensure(get32(block, 0) == MAGIC, "attribute block has a bad magic number")?;
        ensure(get32(block, 8) == 1, "attribute block of more than one block")?;
        let header = Self { refcount: get32(block, 4), hash: get32(block, 12) };
        ensure(header.refcount > 0, "attribute block without users")?;
        Ok(header)
    }

    /// Changes the number of users in a block. The checksum is apart: [`set_csum`].
    pub fn put_refcount(block: &mut [u8], refcount: u32) {
        put32(block, 4, refcount);
    }
}

/// Attributes in a block. The checksum is checked apart: [`verify_csum`].
///
/// # Errors
/// Not an attribute block, or entries or values that leave it.
pub fn parse_block(block: &[u8]) -> Result<(BlockHeader, Vec<XattrEntry>)> {
    let header = BlockHeader::decode(block)?;
    Ok((header, parse(block, 0, BLOCK_HEADER_LEN)?))
}

/// Values in inode `numbers.0` are in inode `numbers.1` now. The checksum is apart: [`set_csum`].
pub fn renumber_block(block: &mut [u8], numbers: (InodeNr, InodeNr)) {
    renumber(block, BLOCK_HEADER_LEN, numbers);
}

/// An attribute block with a user count and hashes, without checksum; `None` if the entries do not
/// fit. Sorts the entries.
#[must_use]
pub fn build_block(entries: &mut [XattrEntry], block_len: usize, refcount: u32) -> Option<Vec<u8>> {
    if block_space(entries) > block_len {
        return None;
    }
    entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    let mut out = vec![0; block_len];
    put32(&mut out, 0, MAGIC);
    put32(&mut out, 4, refcount);
    put32(&mut out, 8, 1);
    build(&mut out, 0, BLOCK_HEADER_LEN, entries, true);
    let hash = block_hash(&out, entries);
    put32(&mut out, 12, hash);
    Some(out)
}

/// Hash of a block: over the stored hashes of its entries. One entry without a hash makes it 0.
fn block_hash(block: &[u8], entries: &[XattrEntry]) -> u32 {
    let mut at = BLOCK_HEADER_LEN;
    let mut hash = 0u32;
    for e in entries {
        let entry = get32(block, at + 12);
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
        at += entry_space(e.name.len().min(255));
    }
    hash
}

pub(super) fn csum(block: &[u8], nr: BlockNr, seed: FsSeed) -> u32 {
    let sum = crc32c(seed.0, &nr.0.to_le_bytes());
    let sum = crc32c(sum, block.get(..CHECKSUM_AT).unwrap_or_default());
    let sum = crc32c(sum, &[0; 4]);
    crc32c(sum, block.get(CHECKSUM_AT + 4..).unwrap_or_default())
}

/// Verifies the checksum of an attribute block. Only call with metadata_csum.
///
/// # Errors
/// A wrong checksum.
pub fn verify_csum(block: &[u8], nr: BlockNr, seed: FsSeed) -> Result<()> {
    ensure_csum("attribute block", get32(block, CHECKSUM_AT), csum(block, nr, seed))
}

/// Brings the checksum of an attribute block up to date. Only call with metadata_csum.
pub fn set_csum(block: &mut [u8], nr: BlockNr, seed: FsSeed) {
    let sum = csum(block, nr, seed);
    put32(block, CHECKSUM_AT, sum);
}
