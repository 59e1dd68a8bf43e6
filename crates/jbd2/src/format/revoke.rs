//! Revoke blocks: numbers of blocks whose copies in this transaction and older ones must not be
//! replayed.
//!
//! ```text
//! | header 12 | bytes used (be32, these 16 included) | be64 or be32 numbers ... | zeros | checksum 4 (v2, v3) |
//! ```

use extol_block::BlockNr;

use super::bytes::{be32, be64, put32, put64};
use super::header::{BlockKind, HEADER_SIZE, Header};
use super::{Features, Format};
use crate::types::{JournalError, Result, Tid};

const COUNT_AT: usize = HEADER_SIZE;
const RECORDS_AT: usize = 16;

/// Fills one revoke block. Push until [`is_full`](Self::is_full), then [`finish`](Self::finish) and
/// begin the next.
#[derive(Debug)]
pub struct RevokeWriter<'f> {
    format: &'f Format,
    block: Vec<u8>,
    used: usize,
}

impl<'f> RevokeWriter<'f> {
    /// An empty revoke block of transaction `tid`.
    #[must_use]
    pub fn new(format: &'f Format, tid: Tid) -> Self {
        let mut block = vec![0; format.block_size.len()];
        Header { kind: BlockKind::Revoke, tid }.encode_into(&mut block);
        Self { format, block, used: RECORDS_AT }
    }

    /// No record yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == RECORDS_AT
    }

    /// Nothing may be pushed any more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let f = self.format.features;
        self.used + f.revoke_record_size() > self.block.len() - f.tail_size()
    }

    /// Adds a record.
    pub fn push(&mut self, nr: BlockNr) -> Result<()> {
        debug_assert!(!self.is_full(), "push to a full revoke block");
        if self.format.features.is_64bit() {
            put64(&mut self.block, self.used, nr.0);
        } else {
            let nr = u32::try_from(nr.0).map_err(|_| {
                JournalError::Unsupported(format!("block {nr} does not fit a 32-bit journal"))
            })?;
            put32(&mut self.block, self.used, nr);
        }
        self.used += self.format.features.revoke_record_size();
        Ok(())
    }

    /// The block to write.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        put32(&mut self.block, COUNT_AT, self.used as u32);
        self.format.set_tail(&mut self.block);
        self.block
    }

    /// Records that fit a block of this format.
    #[must_use]
    pub fn capacity(format: &Format) -> u32 {
        let f = format.features;
        ((format.block_size.len() - RECORDS_AT - f.tail_size()) / f.revoke_record_size()) as u32
    }
}

/// Iterates the records of a revoke block. Check [`Format::verify_tail`] first.
#[derive(Clone, Debug)]
pub struct RevokeReader<'a> {
    features: Features,
    block: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> RevokeReader<'a> {
    /// Reads `block`, whose header the caller has seen. `None` if its count is more than the block
    /// holds.
    #[must_use]
    pub fn new(format: &Format, block: &'a [u8]) -> Option<Self> {
        let features = format.features;
        let end = usize::try_from(be32(block, COUNT_AT)).ok()?;
        (end <= block.len().saturating_sub(features.tail_size())).then_some(Self {
            features,
            block,
            at: RECORDS_AT,
            end,
        })
    }
}

impl Iterator for RevokeReader<'_> {
    type Item = BlockNr;

    fn next(&mut self) -> Option<BlockNr> {
        let size = self.features.revoke_record_size();
        if self.at + size > self.end {
            return None;
        }
        let nr = if size == 8 {
            be64(self.block, self.at)
        } else {
            u64::from(be32(self.block, self.at))
        };
        self.at += size;
        Some(BlockNr(nr))
    }
}
