//! The superblock: 1024 bytes at byte 1024 of the device, copied to the start of some groups.
//!
//! [`Superblock`] has every field that has a name; numbers that are stored in two halves are one
//! number here. The bytes it was decoded from are kept in `raw`, so that bytes without a name
//! survive [`Superblock::encode`]. Decoding checks the magic number, the checksum and that the
//! fields by which everything else is found can be used at all;
//! [`Geometry::new`](crate::Geometry::new) checks the rest, against each other and the device.

mod fields;
mod flags;

pub use fields::Superblock;
pub use flags::{DefaultMountOpts, State, SuperFlags};

use crate::bytes::{get16, put32};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::{Incompat, RoCompat};

/// Length of the superblock.
pub const SUPERBLOCK_LEN: usize = 1024;
/// Byte offset of the primary superblock on the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Magic number.
pub const MAGIC: u16 = 0xEF53;
/// `creator_os`: Linux, or what keeps to its form.
pub const CREATOR_LINUX: u32 = 0;
/// `creator_os`: the Hurd, whose inodes have fields of their own in place of some of Linux.
pub const CREATOR_HURD: u32 = 1;

const CHECKSUM_AT: usize = 0x3FC;
/// The area that survives a journal replay: what went wrong must not be forgotten.
pub const ERROR_AREA: std::ops::Range<usize> = 0x194..0x200;

/// A uuid in its usual form.
#[must_use]
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut s = String::with_capacity(36);
    for (i, b) in uuid.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            s.push('-');
        }
        s.push_str(&format!("{b:02x}"));
    }
    s
}

impl Superblock {
    /// The only encoding of names that there is: UTF-8, folded as Unicode 12.1.0 says.
    pub const UTF8_12_1: u16 = 1;
    /// Flag of the encoding: casefolded directories take only names in valid UTF-8.
    pub const STRICT_ENCODING: u16 = 1;
    /// What volumes with encryption name as their ciphers: AES-256-XTS for contents, AES-256-CTS
    /// for names. (Nothing reads it: each directory says what it is encrypted with.)
    pub const USUAL_ENCRYPTION: [u8; 4] = [1, 4, 0, 0];
    /// Flag of the encoding: no name has the hash that Linux 6.12 gave it.
    pub const NO_COMPAT_FALLBACK: u16 = 2;

    /// The encoding of names, as mke2fs spells it; `None` without the feature casefold.
    #[must_use]
    pub fn encoding_name(&self) -> Option<&'static str> {
        let known = self.encoding == Self::UTF8_12_1;
        let name = if known { "utf8-12.1" } else { "unknown" };
        self.feature_incompat.contains(Incompat::CASEFOLD).then_some(name)
    }

    /// The flags of the encoding, in words; none without the feature casefold.
    #[must_use]
    pub fn encoding_flag_names(&self) -> Vec<String> {
        if !self.feature_incompat.contains(Incompat::CASEFOLD) {
            return Vec::new();
        }
        let flags = (0..16).map(|bit| self.encoding_flags & 1 << bit).filter(|flag| *flag != 0);
        let name = |flag| match flag {
            Self::STRICT_ENCODING => "strict".to_owned(),
            Self::NO_COMPAT_FALLBACK => "no_compat_fallback".to_owned(),
            other => format!("{other:#x}"),
        };
        flags.map(name).collect()
    }

    /// Checks magic and checksum and that the fields by which the rest is found make sense. Accepts
    /// the superblock of an external journal too ([`Incompat::JOURNAL_DEV`]).
    ///
    /// # Errors
    /// Not a superblock, a wrong checksum, or numbers that cannot be used.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let raw: &[u8; SUPERBLOCK_LEN] = bytes
            .get(..SUPERBLOCK_LEN)
            .and_then(|b| b.try_into().ok())
            .ok_or(OnDiskError::bad("superblock is cut short"))?;
        ensure(get16(raw, 0x38) == MAGIC, "no ext4 superblock (bad magic number)")?;
        let sb = Self::from_raw(Box::new(*raw));
        if sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM) {
            ensure(sb.checksum_type == 1, "unknown checksum algorithm")?;
            ensure_csum("superblock", sb.checksum, crc32c(!0, &raw[..CHECKSUM_AT]))?;
        }
        ensure(sb.log_block_size <= 6, "block size is out of range")?;
        ensure(sb.blocks_count > 0, "volume without blocks")?;
        Ok(sb)
    }

    /// An all-zero superblock with only the magic number and revision 1, for mkfs to fill.
    #[must_use]
    pub fn new_empty() -> Self {
        let mut sb = Self::from_raw(Box::new([0; SUPERBLOCK_LEN]));
        sb.magic = MAGIC;
        sb.rev_level = 1;
        sb
    }

    /// Takes over the error record of another superblock (the area that recovery must not lose).
    pub fn copy_error_record(&mut self, from: &Self) {
        let (source, mut raw) = (from.encode(), self.encode());
        // The times' high bytes and the error codes lie outside of the area.
        for range in [ERROR_AREA, 0x278..0x27C] {
            raw[range.clone()].copy_from_slice(&source[range]);
        }
        *self = Self::from_raw(Box::new(raw));
    }

    /// The bytes, with the checksum brought up to date.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut out = *self.raw;
        self.fill(&mut out);
        if self.feature_ro_compat.contains(RoCompat::METADATA_CSUM) {
            let sum = crc32c(!0, &out[..CHECKSUM_AT]);
            put32(&mut out, CHECKSUM_AT, sum);
        }
        out
    }

    /// Bytes per block. Only meaningful after [`decode`](Self::decode), which bounds it.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        1024 << self.log_block_size.min(6)
    }

    /// Seed of the volume's metadata checksums.
    #[must_use]
    pub fn fs_seed(&self) -> FsSeed {
        if self.feature_incompat.contains(Incompat::CSUM_SEED) {
            FsSeed(self.checksum_seed)
        } else {
            FsSeed::from_uuid(&self.uuid)
        }
    }

    /// Label, up to its NUL. It need not be text.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        self.volume_name.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}
