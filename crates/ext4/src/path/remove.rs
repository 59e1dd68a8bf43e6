//! Removing a directory with everything in it.
//!
//! Without recursion, so that depth costs no stack: a list of the directories that are being emptied, the innermost last.
//! Each takes a batch of its entries from the start, removes what is no directory, and steps into the first that is one.
//! An empty batch means that the directory itself can go.

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
    /// Something of the last batch was removed.
    moved: bool,
}

pub(super) fn all(fs: &Arc<Ext4>, spot: &Spot) -> Result<()> {
    let (above, name) = spot.entry()?;
    let node = spot.node.as_ref().ok_or(FsError::NotFound)?;
    if matches!(name, b"." | b"..") {
        return Err(FsError::Invalid("'.' and '..' cannot be removed"));
    }
    if node.kind() != FileKind::Directory {
        return fs.unlink(above.ino(), name);
    }
    let mut met = HashSet::from([node.ino()]);
    let mut levels = vec![Level {
        above: above.clone(),
        name: name.to_vec(),
        dir: node.clone(),
        left: Vec::new(),
        moved: true,
    }];
    while let Some(level) = levels.last_mut() {
        if level.left.is_empty() {
            level.left = entries(&level.dir)?;
            if level.left.is_empty() {
                gone_is_fine(fs.rmdir(level.above.ino(), &level.name))?;
                levels.pop();
                if let Some(above) = levels.last_mut() {
                    above.moved = true;
                }
                continue;
            }
            if !std::mem::replace(&mut level.moved, false) {
                // Listed, but nobody finds them: the index of a damaged directory, or somebody who makes new ones all the time.
                return Err(FsError::NotEmpty);
            }
        }
        let Some(entry) = level.left.pop() else { continue };
        let node = match level.dir.lookup(&entry.name) {
            Ok(node) => node,
            Err(FsError::NotFound) => continue,
            Err(e) => return Err(e),
        };
        if node.kind() != FileKind::Directory {
            gone_is_fine(fs.unlink(level.dir.ino(), &entry.name))?;
            level.moved = true;
            continue;
        }
        if !met.insert(node.ino()) {
            return Err(FsError::corrupt("a directory has two names").in_inode(node.ino().into()));
        }
        let above = level.dir.clone();
        levels.push(Level { above, name: entry.name, dir: node, left: Vec::new(), moved: true });
    }
    Ok(())
}

/// The first entries of a directory beside `.` and `..`.
fn entries(dir: &Inode) -> Result<Vec<DirEntry>> {
    let mut batch = fetch(dir, 0)?;
    batch.retain(|e| e.name != b"." && e.name != b"..");
    Ok(batch)
}

/// Somebody else may have removed it first.
fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(FsError::NotFound) => Ok(()),
        result => result,
    }
}
