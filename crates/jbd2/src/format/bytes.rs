//! Big-endian numbers at fixed places of a block.
//!
//! Reading outside of the buffer gives zero and writing outside of it does nothing (and trips a
//! debug assertion): callers pass whole blocks and constant offsets, so neither happens, but no
//! bytes may ever cause a panic.

pub(super) fn be16(b: &[u8], at: usize) -> u16 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u16::from_be_bytes(*c))
}

pub(super) fn be32(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u32::from_be_bytes(*c))
}

pub(super) fn be64(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|s| s.first_chunk()).map_or(0, |c| u64::from_be_bytes(*c))
}

pub(super) fn put(b: &mut [u8], at: usize, bytes: &[u8]) {
    let slot = b.get_mut(at..).and_then(|s| s.get_mut(..bytes.len()));
    debug_assert!(slot.is_some(), "write of {} bytes at {at} outside of a block", bytes.len());
    if let Some(slot) = slot {
        slot.copy_from_slice(bytes);
    }
}

pub(super) fn put16(b: &mut [u8], at: usize, v: u16) {
    put(b, at, &v.to_be_bytes());
}

pub(super) fn put32(b: &mut [u8], at: usize, v: u32) {
    put(b, at, &v.to_be_bytes());
}

pub(super) fn put64(b: &mut [u8], at: usize, v: u64) {
    put(b, at, &v.to_be_bytes());
}
