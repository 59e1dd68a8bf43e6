//! Commands that change files of a volume, each by itself (`extol chmod IMAGE …`) or as a line of
//! a script of `extol edit`.
//!
//! A command is done operand by operand. What fails is reported with its path, the rest is done,
//! and the command fails at the end.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::vec;

use extol_cli_common::Result;
use extol_proc::Shown as _;
use extol_vfs::{Creds, DirEntry, FsError};

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
    tree.close(done)
}

/// The user and group of this process, which own what it makes.
pub(super) fn own_ids() -> Creds {
    Creds { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
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
    make: bool,
) -> extol_vfs::Result<Option<InodeRef<'t>>> {
    match tree.find(path, follow) {
        Err(FsError::NotFound) if !make => Ok(None),
        Err(FsError::NotFound) if !path.as_bytes().ends_with(b"/") => {
            let (dir, name) = tree.find_parent(path)?;
            if dir.child(name).is_ok() {
                // A link to nothing.
                return Err(FsError::NotFound);
            }
            let new = extol_vfs::NewNode::Regular;
            let attr = dir.fs.create(dir.ino, name, new, 0o644, 0, own_ids())?;
            Ok(Some(InodeRef::from_attr(dir.fs, &attr)))
        }
        found => found.map(Some),
    }
}
