//! A tar archive of the files of a file system: the way back from an image.
//!
//! The archive is written from any [`FileSystem`]: an open volume, a mount. It is a pax archive
//! that says everything a source of an image can say: owners by number, times to the nanosecond,
//! extended attributes, access lists, devices, holes, hard links. Extended headers stand only where
//! the plain header has no room.
//!
//! ```text
//!   directory ─► its files by name ─► its directories by name, each the same way
//!   file ─► read once: what is zeros ─► header ─► contents
//! ```
//!
//! What cannot be read is told and left out, and the rest is written. A socket has no place in an
//! archive.
//!
//! - TO-1: the bytes depend on names, metadata and contents alone: neither on inode numbers, nor on
//!   the order of directories, nor on where files lie. A hole is what reads as zeros
//!   (`holes`), whatever the map of the file says.
//! - TO-2: an entry is as long as its header says, whatever becomes of the file meanwhile.
//! - TO-3: no name in the archive leaves the directory in which it is unpacked: a name with a
//!   slash, `.` and `..` are damage, and told.
//! - TO-4: a walk ends: each directory is entered once, and no deeper than a path can name.

mod header;
mod holes;
mod records;
#[cfg(test)]
mod tests;
mod write;

use std::io;
use std::ops::ControlFlow;

use extol_vfs::FileSystem;

use crate::edits::Patterns;

/// How an archive is written.
#[derive(Clone, Debug)]
pub struct TarOptions {
    /// Long runs of zeros are holes. Without it all contents are in the archive.
    pub sparse: bool,
    /// Also the times of last access, of the last change of the inode, and of creation.
    pub keep_times: bool,
    /// Names that are left out, with all that is below them.
    pub exclude: Patterns,
}

impl Default for TarOptions {
    fn default() -> Self {
        Self { sparse: true, keep_times: false, exclude: Patterns::default() }
    }
}

/// What was written, and what an archive cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TarSummary {
    /// Files of all kinds, further names of a file not among them.
    pub files: u64,
    /// Further names of files.
    pub links: u64,
    /// Bytes in regular files, holes among them.
    pub bytes: u64,
    /// Bytes of the archive.
    pub written: u64,
    /// Sockets that were left out.
    pub sockets: u64,
    /// Files whose inode flags (`chattr`) the archive does not have.
    pub flags: u64,
    /// Files that could not be read, wholly or in part.
    pub failed: u64,
}

/// What happens while an archive is written.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum TarEvent<'a> {
    /// So many more bytes of files are in the archive.
    Copied(u64),
    /// Something could not be read.
    Failed {
        /// Its path in the archive.
        path: &'a [u8],
        /// Why.
        why: &'a str,
    },
}

/// Told of what happens; it may stop the work.
pub type TarEvents<'a> = &'a mut dyn FnMut(TarEvent<'_>) -> ControlFlow<()>;

/// Why an archive could not be written to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TarError {
    /// The archive could not be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// The caller has stopped it.
    #[error("stopped")]
    Stopped,
}

/// Writes an archive of a file: of a directory all that is in it, under the name `./`; of another
/// file that one, as `name`. The caller holds a reference on it.
///
/// # Errors
/// If the archive cannot be written, or the caller stops it. What cannot be read is told as an
/// event, and counted.
pub fn write_tar(
    fs: &dyn FileSystem,
    file: u32,
    name: &[u8],
    out: &mut dyn io::Write,
    options: &TarOptions,
    events: TarEvents<'_>,
) -> Result<TarSummary, TarError> {
    let mut writer = write::Writer::new(fs, out, options, events);
    writer.all(file, name)?;
    writer.end()
}
