//! The contents of the files of a directory.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{self, SeekFrom};
use rustix::io::Errno;

use super::{DirSource, FileEntry, print};
use crate::error::Result;
use crate::source::{FileData, read_full};

/// The next bytes of a file.
pub(super) fn read_some(mut file: &File, buf: &mut [u8]) -> io::Result<usize> {
    use io::Read as _;
    loop {
        match file.read(buf) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Contents in memory.
pub(super) struct Held<'s>(pub(super) &'s [u8]);

impl FileData for Held<'_> {
    fn read_at(&mut self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

/// A file of the directory.
pub(super) struct HostFile<'s> {
    pub(super) source: &'s DirSource,
    pub(super) entry: FileEntry,
    pub(super) file: File,
}

impl HostFile<'_> {
    pub(super) fn check(&self) -> Result<()> {
        let entry = &self.entry;
        let name = self.source.name(entry.at, entry.len);
        let stat =
            fs::fstat(&self.file).map_err(|error| self.source.failed(entry.dir, name, error))?;
        match print(&stat) == entry.print {
            true => Ok(()),
            false => Err(self.source.changed(entry)),
        }
    }
}

impl FileData for HostFile<'_> {
    fn read_at(&mut self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_full(&self.file, at, buf)
    }

    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        let start = match fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(at..u64::MAX)),
            Err(error) => return Err(error.into()),
        };
        let end = fs::seek(&self.file, SeekFrom::Hole(start)).unwrap_or(u64::MAX);
        Ok(Some(start..end))
    }

    fn end(&mut self) -> Result<()> {
        self.check()
    }
}
