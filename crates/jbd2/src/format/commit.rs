//! Commit blocks: they end a transaction and say when it was written.
//!
//! The time tells recovery whether blocks with the expected transaction id are leftovers of an
//! older life of the log (older than what came before: the end of the log) or damaged (not older:
//! corruption). So it must never go backwards within one life of the log.

use super::Format;
use super::bytes::{be32, be64, put, put32, put64};
use super::checksum::{V1Sum, crc32c_with_hole};
use super::header::{BlockKind, Header};
use crate::types::Tid;

const TYPE_AT: usize = 0x0C;
const SIZE_AT: usize = 0x0D;
const CHECKSUM_AT: usize = 0x10;
const SEC_AT: usize = 0x30;
const NSEC_AT: usize = 0x38;
/// Behind the last field; the rest of the block is zero.
const END: usize = 0x3C;

const V1_TYPE_CRC32: u8 = 1;
const V1_SIZE_CRC32: u8 = 4;

/// Wall-clock time of a commit. Ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, serde::Serialize)]
pub struct CommitTime {
    /// Seconds since 1970.
    pub sec: u64,
    /// Nanoseconds.
    pub nsec: u32,
}

/// A decoded commit block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitBlock {
    /// The transaction that it ends.
    pub tid: Tid,
    /// When it was written.
    pub time: CommitTime,
    /// 1 with a v1 sum, else 0.
    pub checksum_type: u8,
    /// 4 with a v1 sum, else 0.
    pub checksum_size: u8,
    /// The sum: of the transaction (v1) or of this block (v2, v3).
    pub checksum: u32,
}

impl CommitBlock {
    /// The block to write. `v1` counts only if the journal has v1 checksums.
    #[must_use]
    pub fn encode(format: &Format, tid: Tid, time: CommitTime, v1: V1Sum) -> Vec<u8> {
        let mut block = vec![0; format.block_size.len()];
        Header { kind: BlockKind::Commit, tid }.encode_into(&mut block);
        put64(&mut block, SEC_AT, time.sec);
        put32(&mut block, NSEC_AT, time.nsec);
        if format.features.has_csum_v1() {
            put(&mut block, TYPE_AT, &[V1_TYPE_CRC32, V1_SIZE_CRC32]);
            put32(&mut block, CHECKSUM_AT, v1.value());
        } else if format.features.has_csum_v2_or_v3() {
            let sum = crc32c_with_hole(format.seed, &block, CHECKSUM_AT);
            put32(&mut block, CHECKSUM_AT, sum);
        }
        block
    }

    /// Reads `block`; `None` if it is no commit block.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let header = Header::decode(block)?;
        (header.kind == BlockKind::Commit).then(|| Self {
            tid: header.tid,
            time: CommitTime { sec: be64(block, SEC_AT), nsec: be32(block, NSEC_AT) },
            checksum_type: block.get(TYPE_AT).copied().unwrap_or(0),
            checksum_size: block.get(SIZE_AT).copied().unwrap_or(0),
            checksum: be32(block, CHECKSUM_AT),
        })
    }

    /// True if the block and, with v1, the transaction that gave `v1` are intact as far as the
    /// journal's checksums can tell. `block` is the block that this was decoded from.
    #[must_use]
    pub fn verify(&self, format: &Format, block: &[u8], v1: V1Sum) -> bool {
        if format.features.has_csum_v2_or_v3() {
            return crc32c_with_hole(format.seed, block, CHECKSUM_AT) == self.checksum
                || self.verify_torn(format, block);
        }
        if format.features.has_csum_v1() {
            let stated = (self.checksum_type, self.checksum_size, self.checksum);
            return stated == (V1_TYPE_CRC32, V1_SIZE_CRC32, v1.value()) || stated == (0, 0, 0);
        }
        true
    }

    /// A power cut may tear the write of this one block: all that counts is in its first sector,
    /// and what is behind the last field is old. The writer had zeros there. (Linux does the same
    /// since 6.10.)
    fn verify_torn(&self, format: &Format, block: &[u8]) -> bool {
        let mut whole = vec![0; block.len()];
        let used = END.min(block.len());
        match (whole.get_mut(..used), block.get(..used)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return false,
        }
        crc32c_with_hole(format.seed, &whole, CHECKSUM_AT) == self.checksum
    }
}
