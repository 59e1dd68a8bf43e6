//! Block and inode bitmaps: bit `n` is bit `n % 8` of byte `n / 8`; 1 means in use. Checksums and
//! searches.
//!
//! Positions outside the bytes read as "in use" and are never found free, so no number can make
//! these functions panic. Searches take 64 bits at a time.

use crate::geometry::Geometry;
use crate::group_desc::GroupDesc;

/// Offset behind the high half of the block bitmap's checksum: shorter descriptors hold only the
/// low half.
const BLOCK_CSUM_END: u16 = 0x3A;
const INODE_CSUM_END: u16 = 0x3C;

/// Checksum of a block bitmap, as wide as this volume's descriptors store it.
#[must_use]
pub fn block_bitmap_csum(geo: &Geometry, bitmap: &[u8]) -> u32 {
    csum(geo, bitmap, geo.clusters_per_group, BLOCK_CSUM_END)
}

/// Checksum of an inode bitmap, as wide as this volume's descriptors store it.
#[must_use]
pub fn inode_bitmap_csum(geo: &Geometry, bitmap: &[u8]) -> u32 {
    csum(geo, bitmap, geo.inodes_per_group, INODE_CSUM_END)
}

fn csum(geo: &Geometry, bitmap: &[u8], bits: u32, wide_from: u16) -> u32 {
    let len = (bits as usize / 8).min(bitmap.len());
    let sum = geo.fs_seed.crc(bitmap.get(..len).unwrap_or_default());
    if geo.desc_size >= wide_from { sum } else { sum & 0xFFFF }
}

/// True if the block bitmap's checksum is right, or the volume has none.
#[must_use]
pub fn block_bitmap_ok(geo: &Geometry, desc: &GroupDesc, bitmap: &[u8]) -> bool {
    !geo.has_metadata_csum() || desc.block_bitmap_csum == block_bitmap_csum(geo, bitmap)
}

/// True if the inode bitmap's checksum is right, or the volume has none.
#[must_use]
pub fn inode_bitmap_ok(geo: &Geometry, desc: &GroupDesc, bitmap: &[u8]) -> bool {
    !geo.has_metadata_csum() || desc.inode_bitmap_csum == inode_bitmap_csum(geo, bitmap)
}

/// True if bit `n` is set or outside.
#[must_use]
pub fn test(bytes: &[u8], n: u32) -> bool {
    bytes.get(n as usize / 8).is_none_or(|b| b >> (n % 8) & 1 == 1)
}

/// Sets bit `n`; true if it was clear.
pub fn set(bytes: &mut [u8], n: u32) -> bool {
    let was_set = test(bytes, n);
    if let Some(b) = bytes.get_mut(n as usize / 8) {
        *b |= 1 << (n % 8);
    }
    !was_set
}

/// Clears bit `n`; true if it was set.
pub fn clear(bytes: &mut [u8], n: u32) -> bool {
    let was_set = test(bytes, n);
    match bytes.get_mut(n as usize / 8) {
        Some(b) => *b &= !(1 << (n % 8)),
        None => return false,
    }
    was_set
}

/// Sets bits `from..to`.
pub fn set_range(bytes: &mut [u8], from: u32, to: u32) {
    change_range(bytes, from, to, |byte, mask| *byte |= mask);
}

/// Clears bits `from..to`.
pub fn clear_range(bytes: &mut [u8], from: u32, to: u32) {
    change_range(bytes, from, to, |byte, mask| *byte &= !mask);
}

fn change_range(bytes: &mut [u8], from: u32, to: u32, change: impl Fn(&mut u8, u8)) {
    let mut n = from;
    while n < to {
        let end = to.min((n | 7).saturating_add(1));
        let mask = (0xFFu16 << (n % 8)) & (0xFFu16 >> (7 - (end - 1) % 8));
        match bytes.get_mut(n as usize / 8) {
            Some(byte) => change(byte, mask as u8),
            None => return,
        }
        n = end;
    }
}

/// 64 bits from word `w`; beyond the bytes all are set.
fn word(bytes: &[u8], w: usize) -> u64 {
    let at = w * 8;
    match bytes.get(at..at + 8) {
        Some(b) => crate::bytes::get64(b, 0),
        None => {
            let mut last = [0xFF; 8];
            let tail = bytes.get(at..).unwrap_or_default();
            last[..tail.len()].copy_from_slice(tail);
            u64::from_le_bytes(last)
        }
    }
}

/// First position in `from..to` whose bit is clear (`zeros`) or set (`!zeros`).
fn find(bytes: &[u8], from: u32, to: u32, zeros: bool) -> Option<u32> {
    if from >= to {
        return None;
    }
    let mut w = from / 64;
    let mut mask = !0u64 << (from % 64);
    while w <= (to - 1) / 64 {
        let bits = word(bytes, w as usize);
        let hits = if zeros { !bits } else { bits } & mask;
        if hits != 0 {
            let n = w * 64 + hits.trailing_zeros();
            return (n < to).then_some(n);
        }
        if w as usize * 8 >= bytes.len() {
            return None;
        }
        mask = !0;
        w += 1;
    }
    None
}

/// First clear bit in `from..to`.
#[must_use]
pub fn find_zero(bytes: &[u8], from: u32, to: u32) -> Option<u32> {
    find(bytes, from, to, true)
}

/// First set bit in `from..to`.
#[must_use]
pub fn find_set(bytes: &[u8], from: u32, to: u32) -> Option<u32> {
    find(bytes, from, to, false)
}

/// Clear bits among the first `bits`.
#[must_use]
pub fn count_zeros(bytes: &[u8], bits: u32) -> u32 {
    let full = bits / 64;
    let whole: u32 = (0..full).map(|w| word(bytes, w as usize).count_zeros()).sum();
    let rest = bits % 64;
    let mask = if rest == 0 { 0 } else { !0u64 >> (64 - rest) };
    whole + (!word(bytes, full as usize) & mask).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_ranges() {
        let mut b = vec![0u8; 16];
        assert!(set(&mut b, 9));
        assert!(!set(&mut b, 9));
        assert_eq!(b[1], 2);
        assert!(test(&b, 9) && !test(&b, 8) && test(&b, 128));
        assert!(clear(&mut b, 9));
        assert!(!clear(&mut b, 9) && !clear(&mut b, 1000));
        set_range(&mut b, 5, 75);
        for n in 0..128 {
            assert_eq!(test(&b, n), (5..75).contains(&n), "bit {n}");
        }
        assert_eq!(count_zeros(&b, 128), 58);
        assert_eq!(count_zeros(&b, 75), 5);
        assert_eq!(count_zeros(&b, 70), 5);
        clear_range(&mut b, 6, 74);
        assert_eq!(count_zeros(&b, 128), 126);
    }

    #[test]
    fn searches_agree_with_a_plain_search() {
        // A fixed pattern from a small generator, checked against a bit-by-bit search.
        let mut x = 0x1234_5678u32;
        for round in 0..200 {
            let mut b = [0u8; 25];
            for byte in &mut b {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = if round % 3 == 0 {
                    (x >> 24) as u8
                } else {
                    ((x >> 24) & (x >> 16) & (x >> 8)) as u8
                };
            }
            let (from, to) = (x % 30, 200 - (x >> 8) % 20);
            for from in from..to {
                let plain = |set| (from..to).find(|n| test(&b, *n) == set);
                let found = (find_zero(&b, from, to), find_set(&b, from, to));
                assert_eq!(found, (plain(false), plain(true)));
            }
        }
        assert_eq!(find_zero(&[0xFF; 8], 0, 64), None);
    }
}
