//! Why an image could not be made.

use std::io;

use crate::mkfs::MkfsError;
use extol_block::DeviceError;
use extol_vfs::{bytes_text, errno_of, kind_of, plain};

/// Why an image could not be made. Each is one line that says what to change.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The options do not allow it, or do not fit together.
    #[error("{0}")]
    Refused(String),
    /// An entry of the source cannot be taken, or the source cannot be read there.
    #[error("{entry}: {why}")]
    Source {
        /// The entry's name in the source, fit to be printed.
        entry: String,
        /// What is the matter with it.
        why: String,
        /// Linux's number of the error: that of the system, and else EINVAL.
        errno: i32,
    },
    /// The source has more than a limit allows.
    #[error("the source has more than {limit} {what}: allow more with --limits {name}=NUMBER")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The name of the limit, as `--limits` takes it.
        name: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A file has changed since the source was listed.
    #[error("{entry}: has changed while it was read: make the image again when it is left alone")]
    Changed {
        /// Its name in the source, fit to be printed.
        entry: String,
    },
    /// The volume is too small for its files.
    #[error("{size} bytes are too few for these files: the volume needs {needed} bytes")]
    TooSmall {
        /// The size that was asked for, in bytes.
        size: u64,
        /// The smallest size that holds them, in bytes.
        needed: u64,
    },
    /// The caller has stopped it.
    #[error("stopped")]
    Stopped,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Result of what makes images.
pub type Result<T> = std::result::Result<T, BuildError>;

impl From<MkfsError> for BuildError {
    fn from(error: MkfsError) -> Self {
        match error {
            MkfsError::Refused(why) => Self::Refused(why),
            MkfsError::Device(error) => Self::Device(error),
        }
    }
}

const EINVAL: i32 = 22;

impl BuildError {
    /// Linux's number of the error: ENOSPC, ECANCELED, that of the device, and else EINVAL.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::TooSmall { .. } => 28,
            Self::Stopped => 125,
            Self::Device(error) => errno_of(&error.source),
            Self::Source { errno, .. } => *errno,
            _ => EINVAL,
        }
    }

    /// An entry that cannot be taken.
    #[must_use]
    pub fn entry(entry: &[u8], why: impl std::fmt::Display) -> Self {
        Self::Source { entry: shown(entry), why: why.to_string(), errno: EINVAL }
    }

    /// A file of the host that cannot be opened.
    #[must_use]
    pub fn not_opened(name: &[u8], error: &io::Error) -> Self {
        Self::Source { entry: shown(name), why: error.to_string(), errno: errno_of(error) }
    }
}

/// The kind that comes nearest, and the error itself inside.
impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        let kind = match &error {
            BuildError::Device(error) => error.source.kind(),
            error => kind_of(error.errno()),
        };
        Self::new(kind, error)
    }
}

/// The most bytes of a name that a message repeats.
const SHOWN: usize = 300;

/// A name of a source for a message: one line, and not longer than a screen.
pub(crate) fn shown(name: &[u8]) -> String {
    if name.is_empty() {
        return "/".into();
    }
    let text = bytes_text(&name[..name.len().min(SHOWN)]);
    let end = if name.len() > SHOWN { "..." } else { "" };
    format!("{}{end}", plain(&text))
}
