//! Errors as NFSv3 has them.

use extol_vfs::FsError;

/// A status of NFSv3, which is no success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status(pub(crate) u32);

pub(crate) type Result<T> = std::result::Result<T, Status>;

impl Status {
    pub(crate) const PERMISSION: Self = Self(1);
    pub(crate) const NOT_FOUND: Self = Self(2);
    pub(crate) const IO: Self = Self(5);
    pub(crate) const ACCESS: Self = Self(13);
    pub(crate) const EXISTS: Self = Self(17);
    pub(crate) const NOT_A_DIRECTORY: Self = Self(20);
    pub(crate) const IS_A_DIRECTORY: Self = Self(21);
    pub(crate) const INVALID: Self = Self(22);
    pub(crate) const FILE_TOO_LARGE: Self = Self(27);
    pub(crate) const READ_ONLY: Self = Self(30);
    pub(crate) const NAME_TOO_LONG: Self = Self(63);
    pub(crate) const NOT_EMPTY: Self = Self(66);
    pub(crate) const STALE: Self = Self(70);
    pub(crate) const BAD_HANDLE: Self = Self(10001);
    pub(crate) const NOT_SYNC: Self = Self(10002);
    pub(crate) const BAD_COOKIE: Self = Self(10003);
    pub(crate) const NOT_SUPPORTED: Self = Self(10004);
    pub(crate) const TOO_SMALL: Self = Self(10005);
    pub(crate) const BAD_TYPE: Self = Self(10007);
    /// The client tries again later.
    pub(crate) const LATER: Self = Self(10008);
}

impl From<FsError> for Status {
    fn from(error: FsError) -> Self {
        match error {
            FsError::NotFound => Self::NOT_FOUND,
            FsError::Exists => Self::EXISTS,
            FsError::NotADirectory => Self::NOT_A_DIRECTORY,
            FsError::IsADirectory => Self::IS_A_DIRECTORY,
            FsError::NotEmpty => Self::NOT_EMPTY,
            FsError::NoSpace => Self(28),
            FsError::QuotaExceeded => Self(69),
            FsError::ReadOnly => Self::READ_ONLY,
            FsError::NotPermitted => Self::PERMISSION,
            FsError::AccessDenied | FsError::NoKey => Self::ACCESS,
            FsError::NameTooLong => Self::NAME_TOO_LONG,
            FsError::TooManyLinks => Self(31),
            FsError::FileTooLarge => Self::FILE_TOO_LARGE,
            FsError::CrossDevice => Self(18),
            FsError::Invalid(_) | FsError::SymlinkLoop => Self::INVALID,
            FsError::NotSupported(_) => Self::NOT_SUPPORTED,
            FsError::Stale => Self::STALE,
            FsError::Frozen | FsError::TextBusy => Self::LATER,
            _ => Self::IO,
        }
    }
}
