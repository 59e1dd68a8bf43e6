//! Why a check could not be made at all. What is wrong with a volume is no error but a finding.

use extol_block::DeviceError;

/// A check that could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no ext2, ext3 or ext4 file system.
    #[error("no ext2, ext3 or ext4 file system: {0}")]
    NoFileSystem(String),
    /// The volume uses something that this checker does not know.
    #[error("cannot be checked: {0}")]
    Unsupported(String),
}

impl From<CheckError> for std::io::Error {
    fn from(error: CheckError) -> Self {
        use std::io::ErrorKind as Kind;
        let kind = match &error {
            CheckError::Device(error) => error.source.kind(),
            CheckError::NoFileSystem(_) => Kind::InvalidData,
            CheckError::Unsupported(_) => Kind::Unsupported,
        };
        Self::new(kind, error)
    }
}

/// Result of the checker's internals.
pub(crate) type Result<T> = std::result::Result<T, CheckError>;
