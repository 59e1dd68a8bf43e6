//! A tar archive as a source: plain, or compressed with gzip, xz or zstd; a file or a stream.
//!
//! A plain archive in a file is read in place: its headers are listed, and contents are read later
//! from where they are. What is compressed, or comes through a pipe, cannot be read a second time;
//! contents go to a [spool](super::spool) meanwhile. Both give the same tree and the same bytes.
//!
//! ```text
//!   header ──► decode ─╮
//!   pax, GNU names ────┼─► Entry ──► TreeBuilder
//!   sparse maps ───────╯      ╰ DataRef ──► pieces: the archive itself, or the spool
//! ```
//!
//! All dialects that GNU tar and libarchive write are read: v7, ustar, old and new GNU, pax, star.
//! Metadata are those of the headers; nothing comes from the host, neither the names of its users
//! nor its clock. Names and links are looked up in the tree and nowhere else.
//!
//! An archive may hold a container image: [oci](super::oci) takes it from there.
//!
//! - TS-1: no length in an archive makes the reader allocate before it is checked.
//! - TS-2: an archive that is damaged or cut off is an error, not a smaller image.
//! - TS-3: what is left out is told by a remark.

mod acl;
mod header;
mod input;
mod pax;
mod read;
mod sparse;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use extol_proc::bytes_of;

pub(super) use input::Input;
pub(super) use read::{Archive, Entry};

use super::expand::{Compression, decoder};
use super::oci::{OciOptions, Store, unpack_archive};
use super::{FileData, Source};
use crate::error::{BuildError, Result};
use crate::sys;
use crate::tree::{DataRef, TreeBuilder};

/// How much of a stream is read at once.
const BUFFER: usize = 128 << 10;

/// A tar archive.
#[derive(Debug)]
pub struct TarSource {
    name: Vec<u8>,
    archive: Mutex<Option<Opened>>,
    spool_dir: Option<PathBuf>,
    image: OciOptions,
    store: Store,
}

/// True if an archive may begin with these bytes.
pub(super) fn may_begin_with(first: &[u8]) -> bool {
    first.first_chunk().is_some_and(header::is_first)
}

/// An archive that is not read yet.
enum Opened {
    /// A range of a file.
    Plain(Arc<File>, Range<u64>),
    Stream(Box<dyn BufRead + Send>, Compression),
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(_, range) => f.debug_tuple("Plain").field(range).finish(),
            Self::Stream(_, compression) => f.debug_tuple("Stream").field(compression).finish(),
        }
    }
}

impl TarSource {
    /// Opens an archive. What cannot be read twice is spooled in the directory `spool`.
    ///
    /// # Errors
    /// If it is not there, may not be read, or is a directory.
    pub fn open(path: &Path, spool: &Path) -> Result<Self> {
        let name = bytes_of(path);
        let file = File::open(path).map_err(|error| BuildError::not_opened(name, &error))?;
        Self::from_file(file, name, spool)
    }

    /// The same for a file that is open, such as standard input. It is read from where it stands.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn from_file(mut file: File, name: &[u8], spool: &Path) -> Result<Self> {
        let failed = |error| BuildError::entry(name, error);
        let meta = file.metadata().map_err(failed)?;
        if meta.is_dir() {
            return Err(BuildError::entry(name, "is a directory, not a tar archive"));
        }
        let mut first = [0; Compression::PREFIX];
        let opened = if meta.is_file() {
            let start = file.stream_position().map_err(failed)?;
            let len = sys::read_at(&file, &mut first, start).map_err(failed)?;
            match Compression::of(&first[..len]) {
                Compression::None => Opened::Plain(Arc::new(file), start..meta.len()),
                other => Opened::Stream(Box::new(BufReader::with_capacity(BUFFER, file)), other),
            }
        } else {
            let mut len = 0;
            while len < first.len() {
                match file.read(&mut first[len..]).map_err(failed)? {
                    0 => break,
                    more => len += more,
                }
            }
            let stream = Cursor::new(first[..len].to_vec()).chain(file);
            let compression = Compression::of(&first[..len]);
            Opened::Stream(Box::new(BufReader::with_capacity(BUFFER, stream)), compression)
        };
        let spools = matches!(opened, Opened::Stream(..));
        Ok(Self {
            name: name.to_owned(),
            archive: Mutex::new(Some(opened)),
            spool_dir: spools.then(|| spool.to_owned()),
            image: OciOptions::default(),
            store: Store::new(spool),
        })
    }

    /// Which image is meant, if the archive holds images. With a choice it must hold one.
    #[must_use]
    pub fn with_image(mut self, image: OciOptions) -> Self {
        self.image = image;
        self
    }

    /// Where the contents of files are kept meanwhile, if they cannot be read in place.
    #[must_use]
    pub fn spools_in(&self) -> Option<&Path> {
        self.spool_dir.as_deref()
    }
}

impl Source for TarSource {
    fn scan(&mut self, into: &mut TreeBuilder) -> Result<()> {
        let archive = self.archive.lock().unwrap_or_else(PoisonError::into_inner).take();
        let store = &mut self.store;
        let input = match archive {
            Some(Opened::Plain(file, range)) => {
                let holder = store.pieces.holder(file, &self.name, true)?;
                Input::file(&store.pieces, holder, range, &self.name)
            }
            Some(Opened::Stream(stream, compression)) => {
                let stream = decoder(compression, stream, into.limits())
                    .map_err(|error| BuildError::entry(&self.name, error))?;
                let holder = store.spooled()?;
                Input::stream(stream, &mut store.spool, holder, &self.name)
            }
            None => return Err(BuildError::entry(&self.name, "was read before")),
        };
        let mut archive = Archive::new(input, &mut store.pieces);
        while let Some(entry) = archive.next(into)? {
            entry.add(into)?;
        }
        drop(archive);
        store.spool.finish()?;
        unpack_archive(&self.name, &self.image, store, into)
    }

    fn reader(&self, data: DataRef) -> Result<Box<dyn FileData + '_>> {
        self.store.pieces.reader(data)
    }
}
