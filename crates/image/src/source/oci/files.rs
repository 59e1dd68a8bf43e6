//! The files that an image is stored in: those of a directory, or of an archive.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::json::LONGEST;
use crate::error::{BuildError, Result};
use crate::source::pieces::{HolderNr, Pieces};
use crate::sys::DIR_HANDLE;
use crate::tree::{Kind, NodeId, Tree};

/// Where an image is stored.
#[derive(Debug)]
pub(super) enum Files {
    /// A directory of the host.
    Dir(OwnedFd),
    /// An archive that was listed; its contents are pieces.
    Archive(Tree),
}

/// A file of an image: a range of a file of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob {
    pub holder: HolderNr,
    pub at: u64,
    pub len: u64,
}

/// How many links a name in an archive may lead through.
const MAX_LINKS: u32 = 40;

impl Files {
    /// A directory.
    pub fn dir(path: &Path) -> Result<Self> {
        let flags = DIR_HANDLE | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = path.as_os_str().as_bytes();
        let failed = |error| BuildError::entry(name, io::Error::from(error));
        Ok(Self::Dir(fs::open(path, flags, Mode::empty()).map_err(failed)?))
    }

    /// The file of that name. `None` if it is not there.
    pub fn find(&self, name: &str, pieces: &mut Pieces) -> Result<Option<Blob>> {
        match self {
            Self::Dir(dir) => {
                let failed = |error: io::Error| BuildError::entry(name.as_bytes(), error);
                let Some(file) = open_below(dir, name).map_err(failed)? else { return Ok(None) };
                let meta = file.metadata().map_err(failed)?;
                if !meta.is_file() {
                    return Err(BuildError::entry(name.as_bytes(), "is not a regular file"));
                }
                let holder = pieces.holder(Arc::new(file), name.as_bytes(), true)?;
                Ok(Some(Blob { holder, at: 0, len: meta.len() }))
            }
            Self::Archive(tree) => {
                let node = follow(tree, name.as_bytes());
                let Some(Kind::File { data, .. }) = node.map(|node| tree.node(node).kind) else {
                    return Ok(None);
                };
                let Some((holder, at, len)) = pieces.place(data) else {
                    return Err(BuildError::entry(name.as_bytes(), "is a sparse file"));
                };
                Ok(Some(Blob { holder, at, len }))
            }
        }
    }

    /// A document. `None` if it is not there.
    pub fn document(&self, name: &str, pieces: &mut Pieces) -> Result<Option<Vec<u8>>> {
        let Some(blob) = self.find(name, pieces)? else { return Ok(None) };
        if blob.len > LONGEST {
            let why = format!("is longer than a document may be ({LONGEST} bytes)");
            return Err(BuildError::entry(name.as_bytes(), why));
        }
        let mut bytes = Vec::new();
        let read = blob.reader(pieces).read_to_end(&mut bytes);
        read.map_err(|error| BuildError::entry(name.as_bytes(), error))?;
        Ok(Some(bytes))
    }
}

impl Blob {
    /// Reads it.
    pub fn reader(&self, pieces: &Pieces) -> RangeReader {
        let file = Arc::clone(pieces.file(self.holder));
        RangeReader { file, at: self.at, end: self.at + self.len }
    }
}

/// Reads a range of a file.
pub(super) struct RangeReader {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for RangeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.end - self.at).min(buf.len() as u64) as usize;
        let done = crate::source::read_full(&self.file, self.at, &mut buf[..len])?;
        if done < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += done as u64;
        Ok(done)
    }
}

/// Opens a file below a directory, step by step and through no link.
fn open_below(dir: &OwnedFd, name: &str) -> io::Result<Option<File>> {
    let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
    let gone = |error| matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
    let mut here = None;
    for part in above.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            return Ok(None);
        }
        let flags = DIR_HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match fs::openat(here.as_ref().unwrap_or(dir), part, flags, Mode::empty()) {
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
    match fs::openat(here.as_ref().unwrap_or(dir), last, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(error) if gone(error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The file that a name in an archive leads to; links are followed inside it.
fn follow(tree: &Tree, name: &[u8]) -> Option<NodeId> {
    let split = |path: &[u8]| {
        let parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        parts.rev().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let (mut ahead, mut dirs, mut links) = (split(name), vec![tree.root()], 0);
    while let Some(part) = ahead.pop() {
        if part == b".." {
            dirs.truncate((dirs.len() - 1).max(1));
            continue;
        }
        let node = tree.child(*dirs.last()?, &part)?;
        match tree.node(node).kind {
            Kind::Symlink(target) => {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                let target = tree.bytes(target);
                if target.starts_with(b"/") {
                    dirs.truncate(1);
                }
                ahead.extend(split(target));
            }
            Kind::Dir => dirs.push(node),
            _ if ahead.is_empty() => return Some(node),
            _ => return None,
        }
    }
    None
}
