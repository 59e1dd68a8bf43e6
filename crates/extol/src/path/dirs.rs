//! Listing: one directory, or everything below one.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use extol_proc::{below, os_string};
use extol_vfs::{Attr, DirEntry, FileKind, FsError, Result};

use super::guard::Inode;
use crate::ops::listing::{Listed, Listing};

/// Entries read at a time.
pub(super) const BATCH: usize = 256;

/// A directory that is listed.
#[derive(Debug)]
struct Dir {
    node: Inode,
    path: PathBuf,
}

impl Dir {
    /// The attributes of what an entry names. `None`: the directory has changed since it was
    /// listed, so the name must be looked up.
    fn attr_by_number(&self, listed: Option<&Arc<Listed>>, entry: &DirEntry) -> Option<Attr> {
        listed.and_then(|listed| self.node.fs().entry_attr(listed, entry.ino))
    }
}

/// Entries of a directory. An error comes behind all entries that can be read, and ends it.
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Dir>,
    batch: vec::IntoIter<DirEntry>,
    /// Where the batch was read.
    listed: Option<Arc<Listed>>,
    cookie: u64,
    /// What ends the listing, behind the batch.
    problem: Option<FsError>,
    done: bool,
}

impl ReadDir {
    pub(super) fn of(node: Inode, path: &Path) -> Result<Self> {
        if node.kind() != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        let dir = Arc::new(Dir { node, path: path.to_owned() });
        let batch = Vec::new().into_iter();
        Ok(Self { dir, batch, listed: None, cookie: 0, problem: None, done: false })
    }

    /// The next entry but `.` and `..`.
    fn next_entry(&mut self) -> Result<Option<DirEntry>> {
        loop {
            if let Some(entry) = self.batch.next() {
                self.cookie = entry.cookie;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                return Ok(Some(entry));
            }
            if self.done {
                return Ok(None);
            }
            if let Some(error) = self.problem.take() {
                self.done = true;
                return Err(error);
            }
            let listing = self.dir.node.fs().list(self.dir.node.ino(), self.cookie, BATCH);
            let Listing { entries, listed, problem } = listing.inspect_err(|_| self.done = true)?;
            self.done = entries.len() < BATCH && problem.is_none();
            (self.batch, self.listed, self.problem) = (entries.into_iter(), listed, problem);
        }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirItem>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.next_entry().transpose()?;
        let (dir, listed) = (&self.dir, &self.listed);
        Some(entry.map(|entry| DirItem { dir: Arc::clone(dir), listed: listed.clone(), entry }))
    }
}

/// One entry of a directory.
#[derive(Debug)]
pub struct DirItem {
    dir: Arc<Dir>,
    listed: Option<Arc<Listed>>,
    entry: DirEntry,
}

impl DirItem {
    /// Name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        os_string(self.entry.name.clone())
    }

    /// The name as the volume has it, for [`Inode::lookup`]: Windows has no other way to a name
    /// that is not UTF-8.
    #[must_use]
    pub fn name_bytes(&self) -> &[u8] {
        &self.entry.name
    }

    /// The directory's path, as it was given, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        below(&self.dir.path, &self.entry.name)
    }

    /// Inode number.
    #[must_use]
    pub fn ino(&self) -> u32 {
        self.entry.ino
    }

    /// Kind; from the entry if it tells.
    ///
    /// # Errors
    /// `NotFound` if the name is gone.
    pub fn kind(&self) -> Result<FileKind> {
        match self.entry.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.kind),
        }
    }

    /// Attributes of what the entry names, as they are now; links are not followed. Reads the inode
    /// by its number as long as no name of the directory has changed.
    ///
    /// # Errors
    /// `NotFound` if the name is gone.
    pub fn metadata(&self) -> Result<Attr> {
        match self.dir.attr_by_number(self.listed.as_ref(), &self.entry) {
            Some(attr) => Ok(attr),
            None => self.inode()?.attr(),
        }
    }

    /// A reference on what the entry names.
    ///
    /// # Errors
    /// `NotFound` if the name is gone.
    pub fn inode(&self) -> Result<Inode> {
        self.dir.node.lookup(&self.entry.name)
    }
}

/// Deepest directory that a walk enters, and its longest path: sixteen times what system calls
/// take. Each open directory keeps its path, and a volume can hold a chain of as many directories
/// as it has inodes.
const MAX_DEPTH: usize = 4096;
const MAX_PATH: usize = 64 << 10;

/// Everything below a path, depth first, directories before what is in them. Names that vanish
/// during the walk are left out; other errors are shown and the walk goes on. A directory with a
/// second name is shown as an error, and so is what lies more than 4096 directories or 64 KiB of
/// names below the start.
#[derive(Debug)]
pub struct Walk {
    /// What to show first.
    start: Option<(Inode, PathBuf)>,
    /// The directories that are being listed, the innermost last.
    open: Vec<ReadDir>,
    /// Directories met: one that appears twice means that the volume is damaged, and a circle would
    /// never end.
    met: HashSet<u32>,
}

impl Walk {
    pub(super) fn of(top: Inode, path: &Path) -> Self {
        Self { start: Some((top, path.to_owned())), open: Vec::new(), met: HashSet::new() }
    }

    /// Shows a file or directory, and enters a directory.
    fn show(&mut self, node: Inode, path: PathBuf) -> Result<WalkItem> {
        let attr = node.attr()?;
        let depth = self.open.len();
        if node.kind() == FileKind::Directory {
            if depth >= MAX_DEPTH || path.as_os_str().len() > MAX_PATH {
                return Err(FsError::NotSupported("walking so deep"));
            }
            if !self.met.insert(node.ino()) {
                return Err(
                    FsError::corrupt("a directory has two names").in_inode(node.ino().into())
                );
            }
            self.open.push(ReadDir::of(node, &path)?);
        }
        Ok(WalkItem { path, attr, depth })
    }

    /// Shows what the next entry of the innermost directory leads to; `None` behind the last one.
    fn next_of_innermost(&mut self) -> Result<Option<WalkItem>> {
        let depth = self.open.len();
        let Some(list) = self.open.last_mut() else { return Ok(None) };
        let Some(entry) = list.next_entry()? else { return Ok(None) };
        let path = below(&list.dir.path, &entry.name);
        // (A directory takes a reference, and is not worth being read by its number.)
        if entry.kind != Some(FileKind::Directory) {
            let attr = list.dir.attr_by_number(list.listed.as_ref(), &entry);
            if let Some(attr) = attr.filter(|attr| attr.kind != FileKind::Directory) {
                return Ok(Some(WalkItem { path, attr, depth }));
            }
        }
        let node = list.dir.node.lookup(&entry.name)?;
        self.show(node, path).map(Some)
    }
}

impl Iterator for Walk {
    type Item = Result<WalkItem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((node, path)) = self.start.take() {
            return Some(self.show(node, path));
        }
        while !self.open.is_empty() {
            match self.next_of_innermost() {
                Ok(None) => {
                    self.open.pop();
                }
                // The name has gone meanwhile.
                Err(FsError::NotFound) => {}
                result => return result.transpose(),
            }
        }
        None
    }
}

/// A file or directory that a walk finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalkItem {
    path: PathBuf,
    attr: Attr,
    depth: usize,
}

impl WalkItem {
    /// Path: that of the walk's start, as it was given, with the names below it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Attributes.
    #[must_use]
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// The last name of the path; `None` for the walk's start if that is the root.
    #[must_use]
    pub fn file_name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    /// How many directories below the start: 0 for itself.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }
}
