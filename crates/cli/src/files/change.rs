//! Commands that change files of a volume, each by itself (`extol chmod IMAGE …`) or as a line of
//! a script of `extol edit`.
//!
//! A command is done operand by operand. What fails is reported with its path, the rest is done,
//! and the command fails at the end.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use extol_vfs::{Creds, DirEntry, FsError, NewNode, SetAttr, VolumeControl as _};

use super::attrs::Owner;
use super::{InodeRef, Tree, WalkGuard, show};
use crate::args::VolumeArgs;
use crate::interrupt;

/// The error of one file.
pub(super) type Problem = Box<dyn std::error::Error>;

/// A command that changes files of a volume.
pub trait Change {
    /// The volume.
    fn volume(&self) -> &VolumeArgs;

    /// Refuses arguments that are wrong whatever the volume holds.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Does it. What fails with one file is reported ([`Tree::report`]); an error is about all.
    fn apply(&self, tree: &Tree) -> Result<()>;
}

/// Carries a command out.
pub fn change(args: &impl Change) -> Result<()> {
    args.check()?;
    let tree = Tree::open(args.volume(), true)?;
    let done = args.apply(&tree);
    let volume = Arc::clone(&tree.volume);
    let closed = tree.close(done);
    if !volume.is_stopped_by_full() {
        return closed;
    }
    let written = volume.data_written();
    drop(volume);
    let why = match recover(args.volume(), &written) {
        Ok(()) => "what it lies on is full, and not all that was to be done is on the volume",
        Err(_) => {
            "what it lies on is full, and not all that was to be done is on the volume; with room \
             there, extol replay recovers it"
        }
    };
    Err(Failure::about(args.volume().source.shown(), why))
}

/// Opens and closes a volume that a full host has stopped: it is as its last commit left it. What
/// is free of `written` leaves a sparse image, so that the host has its room back. (Where that
/// cannot be, it stays.)
pub(super) fn recover(args: &VolumeArgs, written: &Range<u64>) -> Result<()> {
    let again = Tree::open(args, true)?;
    let is_file = again.image.metadata().is_ok_and(|image| image.is_file());
    if is_file && !written.is_empty() {
        let _ = again.volume.trim(written.start, written.end - written.start, 1);
    }
    again.close(Ok(()))
}

/// The user and group of this process, which own what a pipe gives it.
pub(super) fn own_ids() -> Creds {
    Creds { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

impl Tree {
    /// The owner that `--owner` gives to what is made.
    pub(super) fn owner(&self, text: Option<&str>) -> std::result::Result<Owner, String> {
        text.map_or(Ok(Owner::default()), |text| Owner::parse(text, &|path| self.table(path)))
    }
}

impl<'t> InodeRef<'t> {
    /// Makes a file in this directory. Root owns it unless `owner` says otherwise: the volume is
    /// for another system, on which the user of this process has no meaning. A directory with the
    /// setgid bit gives its group to what is made in it, unless `owner` has one.
    pub(super) fn make(
        &self,
        name: &[u8],
        node: NewNode,
        perm: u16,
        owner: Owner,
    ) -> extol_vfs::Result<Self> {
        let ids = Creds { uid: owner.uid.unwrap_or(0), gid: owner.gid.unwrap_or(0) };
        let attr = self.fs.create(self.ino, name, node, perm, 0, ids)?;
        let made = InodeRef::from_attr(self.fs, &attr);
        if owner.gid.is_some_and(|gid| gid != attr.gid) {
            let set = SetAttr { gid: owner.gid, ..SetAttr::default() };
            self.fs.setattr(made.ino, &set)?;
        }
        Ok(made)
    }
}

/// A directory that is being walked.
struct Level<'t> {
    inode: InodeRef<'t>,
    left: vec::IntoIter<DirEntry>,
}

/// Calls `each` with an inode and, if it is a directory, with all that is in it; directories come
/// before what is in them. What `each` fails with is reported.
pub(super) fn walk<'t>(
    tree: &'t Tree,
    path: &OsStr,
    inode: InodeRef<'t>,
    each: &mut dyn FnMut(&Path, &InodeRef<'t>) -> extol_vfs::Result<()>,
) {
    let mut guard = WalkGuard::default();
    let mut path = PathBuf::from(path);
    let mut enter = |path: &Path, inode: InodeRef<'t>, guard: &mut WalkGuard| {
        each(path, &inode)?;
        if !inode.is_dir()? {
            return Ok(None);
        }
        let len = path.file_name().map_or(0, OsStr::len);
        guard.enter(inode.ino, len)?;
        let (entries, problem) = inode.entries();
        if let Some(problem) = problem {
            tree.report(path.shown(), problem);
        }
        Ok(Some(Level { inode, left: entries.into_iter() }))
    };
    let mut levels = match enter(&path, inode, &mut guard) {
        Ok(level) => Vec::from_iter(level),
        Err(error) => return tree.report(show(path.as_os_str()), error),
    };
    while let Some(level) = levels.last_mut() {
        if interrupt::came() {
            return;
        }
        let Some(entry) = level.left.next() else {
            levels.pop();
            guard.leave();
            path.pop();
            continue;
        };
        path.push(OsStr::from_bytes(&entry.name));
        let found = level.inode.child(&entry.name);
        match found.and_then(|inode| enter(&path, inode, &mut guard)) {
            Ok(Some(below)) => {
                levels.push(below);
                continue;
            }
            Ok(None) => {}
            Err(error) => tree.report(path.shown(), error),
        }
        path.pop();
    }
}

/// The file of an operand that is to be made if it is not there.
pub(super) fn find_or_make<'t>(
    tree: &'t Tree,
    path: &OsStr,
    follow: bool,
    make: Option<Owner>,
) -> extol_vfs::Result<Option<InodeRef<'t>>> {
    match tree.find(path, follow) {
        Err(FsError::NotFound) if make.is_none() => Ok(None),
        Err(FsError::NotFound) if !path.as_bytes().ends_with(b"/") => {
            let (dir, name) = tree.find_parent(path)?;
            if dir.child(name).is_ok() {
                // A link to nothing.
                return Err(FsError::NotFound);
            }
            dir.make(name, NewNode::Regular, 0o644, make.unwrap_or_default()).map(Some)
        }
        found => found.map(Some),
    }
}
