//! The errors a file system gives to its front ends: few kinds, with context.

/// Result of a file-system operation.
pub type Result<T> = std::result::Result<T, FsError>;

/// Why an operation failed. One kind per errno that POSIX or Linux defines for the case.
///
/// [`errno`](Self::errno) is Linux's number of it, and an [`std::io::Error`] is made from it with
/// `?`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// ENOENT.
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST.
    #[error("file exists")]
    Exists,
    /// ENOTDIR.
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR.
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY.
    #[error("directory not empty")]
    NotEmpty,
    /// ENOSPC: no free block or inode.
    #[error("no space left on the volume")]
    NoSpace,
    /// EDQUOT: a limit of the owner, the group or the project is in the way.
    #[error("quota exceeded")]
    QuotaExceeded,
    /// EROFS: the volume is read-only (by option, by feature, or after an error).
    #[error("the volume is read-only")]
    ReadOnly,
    /// EPERM: immutable, append-only, or an operation that no process may do.
    #[error("operation not permitted")]
    NotPermitted,
    /// EACCES.
    #[error("permission denied")]
    AccessDenied,
    /// ENAMETOOLONG.
    #[error("file name too long")]
    NameTooLong,
    /// EMLINK.
    #[error("too many links")]
    TooManyLinks,
    /// EFBIG.
    #[error("file too large")]
    FileTooLarge,
    /// EINVAL, with what was wrong.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// EOPNOTSUPP, with what is not supported.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// ENODATA: no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// ERANGE: the caller's buffer is too small.
    #[error("buffer too small")]
    Range,
    /// E2BIG: an attribute value or list that can never fit.
    #[error("argument too big")]
    TooBig,
    /// ENXIO: SEEK_DATA or SEEK_HOLE at or past the end of the file.
    #[error("no data at or after this offset")]
    NoDataThere,
    /// ESTALE: the inode number is not in use, or its generation is another.
    #[error("stale file handle")]
    Stale,
    /// EAGAIN: the volume is frozen, and the front end asked to be told
    /// ([`refuse_when_frozen`](crate::Mountable::refuse_when_frozen)).
    #[error("the volume is frozen")]
    Frozen,
    /// ENODEV: the volume has no journal.
    #[error("the volume has no journal")]
    NoJournal,
    /// EBUSY.
    #[error("busy")]
    Busy,
    /// ETXTBSY: the contents may not change meanwhile.
    #[error("the file is becoming one of fs-verity")]
    TextBusy,
    /// EINTR: the caller has given up.
    #[error("interrupted")]
    Interrupted,
    /// EXDEV: the two names are in different projects.
    #[error("invalid cross-device link")]
    CrossDevice,
    /// ENOKEY: the key of an encrypted file is not there.
    #[error("the encryption key is not available")]
    NoKey,
    /// ELOOP.
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// EUCLEAN: the volume's bytes are wrong.
    #[error("corrupt volume: {what}{}", place(*inode, *block))]
    Corrupt {
        /// What is wrong.
        what: String,
        /// In which inode, if known.
        inode: Option<u64>,
        /// In which block, if known.
        block: Option<u64>,
    },
    /// EIO: the device failed, or the journal was aborted after it failed.
    #[error("I/O error: {0}")]
    Io(String),
}

/// Why options cannot be changed on a mount that stands: one line for the user. Everything is as it
/// was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RemountError(pub String);

/// Where the damage is, in parentheses: `what` may end with the word "inode" or "block" itself.
fn place(inode: Option<u64>, block: Option<u64>) -> String {
    match (inode, block) {
        (None, None) => String::new(),
        (Some(inode), None) => format!(" (inode {inode})"),
        (None, Some(block)) => format!(" (block {block})"),
        (Some(inode), Some(block)) => format!(" (inode {inode}, block {block})"),
    }
}

impl FsError {
    /// A corruption with no place known yet; add it with [`in_inode`](Self::in_inode) and
    /// [`at_block`](Self::at_block).
    #[must_use]
    pub fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into(), inode: None, block: None }
    }

    /// Names the inode of a corruption, if none is named yet.
    #[must_use]
    pub fn in_inode(mut self, ino: u64) -> Self {
        if let Self::Corrupt { inode: i @ None, .. } = &mut self {
            *i = Some(ino);
        }
        self
    }

    /// Names the block of a corruption, if none is named yet.
    #[must_use]
    pub fn at_block(mut self, nr: u64) -> Self {
        if let Self::Corrupt { block: b @ None, .. } = &mut self {
            *b = Some(nr);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_names_its_place_once() {
        let unused = FsError::corrupt("an entry of directory 2 names an unused inode");
        assert_eq!(
            unused.in_inode(14).to_string(),
            "corrupt volume: an entry of directory 2 names an unused inode (inode 14)"
        );
        let both = FsError::corrupt("bad extent").in_inode(14).at_block(99);
        assert_eq!(both.to_string(), "corrupt volume: bad extent (inode 14, block 99)");
        assert_eq!(FsError::corrupt("damaged").to_string(), "corrupt volume: damaged");
    }
}
