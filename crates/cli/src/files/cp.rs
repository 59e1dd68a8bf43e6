//! `extol cp`: out of the volume.
//!
//! A hostile volume must not make the copy write outside of the destination: what is there already
//! is replaced, never written through, and a directory is entered only if it is one
//! (`destination.rs`). Nor may it give its rights to anything here: what a copy keeps is in
//! `preserve.rs`.
//!
//! The tree is walked without recursion: a [`Level`] for each directory on the way down. What
//! cannot be read is reported, and the rest is copied.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::vec;

use extol_cli_common::progress::{self, ProgressBar};
use extol_cli_common::{Failure, Result, json_text, print_json, warn};
use extol_proc::Shown as _;
use extol_vfs::{Attr, DirEntry, FileKind, FsError, Seek, Timestamp};
use rustix::fs::{FileType, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use serde::Serialize;

use super::destination::{self, DestDir, Id, Node, Target};
use super::preserve::{Attributes, Lost, Preserve, Skipped};
use super::{CHUNK, InodeRef, Tree, WalkGuard, show};
use crate::args::CpArgs;
use crate::interrupt;

/// Copies.
pub fn cp(args: &CpArgs) -> Result<()> {
    let (paths, dest) = super::sources_and_destination(&args.paths, super::COPIED)?;
    let preserve = Preserve::of(args, umask())?;
    let dest = Path::new(dest);
    let into = dest.is_dir();
    let about = |error: io::Error| Failure::system_call(dest.shown(), error);
    if paths.len() > 1 && !into {
        let gone = fs::metadata(dest).err().unwrap_or(Errno::NOTDIR.into());
        return Err(about(gone));
    }
    let (base, name) = match (into, dest.file_name()) {
        (true, _) => (DestDir::open(dest).map_err(about)?, None),
        (false, Some(name)) => {
            (DestDir::open(dest.parent().unwrap_or(Path::new("."))).map_err(about)?, Some(name))
        }
        (false, None) => return Err(about(Errno::NOENT.into())),
    };
    interrupt::catch()?;
    let tree = Tree::open(&args.volume, false)?;
    let shown = if into { dest } else { dest.parent().unwrap_or(Path::new("")) };
    let mut copy = CopyOut::new(preserve, base, shown, &tree);
    for path in paths.iter().take_while(|_| !interrupt::came()) {
        // (Of a path without a name at its end, as of `dir/.`, what is in it is copied.)
        let own_name = Path::new(path).file_name().filter(|_| super::ends_with_name(path));
        let name = name.or(own_name);
        match tree.find(path, false) {
            Ok(inode) => copy.tree(inode, name.map(OsStr::as_bytes)),
            Err(error) => copy.report(show(path), error),
        }
    }
    copy.bar.finish_and_clear();
    let done = copy.done;
    let told = if args.json {
        json_text(&done).and_then(print_json)
    } else {
        done.not_kept.line(args.archive).into_iter().for_each(warn);
        Ok(())
    };
    tree.failed.set(tree.failed.get() | (done.failed > 0));
    tree.close(told)
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Done {
    /// Files of all kinds, each name of them.
    copied: u64,
    /// What was reported.
    failed: u64,
    not_kept: Skipped,
}

/// The mask of this process. The system call can only change it, for all threads.
pub(super) fn umask() -> u32 {
    let status = fs::read("/proc/self/status").unwrap_or_default();
    let digits = extol_proc::field(&status, "Umask").and_then(|d| std::str::from_utf8(d).ok());
    let told = digits.and_then(|digits| u32::from_str_radix(digits, 8).ok());
    told.unwrap_or_else(|| {
        let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        rustix::process::umask(mask);
        mask.bits()
    })
}

/// A failure on either side.
#[derive(Debug)]
enum Problem {
    Volume(FsError),
    Host(io::Error),
}

impl From<FsError> for Problem {
    fn from(error: FsError) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<Errno> for Problem {
    fn from(error: Errno) -> Self {
        Self::Host(error.into())
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume(error) => write!(f, "on the volume: {error}"),
            Self::Host(error) => error.fmt(f),
        }
    }
}

type Copied<T> = std::result::Result<T, Problem>;

/// What is being copied.
#[derive(Clone, Copy)]
struct Source<'s> {
    inode: &'s InodeRef<'s>,
    attr: &'s Attr,
}

/// A directory that is being copied.
struct Level<'t> {
    inode: InodeRef<'t>,
    attr: Attr,
    left: vec::IntoIter<DirEntry>,
    /// The copy was made now.
    is_new: bool,
    /// Where to go when it is done; `None` where the copy began.
    above: Option<Id>,
}

/// A copy under way.
struct CopyOut<'t> {
    volume: &'t Tree,
    preserve: Preserve,
    done: Done,
    /// Where all copies go.
    base: DestDir,
    /// The user's name for that.
    shown: PathBuf,
    /// The current directory, and its path from the base with the name that is being copied.
    here: Option<DestDir>,
    path: PathBuf,
    /// Files with several names: where the first one was put, and as what.
    made: HashMap<u32, (PathBuf, Id)>,
    bar: ProgressBar,
    buffer: Vec<u8>,
    is_root: bool,
}

impl<'v> CopyOut<'v> {
    fn new(preserve: Preserve, base: DestDir, shown: &Path, volume: &'v Tree) -> Self {
        Self {
            volume,
            preserve,
            done: Done::default(),
            base,
            shown: shown.to_owned(),
            here: None,
            path: PathBuf::new(),
            made: HashMap::new(),
            bar: progress::bytes("copying"),
            buffer: vec![0; CHUNK],
            is_root: rustix::process::geteuid().is_root(),
        }
    }

    fn report(&mut self, what: impl std::fmt::Display, problem: impl std::fmt::Display) {
        self.bar.suspend(|| warn(format_args!("{what}: {problem}")));
        self.done.failed += 1;
    }

    /// Reports what is about the name that is being copied.
    fn problem(&mut self, problem: impl Into<Problem>) {
        let path = self.shown.join(&self.path);
        self.report(path.shown(), problem.into());
    }

    fn here(&self) -> io::Result<&DestDir> {
        self.here.as_ref().ok_or_else(|| io::Error::other("the destination is gone"))
    }

    /// Copies what `inode` is and all that is in it, as `name`; without one, what is in it.
    fn tree(&mut self, inode: InodeRef<'_>, name: Option<&[u8]>) {
        self.path = name.map(OsStr::from_bytes).map(PathBuf::from).unwrap_or_default();
        self.here = None;
        let mut guard = WalkGuard::default();
        let mut levels = Vec::new();
        match self.base.try_clone() {
            Ok(base) => self.here = Some(base),
            Err(error) => return self.problem(error),
        }
        let left_out = self.done.not_kept.devices;
        match self.node(inode, name, &mut guard) {
            Ok(None) if self.done.not_kept.devices > left_out => {
                // It was named, so nothing was copied of what was asked for.
                self.done.not_kept.devices = left_out;
                let path = self.shown.join(&self.path);
                self.report(path.shown(), "is a device node, which is not made: use -a as root");
            }
            Ok(level) => levels.extend(level),
            Err(problem) => self.problem(problem),
        }
        while let Some(level) = levels.last_mut() {
            // (After a signal, what was made so far is finished.)
            let next = level.left.next().filter(|_| !interrupt::came());
            let Some(entry) = next else {
                let Some(level) = levels.pop() else { return };
                guard.leave();
                if let Err(problem) = self.leave(&level) {
                    self.problem(problem);
                }
                if self.here.is_none() {
                    return;
                }
                self.path.pop();
                continue;
            };
            self.path.push(OsStr::from_bytes(&entry.name));
            let child = level.inode.child(&entry.name).map_err(Problem::from);
            match child.and_then(|child| self.node(child, Some(&entry.name), &mut guard)) {
                Ok(Some(below)) => {
                    levels.push(below);
                    continue;
                }
                Ok(None) => {}
                Err(problem) => self.problem(problem),
            }
            self.path.pop();
        }
    }

    /// Copies one thing; of a directory, gives what is to be copied into it.
    fn node<'t>(
        &mut self,
        inode: InodeRef<'t>,
        name: Option<&[u8]>,
        guard: &mut WalkGuard,
    ) -> Copied<Option<Level<'t>>> {
        let attr = inode.attr()?;
        match (attr.kind, name) {
            (FileKind::Directory, name) => self.directory(inode, attr, name, guard).map(Some),
            (_, Some(name)) => {
                self.no_directory(Source { inode: &inode, attr: &attr }, name).map(|()| None)
            }
            (_, None) => Err(FsError::NotADirectory.into()),
        }
    }

    fn directory<'t>(
        &mut self,
        inode: InodeRef<'t>,
        attr: Attr,
        name: Option<&[u8]>,
        guard: &mut WalkGuard,
    ) -> Copied<Level<'t>> {
        guard.enter(inode.ino, name.map_or(0, <[u8]>::len))?;
        let entered = match name {
            Some(name) => self.here().and_then(|here| Ok((here.enter(name)?, Some(here.id)))),
            None => self.here().and_then(|here| Ok(((here.try_clone()?, false), None))),
        };
        let ((place, is_new), above) = entered.inspect_err(|_| guard.leave())?;
        self.here = Some(place);
        let (entries, problem) = inode.entries();
        if let Some(problem) = problem {
            self.problem(problem);
        }
        Ok(Level { inode, attr, left: entries.into_iter(), is_new, above })
    }

    /// A directory is done: its attributes, which what was made in it would have changed.
    fn leave(&mut self, level: &Level<'_>) -> Copied<()> {
        let Some(place) = self.here.take() else { return Ok(()) };
        if let Some(above) = level.above {
            self.here = Some(place.up(above)?);
        }
        let attributes = if level.is_new { self.preserve.new } else { self.preserve.existing };
        let source = Source { inode: &level.inode, attr: &level.attr };
        self.done.copied += 1;
        self.attributes(source, &place.as_fd(), attributes, level.is_new)
    }

    fn no_directory(&mut self, source: Source<'_>, name: &[u8]) -> Copied<()> {
        let _claimed = match self.here()?.opened(name)? {
            Some(there) => {
                let path = self.shown.join(&self.path);
                match self.volume.claim(there, &path) {
                    Ok(claimed) => Some(claimed),
                    Err(failure) => {
                        self.bar.suspend(|| warn(&failure.line));
                        self.done.failed += 1;
                        return Ok(());
                    }
                }
            }
            None => None,
        };
        let shared = source.attr.nlink > 1 && self.preserve.new.links;
        if shared && let Some((first, id)) = self.made.get(&source.inode.ino) {
            // (Where it cannot have another name, it is copied once more.)
            if self.base.link(first, *id, self.here()?, name).is_ok() {
                self.done.copied += 1;
                return Ok(());
            }
            self.done.not_kept.links += 1;
        }
        match source.attr.kind {
            FileKind::Directory => Err(FsError::IsADirectory.into()),
            FileKind::Regular => self.regular(source, name, shared),
            FileKind::Symlink => {
                let target = source.inode.fs.readlink(source.inode.ino)?;
                let made = self.here()?.symlink(name, &target)?;
                self.node_made(source, made, shared)
            }
            FileKind::CharDevice => self.device(source, name, FileType::CharacterDevice, shared),
            FileKind::BlockDevice => self.device(source, name, FileType::BlockDevice, shared),
            FileKind::Fifo => self.special(source, name, FileType::Fifo, shared),
            FileKind::Socket => self.special(source, name, FileType::Socket, shared),
        }
    }

    /// Finishes what has no contents.
    fn node_made(
        &mut self,
        source: Source<'_>,
        (node, staged): (Node, destination::Staged),
        shared: bool,
    ) -> Copied<()> {
        let attributes = self.attributes(source, &node, self.preserve.new, true);
        self.place(&staged)?;
        if shared {
            self.made.insert(source.inode.ino, (self.path.clone(), node.id()?));
        }
        attributes
    }

    fn device(
        &mut self,
        source: Source<'_>,
        name: &[u8],
        kind: FileType,
        shared: bool,
    ) -> Copied<()> {
        let left_out = match self.preserve.devices {
            false => true,
            true => match self.special(source, name, kind, shared) {
                Err(Problem::Host(e))
                    if !self.is_root && e.kind() == io::ErrorKind::PermissionDenied =>
                {
                    true
                }
                made => return made,
            },
        };
        self.done.not_kept.devices += u64::from(left_out);
        Ok(())
    }

    fn special(
        &mut self,
        source: Source<'_>,
        name: &[u8],
        kind: FileType,
        shared: bool,
    ) -> Copied<()> {
        let device = rustix::fs::makedev(source.attr.rdev.major, source.attr.rdev.minor);
        let made = self.here()?.special(name, kind, device)?;
        self.node_made(source, made, shared)
    }

    /// Gives a copy its name.
    fn place(&mut self, staged: &destination::Staged) -> io::Result<()> {
        self.here()?.place(staged)?;
        self.done.copied += 1;
        Ok(())
    }

    fn regular(&mut self, source: Source<'_>, name: &[u8], shared: bool) -> Copied<()> {
        let (file, staged) = self.here()?.file(name)?;
        let copied = self.contents(source, &file);
        // Half a file looks like a whole one. (What a damaged volume gives of it is kept.)
        if interrupt::came() || matches!(copied, Err(Problem::Host(_))) {
            self.here()?.discard(&staged);
            return if interrupt::came() { Ok(()) } else { copied };
        }
        let attributes = self.attributes(source, &file.as_fd(), self.preserve.new, true);
        self.place(&staged)?;
        if shared {
            self.made.insert(source.inode.ino, (self.path.clone(), destination::file_id(&file)?));
        }
        copied.and(attributes)
    }

    /// Copies data up to an error, and no more than that is there then.
    fn contents(&mut self, source: Source<'_>, file: &File) -> Copied<()> {
        let mut offset = 0;
        let copied = self.pieces(source, file, &mut offset);
        file.set_len(if copied.is_ok() { source.attr.size } else { offset })?;
        copied
    }

    fn pieces(&mut self, source: Source<'_>, file: &File, offset: &mut u64) -> Copied<()> {
        let reader = source.inode.reader();
        while *offset < source.attr.size && !interrupt::came() {
            let start = match source.inode.fs.seek(source.inode.ino, *offset, Seek::Data) {
                Ok(start) => start,
                Err(FsError::NoDataThere) => break,
                Err(error) => return Err(error.into()),
            };
            // A position that does not advance would never end.
            let end =
                source.inode.fs.seek(source.inode.ino, start, Seek::Hole)?.min(source.attr.size);
            if start < *offset || end <= start {
                break;
            }
            *offset = start;
            while *offset < end && !interrupt::came() {
                let want = usize::try_from(end - *offset).unwrap_or(CHUNK).min(CHUNK);
                let count = reader.read(*offset, &mut self.buffer[..want])?;
                if count == 0 {
                    return Err(FsError::Io("the file ended early".into()).into());
                }
                file.write_all_at(&self.buffer[..count], *offset)?;
                *offset += count as u64;
                self.bar.inc(count as u64);
            }
        }
        Ok(())
    }

    fn attributes(
        &mut self,
        source: Source<'_>,
        target: &impl Target,
        attributes: Attributes,
        is_new: bool,
    ) -> Copied<()> {
        let owned = attributes.ownership && self.chown(source, target)?;
        if source.attr.kind != FileKind::Symlink && (is_new || attributes.mode) {
            let mode = self.preserve.mode(attributes, source.attr.perm, owned);
            // (Of a directory, the sticky bit and the group of new files go without saying so.)
            let set_ids = source.attr.kind == FileKind::Regular
                && u32::from(source.attr.perm) & 0o6000 & !mode != 0;
            self.done.not_kept.set_ids += u64::from(set_ids);
            target.chmod(mode)?;
        }
        let xattrs = self.xattrs(source, target, attributes, is_new);
        if attributes.timestamps {
            let spec = |time: Timestamp| Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
            let times = Timestamps {
                last_access: spec(source.attr.atime),
                last_modification: spec(source.attr.mtime),
            };
            target.set_times(&times)?;
        }
        xattrs
    }

    /// False if only root could.
    fn chown(&mut self, source: Source<'_>, target: &impl Target) -> Copied<bool> {
        let given = target.chown(source.attr.uid, source.attr.gid);
        if !self.is_root && matches!(given, Err(Errno::PERM | Errno::INVAL)) {
            self.done.not_kept.owners += 1;
            return Ok(false);
        }
        given?;
        Ok(true)
    }

    fn xattrs(
        &mut self,
        source: Source<'_>,
        target: &impl Target,
        attributes: Attributes,
        is_new: bool,
    ) -> Copied<()> {
        let mut lost = Lost::default();
        for name in source.inode.fs.listxattr(source.inode.ino)? {
            if self.preserve.xattr(attributes, is_new, &name) {
                let value = source.inode.fs.getxattr(source.inode.ino, &name)?;
                // Not every file system keeps them, and not every user may set them.
                if target.set_xattr(OsStr::from_bytes(&name), &value).is_err() {
                    lost.add(&name, attributes.xattr);
                }
            } else if is_new {
                lost.add(&name, false);
            }
        }
        self.done.not_kept.count(lost);
        Ok(())
    }
}
