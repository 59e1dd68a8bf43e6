//! Errors: why a volume cannot be opened, and how errors of the layers below become [`FsError`].
//! (The conversions are functions, because both types belong to other crates.)

use std::io;
use std::path::Path;

use extol_block::DeviceError;
use extol_block::open::OpenFailed;
use extol_jbd2::JournalError;
use extol_ondisk::OnDiskError;
use extol_proc::Shown as _;
use extol_vfs::{FsError, errno_of};

/// Why a volume could not be opened: one line for the user.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{line}")]
pub struct OpenError {
    line: String,
    kind: io::ErrorKind,
    errno: i32,
}

impl OpenError {
    /// What is on the device is the reason, or what was asked of it: EINVAL, as of mount(2).
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), kind: io::ErrorKind::InvalidData, errno: EINVAL }
    }

    /// It is in use: EBUSY.
    pub(crate) fn busy(line: impl Into<String>) -> Self {
        Self { line: line.into(), kind: io::ErrorKind::ResourceBusy, errno: EBUSY }
    }

    /// The same, of the volume with this name.
    pub(crate) fn of(self, name: &Path) -> Self {
        let name = name.shown().to_string();
        match self.line.starts_with(&name) {
            true => self,
            false => Self { line: format!("{name}: {}", self.line), ..self },
        }
    }

    /// The line.
    pub(crate) fn line(self) -> String {
        self.line
    }

    /// What kind of error: that of the system if the device could not be opened or read, and
    /// `InvalidData` if what it holds is the reason.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }

    /// Linux's number for it: that of the system, or EINVAL, as of mount(2).
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.errno
    }
}

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;

impl From<OpenError> for io::Error {
    fn from(e: OpenError) -> Self {
        Self::new(e.kind, e)
    }
}

/// Result of opening.
pub type OpenResult<T> = std::result::Result<T, OpenError>;

pub(crate) fn refuse<T>(why: impl Into<String>) -> OpenResult<T> {
    Err(OpenError::new(why))
}

impl From<FsError> for OpenError {
    fn from(e: FsError) -> Self {
        let (line, errno) = (e.to_string(), e.errno());
        Self { line, errno, kind: io::Error::from(e).kind() }
    }
}

impl From<JournalError> for OpenError {
    fn from(e: JournalError) -> Self {
        match e {
            JournalError::Device(e) => e.into(),
            other => Self::new(other.to_string()),
        }
    }
}

impl From<DeviceError> for OpenError {
    fn from(e: DeviceError) -> Self {
        let errno = errno_of(&e.source);
        Self { line: e.to_string(), kind: e.source.kind(), errno }
    }
}

impl From<OpenFailed> for OpenError {
    fn from(e: OpenFailed) -> Self {
        match e {
            OpenFailed::Device(e) => e.into(),
            OpenFailed::Name { kind, .. } => {
                Self { line: e.to_string(), kind, errno: errno_of(&kind.into()) }
            }
        }
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
