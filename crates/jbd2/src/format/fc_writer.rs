//! Fast-commit records as blocks.
//!
//! ```text
//!   block 0                  block 1                   block 2                        block 3
//!   | HEAD | TAIL | zeros |  | record | record | PAD | | record | … | TAIL | zeros |  | record | TAIL | zeros |
//!   └ the first of a transaction: empty                         └ ends the block      └ the next fast commit
//! ```
//!
//! A tag is never split. Four bytes are always kept at the end of a block, so that the header of a
//! PAD fits; PAD and TAIL end exactly where the block ends. The sum in a TAIL covers everything
//! from the first tag of its fast commit, PADs with their zeros, up to the sum itself. A PAD may
//! also stand between records, with something in it that other readers skip ([`Witness`]).

use extol_block::BlockSize;

use super::crc32c;
use crate::Tid;
use crate::fast::{FcEntry, FcRecord, Witness};

const TL_SIZE: usize = 4;
const TAIL_SIZE: usize = TL_SIZE + 8;
const MAX_NAME: usize = 255;
const MIN_INODE: usize = 128;
/// Longest extent; an unwritten one is a block shorter.
const MAX_EXTENT: u32 = 32768;

/// A record that no block can hold: too large for the block size, or with a length or number out of
/// range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FcUnwritable;

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
    /// If a record cannot be written at all.
    pub fn chain(
        block: BlockSize,
        tid: Tid,
        first: bool,
        records: &[FcRecord],
        witnesses: &[Witness],
    ) -> Result<FcChain, FcUnwritable> {
        let mut writer = Self::new(block);
        if first {
            writer.head(0, tid);
        }
        for record in records {
            writer.record(record)?;
        }
        writer.witnesses(witnesses);
        writer.tail(tid);
        let used = writer.bytes.len() - writer.padding;
        Ok(FcChain { bytes: writer.bytes, used })
    }

    /// Appends a HEAD. It belongs at the start of the area, and nowhere else; the only known
    /// `features` are 0.
    pub fn head(&mut self, features: u32, tid: Tid) {
        self.begin(9, 8);
        self.put32(features);
        self.put32(tid.0);
    }

    /// Appends a record.
    ///
    /// # Errors
    /// If it can be in no block. Nothing was written then.
    pub fn record(&mut self, record: &FcRecord) -> Result<(), FcUnwritable> {
        match record {
            FcRecord::AddRange { ino, block, len, start, unwritten } => {
                let most = MAX_EXTENT - u32::from(*unwritten);
                if *len == 0 || *len > most || *start >> 48 != 0 {
                    return Err(FcUnwritable);
                }
                self.begin(1, 16);
                self.put32(*ino);
                self.put32(*block);
                self.put16((*len + if *unwritten { MAX_EXTENT } else { 0 }) as u16);
                self.put16((*start >> 32) as u16);
                self.put32(*start as u32);
            }
            FcRecord::DelRange { ino, block, len } => {
                self.begin(2, 12);
                self.put32(*ino);
                self.put32(*block);
                self.put32(*len);
            }
            FcRecord::Creat(entry) => self.entry(3, entry)?,
            FcRecord::Link(entry) => self.entry(4, entry)?,
            FcRecord::Unlink(entry) => self.entry(5, entry)?,
            FcRecord::Inode { ino, image } => {
                let len = 4 + image.len();
                if image.len() < MIN_INODE || len + TL_SIZE > self.block - TL_SIZE {
                    return Err(FcUnwritable);
                }
                self.begin(6, len);
                self.put32(*ino);
                self.bytes.extend_from_slice(image);
            }
        }
        Ok(())
    }

    /// Appends witnesses, in as many PADs as they need.
    pub fn witnesses(&mut self, mut witnesses: &[Witness]) {
        while !witnesses.is_empty() {
            let room = |at: usize| Witness::fit((self.block - 2 * TL_SIZE).saturating_sub(at));
            let here = match room(self.bytes.len() % self.block) {
                0 => room(0),
                here => here,
            };
            let (now, later) = witnesses.split_at(here.min(witnesses.len()));
            let value = Witness::encode(now);
            self.begin(7, value.len());
            self.bytes.extend_from_slice(&value);
            witnesses = later;
        }
    }

    /// Appends a TAIL, which ends the fast commit and its last block. The next one begins in a new
    /// block.
    pub fn tail(&mut self, tid: Tid) {
        let at = self.room_for(TAIL_SIZE) + TAIL_SIZE;
        let rest = self.block - at;
        self.put16(8);
        self.put16((rest + 8) as u16);
        self.put32(tid.0);
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

    fn entry(&mut self, tag: u16, entry: &FcEntry) -> Result<(), FcUnwritable> {
        if !(1..=MAX_NAME).contains(&entry.name.len()) {
            return Err(FcUnwritable);
        }
        self.begin(tag, 8 + entry.name.len());
        self.put32(entry.parent);
        self.put32(entry.ino);
        self.bytes.extend_from_slice(&entry.name);
        Ok(())
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
        self.put16(7);
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

#[cfg(test)]
mod tests;
