//! Little-endian numbers in byte slices. Reads outside the slice give zero and writes outside are
//! dropped, so that no length can make them panic; callers check lengths first and never rely on
//! this.

/// The `N` bytes at `at`, zeros where the slice ends.
pub(crate) fn array<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(src) = at.checked_add(N).and_then(|end| b.get(at..end)) {
        out.copy_from_slice(src);
    }
    out
}

/// Byte at `at`.
pub(crate) fn get8(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

/// le16 at `at`.
pub(crate) fn get16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(b, at))
}

/// le32 at `at`.
pub(crate) fn get32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(b, at))
}

/// le64 at `at`.
pub(crate) fn get64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(b, at))
}

/// Copies `src` to `at`.
pub(crate) fn put(b: &mut [u8], at: usize, src: &[u8]) {
    let dst = at.checked_add(src.len()).and_then(|end| b.get_mut(at..end));
    debug_assert!(dst.is_some(), "write of {} bytes at {at} is outside", src.len());
    if let Some(dst) = dst {
        dst.copy_from_slice(src);
    }
}

/// Stores a byte at `at`.
pub(crate) fn put8(b: &mut [u8], at: usize, v: u8) {
    put(b, at, &[v]);
}

/// Stores le16 at `at`.
pub(crate) fn put16(b: &mut [u8], at: usize, v: u16) {
    put(b, at, &v.to_le_bytes());
}

/// Stores le32 at `at`.
pub(crate) fn put32(b: &mut [u8], at: usize, v: u32) {
    put(b, at, &v.to_le_bytes());
}

/// Stores le64 at `at`.
pub(crate) fn put64(b: &mut [u8], at: usize, v: u64) {
    put(b, at, &v.to_le_bytes());
}

/// The low 32 bits, for fields that are stored in halves.
pub(crate) fn lo32(v: u64) -> u32 {
    (v & 0xFFFF_FFFF) as u32
}

/// The high 32 bits.
pub(crate) fn hi32(v: u64) -> u32 {
    (v >> 32) as u32
}

/// The low 16 bits.
pub(crate) fn lo16(v: u32) -> u16 {
    (v & 0xFFFF) as u16
}

/// The high 16 bits.
pub(crate) fn hi16(v: u32) -> u16 {
    (v >> 16) as u16
}

/// A value from its halves.
pub(crate) fn join32(lo: u16, hi: u16) -> u32 {
    u32::from(lo) | u32::from(hi) << 16
}

/// A value from its halves.
pub(crate) fn join64(lo: u32, hi: u32) -> u64 {
    u64::from(lo) | u64::from(hi) << 32
}
