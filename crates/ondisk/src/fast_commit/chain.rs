//! Writing tags into blocks.

use crate::BlockSize;

use super::number::{HEAD, PAD, TAIL};
use super::{DataChecksum, FcRecord, FcRecords, FcUnwritable, TL_SIZE};
use crate::checksum::crc32c;

const TAIL_SIZE: usize = TL_SIZE + 8;

/// Appends tags to blocks. [`chain`](Self::chain) is the usual way; step by step odd areas can be
/// made as well.
#[derive(Clone, Debug)]
pub struct FcWriter {
    block: usize,
    bytes: Vec<u8>,
    /// Where the fast commit begins whose TAIL comes next.
    began: usize,
    padding: usize,
}

/// One whole fast commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FcChain {
    /// Whole blocks.
    pub bytes: Vec<u8>,
    /// Of them, bytes of tags, without padding.
    pub used: usize,
}

impl FcChain {
    /// This one with `first` in front of it.
    #[must_use]
    pub fn behind(self, mut first: Self) -> Self {
        first.bytes.extend_from_slice(&self.bytes);
        Self { bytes: first.bytes, used: first.used + self.used }
    }
}

impl FcWriter {
    /// A writer at the start of a block.
    #[must_use]
    pub fn new(block: BlockSize) -> Self {
        // One block is what most fast commits take.
        Self { block: block.len(), bytes: Vec::with_capacity(block.len()), began: 0, padding: 0 }
    }

    /// A whole fast commit of transaction `tid`, the first with a HEAD.
    ///
    /// # Errors
    /// If a record is too large for a block.
    pub fn chain(
        block: BlockSize,
        tid: u32,
        first: bool,
        records: &FcRecords,
        checksums: &[DataChecksum],
    ) -> Result<FcChain, FcUnwritable> {
        let mut writer = Self::new(block);
        if first {
            writer.head(0, tid);
        }
        records.tags().try_for_each(|tag| writer.whole(tag))?;
        writer.data_checksums(checksums);
        writer.tail(tid);
        let used = writer.bytes.len() - writer.padding;
        Ok(FcChain { bytes: writer.bytes, used })
    }

    /// Appends a HEAD. It belongs at the start of the area, and nowhere else; the only known
    /// `features` are 0.
    pub fn head(&mut self, features: u32, tid: u32) {
        self.begin(HEAD, 8);
        self.put32(features);
        self.put32(tid);
    }

    /// Appends a record.
    ///
    /// # Errors
    /// If it can be in no block. Nothing was written then.
    pub fn record(&mut self, record: &FcRecord) -> Result<(), FcUnwritable> {
        let one = FcRecords::encode(std::slice::from_ref(record))?;
        one.tags().try_for_each(|tag| self.whole(tag))
    }

    /// Appends a tag.
    fn whole(&mut self, tag: &[u8]) -> Result<(), FcUnwritable> {
        if tag.len() > self.block - TL_SIZE {
            return Err(FcUnwritable);
        }
        self.room_for(tag.len());
        self.bytes.extend_from_slice(tag);
        Ok(())
    }

    /// Appends checksums of data, in as many PADs as they need.
    pub fn data_checksums(&mut self, mut checksums: &[DataChecksum]) {
        while !checksums.is_empty() {
            let room = |at: usize| DataChecksum::fit((self.block - 2 * TL_SIZE).saturating_sub(at));
            let here = match room(self.bytes.len() % self.block) {
                0 => room(0),
                here => here,
            };
            let (now, later) = checksums.split_at(here.min(checksums.len()));
            let value = DataChecksum::encode(now);
            self.begin(PAD, value.len());
            self.bytes.extend_from_slice(&value);
            checksums = later;
        }
    }

    /// Appends a TAIL, which ends the fast commit and its last block. The next one begins in a new
    /// block.
    pub fn tail(&mut self, tid: u32) {
        let at = self.room_for(TAIL_SIZE) + TAIL_SIZE;
        let rest = self.block - at;
        self.put16(TAIL);
        self.put16((rest + 8) as u16);
        self.put32(tid);
        let sum = crc32c(0, self.bytes.get(self.began..).unwrap_or_default());
        self.put32(sum);
        self.zeros(rest);
        self.began = self.bytes.len();
    }

    /// The blocks; the last is filled with zeros.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        let rest = self.bytes.len().next_multiple_of(self.block) - self.bytes.len();
        self.zeros(rest);
        self.bytes
    }

    fn begin(&mut self, tag: u16, len: usize) {
        self.room_for(TL_SIZE + len);
        self.put16(tag);
        self.put16(len as u16);
    }

    /// Goes on to the next block if the tag would leave no room for a PAD. Gives the place in the
    /// block.
    fn room_for(&mut self, size: usize) -> usize {
        let at = self.bytes.len() % self.block;
        if at + size <= self.block - TL_SIZE {
            return at;
        }
        let rest = self.block - TL_SIZE - at;
        self.put16(PAD);
        self.put16(rest as u16);
        self.padding += TL_SIZE;
        self.zeros(rest);
        0
    }

    fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
        self.padding += count;
    }

    fn put16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
}
