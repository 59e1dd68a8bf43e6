//! Checksums of file data that a fast commit carries instead of a flush before it.
//!
//! One says what a block must hold: how many of its bytes count, and their CRC-32C. They stand in
//! the value of a PAD, behind a mark. Linux and e2fsck skip a PAD; its bytes are in the sum of the
//! TAIL like all others.

use crate::BlockNr;

use crate::bytes::{get32, get64};
use crate::checksum::crc32c;

/// Marks a PAD with data checksums; others hold zeros.
const MARK: &[u8; 8] = b"\xefdata-w1";
/// Bytes of one: the block, how many bytes, their sum.
const SIZE: usize = 16;

/// What a block holds if its write has reached the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataChecksum {
    /// Block of the file system.
    pub block: BlockNr,
    /// Bytes from its start that count.
    pub len: u32,
    /// Their CRC-32C.
    pub sum: u32,
}

impl DataChecksum {
    /// Of the first bytes of a block.
    #[must_use]
    pub fn of(block: BlockNr, bytes: &[u8]) -> Self {
        Self { block, len: bytes.len() as u32, sum: crc32c(u32::MAX, bytes) }
    }

    /// True if a block that begins with these bytes holds what it says.
    #[must_use]
    pub fn matches(&self, bytes: &[u8]) -> bool {
        bytes.get(..self.len as usize).is_some_and(|bytes| crc32c(u32::MAX, bytes) == self.sum)
    }

    /// How many fit into the value of a PAD of so many bytes.
    pub(super) fn fit(value: usize) -> usize {
        value.saturating_sub(MARK.len()) / SIZE
    }

    /// The value of a PAD.
    pub(super) fn encode(checksums: &[Self]) -> Vec<u8> {
        let mut value = Vec::with_capacity(MARK.len() + SIZE * checksums.len());
        value.extend_from_slice(MARK);
        for checksum in checksums {
            value.extend_from_slice(&checksum.block.0.to_le_bytes());
            value.extend_from_slice(&checksum.len.to_le_bytes());
            value.extend_from_slice(&checksum.sum.to_le_bytes());
        }
        value
    }

    /// Those in the value of a PAD; none in one that fills a block.
    pub fn decode(value: &[u8]) -> impl Iterator<Item = Self> + '_ {
        let entries = value.strip_prefix(MARK).unwrap_or_default();
        entries.chunks_exact(SIZE).map(|entry| Self {
            block: BlockNr(get64(entry, 0)),
            len: get32(entry, 8),
            sum: get32(entry, 12),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes() {
        let one = DataChecksum { block: BlockNr(0x1122_3344_5566), len: 512, sum: 0xAABB_CCDD };
        let value = DataChecksum::encode(&[one]);
        let expected = *b"\xefdata-w1\x66\x55\x44\x33\x22\x11\0\0\0\x02\0\0\xdd\xcc\xbb\xaa";
        assert_eq!(value, expected);
        let decode = |value: &[u8]| DataChecksum::decode(value).collect::<Vec<_>>();
        assert_eq!(decode(&value), [one]);
        assert_eq!(decode(&value[..23]), [], "cut off");
        assert_eq!(decode(&[0; 200]), [], "a PAD that fills a block");
        assert_eq!(decode(&[]), []);
        assert_eq!([8, 23, 24, 55].map(DataChecksum::fit), [0, 0, 1, 2]);
    }

    #[test]
    fn what_matches() {
        let it = DataChecksum::of(BlockNr(7), b"abc");
        assert!(it.matches(b"abc") && it.matches(b"abcdef"), "what is behind does not count");
        assert!(!it.matches(b"ab") && !it.matches(b"abd") && !it.matches(&[0; 10]));
        assert!(DataChecksum::of(BlockNr(7), b"").matches(b""));
        let zero = DataChecksum::of(BlockNr(7), b"\0");
        assert!(!zero.matches(b""), "shorter zeros have another sum");
    }
}
