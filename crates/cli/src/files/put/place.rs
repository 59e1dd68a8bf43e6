//! Names and inodes on the volume that files from here are put under.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use extol_vfs::{Creds, FsError, NewNode, Rdev, RenameFlags};

use crate::files::InodeRef;
use crate::files::change::Problem;

/// What has the name that is wanted.
pub(super) enum There<'t> {
    Nothing,
    /// A directory, into which another one is copied.
    Directory(InodeRef<'t>),
    /// What is replaced.
    Other,
}

pub(super) fn there<'t>(
    dir: &InodeRef<'t>,
    name: &[u8],
    by_dir: bool,
) -> extol_vfs::Result<There<'t>> {
    match dir.child(name) {
        Ok(there) => match (there.is_dir()?, by_dir) {
            (true, true) => Ok(There::Directory(there)),
            (true, false) => Err(FsError::IsADirectory),
            (false, true) => Err(FsError::NotADirectory),
            (false, false) => Ok(There::Other),
        },
        Err(FsError::NotFound) => Ok(There::Nothing),
        Err(error) => Err(error),
    }
}

/// Temporary names that are tried.
const TRIES: u32 = 1000;

/// Makes something under a temporary name, and gives that name.
pub(in crate::files) fn with_temporary<T>(
    mut make: impl FnMut(&[u8]) -> std::result::Result<T, Problem>,
) -> std::result::Result<(T, Vec<u8>), Problem> {
    for number in 0..TRIES {
        let name = format!(".extol-{number}").into_bytes();
        match make(&name) {
            Err(problem) if problem.downcast_ref() == Some(&FsError::Exists) => {}
            made => return Ok((made?, name)),
        }
    }
    Err(FsError::Exists.into())
}

/// Gives an inode one more name; `over` what has it.
pub(in crate::files) fn give_name(
    node: &InodeRef<'_>,
    dir: &InodeRef<'_>,
    name: &[u8],
    over: bool,
) -> std::result::Result<(), Problem> {
    let link = |name: &[u8]| -> std::result::Result<(), Problem> {
        let linked = dir.fs.link(node.ino, dir.ino, name)?;
        drop(InodeRef::from_attr(dir.fs, &linked));
        Ok(())
    };
    if !over {
        return link(name);
    }
    let ((), temporary) = with_temporary(link)?;
    let renamed = dir.fs.rename(dir.ino, &temporary, dir.ino, name, RenameFlags::empty());
    // (A rename to another name of the same file leaves both.)
    match dir.fs.unlink(dir.ino, &temporary) {
        Err(error) if error != FsError::NotFound => renamed.and(Err(error))?,
        _ => renamed?,
    }
    Ok(())
}

pub(super) fn owner(metadata: &Metadata) -> Creds {
    Creds { uid: metadata.uid(), gid: metadata.gid() }
}

/// Makes the inode.
pub(super) fn make<'t>(
    path: &Path,
    metadata: &Metadata,
    dir: &InodeRef<'t>,
    name: &[u8],
) -> std::result::Result<InodeRef<'t>, Problem> {
    let kind = metadata.file_type();
    let device = Rdev {
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
    };
    let new = if kind.is_dir() {
        NewNode::Directory
    } else if kind.is_symlink() {
        NewNode::Symlink(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
    } else if kind.is_char_device() {
        NewNode::CharDevice(device)
    } else if kind.is_block_device() {
        NewNode::BlockDevice(device)
    } else if kind.is_fifo() {
        NewNode::Fifo
    } else if kind.is_socket() {
        NewNode::Socket
    } else {
        NewNode::Regular
    };
    let perm = if kind.is_symlink() { 0o777 } else { 0o600 };
    let attr = dir.fs.create(dir.ino, name, new, perm, 0, owner(metadata))?;
    Ok(InodeRef::from_attr(dir.fs, &attr))
}
