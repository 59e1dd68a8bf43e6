//! Errors: why a volume cannot be opened, and how errors of the layers below become [`FsError`].
//! (The conversions are functions, because both types belong to other crates.)

use extol_block::DeviceError;
use extol_jbd2::JournalError;
use extol_ondisk::OnDiskError;
use extol_vfs::FsError;

/// Why a volume could not be opened: one line for the user.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

/// Result of opening.
pub type OpenResult<T> = std::result::Result<T, OpenError>;

pub(crate) fn refuse<T>(why: impl Into<String>) -> OpenResult<T> {
    Err(OpenError(why.into()))
}

impl From<FsError> for OpenError {
    fn from(e: FsError) -> Self {
        Self(e.to_string())
    }
}

impl From<JournalError> for OpenError {
    fn from(e: JournalError) -> Self {
        Self(e.to_string())
    }
}

impl From<DeviceError> for OpenError {
    fn from(e: DeviceError) -> Self {
        Self(e.to_string())
    }
}

/// A device error becomes `Io`.
pub(crate) fn device(e: DeviceError) -> FsError {
    if e.source.kind() == std::io::ErrorKind::Unsupported {
        return FsError::NotSupported("the device cannot do this");
    }
    FsError::Io(e.to_string())
}

/// A failing device is `Io`, an aborted journal `ReadOnly`, bad bytes are `Corrupt`.
pub(crate) fn journal(e: JournalError) -> FsError {
    match e {
        JournalError::Device(e) => device(e),
        JournalError::Corrupt { what, block } => FsError::corrupt(what).at_block(block),
        // A batch without room has shut the journal down.
        JournalError::Aborted(_) | JournalError::ReadOnly | JournalError::BatchFull { .. } => {
            FsError::ReadOnly
        }
        JournalError::InBatch => FsError::Busy,
        other => FsError::Io(other.to_string()),
    }
}

/// Bytes that cannot be decoded are `Corrupt`.
pub(crate) fn ondisk(e: OnDiskError) -> FsError {
    FsError::corrupt(e.to_string())
}
