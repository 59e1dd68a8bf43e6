//! An errno on its way to the kernel.

use extol_vfs::FsError;

/// A number of Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Errno(pub(crate) i32);

impl From<FsError> for Errno {
    fn from(error: FsError) -> Self {
        Self(error.errno())
    }
}

/// Result of a request.
pub(crate) type Result<T> = std::result::Result<T, Errno>;
