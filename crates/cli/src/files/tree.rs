//! What the commands for files work on: a volume that is not mounted, or the directory of a mount.
//!
//! [`Files`] finds paths and keeps what went wrong; it is the same for both. [`Tree`] is a volume
//! that this process has opened, for commands that change it or ask for more than files.
//! [`Reading`] is either of them, for commands that only read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_block::Overwritten;
use extol_cli_common::{Failure, Result, warn};
use extol_proc::Shown as _;
use extol_vfs::{FileKind, FileSystem, FsError};

use super::change::Problem;
use super::kernel_files::KernelFiles;
use super::{InodeRef, MAX_LINKS, OUTPUT, components, show};
use crate::args::VolumeArgs;
use crate::options::Opening;
use crate::volume::{self, Source, Volume, VolumeOptions};
use crate::{interrupt, keys, options};

/// Files, and what went wrong with them.
pub struct Files {
    fs: Arc<dyn FileSystem>,
    /// The volume or directory as it was named.
    pub(super) source: PathBuf,
    /// The file or device that the volume lies on.
    pub(super) image: PathBuf,
    /// Something was reported, and the command went on.
    pub(super) failed: Cell<bool>,
    /// What was reported, if it is kept for later.
    pub(super) kept: RefCell<Option<Vec<String>>>,
}

/// An open volume.
pub struct Tree {
    files: Files,
    pub(super) volume: Arc<Volume>,
}

impl Deref for Tree {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

/// A volume that is open for reading, or a mount.
pub enum Reading {
    /// A volume that is not mounted.
    Volume(Tree),
    /// A directory of a mount.
    Mount(Files),
}

impl Deref for Reading {
    type Target = Files;

    fn deref(&self) -> &Files {
        match self {
            Self::Volume(tree) => tree,
            Self::Mount(files) => files,
        }
    }
}

impl Reading {
    /// Opens what a command reads: a directory on a mount of Extol, through the kernel, or else a
    /// volume.
    pub(super) fn open(args: &VolumeArgs, command: &'static str) -> Result<Self> {
        let Some(found) = KernelFiles::on_mount(&args.source, command)? else {
            return Tree::open(args, false).map(Self::Volume);
        };
        if !args.options.is_empty() || !args.keys.is_empty() {
            let line = "is mounted: -o and --key are for volumes that are not";
            return Err(Failure::usage(format_args!("{}: {line}", args.source.shown())));
        }
        let (files, image) = found;
        Ok(Self::Mount(Files::new(Arc::new(files), &args.source, image)))
    }

    /// Closes it. `outcome` is how the command went otherwise.
    pub(super) fn close(self, outcome: Result<()>) -> Result<()> {
        match self {
            Self::Volume(tree) => tree.close(outcome),
            Self::Mount(files) => outcome.and(interrupt::check()).and(files.reported_nothing()),
        }
    }

    /// As that; the command has failed if something was reported.
    pub(super) fn close_with(self, failed: bool) -> Result<()> {
        self.failed.set(self.failed.get() | failed);
        self.close(Ok(()))
    }
}

impl Tree {
    /// Opens a volume; read-only unless `write`.
    pub(super) fn open(args: &VolumeArgs, write: bool) -> Result<Self> {
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

    pub(super) fn open_with(
        source: Source<'_>,
        options: VolumeOptions,
        write: bool,
    ) -> Result<Self> {
        let volume = volume::open(source, &options)?;
        if write && volume.is_read_only() {
            let _ = volume::close(&volume);
            return Err(Failure::about(source.path.shown(), "can only be read"));
        }
        let image = volume::name(source)?.path;
        Ok(Self { files: Files::new(volume.clone(), source.path, image), volume })
    }

    /// Closes the volume; the command has failed if something was reported.
    pub(super) fn close_with(self, failed: bool) -> Result<()> {
        self.failed.set(self.failed.get() | failed);
        self.close(Ok(()))
    }

    /// Closes the volume. `outcome` is how the command went otherwise.
    pub(super) fn close(self, outcome: Result<()>) -> Result<()> {
        let outcome = outcome.and(interrupt::check());
        let closed =
            volume::close(&self.volume).map_err(|error| Failure::about(self.source.shown(), error));
        outcome.and(closed).and(self.reported_nothing())
    }
}

impl Files {
    fn new(fs: Arc<dyn FileSystem>, source: &Path, image: PathBuf) -> Self {
        Self {
            fs,
            source: source.to_owned(),
            image,
            failed: Cell::new(false),
            kept: RefCell::default(),
        }
    }

    /// Claims a file or device of the host that is to be replaced or overwritten.
    ///
    /// # Errors
    /// It is this volume itself, or is in use.
    pub(super) fn claim(&self, file: File, path: &Path) -> Result<Overwritten> {
        extol_block::claim_to_overwrite(file, path, &self.image).map_err(Failure::new)
    }

    /// # Errors
    /// Standard output, to which contents are written, is this volume itself.
    pub(super) fn refuse_as_output(&self) -> Result<()> {
        let output = std::io::stdout().as_fd().try_clone_to_owned();
        let output = File::from(output.map_err(|e| Failure::system_call(OUTPUT, e))?);
        extol_block::refuse_itself(&output, OUTPUT, &self.image).map_err(Failure::new)
    }

    pub(super) fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Reports what went wrong with one file.
    pub(super) fn report(&self, what: impl std::fmt::Display, error: impl std::fmt::Display) {
        self.report_line(format_args!("{what}: {error}"));
    }

    /// Failures are kept, and reported with the line of the script.
    pub(super) fn keeps_reports(&self) -> bool {
        self.kept.borrow().is_some()
    }

    pub(super) fn report_line(&self, line: impl std::fmt::Display) {
        match &mut *self.kept.borrow_mut() {
            Some(kept) => kept.push(line.to_string()),
            None => warn(line),
        }
        self.failed.set(true);
    }

    /// Reports what went wrong with all of a command.
    pub(super) fn reported(&self, line: impl std::fmt::Display) -> Result<()> {
        self.report_line(line);
        Ok(())
    }

    /// What went wrong with another path than the one that is reported.
    pub(super) fn about(&self, path: &OsStr, error: impl std::fmt::Display) -> String {
        format!("{}: {error}", show(path))
    }

    /// # Errors
    /// Something was reported.
    fn reported_nothing(&self) -> Result<()> {
        if self.failed.get() { Err(Failure::silent(Failure::FAILED)) } else { Ok(()) }
    }

    fn root(&self) -> extol_vfs::Result<InodeRef<'_>> {
        let fs = self.fs();
        fs.retain(fs.root());
        let inode = InodeRef { fs, ino: fs.root() };
        Ok(inode)
    }

    /// Finds a path. Symbolic links on the way are followed, one at the end if `follow` or if a
    /// slash follows it. What is before a slash must be a directory.
    pub(super) fn find(&self, path: &OsStr, follow: bool) -> extol_vfs::Result<InodeRef<'_>> {
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

    /// As [`find_parent`](Self::find_parent); if a directory is not there, the error names it.
    pub(super) fn parent_of<'p>(
        &self,
        path: &'p OsStr,
    ) -> std::result::Result<(InodeRef<'_>, &'p [u8]), Problem> {
        self.find_parent(path).map_err(|error| match self.missing(error, path, false) {
            Ok(line) => line.into(),
            Err(error) => error.into(),
        })
    }

    /// The line for a path of which a directory is not there; `is_dir`: its last name is one, too.
    ///
    /// # Errors
    /// Another error, as it was.
    pub(super) fn missing(
        &self,
        error: FsError,
        path: &OsStr,
        is_dir: bool,
    ) -> std::result::Result<String, FsError> {
        if error != FsError::NotFound {
            return Err(error);
        }
        let all: Vec<&OsStr> = Path::new(path)
            .ancestors()
            .map(Path::as_os_str)
            .filter(|dir| !dir.is_empty())
            .collect();
        let dirs = all.get(usize::from(!is_dir)..).unwrap_or_default();
        let is_missing = |dir: &&&OsStr| matches!(self.find(dir, true), Err(FsError::NotFound));
        let first = dirs.iter().rev().find(is_missing).ok_or(error)?;
        let wanted = dirs.first().unwrap_or(first);
        Ok(format!(
            "there is no directory {} on the volume: make it first (extol mkdir -p {} {})",
            show(first),
            self.source.shown(),
            show(wanted)
        ))
    }

    /// The directory that holds the last name of a path, and that name.
    pub(super) fn find_parent<'p>(
        &self,
        path: &'p OsStr,
    ) -> extol_vfs::Result<(InodeRef<'_>, &'p [u8])> {
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

/// The failure to open what is named first; if one of the other words is a volume, the order is
/// wrong, and the line says so.
pub(super) fn image_first(failure: Failure, args: &VolumeArgs, operands: &[OsString]) -> Failure {
    let is_image = |word: &&OsString| volume::is_volume(Path::new(word));
    let Some(image) = operands.iter().find(is_image) else { return failure };
    let others = operands.iter().filter(|word| *word != image).map(|word| show(word));
    let words: Vec<String> = [args.source.shown().to_string()].into_iter().chain(others).collect();
    let line = &failure.line;
    let line = format!(
        "{line}; the image comes first, then the files: say {} {}",
        show(image),
        words.join(" ")
    );
    Failure { line, ..failure }
}

/// The options of an opening, with the keys.
pub(super) fn opening(args: &VolumeArgs) -> Result<Opening> {
    let mut opening = options::opening(&args.options)?;
    keys::add(&args.keys, &mut opening.volume.keys)?;
    Ok(opening)
}
