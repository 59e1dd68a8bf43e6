//! Little-endian numbers in untrusted bytes. Reads outside of the slice give zero, so that no
//! offset can panic.

/// The `N` bytes at `at`, zeros where the slice ends.
fn array<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(src) = at.checked_add(N).and_then(|end| b.get(at..end)) {
        out.copy_from_slice(src);
    }
    out
}

/// Byte at `at`.
pub(crate) fn le8(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

/// le16 at `at`.
pub(crate) fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(b, at))
}

/// le32 at `at`.
pub(crate) fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(b, at))
}

/// be32 at `at` (the journal's byte order).
pub(crate) fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(b, at))
}

/// A value from its low and high half.
pub(crate) fn join(lo: u32, hi: u32) -> u64 {
    u64::from(lo) | u64::from(hi) << 32
}

/// True if all bytes are zero.
pub(crate) fn is_zero(b: &[u8]) -> bool {
    let (words, rest) = b.as_chunks::<8>();
    words.iter().all(|w| u64::from_ne_bytes(*w) == 0) && rest.iter().all(|&x| x == 0)
}

/// The part of a slice, empty where it does not exist.
pub(crate) fn part(b: &[u8], from: usize, to: usize) -> &[u8] {
    b.get(from..to.min(b.len())).unwrap_or_default()
}
