//! The table from [`FsError`] to errno: the only place in Extol where errno exists.

use extol_vfs::FsError;

/// The errno of a file-system error.
#[must_use]
pub fn errno(error: &FsError) -> i32 {
    match error {
        FsError::NotFound => libc::ENOENT,
        FsError::Exists => libc::EEXIST,
        FsError::NotADirectory => libc::ENOTDIR,
        FsError::IsADirectory => libc::EISDIR,
        FsError::NotEmpty => libc::ENOTEMPTY,
        FsError::NoSpace => libc::ENOSPC,
        FsError::QuotaExceeded => libc::EDQUOT,
        FsError::ReadOnly => libc::EROFS,
        FsError::NotPermitted => libc::EPERM,
        FsError::AccessDenied => libc::EACCES,
        FsError::NameTooLong => libc::ENAMETOOLONG,
        FsError::TooManyLinks => libc::EMLINK,
        FsError::FileTooLarge => libc::EFBIG,
        FsError::Invalid(_) => libc::EINVAL,
        FsError::NotSupported(_) => libc::EOPNOTSUPP,
        FsError::NoAttribute => libc::ENODATA,
        FsError::Range => libc::ERANGE,
        FsError::TooBig => libc::E2BIG,
        FsError::NoDataThere => libc::ENXIO,
        FsError::Stale => libc::ESTALE,
        FsError::Busy => libc::EBUSY,
        FsError::Frozen => libc::EAGAIN,
        FsError::NoJournal => libc::ENODEV,
        FsError::SymlinkLoop => libc::ELOOP,
        FsError::CrossDevice => libc::EXDEV,
        FsError::NoKey => libc::ENOKEY,
        FsError::Corrupt { .. } => libc::EUCLEAN,
        FsError::Io(_) => libc::EIO,
        // `FsError` may grow; what has no errno of its own is an I/O error to the caller.
        _ => libc::EIO,
    }
}

/// An errno on its way to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl From<FsError> for Errno {
    fn from(error: FsError) -> Self {
        Self(errno(&error))
    }
}

/// Result of a request.
pub(crate) type Result<T> = std::result::Result<T, Errno>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_errno() {
        let table = [
            (FsError::NotFound, 2),
            (FsError::Exists, 17),
            (FsError::NotADirectory, 20),
            (FsError::IsADirectory, 21),
            (FsError::NotEmpty, 39),
            (FsError::NoSpace, 28),
            (FsError::QuotaExceeded, 122),
            (FsError::ReadOnly, 30),
            (FsError::NotPermitted, 1),
            (FsError::AccessDenied, 13),
            (FsError::NameTooLong, 36),
            (FsError::TooManyLinks, 31),
            (FsError::FileTooLarge, 27),
            (FsError::Invalid("x"), 22),
            (FsError::NotSupported("x"), 95),
            (FsError::NoAttribute, 61),
            (FsError::Range, 34),
            (FsError::TooBig, 7),
            (FsError::NoDataThere, 6),
            (FsError::Stale, 116),
            (FsError::Busy, 16),
            (FsError::Frozen, 11),
            (FsError::NoJournal, 19),
            (FsError::SymlinkLoop, 40),
            (FsError::CrossDevice, 18),
            (FsError::NoKey, 126),
            (FsError::corrupt("x"), 117),
            (FsError::Io("x".into()), 5),
        ];
        let mut seen = std::collections::HashSet::new();
        for (error, number) in table {
            assert_eq!(errno(&error), number, "{error}");
            assert!(seen.insert(number), "{number} twice");
        }
    }
}
