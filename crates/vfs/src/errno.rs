//! The tables from errors to Linux's errno, and from [`FsError`] to [`io::ErrorKind`].

use std::io::{self, ErrorKind as Kind};

use crate::FsError;

impl FsError {
    /// Linux's number of the error, on every host.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotPermitted => 1,
            Self::NotFound => 2,
            Self::Interrupted => 4,
            Self::Io(_) => 5,
            Self::NoDataThere => 6,
            Self::TooBig => 7,
            Self::Frozen => 11,
            Self::AccessDenied => 13,
            Self::Busy => 16,
            Self::Exists => 17,
            Self::CrossDevice => 18,
            Self::NoJournal => 19,
            Self::NotADirectory => 20,
            Self::IsADirectory => 21,
            Self::Invalid(_) => 22,
            Self::TextBusy => 26,
            Self::FileTooLarge => 27,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
            Self::TooManyLinks => 31,
            Self::Range => 34,
            Self::NameTooLong => 36,
            Self::NotEmpty => 39,
            Self::SymlinkLoop => 40,
            Self::NoAttribute => 61,
            Self::NotSupported(_) => 95,
            Self::Stale => 116,
            Self::Corrupt { .. } => 117,
            Self::QuotaExceeded => 122,
            Self::NoKey => 126,
        }
    }
}

/// Linux's numbers of kinds. Of those with the same number the first one is meant by it.
const KINDS: [(Kind, i32); 13] = [
    (Kind::NotFound, 2),
    (Kind::PermissionDenied, 13),
    (Kind::ResourceBusy, 16),
    (Kind::AlreadyExists, 17),
    (Kind::NotADirectory, 20),
    (Kind::IsADirectory, 21),
    (Kind::InvalidInput, 22),
    (Kind::InvalidData, 22),
    (Kind::FileTooLarge, 27),
    (Kind::StorageFull, 28),
    (Kind::ReadOnlyFilesystem, 30),
    (Kind::Unsupported, 95),
    (Kind::QuotaExceeded, 122),
];

/// Linux's number of an error of the system: its own on Linux, else that of its kind; EIO for
/// others.
#[must_use]
pub fn errno_of(error: &io::Error) -> i32 {
    // (The numbers of other systems are others.)
    let own = error.raw_os_error().filter(|_| cfg!(target_os = "linux"));
    let of_kind = || KINDS.iter().find(|(kind, _)| *kind == error.kind());
    own.unwrap_or_else(|| of_kind().map_or(5, |(_, number)| *number))
}

/// The kind of Linux's number; `Other` for one that is not known.
#[must_use]
pub fn kind_of(number: i32) -> Kind {
    if cfg!(target_os = "linux") {
        return io::Error::from_raw_os_error(number).kind();
    }
    KINDS.iter().find(|(_, known)| *known == number).map_or(Kind::Other, |(kind, _)| *kind)
}

/// The kind that comes nearest, and the error itself inside.
impl From<FsError> for io::Error {
    fn from(error: FsError) -> Self {
        let kind = match &error {
            FsError::NotFound => Kind::NotFound,
            FsError::Exists => Kind::AlreadyExists,
            FsError::NotADirectory => Kind::NotADirectory,
            FsError::IsADirectory => Kind::IsADirectory,
            FsError::NotEmpty => Kind::DirectoryNotEmpty,
            FsError::NoSpace => Kind::StorageFull,
            FsError::QuotaExceeded => Kind::QuotaExceeded,
            FsError::ReadOnly => Kind::ReadOnlyFilesystem,
            FsError::NotPermitted | FsError::AccessDenied | FsError::NoKey => {
                Kind::PermissionDenied
            }
            FsError::NameTooLong => Kind::InvalidFilename,
            FsError::Invalid(_) => Kind::InvalidInput,
            FsError::TooBig => Kind::ArgumentListTooLong,
            FsError::TooManyLinks => Kind::TooManyLinks,
            FsError::FileTooLarge => Kind::FileTooLarge,
            FsError::NotSupported(_) => Kind::Unsupported,
            FsError::Stale => Kind::StaleNetworkFileHandle,
            FsError::Busy => Kind::ResourceBusy,
            FsError::TextBusy => Kind::ExecutableFileBusy,
            FsError::Interrupted => Kind::Interrupted,
            FsError::Frozen => Kind::WouldBlock,
            FsError::CrossDevice => Kind::CrossesDevices,
            FsError::Corrupt { .. } => Kind::InvalidData,
            FsError::NoAttribute
            | FsError::Range
            | FsError::NoDataThere
            | FsError::NoJournal
            | FsError::SymlinkLoop
            | FsError::Io(_) => Kind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<FsError> {
        vec![
            FsError::NotFound,
            FsError::Exists,
            FsError::NotADirectory,
            FsError::IsADirectory,
            FsError::NotEmpty,
            FsError::NoSpace,
            FsError::QuotaExceeded,
            FsError::ReadOnly,
            FsError::NotPermitted,
            FsError::AccessDenied,
            FsError::NameTooLong,
            FsError::TooManyLinks,
            FsError::FileTooLarge,
            FsError::Invalid("x"),
            FsError::NotSupported("x"),
            FsError::NoAttribute,
            FsError::Range,
            FsError::TooBig,
            FsError::NoDataThere,
            FsError::Stale,
            FsError::Busy,
            FsError::TextBusy,
            FsError::Interrupted,
            FsError::Frozen,
            FsError::NoJournal,
            FsError::SymlinkLoop,
            FsError::CrossDevice,
            FsError::NoKey,
            FsError::corrupt("x"),
            FsError::Io("x".into()),
        ]
    }

    /// What other systems take the kinds for is what Linux says of the numbers.
    #[cfg(target_os = "linux")]
    #[test]
    fn numbers_of_kinds_are_linux_s() {
        for (kind, number) in KINDS {
            assert_eq!(errno_of(&kind.into()), number);
            if kind != Kind::InvalidData {
                assert_eq!(kind_of(number), kind);
            }
        }
        assert_eq!(errno_of(&io::Error::from_raw_os_error(40)), 40);
    }

    /// The standard library knows Linux's numbers, too.
    #[cfg(target_os = "linux")]
    #[test]
    fn kinds_are_those_of_the_numbers() {
        let mut seen = std::collections::HashSet::new();
        for error in all() {
            let number = error.errno();
            assert!(seen.insert(number), "{number} twice");
            let theirs = io::Error::from_raw_os_error(number);
            let ours = io::Error::from(error.clone());
            assert_eq!(ours.get_ref().map(ToString::to_string), Some(error.to_string()));
            // (Its kinds for some are not stable yet; damage and keys it does not know.)
            let named = !format!("{:?}", theirs.kind()).contains("Uncategorized")
                && ours.kind() != io::ErrorKind::Other;
            if named {
                assert_eq!(ours.kind(), theirs.kind(), "{error}");
            }
        }
    }
}
