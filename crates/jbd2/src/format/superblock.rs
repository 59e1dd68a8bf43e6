//! The journal superblock: 1024 bytes in log block 0 (internal journal) or behind the ext2
//! superblock (journal device).
//!
//! ```text
//! 0          first                      log_end   log_end+1                maxlen
//! | sb | ... | ordinary log (wraps) ... | unused  | fast-commit blocks ... |
//!                                       `--- only with FAST_COMMIT on disk ---'
//! ```
//!
//! `start` = 0 means that the log is empty, and then the next transaction is `sequence + 1`.
//! Otherwise `start` is the block and `sequence` the id of the oldest transaction that recovery
//! must look at. A version-1 superblock ends at byte 0x24: no features, no uuid, no checksum.

use std::ops::Range;

use extol_block::BlockSize;

use super::bytes::{be32, put, put32};
use super::checksum::{crc32c, crc32c_with_hole};
use super::header::{BlockKind, Header};
use super::{Features, Format};
use crate::types::{JournalError, Result, Tid};

/// Bytes of a journal superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// A log with fewer blocks is refused.
#[cfg(not(feature = "model"))]
pub const MIN_LOG_BLOCKS: u32 = 1024;
/// Far fewer for the model, so that a few steps fill a log.
#[cfg(feature = "model")]
pub const MIN_LOG_BLOCKS: u32 = 56;
/// Blocks of the fast-commit area if the superblock does not say.
pub const DEFAULT_FC_BLOCKS: u32 = 256;
/// `checksum_type` of v2 and v3 journals.
pub const CHECKSUM_CRC32C: u8 = 4;

const CHECKSUM_AT: usize = 0xFC;
const USERS_AT: usize = 0x100;
const MAX_USERS: usize = 48;

/// A decoded journal superblock. Bytes without a field here survive decode and encode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalSuperblock {
    /// True: version 2. False: the fields behind `errno` do not exist on disk.
    pub v2: bool,
    /// Bytes of a log block; equals the block size of the file system.
    pub block_size: u32,
    /// Blocks of the whole journal, superblock and fast-commit area included.
    pub maxlen: u32,
    /// First block of the ordinary log.
    pub first: u32,
    /// Transaction expected at `start`, or the last one used if the log is empty.
    pub sequence: Tid,
    /// Block of the oldest transaction; 0: the log is empty.
    pub start: u32,
    /// Negative errno that an abort left here; 0: none.
    pub errno: i32,
    /// Feature words.
    pub features: Features,
    /// Seed of all checksums of v2 and v3.
    pub uuid: [u8; 16],
    /// File systems that use this journal.
    pub nr_users: u32,
    /// Block of a dynamic superblock copy (unused).
    pub dynsuper: u32,
    /// Limit of journal blocks per transaction (unused).
    pub max_transaction: u32,
    /// Limit of data blocks per transaction (unused).
    pub max_trans_data: u32,
    /// 4 (crc32c) in v2 and v3 journals.
    pub checksum_type: u8,
    /// Size of the fast-commit area; 0: the default. Use [`fc_blocks`](Self::fc_blocks).
    pub num_fc_blocks: u32,
    /// Log head of a cleanly closed journal (newer kernels); only meaningful while `start` is 0.
    pub head: u32,
    /// Uuids of the file systems that use a journal device (`nr_users` of them count).
    pub users: Vec<[u8; 16]>,
    raw: Box<[u8; SUPERBLOCK_SIZE]>,
}

fn corrupt(what: impl Into<String>) -> JournalError {
    JournalError::corrupt(format!("superblock: {}", what.into()), 0u32)
}

impl JournalSuperblock {
    /// The superblock of a new, empty journal.
    #[must_use]
    pub fn new(
        block_size: BlockSize,
        maxlen: u32,
        first: u32,
        features: Features,
        uuid: [u8; 16],
    ) -> Self {
        let mut raw = Box::new([0; SUPERBLOCK_SIZE]);
        Header { kind: BlockKind::SuperblockV2, tid: Tid(0) }.encode_into(&mut raw[..]);
        Self {
            v2: true,
            block_size: block_size.bytes(),
            maxlen,
            first,
            sequence: Tid(1),
            start: 0,
            errno: 0,
            features,
            uuid,
            nr_users: 1,
            dynsuper: 0,
            max_transaction: 0,
            max_trans_data: 0,
            checksum_type: if features.has_csum_v2_or_v3() { CHECKSUM_CRC32C } else { 0 },
            num_fc_blocks: 0,
            head: 0,
            users: vec![[0; 16]; MAX_USERS],
            raw,
        }
    }

    /// Reads a superblock: magic, version, checksum. [`validate`](Self::validate) checks the
    /// numbers.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let raw: &[u8; SUPERBLOCK_SIZE] =
            bytes.first_chunk().ok_or_else(|| corrupt("too short"))?;
        let header = Header::decode(raw).ok_or_else(|| corrupt("bad magic"))?;
        let v2 = match header.kind {
            BlockKind::SuperblockV1 => false,
            BlockKind::SuperblockV2 => true,
            other => return Err(corrupt(format!("block is no superblock but {other:?}"))),
        };
        let word = |at| if v2 { be32(raw, at) } else { 0 };
        let features = Features { compat: word(0x24), incompat: word(0x28), ro_compat: word(0x2C) };
        let mut uuid = [0; 16];
        let mut users = vec![[0; 16]; MAX_USERS];
        if v2 {
            uuid.copy_from_slice(&raw[0x30..0x40]);
            for (user, bytes) in users.iter_mut().zip(raw[USERS_AT..].as_chunks::<16>().0) {
                *user = *bytes;
            }
        }
        let sb = Self {
            v2,
            block_size: be32(raw, 0x0C),
            maxlen: be32(raw, 0x10),
            first: be32(raw, 0x14),
            sequence: Tid(be32(raw, 0x18)),
            start: be32(raw, 0x1C),
            errno: be32(raw, 0x20) as i32,
            features,
            uuid,
            nr_users: word(0x40),
            dynsuper: word(0x44),
            max_transaction: word(0x48),
            max_trans_data: word(0x4C),
            checksum_type: if v2 { raw[0x50] } else { 0 },
            num_fc_blocks: word(0x54),
            head: word(0x58),
            users,
            raw: Box::new(*raw),
        };
        if features.has_csum_v2_or_v3() {
            if sb.checksum_type != CHECKSUM_CRC32C {
                return Err(corrupt(format!("unknown checksum type {}", sb.checksum_type)));
            }
            if crc32c_with_hole(u32::MAX, raw, CHECKSUM_AT) != be32(raw, CHECKSUM_AT) {
                return Err(corrupt("wrong checksum"));
            }
        }
        Ok(sb)
    }

    /// The checksum that was read (v2 and v3).
    #[must_use]
    pub fn checksum(&self) -> u32 {
        be32(&self.raw[..], CHECKSUM_AT)
    }

    /// The bytes to write, with the checksum brought up to date.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut raw = *self.raw;
        let b = &mut raw[..];
        put32(b, 0x0C, self.block_size);
        put32(b, 0x10, self.maxlen);
        put32(b, 0x14, self.first);
        put32(b, 0x18, self.sequence.0);
        put32(b, 0x1C, self.start);
        put32(b, 0x20, self.errno as u32);
        if !self.v2 {
            return raw;
        }
        put32(b, 0x24, self.features.compat);
        put32(b, 0x28, self.features.incompat);
        put32(b, 0x2C, self.features.ro_compat);
        put(b, 0x30, &self.uuid);
        put32(b, 0x40, self.nr_users);
        put32(b, 0x44, self.dynsuper);
        put32(b, 0x48, self.max_transaction);
        put32(b, 0x4C, self.max_trans_data);
        put(b, 0x50, &[self.checksum_type]);
        put32(b, 0x54, self.num_fc_blocks);
        put32(b, 0x58, self.head);
        for (i, user) in self.users.iter().take(MAX_USERS).enumerate() {
            put(b, USERS_AT + 16 * i, user);
        }
        if self.features.has_csum_v2_or_v3() {
            let sum = crc32c_with_hole(u32::MAX, b, CHECKSUM_AT);
            put32(b, CHECKSUM_AT, sum);
        }
        raw
    }

    /// Refuses a journal that Linux or e2fsck would refuse. `real_len` is the length in blocks of
    /// the inode or device that holds it.
    pub fn validate(&self, fs_block_size: BlockSize, real_len: u64) -> Result<()> {
        self.features.validate()?;
        if self.block_size != fs_block_size.bytes() {
            return Err(corrupt(format!(
                "block size {} differs from the file system's {}",
                self.block_size,
                fs_block_size.bytes()
            )));
        }
        if u64::from(self.maxlen) > real_len {
            return Err(corrupt(format!(
                "length {} exceeds the {real_len} blocks of the journal",
                self.maxlen
            )));
        }
        if self.first == 0 || self.first >= self.maxlen {
            return Err(corrupt(format!("first log block {} of {}", self.first, self.maxlen)));
        }
        if self.v2 && self.nr_users > 1 {
            return Err(JournalError::Unsupported(format!(
                "the journal is shared by {} users",
                self.nr_users
            )));
        }
        if self.features.has_fast_commit()
            && self.maxlen.saturating_sub(self.fc_blocks()) < MIN_LOG_BLOCKS
        {
            return Err(corrupt(format!(
                "fast-commit area of {} blocks leaves no log",
                self.fc_blocks()
            )));
        }
        if u64::from(self.first) + u64::from(MIN_LOG_BLOCKS) > u64::from(self.maxlen) + 1
            || self.log_end() <= self.first
        {
            return Err(corrupt(format!("log of {} blocks is too short", self.maxlen)));
        }
        if self.start != 0 && !(self.first..self.log_end()).contains(&self.start) {
            return Err(corrupt(format!("log starts at {} outside of the log", self.start)));
        }
        Ok(())
    }

    /// Size of the fast-commit area, the default filled in.
    #[must_use]
    pub fn fc_blocks(&self) -> u32 {
        if self.num_fc_blocks == 0 { DEFAULT_FC_BLOCKS } else { self.num_fc_blocks }
    }

    /// End (exclusive) of the ordinary log: there it wraps to `first`.
    #[must_use]
    pub fn log_end(&self) -> u32 {
        match self.features.has_fast_commit() {
            true => self.maxlen.saturating_sub(self.fc_blocks()),
            false => self.maxlen,
        }
    }

    /// The fast-commit blocks, if the FAST_COMMIT bit is set. One block between log and area is
    /// never used.
    #[must_use]
    pub fn fc_range(&self) -> Option<Range<u32>> {
        self.features
            .has_fast_commit()
            .then(|| self.log_end().saturating_add(1).min(self.maxlen)..self.maxlen)
    }

    /// Marks the log as empty; `sequence` becomes the last used id, so that the next transaction is
    /// the one after it.
    pub fn mark_empty(&mut self, sequence: Tid) {
        self.start = 0;
        self.sequence = sequence;
        self.head = 0;
        self.features.incompat &= !Features::INCOMPAT_FAST_COMMIT;
    }

    /// What is needed to encode and decode the other control blocks.
    pub fn format(&self) -> Result<Format> {
        let block_size = BlockSize::new(self.block_size)
            .ok_or_else(|| corrupt(format!("block size {} is impossible", self.block_size)))?;
        Ok(Format::new(self.features, block_size, self.uuid))
    }

    /// Seed of the checksums of the other control blocks.
    #[must_use]
    pub fn seed(&self) -> u32 {
        crc32c(u32::MAX, &self.uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bs() -> BlockSize {
        BlockSize::new(1024).unwrap()
    }

    fn uuid() -> [u8; 16] {
        std::array::from_fn(|i| i as u8)
    }

    fn v3() -> JournalSuperblock {
        let features = Features { incompat: 0x12, ..Features::default() };
        JournalSuperblock::new(bs(), 1024, 1, features, uuid())
    }

    #[test]
    fn vector() {
        let bytes = v3().encode();
        assert_eq!(be32(&bytes, CHECKSUM_AT), 0xA013_4E5F);
        assert_eq!(JournalSuperblock::decode(&bytes).unwrap().encode(), bytes);
        assert_eq!(v3().seed(), 0x2636_F714);
        v3().validate(bs(), 1024).unwrap();
    }

    #[test]
    fn every_byte_survives() {
        for kind in [BlockKind::SuperblockV1, BlockKind::SuperblockV2] {
            let mut bytes: [u8; SUPERBLOCK_SIZE] = std::array::from_fn(|i| (i * 31 + 7) as u8);
            Header { kind, tid: Tid(77) }.encode_into(&mut bytes);
            put32(&mut bytes, 0x28, 0);
            let sb = JournalSuperblock::decode(&bytes).unwrap();
            assert_eq!(sb.encode(), bytes);
            assert_eq!(sb.v2, kind == BlockKind::SuperblockV2);
            if !sb.v2 {
                assert_eq!((sb.features, sb.head, sb.uuid), (Features::default(), 0, [0; 16]));
            }
        }
    }

    #[test]
    fn each_flipped_bit_is_found() {
        let good = v3().encode();
        for bit in 0..SUPERBLOCK_SIZE * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            let result = JournalSuperblock::decode(&bad);
            // Taking V3 away also takes the checksum away; turning v2 into another kind is no
            // superblock.
            assert!(result.is_err() || bit / 8 == 0x2B, "bit {bit}");
        }
        assert!(JournalSuperblock::decode(&good[..1023]).is_err());
    }

    #[test]
    fn limits() {
        let refuse = |change: &dyn Fn(&mut JournalSuperblock)| {
            let mut sb = v3();
            change(&mut sb);
            sb.validate(bs(), 2048).unwrap_err().to_string()
        };
        assert!(refuse(&|sb| sb.block_size = 2048).contains("block size"));
        assert!(refuse(&|sb| sb.maxlen = 2049).contains("exceeds"));
        assert!(refuse(&|sb| sb.maxlen = 1023).contains("short"));
        assert!(refuse(&|sb| sb.first = 0).contains("first"));
        assert!(refuse(&|sb| sb.first = 1024).contains("first"));
        assert!(refuse(&|sb| sb.first = 2).contains("short"));
        assert!(refuse(&|sb| sb.nr_users = 2).contains("shared"));
        assert!(refuse(&|sb| sb.start = 1024).contains("outside"));
        assert!(refuse(&|sb| sb.features.incompat |= 0x20).contains("fast-commit"));
        v3().validate(bs(), 1024).unwrap();
        v3().validate(bs(), 1_000_000).unwrap();
    }

    #[test]
    fn fast_commit_geometry() {
        let mut sb = v3();
        assert_eq!((sb.log_end(), sb.fc_range()), (1024, None));
        sb.maxlen = 4096;
        sb.features.incompat |= Features::INCOMPAT_FAST_COMMIT;
        assert_eq!((sb.log_end(), sb.fc_range()), (3840, Some(3841..4096)));
        sb.num_fc_blocks = 64;
        assert_eq!((sb.log_end(), sb.fc_range()), (4032, Some(4033..4096)));
        sb.validate(bs(), 4096).unwrap();
        sb.start = 4032;
        assert!(sb.validate(bs(), 4096).is_err());
        sb.mark_empty(Tid(9));
        assert_eq!((sb.start, sb.sequence, sb.log_end()), (0, Tid(9), 4096));
    }
}
