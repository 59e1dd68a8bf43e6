//! Files as Windows has them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How many names are tried.
const TRIES: u32 = 100;
/// `FILE_FLAG_DELETE_ON_CLOSE`.
const DELETE_ON_CLOSE: u32 = 0x0400_0000;

/// Reads at an offset; 0 bytes at the end.
pub(crate) fn read_at(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    file.seek_read(buf, at)
}

/// Writes all of a buffer at an offset.
pub(crate) fn write_all_at(file: &File, mut buf: &[u8], mut at: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match file.seek_write(buf, at)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => (buf, at) = (&buf[n..], at + n as u64),
        }
    }
    Ok(())
}

/// What tells that a file is still the same: its size, and when it was written.
pub(crate) type Stamp = (u64, u64);

pub(crate) fn stamp(file: &File) -> io::Result<Stamp> {
    let stat = file.metadata()?;
    Ok((stat.file_size(), stat.last_write_time()))
}

/// Users have no numbers.
pub(crate) fn own_ids() -> Option<(u32, u32)> {
    None
}

/// A file that is deleted when it is closed, in whatever way the process ends.
pub(crate) fn unnamed(dir: &Path) -> io::Result<File> {
    for nr in 0..TRIES {
        let path = dir.join(format!(".extol-spool-{}-{nr}", std::process::id()));
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true).custom_flags(DELETE_ON_CLOSE);
        match how.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => return result,
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// A directory, for files below it.
#[derive(Debug)]
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub fn open(path: &Path) -> io::Result<Self> {
        match std::fs::metadata(path)?.is_dir() {
            true => Ok(Self(path.to_owned())),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    /// Opens a file below, step by step and through no link. `None` if it is not there. (A name
    /// with a backslash, or a colon, would be one of more parts here.)
    pub fn open_below(&self, name: &str) -> io::Result<Option<File>> {
        let mut path = self.0.clone();
        for part in name.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." || part.contains(['\\', ':']) {
                return Ok(None);
            }
            path.push(part);
            match std::fs::symlink_metadata(&path) {
                Ok(found) if found.is_symlink() => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        match std::fs::metadata(&path)?.is_file() {
            true => File::open(&path).map(Some),
            false => Ok(None),
        }
    }
}
