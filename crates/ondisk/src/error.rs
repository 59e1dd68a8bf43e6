//! The one error of this crate: bytes that may not be used.

use std::borrow::Cow;

/// Result of decoding.
pub type Result<T> = std::result::Result<T, OnDiskError>;

/// Bytes that may not be used. The caller adds the inode and the block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnDiskError {
    /// A structure is wrong: magic, range, order or length.
    #[error("{what}")]
    Bad {
        /// What is wrong.
        what: Cow<'static, str>,
    },
    /// A checksum does not match.
    #[error("{what}: checksum is {found:#x}, should be {wanted:#x}")]
    Checksum {
        /// Of what.
        what: &'static str,
        /// Stored on disk.
        found: u32,
        /// Computed from the bytes.
        wanted: u32,
    },
}

impl OnDiskError {
    /// A structure error.
    #[must_use]
    pub fn bad(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Bad { what: what.into() }
    }

    /// True for a checksum that does not match.
    #[must_use]
    pub fn is_checksum(&self) -> bool {
        matches!(self, Self::Checksum { .. })
    }
}

/// Fails with `what` unless `ok`.
pub(crate) fn ensure(ok: bool, what: &'static str) -> Result<()> {
    if ok { Ok(()) } else { Err(OnDiskError::bad(what)) }
}

/// Fails unless the two checksums agree.
pub(crate) fn ensure_csum(what: &'static str, found: u32, wanted: u32) -> Result<()> {
    if found == wanted { Ok(()) } else { Err(OnDiskError::Checksum { what, found, wanted }) }
}
