//! Data blocks: a header, then entries of some ids in no order.
//!
//! The header has the neighbours in the list of blocks with room. A block of the list of free
//! blocks has the same header, of which only the next block counts.

use super::header::Version;
use super::{BLOCK_LEN, Block, Entry};
use crate::bytes::{get16, get32, put16, put32};
use crate::error::{Result, ensure};

/// Bytes before the entries.
pub(super) const HEADER_LEN: usize = 16;

/// Next block in the list, 0 at its end.
pub(super) fn next(block: &Block) -> u32 {
    get32(block, 0)
}

/// Previous block in the list, 0 at its start.
pub(super) fn prev(block: &Block) -> u32 {
    get32(block, 4)
}

/// Sets the next block.
pub(super) fn set_next(block: &mut Block, nr: u32) {
    put32(block, 0, nr);
}

/// Sets the previous block.
pub(super) fn set_prev(block: &mut Block, nr: u32) {
    put32(block, 4, nr);
}

/// Entries in use, as the header says.
pub(super) fn used(block: &Block) -> usize {
    get16(block, 8).into()
}

/// Sets the number of entries in use.
pub(super) fn set_used(block: &mut Block, used: usize) {
    debug_assert!(used <= BLOCK_LEN, "{used} entries in a block");
    put16(block, 8, u16::try_from(used).unwrap_or(u16::MAX));
}

/// Fails if the header says more entries than a block holds.
pub(super) fn ensure_used(block: &Block, version: Version) -> Result<()> {
    ensure(used(block) <= version.entries_per_block(), "quota block has too many entries")
}

/// The entry in a slot, if the slot is in use.
pub(super) fn entry(block: &Block, slot: usize, version: Version) -> Option<Entry> {
    Entry::decode(bytes(block, slot, version)?, version)
}

/// Writes the entry of a slot.
pub(super) fn set_entry(block: &mut Block, slot: usize, entry: &Entry, version: Version) {
    if let Some(bytes) = bytes_mut(block, slot, version) {
        entry.encode_into(bytes, version);
    }
}

/// Makes a slot an unused one.
pub(super) fn clear_entry(block: &mut Block, slot: usize, version: Version) {
    if let Some(bytes) = bytes_mut(block, slot, version) {
        bytes.fill(0);
    }
}

/// The slot of an id.
pub(super) fn find(block: &Block, id: u32, version: Version) -> Option<usize> {
    let mut slots = 0..version.entries_per_block();
    slots.find(|&slot| entry(block, slot, version).is_some_and(|entry| entry.id == id))
}

/// The first unused slot.
pub(super) fn find_unused(block: &Block, version: Version) -> Option<usize> {
    (0..version.entries_per_block()).find(|&slot| entry(block, slot, version).is_none())
}

fn range(slot: usize, version: Version) -> std::ops::Range<usize> {
    let at = HEADER_LEN + slot * version.entry_len();
    at..at + version.entry_len()
}

fn bytes(block: &Block, slot: usize, version: Version) -> Option<&[u8]> {
    block.get(range(slot, version))
}

fn bytes_mut(block: &mut Block, slot: usize, version: Version) -> Option<&mut [u8]> {
    let bytes = block.get_mut(range(slot, version));
    debug_assert!(bytes.is_some(), "slot {slot} is outside the block");
    bytes
}
