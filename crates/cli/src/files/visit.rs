//! A walk over a file, or over a directory with all that is below it, for find and du.
//!
//! Directories come before what is in them, and are left behind it. [`WalkGuard`] bounds the walk.
//! What cannot be read is reported, and the walk goes on.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::vec;

use extol_cli_common::Result;
use extol_vfs::{Attr, DirEntry, FileKind};

use super::{Files, InodeRef, WalkGuard, show};
use crate::interrupt;

/// A file on the way.
pub(super) struct Visited<'v, 't> {
    pub(super) path: &'v [u8],
    pub(super) inode: &'v InodeRef<'t>,
    pub(super) attr: &'v Attr,
    /// Directories between it and the start.
    pub(super) depth: usize,
}

/// What is done on the way. An error ends the walk: it is about the output.
pub(super) trait Visitor {
    /// A file; true if a directory is to be entered.
    fn file(&mut self, file: &Visited<'_, '_>) -> Result<bool>;

    /// A directory that was entered has nothing left.
    fn left(&mut self, _dir: &Visited<'_, '_>) -> Result<()> {
        Ok(())
    }
}

/// A directory that was entered.
struct Level<'t> {
    inode: InodeRef<'t>,
    attr: Attr,
    left: vec::IntoIter<DirEntry>,
    /// Length of its path.
    path: usize,
}

/// Walks from a path. `follow`: a symbolic link at its end is followed.
pub(super) fn visit(
    files: &Files,
    start: &OsStr,
    follow: bool,
    visitor: &mut dyn Visitor,
) -> Result<()> {
    let mut walk = Walk { files, guard: WalkGuard::default(), visitor };
    let mut path = start.as_bytes().to_vec();
    let first = match files.find(start, follow) {
        Ok(inode) => walk.one(inode, &path, 0)?,
        Err(error) => {
            files.report(show(start), error);
            None
        }
    };
    let mut levels = Vec::from_iter(first);
    while let Some(level) = levels.last_mut() {
        if interrupt::came() {
            break;
        }
        path.truncate(level.path);
        let Some(entry) = level.left.next() else {
            let depth = levels.len() - 1;
            if let Some(Level { inode, attr, .. }) = levels.pop() {
                walk.guard.leave();
                let dir = Visited { path: &path, inode: &inode, attr: &attr, depth };
                walk.visitor.left(&dir)?;
            }
            continue;
        };
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(&entry.name);
        let below = match level.inode.child(&entry.name) {
            Ok(inode) => walk.one(inode, &path, levels.len())?,
            Err(error) => {
                files.report(show(OsStr::from_bytes(&path)), error);
                None
            }
        };
        levels.extend(below);
    }
    Ok(())
}

/// A walk under way.
struct Walk<'t, 'v> {
    files: &'t Files,
    guard: WalkGuard,
    visitor: &'v mut dyn Visitor,
}

impl<'t> Walk<'t, '_> {
    /// Shows a file to the visitor; gives a directory that was entered.
    fn one(&mut self, inode: InodeRef<'t>, path: &[u8], depth: usize) -> Result<Option<Level<'t>>> {
        let name = path.rsplit(|byte| *byte == b'/').next().map_or(0, <[u8]>::len);
        let shown = || show(OsStr::from_bytes(path));
        let attr = match inode.attr() {
            Ok(attr) => attr,
            Err(error) => {
                self.files.report(shown(), error);
                return Ok(None);
            }
        };
        let wanted = self.visitor.file(&Visited { path, inode: &inode, attr: &attr, depth })?;
        if !wanted || attr.kind != FileKind::Directory {
            return Ok(None);
        }
        if let Err(error) = self.guard.enter(inode.ino, name) {
            self.files.report(shown(), error);
            return Ok(None);
        }
        let (entries, problem) = inode.entries();
        if let Some(problem) = problem {
            self.files.report(shown(), problem);
        }
        Ok(Some(Level { inode, attr, left: entries.into_iter(), path: path.len() }))
    }
}
