//! The files that an image is stored in: those of a directory, or of an archive.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use extol_proc::bytes_of;

use super::json::LONGEST;
use crate::error::{BuildError, Result};
use crate::source::pieces::{HolderNr, Pieces};
use crate::sys::Dir;
use crate::tree::{Kind, NodeId, Tree};

/// Where an image is stored.
#[derive(Debug)]
pub(super) enum Files {
    /// A directory of the host.
    Dir(Dir),
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
        let dir =
            Dir::open(path).map_err(|error| BuildError::not_opened(bytes_of(path), &error))?;
        Ok(Self::Dir(dir))
    }

    /// The file of that name. `None` if it is not there.
    pub fn find(&self, name: &str, pieces: &mut Pieces) -> Result<Option<Blob>> {
        match self {
            Self::Dir(dir) => {
                let failed = |error: io::Error| BuildError::entry(name.as_bytes(), error);
                let Some(file) = dir.open_below(name).map_err(failed)? else { return Ok(None) };
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
