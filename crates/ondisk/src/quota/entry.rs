//! Usage and limits of one id.
//!
//! An entry of zeros is an unused one. So that the entry of id 0 can be stored when it says
//! nothing, Linux gives it an inode time of 1, and reads that back as 0.

use super::header::Version;
use crate::bytes::{get32, get64, put32, put64};

/// Bytes of an entry of vfsv0.
pub(super) const V0_LEN: usize = 48;
/// Bytes of an entry of vfsv1.
pub(super) const V1_LEN: usize = 72;
/// Bytes that limits on space count in.
pub const LIMIT_UNIT: u64 = 1024;

/// Usage and limits of one id. A limit of 0 is none; a time of 0 is that no soft limit is
/// exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Entry {
    /// User, group or project.
    pub id: u32,
    /// Bytes in use.
    pub space: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Most space, in units of [`LIMIT_UNIT`] bytes.
    pub space_hard: u64,
    /// Space that may be exceeded for a time, in units of [`LIMIT_UNIT`] bytes.
    pub space_soft: u64,
    /// Most inodes.
    pub inode_hard: u64,
    /// Inodes that may be exceeded for a time.
    pub inode_soft: u64,
    /// When the space must be below its soft limit again, in seconds since 1970.
    pub space_time: u64,
    /// When the inodes must be below their soft limit again, in seconds since 1970.
    pub inode_time: u64,
}

impl Entry {
    /// Of an id that uses nothing and has no limits.
    #[must_use]
    pub const fn new(id: u32) -> Self {
        Self {
            id,
            space: 0,
            inodes: 0,
            space_hard: 0,
            space_soft: 0,
            inode_hard: 0,
            inode_soft: 0,
            space_time: 0,
            inode_time: 0,
        }
    }

    /// True if nothing is used and nothing limited: an entry that need not be stored.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        *self
            == Self {
                space_time: self.space_time,
                inode_time: self.inode_time,
                ..Self::new(self.id)
            }
    }

    /// True if the format can store the numbers.
    #[must_use]
    pub fn fits(&self, version: Version) -> bool {
        let most = match version {
            Version::V0 => u64::from(u32::MAX),
            Version::V1 => i64::MAX as u64,
        };
        let limits = [self.space_hard, self.space_soft, self.inode_hard, self.inode_soft];
        self.inodes <= most
            && self.space <= i64::MAX as u64
            && limits.into_iter().all(|limit| limit <= most)
    }

    /// Decodes an entry; none if it is unused. Bytes that are missing are zeros.
    pub(super) fn decode(bytes: &[u8], version: Version) -> Option<Self> {
        if bytes.iter().all(|&byte| byte == 0) {
            return None;
        }
        let mut entry = match version {
            Version::V0 => Self {
                id: get32(bytes, 0),
                inode_hard: get32(bytes, 4).into(),
                inode_soft: get32(bytes, 8).into(),
                inodes: get32(bytes, 12).into(),
                space_hard: get32(bytes, 16).into(),
                space_soft: get32(bytes, 20).into(),
                space: get64(bytes, 24),
                space_time: get64(bytes, 32),
                inode_time: get64(bytes, 40),
            },
            Version::V1 => Self {
                id: get32(bytes, 0),
                inode_hard: get64(bytes, 8),
                inode_soft: get64(bytes, 16),
                inodes: get64(bytes, 24),
                space_hard: get64(bytes, 32),
                space_soft: get64(bytes, 40),
                space: get64(bytes, 48),
                space_time: get64(bytes, 56),
                inode_time: get64(bytes, 64),
            },
        };
        if entry == (Self { inode_time: 1, ..Self::new(0) }) {
            entry.inode_time = 0;
        }
        Some(entry)
    }

    /// Writes the entry, whose numbers fit the format, over all of `bytes`.
    pub(super) fn encode_into(&self, bytes: &mut [u8], version: Version) {
        debug_assert!(self.fits(version), "{self:?} does not fit {version:?}");
        bytes.fill(0);
        let empty = *self == Self::new(0);
        let inode_time = if empty { 1 } else { self.inode_time };
        match version {
            Version::V0 => {
                let words = [
                    u64::from(self.id),
                    self.inode_hard,
                    self.inode_soft,
                    self.inodes,
                    self.space_hard,
                    self.space_soft,
                ];
                for (index, value) in words.into_iter().enumerate() {
                    put32(bytes, index * 4, u32::try_from(value).unwrap_or(u32::MAX));
                }
                put64(bytes, 24, self.space);
                put64(bytes, 32, self.space_time);
                put64(bytes, 40, inode_time);
            }
            Version::V1 => {
                put32(bytes, 0, self.id);
                let longs = [
                    self.inode_hard,
                    self.inode_soft,
                    self.inodes,
                    self.space_hard,
                    self.space_soft,
                    self.space,
                    self.space_time,
                    inode_time,
                ];
                for (index, value) in longs.into_iter().enumerate() {
                    put64(bytes, 8 + index * 8, value);
                }
            }
        }
    }
}
