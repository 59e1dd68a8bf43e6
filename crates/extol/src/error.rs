//! From the errors of the layers below to [`FsError`]. (Functions, because neither type is ours.)

use extol_block::DeviceError;
use extol_jbd2::JournalError;
use extol_ondisk::OnDiskError;
use extol_vfs::FsError;

/// A device error becomes `Io`.
pub(crate) fn device(e: DeviceError) -> FsError {
    if e.source.kind() == std::io::ErrorKind::Unsupported {
        return FsError::NotSupported("the device cannot do this");
    }
    FsError::Io(e.to_string())
}

/// A journal error: device trouble is `Io`, an aborted journal too, bad bytes are `Corrupt`.
pub(crate) fn journal(e: JournalError) -> FsError {
    match e {
        JournalError::Device(e) => device(e),
        JournalError::Corrupt { what, block } => FsError::corrupt(what).at_block(block),
        JournalError::Aborted(_) | JournalError::ReadOnly => FsError::ReadOnly,
        other => FsError::Io(other.to_string()),
    }
}

/// Bytes that could not be decoded are `Corrupt`.
pub(crate) fn ondisk(e: OnDiskError) -> FsError {
    FsError::corrupt(e.to_string())
}
