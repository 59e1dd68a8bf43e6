//! jbd2 on disk: bytes to types and back, no I/O, one file per structure.
//!
//! All numbers of the log are big-endian. (Fast commits are little-endian and belong to ext4:
//! [`extol_ondisk::fast_commit`].) Decoding accepts any bytes without panic: it gives `None`, a
//! result or an error.
//!
//! A transaction in the log:
//!
//! ```text
//! revoke* (descriptor copy+)* commit
//! ```

mod bytes;
mod checksum;
mod commit;
mod descriptor;
mod features;
mod header;
mod revoke;
mod size;
mod superblock;
#[cfg(test)]
mod tests;

pub use checksum::{V1Sum, crc32be, crc32c};
pub use commit::{CommitBlock, CommitTime};
pub use descriptor::{DescriptorReader, DescriptorWriter, Tag, TagFlags};
pub use features::Features;
pub use header::{BlockKind, HEADER_SIZE, Header, MAGIC, escape, unescape};
pub use revoke::{RevokeReader, RevokeWriter};
pub use size::{FAST_COMMIT_RATIO, LEAST_BLOCKS, MAX_LOG_BLOCKS, usual_log_blocks};
pub use superblock::{
    CHECKSUM_CRC32C, DEFAULT_FC_BLOCKS, JournalSuperblock, MIN_LOG_BLOCKS, SUPERBLOCK_SIZE,
};

use extol_block::BlockSize;

/// Most data checksums in one fast commit: four megabytes of data in blocks of 4 KiB. Recovery
/// reads no more.
pub(crate) const MOST_DATA_CHECKSUMS: usize = 1024;

/// Everything that encoding and decoding a control block needs to know of its journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Feature words.
    pub features: Features,
    /// Bytes of a log block.
    pub block_size: BlockSize,
    /// Seed of all v2 and v3 checksums.
    pub seed: u32,
    /// The journal's uuid.
    pub uuid: [u8; 16],
}

impl Format {
    /// The format of a journal with these properties.
    #[must_use]
    pub fn new(features: Features, block_size: BlockSize, uuid: [u8; 16]) -> Self {
        Self { features, block_size, seed: crc32c(u32::MAX, &uuid), uuid }
    }

    fn tail_at(&self, block: &[u8]) -> usize {
        block.len().saturating_sub(4)
    }

    /// Writes the checksum at the end of a descriptor or revoke block (v2, v3).
    fn set_tail(&self, block: &mut [u8]) {
        if self.features.has_csum_v2_or_v3() {
            let at = self.tail_at(block);
            let sum = checksum::crc32c_with_hole(self.seed, block, at);
            bytes::put32(block, at, sum);
        }
    }

    /// True if the checksum at the end of a descriptor or revoke block is right (always without v2
    /// and v3).
    #[must_use]
    pub fn verify_tail(&self, block: &[u8]) -> bool {
        if !self.features.has_csum_v2_or_v3() {
            return true;
        }
        let at = self.tail_at(block);
        block.len() >= 4
            && checksum::crc32c_with_hole(self.seed, block, at) == bytes::be32(block, at)
    }
}
