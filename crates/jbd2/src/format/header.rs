//! The 12 bytes with which every control block begins.

use super::bytes::{be32, put32};
use crate::types::Tid;

/// First four bytes of every control block. A logged block that begins with them is escaped.
pub const MAGIC: u32 = 0xC03B_3998;

/// Bytes of a [`Header`].
pub const HEADER_SIZE: usize = 12;

/// What a control block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Lists the home places of the copies that follow it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// Superblock, first version.
    SuperblockV1,
    /// Superblock, second version.
    SuperblockV2,
    /// Lists blocks whose older copies must not be replayed.
    Revoke,
    /// No kind that exists.
    Unknown(u32),
}

impl BlockKind {
    fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            other => Self::Unknown(other),
        }
    }

    fn code(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
            Self::Unknown(code) => code,
        }
    }
}

/// Kind and transaction of a control block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The kind.
    pub kind: BlockKind,
    /// The transaction that it belongs to (0 in a superblock).
    pub tid: Tid,
}

impl Header {
    /// The header of `block`, or `None` if it does not begin with the magic.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        (block.len() >= HEADER_SIZE && be32(block, 0) == MAGIC)
            .then(|| Self { kind: BlockKind::from_code(be32(block, 4)), tid: Tid(be32(block, 8)) })
    }

    /// Writes it to the start of `block`.
    pub fn encode_into(self, block: &mut [u8]) {
        put32(block, 0, MAGIC);
        put32(block, 4, self.kind.code());
        put32(block, 8, self.tid.0);
    }
}

/// The copy that goes to the log if `block` begins with the magic: the same with four zero bytes.
/// The tag then carries [`TagFlags::ESCAPE`](super::TagFlags::ESCAPE). `None`: it goes as it is.
#[must_use]
pub fn escape(block: &[u8]) -> Option<Vec<u8>> {
    (block.len() >= 4 && be32(block, 0) == MAGIC).then(|| {
        let mut copy = block.to_vec();
        put32(&mut copy, 0, 0);
        copy
    })
}

/// Undoes [`escape`].
pub fn unescape(block: &mut [u8]) {
    put32(block, 0, MAGIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes() {
        let mut block = [0xFF; 16];
        Header { kind: BlockKind::Revoke, tid: Tid(6) }.encode_into(&mut block);
        assert_eq!(block[..12], [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 5, 0, 0, 0, 6]);
        assert_eq!(Header::decode(&block), Some(Header { kind: BlockKind::Revoke, tid: Tid(6) }));
        assert_eq!(Header::decode(&block[..11]), None);
        assert_eq!(Header::decode(&block[1..]), None);
    }

    #[test]
    fn escape_only_the_magic() {
        assert_eq!(escape(&[0xC0, 0x3B, 0x39, 0x99, 1]), None);
        assert_eq!(escape(&[0xC0, 0x3B]), None);
        let mut copy = escape(&[0xC0, 0x3B, 0x39, 0x98, 1]).unwrap();
        assert_eq!(copy, [0, 0, 0, 0, 1]);
        unescape(&mut copy);
        assert_eq!(copy, [0xC0, 0x3B, 0x39, 0x98, 1]);
    }
}
