//! Files that an image names: found in the directory of the image, and opened once.
//!
//! A name in an image is that of a stranger, and so may be the directory: it changes at any moment.
//! A path that was checked leads elsewhere when it is opened. So nothing is checked by a path:
//!
//! ```text
//!   the open image ─► its directory, opened: has it an entry that is the image?
//!                       │  the directory of the name, opened: is it the same one?
//!                       ▼
//!                     the last part of the name, opened in it (O_NOFOLLOW)
//!                       ▼
//!                     the descriptor: a regular file, of the owner of the image?
//! ```
//!
//! - OP-5: what a name in an image opens is checked by its descriptor, and that descriptor is read
//!   ([`FileDevice::open_beside`]). One component is opened, so that no link is followed in it, nor
//!   one of `/proc`; the links on the way to the directory choose nothing, because the directory
//!   is that of the image whichever way leads to it.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::FileDevice;
use crate::sys;

/// Why a name in an image opens no file.
#[derive(Debug)]
pub(crate) enum NotBeside {
    /// An error of the system.
    Failed(io::Error),
    /// The file is in another directory than the image.
    Elsewhere,
    /// The name is that of a link, a directory, a device, a pipe.
    Irregular,
    /// The file has another owner than the image.
    OfAnother,
}

impl From<Errno> for NotBeside {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl From<io::Error> for NotBeside {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl FileDevice {
    /// Opens the file of this name in the directory of this one, for reading, and gives its path
    /// for messages. The part before the name must lead to that directory.
    pub(crate) fn open_beside(
        &self,
        above: &Path,
        name: &OsStr,
    ) -> Result<(File, PathBuf), NotBeside> {
        let own = self.file().metadata()?;
        let (dir, path) = self.directory(&own)?;
        if !above.as_os_str().is_empty() {
            let named = open_dir(&dir, above)?;
            if identity(&rustix::fs::fstat(&named)?) != identity(&rustix::fs::fstat(&dir)?) {
                return Err(NotBeside::Elsewhere);
            }
        }
        // Asked before it is opened: opening a tape would move it.
        let there = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !FileType::from_raw_mode(there.st_mode).is_file() {
            return Err(NotBeside::Irregular);
        }
        // A pipe in the place of the file does not make the open wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP | Errno::NXIO) => return Err(NotBeside::Irregular),
            Err(error) => return Err(error.into()),
        };
        let opened = file.metadata()?;
        if !opened.is_file() {
            return Err(NotBeside::Irregular);
        }
        if opened.uid() != own.uid() {
            return Err(NotBeside::OfAnother);
        }
        Ok((file, path.join(name)))
    }

    /// True if an open file, or the one of a path, is this one.
    pub(crate) fn is_same_file(&self, file: Option<&File>, path: &Path) -> bool {
        let other = file.map_or_else(|| std::fs::metadata(path), File::metadata);
        let id = |meta: Metadata| (meta.dev(), meta.ino());
        match (self.file().metadata(), other) {
            (Ok(own), Ok(other)) => id(own) == id(other),
            _ => false,
        }
    }

    /// The directory that this file is in, opened, and its path.
    fn directory(&self, own: &Metadata) -> Result<(OwnedFd, PathBuf), NotBeside> {
        let path = sys::path_of(self.file()).map_or_else(|| self.path.canonicalize(), Ok)?;
        let above = path.parent().unwrap_or(Path::new("/"));
        let dir = open_dir(rustix::fs::CWD, above)?;
        let name = path.file_name().unwrap_or_default();
        match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if identity(&there) == (own.dev(), own.ino()) => Ok((dir, above.to_owned())),
            _ => {
                let why = "the image was moved while it was being opened";
                Err(NotBeside::Failed(io::Error::other(why)))
            }
        }
    }
}

fn open_dir(at: impl std::os::fd::AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = sys::DIR_HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

/// What tells files apart, as `MetadataExt` gives it.
fn identity(stat: &rustix::fs::Stat) -> (u64, u64) {
    (sys::device_of(stat), stat.st_ino)
}
