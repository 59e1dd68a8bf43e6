//! `extol rm` and `extol mkdir`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use extol_vfs::{Creds, FsError, NewNode};

use super::{Held, Trail, Tree, show};
use crate::args::{MkdirArgs, RmArgs};
use crate::error::Result;

/// Removes.
pub fn rm(args: &RmArgs) -> Result<()> {
    let mut tree = Tree::open(&args.source, &args.options, true)?;
    for path in &args.paths {
        match remove(&tree, path, args.recursive) {
            Err(FsError::NotFound) if args.force => {}
            Err(error) => tree.report(show(path), error),
            Ok(()) => {}
        }
    }
    tree.close(Ok(()))
}

fn remove(tree: &Tree, path: &OsStr, recursive: bool) -> extol_vfs::Result<()> {
    let (dir, name) = tree.find_parent(path)?;
    remove_in(&dir, name, recursive, &mut Trail::default())
}

fn remove_in(dir: &Held<'_>, name: &[u8], recursive: bool, trail: &mut Trail) -> extol_vfs::Result<()> {
    let held = dir.child(name)?;
    if !held.is_dir()? {
        return dir.fs.unlink(dir.ino, name);
    }
    if !recursive {
        return Err(FsError::IsADirectory);
    }
    trail.enter(held.ino)?;
    for entry in held.entries()? {
        remove_in(&held, &entry.name, recursive, trail)?;
    }
    trail.leave();
    dir.fs.rmdir(dir.ino, name)
}

/// Makes directories.
pub fn mkdir(args: &MkdirArgs) -> Result<()> {
    let mut tree = Tree::open(&args.source, &args.options, true)?;
    for path in &args.paths {
        let made = if args.parents { make_all(&tree, path) } else { make_one(&tree, path) };
        if let Err(error) = made {
            tree.report(show(path), error);
        }
    }
    tree.close(Ok(()))
}

fn make_one(tree: &Tree, path: &OsStr) -> extol_vfs::Result<()> {
    let (dir, name) = tree.find_parent(path)?;
    let who = Creds { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() };
    let attr = dir.fs.create(dir.ino, name, NewNode::Directory, 0o755, 0, who)?;
    drop(Held::adopt(dir.fs, &attr));
    Ok(())
}

fn make_all(tree: &Tree, path: &OsStr) -> extol_vfs::Result<()> {
    let mut so_far = PathBuf::from("/");
    for component in Path::new(path).components() {
        let Component::Normal(name) = component else { continue };
        so_far.push(name);
        let here: OsString = so_far.clone().into();
        match tree.find(&here, true) {
            Ok(held) if held.is_dir()? => {}
            Ok(_) => return Err(FsError::NotADirectory),
            Err(FsError::NotFound) => make_one(tree, &here)?,
            Err(error) => return Err(error),
        }
    }
    debug_assert!(so_far.as_os_str().as_bytes().starts_with(b"/"));
    Ok(())
}
