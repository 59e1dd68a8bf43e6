//! `extol defrag IMAGE [PATH…]`: the files of a volume that is not mounted.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::vec;

use extol_cli_common::{Result, warn};
use extol_vfs::{DirEntry, FileKind, FsError, VolumeControl as _};

use super::{InodeRef, Tree, WalkGuard, show};
use crate::args::DefragArgs;
use crate::defrag::Reporter;
use crate::interrupt;

/// Defragments files of a volume that is not mounted.
pub fn defrag(args: &DefragArgs, reporter: &mut Reporter<'_>) -> Result<()> {
    let tree = Tree::open(&args.volume(), !args.dry_run)?;
    let root = [OsString::from("/")];
    let paths = args.paths();
    let paths = if paths.is_empty() { &root[..] } else { paths };
    let mut work = Work { tree: &tree, reporter, seen: HashSet::new() };
    let done = paths.iter().take_while(|_| !interrupt::came()).try_for_each(|path| {
        match tree.find(path, true) {
            Ok(inode) => work.everything(inode, path.as_bytes()),
            Err(error) => {
                work.failed(path.as_bytes(), &error);
                Ok(())
            }
        }
    });
    let failed = work.reporter.failed();
    done.and(tree.close_with(failed))
}

/// A directory whose entries are being looked at.
struct Level<'t> {
    inode: InodeRef<'t>,
    left: vec::IntoIter<DirEntry>,
    /// Length of its path.
    path: usize,
}

struct Work<'t, 'r, 'a> {
    tree: &'t Tree,
    reporter: &'r mut Reporter<'a>,
    /// Files with several names that were done.
    seen: HashSet<u32>,
}

impl<'t> Work<'t, '_, '_> {
    fn failed(&mut self, path: &[u8], error: &FsError) {
        warn(format_args!("{}: {error}", show(OsStr::from_bytes(path))));
        self.reporter.fail();
    }

    /// A file, or all files below a directory.
    fn everything(&mut self, start: InodeRef<'t>, path: &[u8]) -> Result<()> {
        let mut guard = WalkGuard::default();
        let mut path = path.to_vec();
        let mut levels = Vec::new();
        match self.one(start, &path, path.len(), &mut guard) {
            Ok(level) => levels.extend(level),
            Err(error) => self.failed(&path, &error),
        }
        while let Some(level) = levels.last_mut() {
            if interrupt::came() {
                break;
            }
            path.truncate(level.path);
            let Some(entry) = level.left.next() else {
                levels.pop();
                guard.leave();
                continue;
            };
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let below = level.inode.child(&entry.name);
            let found =
                below.and_then(|inode| self.one(inode, &path, entry.name.len(), &mut guard));
            match found {
                Ok(below) => levels.extend(below),
                Err(error) => self.failed(&path, &error),
            }
        }
        self.reporter.flush()
    }

    /// Does a file; gives a directory that is to be entered.
    fn one(
        &mut self,
        inode: InodeRef<'t>,
        path: &[u8],
        name: usize,
        guard: &mut WalkGuard,
    ) -> extol_vfs::Result<Option<Level<'t>>> {
        let attr = inode.attr()?;
        match attr.kind {
            FileKind::Directory => {
                guard.enter(inode.ino, name)?;
                let (entries, problem) = inode.entries();
                if let Some(error) = problem {
                    self.failed(path, &error);
                }
                Ok(Some(Level { inode, left: entries.into_iter(), path: path.len() }))
            }
            FileKind::Regular if attr.nlink < 2 || self.seen.insert(inode.ino) => {
                let volume = &self.tree.volume;
                let done = if self.reporter.is_dry() {
                    let now = volume.fragments(inode.ino)?;
                    crate::defrag::looked_at(now)
                } else {
                    volume.defragment(inode.ino)?
                };
                self.reporter.file(path, inode.ino, done);
                Ok(None)
            }
            _ => Ok(None),
        }
    }
}
