//! The operations, one file per family. Each takes the inode locks it needs, then opens a handle,
//! then works; what can fail for want of space comes first or is undone in the same handle.

pub(crate) mod attrs;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod listing;
pub(crate) mod names;
pub(crate) mod policy;
pub(crate) mod references;
pub(crate) mod rename;
mod reserve;
pub(crate) mod values;
#[cfg(feature = "verity")]
pub(crate) mod verity;
#[cfg(not(feature = "verity"))]
#[path = "without_verity.rs"]
pub(crate) mod verity;
pub(crate) mod xattrs;

use std::time::Duration;

use extol_vfs::{FsError, Result};

use crate::mounted::MountedFs;

/// Longest name of a directory entry.
pub(crate) const NAME_MAX: usize = 255;

/// Checks a name that is to be created or removed.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(FsError::NotFound);
    }
    if name.len() > NAME_MAX {
        return Err(FsError::NameTooLong);
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(FsError::Invalid("a name holds a slash or a NUL"));
    }
    Ok(())
}

/// How long a creation waits for the front end to forget deleted files, whose numbers are held.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// [`with_space`] for an operation that makes an inode: it waits a moment if all free inode numbers
/// are held.
pub(crate) fn with_inode<T>(fs: &MountedFs, mut op: impl FnMut() -> Result<T>) -> Result<T> {
    match with_space(fs, &mut op) {
        Err(FsError::NoSpace) if fs.vol.alloc.wait_for_inode(MAX_WAIT) => with_space(fs, op),
        result => result,
    }
}

/// Runs an operation; if the volume is full and a commit would free something, commits and runs it
/// once more.
pub(crate) fn with_space<T>(fs: &MountedFs, mut op: impl FnMut() -> Result<T>) -> Result<T> {
    match op() {
        Err(FsError::NoSpace) if fs.vol.alloc.pending_free() > 0 => {
            fs.settle_space();
            op()
        }
        result => result,
    }
}
