//! `extol rm` and `extol mkdir`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::vec;

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use extol_vfs::{DirEntry, FsError, Mode, NewNode, SetAttr};

use super::attrs::Owner;
use super::change::Change;
use super::{InodeRef, Tree, WalkGuard, ends_with_name, show};
use crate::args::{MkdirArgs, RmArgs, VolumeArgs};
use crate::interrupt;

impl Change for RmArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        match self.paths.iter().find(|path| !path.is_empty() && !ends_with_name(path)) {
            Some(path) => Err(Failure::usage(format_args!(
                "{}: cannot be removed: give a path that ends with a name",
                show(path)
            ))),
            None => Ok(()),
        }
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        for path in self.paths.iter().take_while(|_| !interrupt::came()) {
            match remove(tree, path, self.recursive) {
                Err(FsError::NotFound) if self.force => {}
                Err(error) => tree.report(show(path), error),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

/// A directory that is being emptied.
struct Level<'t> {
    /// The directory that holds its name, and the name.
    above: u32,
    name: Vec<u8>,
    inode: InodeRef<'t>,
    left: vec::IntoIter<DirEntry>,
    /// All that was in it is gone.
    empty: bool,
}

/// Removes what a path names. What is left of a directory has been reported.
fn remove(tree: &Tree, path: &OsStr, recursive: bool) -> extol_vfs::Result<()> {
    let (dir, name) = tree.find_parent(path)?;
    let mut removal =
        Removal { tree, path: Path::new(path).to_owned(), guard: WalkGuard::default() };
    let inode = dir.child(name)?;
    if !inode.is_dir()? {
        return dir.fs.unlink(dir.ino, name);
    }
    if !recursive {
        return Err(FsError::IsADirectory);
    }
    let mut levels = vec![removal.enter(dir.ino, name, inode)?];
    while let Some(level) = levels.last_mut() {
        if interrupt::came() {
            return Ok(());
        }
        if let Some(entry) = level.left.next() {
            removal.path.push(OsStr::from_bytes(&entry.name));
            match removal.entry(level, &entry.name) {
                Ok(Some(below)) => {
                    levels.push(below);
                    continue;
                }
                Ok(None) => {}
                Err(error) => level.empty = removal.report(&error),
            }
            removal.path.pop();
            continue;
        }
        let Some(level) = levels.pop() else { break };
        removal.guard.leave();
        // What was left in it has been reported.
        let mut gone = level.empty;
        if gone && let Err(error) = dir.fs.rmdir(level.above, &level.name) {
            gone = removal.report(&error);
        }
        if let Some(above) = levels.last_mut() {
            above.empty &= gone;
        }
        removal.path.pop();
    }
    Ok(())
}

/// A recursive removal under way.
struct Removal<'t> {
    tree: &'t Tree,
    path: PathBuf,
    guard: WalkGuard,
}

impl<'t> Removal<'t> {
    /// Always false.
    fn report(&mut self, error: &FsError) -> bool {
        self.tree.report(self.path.shown(), error);
        false
    }

    fn enter(
        &mut self,
        above: u32,
        name: &[u8],
        inode: InodeRef<'t>,
    ) -> extol_vfs::Result<Level<'t>> {
        self.guard.enter(inode.ino, name.len())?;
        let (entries, problem) = inode.entries();
        let empty = problem.is_none_or(|error| self.report(&error));
        Ok(Level { above, name: name.to_vec(), inode, left: entries.into_iter(), empty })
    }

    /// Removes an entry, or returns the directory that must be emptied first.
    fn entry(&mut self, level: &Level<'t>, name: &[u8]) -> extol_vfs::Result<Option<Level<'t>>> {
        let inode = level.inode.child(name)?;
        if inode.is_dir()? {
            return self.enter(level.inode.ino, name, inode).map(Some);
        }
        drop(inode);
        level.inode.fs.unlink(level.inode.ino, name).map(|()| None)
    }
}

impl Change for MkdirArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        self.owner.as_deref().map_or(Ok(()), Owner::check)?;
        self.perm().map(drop).map_err(Failure::usage)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let perm = self.perm().map_err(Failure::usage)?;
        let owner = match tree.owner(self.owner.as_deref()) {
            Ok(owner) => owner,
            Err(why) => return tree.reported(why),
        };
        for path in &self.paths {
            let made = match self.parents {
                true => make_all(tree, path, perm, owner),
                false => make_one(tree, path, perm, owner),
            };
            match made {
                Err(FsError::NotFound) if !self.parents => {
                    tree.report(show(path), "no such file or directory above it: make all with -p");
                }
                Err(error) => tree.report(show(path), error),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

impl MkdirArgs {
    /// The mode that is asked for. As with mkdir(1), +X and the like change one of 777.
    fn perm(&self) -> std::result::Result<Option<u16>, String> {
        self.mode.as_deref().map(|mode| Ok(Mode::parse(mode)?.applied(0o777, true, 0))).transpose()
    }
}

/// Makes a directory. A mode that is asked for holds whatever the directory above has for new files
/// (access lists); its setgid bit stays.
fn make_one(tree: &Tree, path: &OsStr, perm: Option<u16>, owner: Owner) -> extol_vfs::Result<()> {
    let (dir, name) = match tree.find_parent(path) {
        // As mkdir(2) says of the root directory and of `..`.
        Err(FsError::Invalid(_)) if tree.find(path, true).is_ok() => return Err(FsError::Exists),
        found => found?,
    };
    let made = dir.make(name, NewNode::Directory, perm.unwrap_or(0o755), owner)?;
    if let Some(perm) = perm {
        let now = made.attr()?.perm;
        let perm = perm | (now & 0o2000);
        if now != perm {
            let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
            made.fs.setattr(made.ino, &set)?;
        }
    }
    Ok(())
}

/// Makes a directory and those above it, which have the usual mode.
fn make_all(tree: &Tree, path: &OsStr, perm: Option<u16>, owner: Owner) -> extol_vfs::Result<()> {
    let mut so_far = PathBuf::from("/");
    let names = Path::new(path).components();
    let names = names.filter(|name| matches!(name, Component::Normal(_) | Component::ParentDir));
    let mut names = names.peekable();
    while let Some(name) = names.next() {
        so_far.push(name);
        let perm = if names.peek().is_some() { None } else { perm };
        let here: OsString = so_far.clone().into();
        match tree.find(&here, true) {
            Ok(inode) if inode.is_dir()? => {}
            Ok(_) => return Err(FsError::NotADirectory),
            Err(FsError::NotFound) => make_one(tree, &here, perm, owner)?,
            Err(error) => return Err(error),
        }
    }
    debug_assert!(so_far.as_os_str().as_bytes().starts_with(b"/"));
    Ok(())
}
