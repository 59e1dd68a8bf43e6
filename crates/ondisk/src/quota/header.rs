//! The first eight bytes of a quota file: whose usage it has, and in which format.

use super::entry::{V0_LEN, V1_LEN};
use super::{BLOCK_LEN, data};
use crate::bytes::{get32, put32};
use crate::error::{OnDiskError, Result, ensure};

/// Bytes of the header.
pub(super) const LEN: usize = 8;

/// Whose usage a file has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Of owners.
    User,
    /// Of groups.
    Group,
    /// Of projects.
    Project,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The magic number of its files.
    #[must_use]
    pub const fn magic(self) -> u32 {
        match self {
            Self::User => 0xD9C0_1F11,
            Self::Group => 0xD9C0_1927,
            Self::Project => 0xD9C0_3F14,
        }
    }

    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }
}

/// Format of the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// vfsv0: limits of 32 bits.
    V0,
    /// vfsv1: numbers of 64 bits. Hidden quota inodes have this one.
    V1,
}

impl Version {
    /// Bytes of an entry.
    #[must_use]
    pub const fn entry_len(self) -> usize {
        match self {
            Self::V0 => V0_LEN,
            Self::V1 => V1_LEN,
        }
    }

    /// Entries in a data block.
    #[must_use]
    pub const fn entries_per_block(self) -> usize {
        (BLOCK_LEN - data::HEADER_LEN) / self.entry_len()
    }

    const fn number(self) -> u32 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }
}

/// Kind and format of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Whose usage.
    pub kind: Kind,
    /// In which format.
    pub version: Version,
}

impl Header {
    /// Decodes the start of a file.
    ///
    /// # Errors
    /// Not a quota file, or a format that is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        ensure(bytes.len() >= LEN, "quota file is cut short")?;
        let magic = get32(bytes, 0);
        let kind = Kind::ALL.into_iter().find(|kind| kind.magic() == magic);
        let kind = kind.ok_or(OnDiskError::bad("quota file has a bad magic number"))?;
        let version = match get32(bytes, 4) {
            0 => Version::V0,
            1 => Version::V1,
            _ => return Err(OnDiskError::bad("quota file has an unknown version")),
        };
        Ok(Self { kind, version })
    }

    /// Writes the header to the start of a file.
    pub fn encode_into(self, bytes: &mut [u8]) {
        put32(bytes, 0, self.kind.magic());
        put32(bytes, 4, self.version.number());
    }
}
