//! Files of a volume that is not mounted: a small in-process user of the library.
//!
//! [`Tree`] opens the volume and finds paths on it; [`InodeRef`] is an inode with a reference to
//! it. Commands that change nothing open the volume read-only, which writes nothing even if its
//! journal is not empty; they work on the directory of a mount as well (`tree.rs`,
//! `kernel_files.rs`). Operands that name files may be patterns (`globs.rs`).
//!
//! The volume is not trusted. An impossible name is an error. A directory with several names would
//! let a walk grow with every level, or never end: a [`WalkGuard`] enters each directory once, and
//! no deeper than a path can name.
//!
//! On a damaged volume each command does what it can, reports the rest with its path, and fails at
//! the end.

mod attrs;
mod change;

mod defrag;
mod destination;
mod df;
mod du;
mod edit;
mod edit_script;
mod encrypt;
mod find;
mod get;
mod globs;
mod kernel_files;
mod list;
mod names;
mod nodes;
mod objects;
mod preserve;
mod put;
mod stat;
mod tar;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod verity;
mod visit;
pub mod when;
mod xattrs;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use extol_vfs::{Attr, DirEntry, FileKind, FileSystem, FsError, Reader};

use tree::{Files, Reading, Tree};

pub use change::change;

pub use defrag::defrag;
#[cfg(test)]
pub use df::Report as DfReport;
pub use df::df;
pub use du::du;
pub use edit_script::edit;
pub use encrypt::encrypt;
#[cfg(test)]
pub use encrypt::example as policies_example;
pub use find::find;
#[cfg(test)]
pub use get::Done as GetDone;
pub use get::get;
pub use list::{cat, ls};
#[cfg(test)]
pub use objects::Objects;
pub use stat::{stat, stat_on_mount};
#[cfg(test)]
pub use tar::Written as TarWritten;
pub use tar::tar;
pub use text::human;
#[cfg(test)]
pub use verity::Measured as VerityMeasured;
pub use verity::{hash_algorithm, salt, verity};
pub use xattrs::getxattr;
#[cfg(test)]
pub use xattrs::object as xattr_object;

const OUTPUT: &str = "standard output";
/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;
/// Symbolic links followed on the way to one file.
const MAX_LINKS: u32 = 40;

/// True if a path ends with a name, and not with the root directory, `.` or `..`.
fn ends_with_name(path: &OsStr) -> bool {
    let mut names = path.as_bytes().rsplit(|&byte| byte == b'/').skip_while(|name| name.is_empty());
    !matches!(names.next(), None | Some(b"." | b".."))
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}

/// An inode with one reference, given back on drop.
pub struct InodeRef<'t> {
    fs: &'t dyn FileSystem,
    ino: u32,
}

impl<'t> InodeRef<'t> {
    /// Takes over the reference that an operation returned.
    fn from_attr(fs: &'t dyn FileSystem, attr: &Attr) -> Self {
        Self { fs, ino: attr.id.ino }
    }

    fn attr(&self) -> extol_vfs::Result<Attr> {
        self.fs.getattr(self.ino)
    }

    /// For reading the file from one end to the other.
    fn reader(&self) -> Box<dyn Reader + '_> {
        self.fs.reader(self.ino)
    }

    fn kind(&self) -> extol_vfs::Result<FileKind> {
        self.attr().map(|attr| attr.kind)
    }

    fn is_dir(&self) -> extol_vfs::Result<bool> {
        self.kind().map(|kind| kind == FileKind::Directory)
    }

    fn child(&self, name: &[u8]) -> extol_vfs::Result<Self> {
        if !self.is_dir()? {
            return Err(FsError::NotADirectory);
        }
        self.fs.lookup(self.ino, name).map(|attr| Self::from_attr(self.fs, &attr))
    }

    /// The entries without `.` and `..`, sorted by name: all that can be read, and what is wrong
    /// with the rest.
    fn entries(&self) -> (Vec<DirEntry>, Option<FsError>) {
        let mut entries = Vec::new();
        let mut problem = None;
        let read = self.fs.readdir(self.ino, 0, &mut |entry| {
            if matches!(&*entry.name, b"." | b"..") {
                return true;
            }
            if entry.name.is_empty() || entry.name.iter().any(|byte| matches!(byte, 0 | b'/')) {
                let what = "a file name with a slash or NUL in it";
                problem.get_or_insert(FsError::corrupt(what).in_inode(self.ino.into()));
            } else {
                entries.push(entry);
            }
            true
        });
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        (entries, problem.or(read.err()))
    }
}

impl Drop for InodeRef<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.ino, 1);
    }
}

/// What the operands of a copy are.
const COPIED: &str = "what to copy, and where to";

/// The operands of a command: what it is about, then the destination. `needed` says what they are.
fn sources_and_destination<'p>(
    paths: &'p [OsString],
    needed: &str,
) -> Result<(&'p [OsString], &'p OsStr)> {
    match paths {
        [sources @ .., dest] if !sources.is_empty() => Ok((sources, dest)),
        _ => Err(Failure::usage(format_args!(
            "{}: only one path is given: {needed}, are needed",
            paths.first().map_or("".into(), |path| show(path))
        ))),
    }
}

/// A path for messages.
fn show(path: &OsStr) -> String {
    path.shown().to_string()
}

/// The directories of a walk, from its start down to the current one; bounds the walk.
#[derive(Default)]
struct WalkGuard {
    /// All that were entered, closed ones too: a second name of one of those is damage as well.
    visited: HashSet<u32>,
    /// The open ones: how long their names are.
    open: Vec<usize>,
    /// Length of the path.
    len: usize,
}

/// Deepest directory that a recursive command enters.
const MAX_DEPTH: usize = 4096;
/// Longest path of one: sixteen times what the system's calls take.
const MAX_PATH: usize = 64 << 10;

impl WalkGuard {
    /// Enters a directory by a name of this length.
    fn enter(&mut self, ino: u32, name_len: usize) -> extol_vfs::Result<()> {
        if self.open.len() == MAX_DEPTH {
            return Err(FsError::NotSupported("directories nested more than 4096 deep"));
        }
        if self.len + name_len + 1 > MAX_PATH {
            return Err(FsError::NotSupported("paths of more than 64 KiB"));
        }
        if !self.visited.insert(ino) {
            return Err(FsError::corrupt("a directory has two names").in_inode(ino.into()));
        }
        self.open.push(name_len + 1);
        self.len += name_len + 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.len -= self.open.pop().unwrap_or(0);
    }
}

#[cfg(test)]
mod walk_tests {
    use super::*;

    #[test]
    fn a_walk_is_bounded() {
        let mut guard = WalkGuard::default();
        guard.enter(2, 0).unwrap();
        guard.enter(11, 3).unwrap();
        assert!(matches!(guard.enter(2, 1), Err(FsError::Corrupt { inode: Some(2), .. })));
        guard.leave();
        assert!(matches!(guard.enter(11, 3), Err(FsError::Corrupt { inode: Some(11), .. })));
        let deepest = (12..).take_while(|ino| guard.enter(*ino, 1).is_ok()).count();
        assert_eq!(deepest, MAX_DEPTH - 1);
        let mut guard = WalkGuard::default();
        let longest = (12..).take_while(|ino| guard.enter(*ino, 255).is_ok()).count();
        assert_eq!(longest, MAX_PATH / 256);
    }
}
