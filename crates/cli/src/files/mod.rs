//! Files of a volume that is not mounted: a small in-process user of the library.
//!
//! [`Tree`] opens the volume and finds paths on it; [`InodeRef`] is an inode with a reference to
//! it. Commands that change nothing open the volume read-only, which writes nothing even if its
//! journal is not empty.
//!
//! The volume is not trusted. An impossible name is an error. A directory with several names would
//! let a walk grow with every level, or never end: a [`WalkGuard`] enters each directory once, and
//! no deeper than a path can name.
//!
//! On a damaged volume each command does what it can, reports the rest with its path, and fails at
//! the end.

mod attrs;
mod change;
mod cp;
mod defrag;
mod destination;
mod edit;
mod edit_script;
mod encrypt;
mod list;
mod names;
mod nodes;
mod objects;
mod preserve;
mod put;
mod tar;
#[cfg(test)]
mod tests;
mod verity;
pub mod when;
mod xattrs;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_block::Overwritten;
use extol_cli_common::{Failure, Result, warn};
use extol_proc::Shown as _;
use extol_vfs::{Attr, DirEntry, FileKind, FileSystem, FsError, Reader};

use crate::args::VolumeArgs;
use crate::options::Opening;
use crate::volume::{self, Source, Volume, VolumeOptions};
use crate::{interrupt, keys, options};

pub use change::change;
#[cfg(test)]
pub use cp::Done as CpDone;
pub use cp::cp;
pub use defrag::defrag;
pub use edit_script::edit;
pub use encrypt::encrypt;
#[cfg(test)]
pub use encrypt::example as policies_example;
pub use list::{cat, human, ls};
#[cfg(test)]
pub use objects::Objects;
#[cfg(test)]
pub use tar::Written as TarWritten;
pub use tar::tar;
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

/// An open volume.
pub struct Tree {
    volume: Arc<Volume>,
    /// The volume as it was named.
    source: PathBuf,
    /// The file or device that it lies on.
    image: PathBuf,
    /// Something was reported, and the command went on.
    failed: Cell<bool>,
    /// What was reported, if it is kept for later.
    kept: RefCell<Option<Vec<String>>>,
}

impl Tree {
    /// Opens a volume; read-only unless `write`.
    fn open(args: &VolumeArgs, write: bool) -> Result<Self> {
        let Opening { volume: mut options, part } = opening(args)?;
        let source = Source { path: &args.source, part };
        if write && options.access.read_only {
            return Err(Failure::usage(
                "-o ro and -o norecovery cannot be used with a command that changes the volume",
            ));
        }
        if write {
            interrupt::catch()?;
        } else if let Some(failure) = volume::written_by_others(source) {
            return Err(failure);
        }
        options.access.read_only |= !write;
        options.access.unmarked_when_full = write;
        Self::open_with(source, options, write)
    }

    fn open_with(source: Source<'_>, options: VolumeOptions, write: bool) -> Result<Self> {
        let volume = volume::open(source, &options)?;
        if write && volume.is_read_only() {
            let _ = volume::close(&volume);
            return Err(Failure::about(source.path.shown(), "can only be read"));
        }
        Ok(Self {
            volume,
            source: source.path.to_owned(),
            image: volume::name(source)?.path,
            failed: Cell::new(false),
            kept: RefCell::default(),
        })
    }

    /// Claims a file or device of the host that is to be replaced or overwritten.
    ///
    /// # Errors
    /// It is this volume itself, or is in use.
    fn claim(&self, file: File, path: &Path) -> Result<Overwritten> {
        extol_block::claim_to_overwrite(file, path, &self.image).map_err(Failure::new)
    }

    /// # Errors
    /// Standard output, to which contents are written, is this volume itself.
    fn refuse_as_output(&self) -> Result<()> {
        let output = std::io::stdout().as_fd().try_clone_to_owned();
        let output = File::from(output.map_err(|e| Failure::system_call(OUTPUT, e))?);
        extol_block::refuse_itself(&output, OUTPUT, &self.image).map_err(Failure::new)
    }

    fn fs(&self) -> &dyn FileSystem {
        &*self.volume
    }

    /// Reports what went wrong with one file.
    fn report(&self, what: impl std::fmt::Display, error: impl std::fmt::Display) {
        self.report_line(format_args!("{what}: {error}"));
    }

    /// Failures are kept, and reported with the line of the script.
    fn keeps_reports(&self) -> bool {
        self.kept.borrow().is_some()
    }

    fn report_line(&self, line: impl std::fmt::Display) {
        match &mut *self.kept.borrow_mut() {
            Some(kept) => kept.push(line.to_string()),
            None => warn(line),
        }
        self.failed.set(true);
    }

    /// Reports what went wrong with all of a command.
    fn reported(&self, line: impl std::fmt::Display) -> Result<()> {
        self.report_line(line);
        Ok(())
    }

    /// What went wrong with another path than the one that is reported.
    fn about(&self, path: &OsStr, error: impl std::fmt::Display) -> String {
        format!("{}: {error}", show(path))
    }

    /// Closes the volume; the command has failed if something was reported.
    fn close_with(self, failed: bool) -> Result<()> {
        self.failed.set(self.failed.get() | failed);
        self.close(Ok(()))
    }

    /// Closes the volume. `outcome` is how the command went otherwise.
    fn close(self, outcome: Result<()>) -> Result<()> {
        let outcome = outcome.and(interrupt::check());
        let closed =
            volume::close(&self.volume).map_err(|error| Failure::about(self.source.shown(), error));
        let reported =
            if self.failed.get() { Err(Failure::silent(Failure::FAILED)) } else { Ok(()) };
        outcome.and(closed).and(reported)
    }

    fn root(&self) -> extol_vfs::Result<InodeRef<'_>> {
        let fs = self.fs();
        fs.retain(fs.root());
        let inode = InodeRef { fs, ino: fs.root() };
        Ok(inode)
    }

    /// Finds a path. Symbolic links on the way are followed, one at the end if `follow` or if a
    /// slash follows it. What is before a slash must be a directory.
    fn find(&self, path: &OsStr, follow: bool) -> extol_vfs::Result<InodeRef<'_>> {
        let dir = path.as_bytes().ends_with(b"/");
        let found = self.walk(path, follow || dir)?;
        if dir && !found.is_dir()? {
            return Err(FsError::NotADirectory);
        }
        Ok(found)
    }

    fn walk(&self, path: &OsStr, follow: bool) -> extol_vfs::Result<InodeRef<'_>> {
        if path.is_empty() {
            // As for the system's calls.
            return Err(FsError::NotFound);
        }
        let mut todo: VecDeque<Vec<u8>> = components(path.as_bytes()).collect();
        let mut here = self.root()?;
        let mut links = 0;
        while let Some(name) = todo.pop_front() {
            let next = here.child(&name)?;
            if next.kind()? != FileKind::Symlink || (todo.is_empty() && !follow) {
                here = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(FsError::SymlinkLoop);
            }
            let target = next.fs.readlink(next.ino)?;
            if target.starts_with(b"/") {
                here = self.root()?;
            }
            for name in components(&target).collect::<Vec<_>>().into_iter().rev() {
                todo.push_front(name);
            }
        }
        Ok(here)
    }

    /// The directory that holds the last name of a path, and that name.
    fn find_parent<'p>(&self, path: &'p OsStr) -> extol_vfs::Result<(InodeRef<'_>, &'p [u8])> {
        let bytes = path.as_bytes();
        if bytes.is_empty() {
            return Err(FsError::NotFound);
        }
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        let trimmed = bytes.get(..end).unwrap_or_default();
        let start = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = trimmed.split_at(start);
        if matches!(name, b"" | b"." | b"..") {
            return Err(FsError::Invalid("the path must end with a name"));
        }
        let parent = if parent.is_empty() { b"/" } else { parent };
        Ok((self.find(OsStr::from_bytes(parent), true)?, name))
    }
}

/// The options of an opening, with the keys.
fn opening(args: &VolumeArgs) -> Result<Opening> {
    let mut opening = options::opening(&args.options)?;
    keys::add(&args.keys, &mut opening.volume.keys)?;
    Ok(opening)
}

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
