//! Removal of a directory with everything in it.
//!
//! Without recursion, so that depth costs no stack: a list of the directories that are being
//! emptied, the innermost last. Each reads its entries once, a batch at a time, removes files and
//! enters subdirectories; then the directory itself is removed. Only if that fails, because names
//! were added meanwhile, it begins again. (It must not begin again for each batch: the emptied
//! blocks stay, and would be read each time.)

use std::collections::HashSet;
use std::sync::Arc;

use extol_vfs::{DirEntry, FileKind, FileSystem as _, FsError, Result};

use super::dirs::BATCH;
use super::guard::Inode;
use super::resolve::Spot;
use crate::ext4::Ext4;

struct Level {
    /// The directory that holds its name, and the name.
    above: Inode,
    name: Vec<u8>,
    dir: Inode,
    left: Vec<DirEntry>,
    /// Where the next batch begins.
    cookie: u64,
    /// An entry was removed since it began.
    removed: bool,
}

impl Level {
    fn new(above: Inode, name: Vec<u8>, dir: Inode) -> Self {
        Self { above, name, dir, left: Vec::new(), cookie: 0, removed: false }
    }
}

/// The directories that are being emptied, the innermost last.
struct Removal<'a> {
    fs: &'a Arc<Ext4>,
    levels: Vec<Level>,
    /// Directories met: one that appears twice means that the volume is damaged.
    met: HashSet<u32>,
}

/// Removes what a path names, a directory with everything in it.
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
    let met = HashSet::from([node.ino()]);
    let levels = vec![Level::new(above.keep(), name, node.keep())];
    let mut removal = Removal { fs, levels, met };
    while let Some(level) = removal.levels.last_mut() {
        match level.left.pop() {
            Some(entry) => removal.remove_entry(entry)?,
            None => removal.next_batch()?,
        }
    }
    Ok(())
}

impl Removal<'_> {
    /// Reads the next entries of the innermost directory, or removes it if there are none.
    fn next_batch(&mut self) -> Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let listing = self.fs.list(level.dir.ino(), level.cookie, BATCH)?;
        // Entries that can be read come first; the next listing meets the error again.
        if let (true, Some(error)) = (listing.entries.is_empty(), listing.problem) {
            return Err(error);
        }
        level.left = listing.entries;
        if let Some(last) = level.left.last() {
            level.cookie = last.cookie;
            level.left.retain(|e| e.name != b"." && e.name != b"..");
            return Ok(());
        }
        match self.fs.rmdir(level.above.ino(), &level.name) {
            // Names were added meanwhile. (If nothing was removed, they are listed but not found:
            // the index of a damaged directory.)
            Err(FsError::NotEmpty) if level.removed => (level.cookie, level.removed) = (0, false),
            result => {
                gone_is_fine(result)?;
                self.levels.pop();
                if let Some(above) = self.levels.last_mut() {
                    above.removed = true;
                }
            }
        }
        Ok(())
    }

    /// Removes a file of the innermost directory, or enters a subdirectory.
    fn remove_entry(&mut self, entry: DirEntry) -> Result<()> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let fs = self.fs;
        if entry.kind.is_some_and(|kind| kind != FileKind::Directory) {
            // Without a reference on it, so that it is deleted in one transaction with its name.
            match fs.unlink(level.dir.ino(), &entry.name) {
                Ok(()) => {
                    level.removed = true;
                    return Ok(());
                }
                // Removed meanwhile, or listed by a damaged directory that does not find it.
                Err(FsError::NotFound) => return Ok(()),
                // The name leads elsewhere by now, or the type in the entry is wrong.
                Err(FsError::IsADirectory) => {}
                Err(e) => return Err(e),
            }
        }
        let node = match level.dir.lookup(&entry.name) {
            Ok(node) => node,
            Err(FsError::NotFound) => return Ok(()),
            Err(e) => return Err(e),
        };
        if node.kind() != FileKind::Directory {
            drop(node);
            gone_is_fine(fs.unlink(level.dir.ino(), &entry.name))?;
            level.removed = true;
            return Ok(());
        }
        if !self.met.insert(node.ino()) {
            return Err(FsError::corrupt("a directory has two names").in_inode(node.ino().into()));
        }
        let above = level.dir.clone();
        self.levels.push(Level::new(above, entry.name, node));
        Ok(())
    }
}

/// Another thread may have removed it first.
fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(FsError::NotFound) => Ok(()),
        result => result,
    }
}
