//! Removing a directory with everything in it.
//!
//! Without recursion, so that depth costs no stack: a list of the directories that are being
//! emptied, the innermost last. Each goes through its entries once, a batch at a time, removes what
//! is no directory, and steps into what is one; then the directory itself goes. Only if that fails,
//! because names came meanwhile, it begins again. (It must not begin again for each batch: the
//! blocks that it emptied stay, and would be read each time.)

use std::collections::HashSet;
use std::sync::Arc;

use extol_vfs::{DirEntry, FileKind, FileSystem as _, FsError, Result};

use super::dirs::fetch;
use super::guard::Inode;
use super::resolve::Spot;
use crate::Ext4;

struct Level {
    /// The directory that holds its name, and the name.
    above: Inode,
    name: Vec<u8>,
    dir: Inode,
    left: Vec<DirEntry>,
    /// Where the next batch begins.
    cookie: u64,
    /// Something was removed since it began.
    moved: bool,
}

impl Level {
    fn new(above: Inode, name: Vec<u8>, dir: Inode) -> Self {
        Self { above, name, dir, left: Vec::new(), cookie: 0, moved: false }
    }
}

pub(super) fn all(fs: &Arc<Ext4>, spot: Spot<'_>) -> Result<()> {
    let Spot { dir: above, name, node, .. } = spot;
    let name = name.ok_or(FsError::Busy)?;
    let node = node.ok_or(FsError::NotFound)?;
    if matches!(&name[..], b"." | b"..") {
        return Err(FsError::Invalid("'.' and '..' cannot be removed"));
    }
    if node.kind() != FileKind::Directory {
        return fs.unlink(above.ino(), &name);
    }
    let mut met = HashSet::from([node.ino()]);
    let mut levels = vec![Level::new(above.keep(), name, node.keep())];
    while let Some(level) = levels.last_mut() {
        if level.left.is_empty() {
            let (left, problem) = fetch(&level.dir, level.cookie);
            // What can be read goes first; the next fetch meets the error again.
            if let (true, Some(error)) = (left.is_empty(), problem) {
                return Err(error);
            }
            level.left = left;
            if let Some(last) = level.left.last() {
                level.cookie = last.cookie;
                level.left.retain(|e| e.name != b"." && e.name != b"..");
                continue;
            }
            match fs.rmdir(level.above.ino(), &level.name) {
                // Names came meanwhile. (If nothing moved, they are listed, but nobody finds them:
                // the index of a damaged directory.)
                Err(FsError::NotEmpty) if level.moved => (level.cookie, level.moved) = (0, false),
                result => {
                    gone_is_fine(result)?;
                    levels.pop();
                    if let Some(above) = levels.last_mut() {
                        above.moved = true;
                    }
                }
            }
            continue;
        }
        let Some(entry) = level.left.pop() else { continue };
        if entry.kind.is_some_and(|kind| kind != FileKind::Directory) {
            // Without a reference on it: it goes in one transaction with its name.
            match fs.unlink(level.dir.ino(), &entry.name) {
                Ok(()) => {
                    level.moved = true;
                    continue;
                }
                // Somebody else was first, or a damaged directory lists what nobody finds in it.
                Err(FsError::NotFound) => continue,
                // Another one has its name by now, or the entry lies.
                Err(FsError::IsADirectory) => {}
                Err(e) => return Err(e),
            }
        }
        let node = match level.dir.lookup(&entry.name) {
            Ok(node) => node,
            Err(FsError::NotFound) => continue,
            Err(e) => return Err(e),
        };
        if node.kind() != FileKind::Directory {
            drop(node);
            gone_is_fine(fs.unlink(level.dir.ino(), &entry.name))?;
            level.moved = true;
            continue;
        }
        if !met.insert(node.ino()) {
            return Err(FsError::corrupt("a directory has two names").in_inode(node.ino().into()));
        }
        let above = level.dir.clone();
        levels.push(Level::new(above, entry.name, node));
    }
    Ok(())
}

/// Somebody else may have removed it first.
fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(FsError::NotFound) => Ok(()),
        result => result,
    }
}
