//! Files as Unix has them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::{DIR_HANDLE, open_unnamed};

/// How many names are tried.
const TRIES: u32 = 100;

/// Reads at an offset.
pub(crate) fn read_at(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    file.read_at(buf, at)
}

/// Writes all of a buffer at an offset.
pub(crate) fn write_all_at(file: &File, buf: &[u8], at: u64) -> io::Result<()> {
    file.write_all_at(buf, at)
}

/// What tells that a file is still the same.
pub(crate) type Stamp = (u64, i64, i64, i64, i64);

pub(crate) fn stamp(file: &File) -> io::Result<Stamp> {
    let stat = file.metadata()?;
    Ok((stat.size(), stat.mtime(), stat.mtime_nsec(), stat.ctime(), stat.ctime_nsec()))
}

/// User and group of this process.
pub(crate) fn own_ids() -> Option<(u32, u32)> {
    Some((rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()))
}

/// A file that has no name, or none any more.
pub(crate) fn unnamed(dir: &Path) -> io::Result<File> {
    match open_unnamed(dir) {
        Ok(fd) => return Ok(File::from(fd)),
        // A file system, or a system, that has none of these.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    for nr in 0..TRIES {
        let path = dir.join(format!(".extol-spool-{}-{nr}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path)?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A directory, for files below it.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl Dir {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = DIR_HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(fs::open(path, flags, Mode::empty())?))
    }

    /// Opens a file below, step by step and through no link. `None` if it is not there.
    pub fn open_below(&self, name: &str) -> io::Result<Option<File>> {
        let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
        let gone = |error| matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        let mut here = None;
        for part in above.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." {
                return Ok(None);
            }
            let flags = DIR_HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match fs::openat(here.as_ref().unwrap_or(&self.0), part, flags, Mode::empty()) {
                Ok(fd) => here = Some(fd),
                Err(error) if gone(error) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        if matches!(last, "" | "." | "..") {
            return Ok(None);
        }
        // A pipe in the place of a file does not make the reader wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(here.as_ref().unwrap_or(&self.0), last, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(error) if gone(error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
