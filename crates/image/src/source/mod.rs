//! Where the files of an image come from.
//!
//! A source is listed once, into a tree; then the contents of its files are read, by several
//! threads at once, through a reader for each file.
//!
//! ```text
//!   Source::scan ──► TreeBuilder ──► edits ──► Tree
//!        │                                      │ DataRef of each file
//!   Source::reader ◄────────────────────────────╯
//!        ╰──► FileData: read_at, data_from, end
//! ```
//!
//! - SR-1: what `scan` gives does not depend on the order in which the host lists directories.
//! - SR-2: a file that changes between `scan` and the end of its reading is an error, not an image
//!   with half of each.

#[cfg(test)]
mod compare;
#[cfg_attr(windows, path = "dir/windows.rs")]
mod dir;
mod expand;
#[cfg(test)]
mod maker;
mod oci;
mod open;
mod pieces;
mod spool;
mod tar;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::ops::Range;

pub use dir::DirSource;
pub use expand::{Compression, decoder};
pub use oci::{OciOptions, OciSource, Platform};
pub use open::{DirOptions, SourceOptions, may_be_archive, open, open_stream};
pub use tar::TarSource;

use crate::error::Result;
use crate::sys;
use crate::tree::{DataRef, TreeBuilder};

/// Where the files of an image come from.
pub trait Source: Send + Sync {
    /// Lists all of it.
    ///
    /// # Errors
    /// What cannot be read or taken, limits.
    fn scan(&mut self, into: &mut TreeBuilder) -> Result<()>;

    /// The contents of a file. Several may be in use at once, in several threads.
    ///
    /// # Errors
    /// A file that is gone, has changed, or cannot be read.
    fn reader(&self, data: DataRef) -> Result<Box<dyn FileData + '_>>;
}

/// The contents of a file of a source.
pub trait FileData: Send {
    /// Reads from a place in the file. Fewer bytes than asked for, even none, mean the end of the
    /// file.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn read_at(&mut self, at: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// The first run of data at or behind that place, without reading it; `None` if the rest reads
    /// as zeros. Only saves reading: data may be zeros as well.
    ///
    /// # Errors
    /// If the source cannot be read.
    fn data_from(&mut self, at: u64) -> io::Result<Option<Range<u64>>> {
        Ok(Some(at..u64::MAX))
    }

    /// Called when all of it was read: says whether it is still what was listed.
    ///
    /// # Errors
    /// [`BuildError::Changed`](crate::BuildError::Changed), or a source that cannot be read.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &File, at: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match sys::read_at(file, &mut buf[done..], at.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
