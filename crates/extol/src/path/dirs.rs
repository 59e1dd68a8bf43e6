//! Listing: one directory, or everything below one.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::vec;

use extol_vfs::{Attr, DirEntry, FileKind, FileSystem as _, FsError, Result};

use super::guard::Inode;

/// Entries read at a time.
const BATCH: usize = 256;

/// Entries of a directory. An error comes behind all entries that can be read, and ends it.
#[derive(Debug)]
pub struct ReadDir {
    dir: Inode,
    path: PathBuf,
    batch: vec::IntoIter<DirEntry>,
    cookie: u64,
    /// What ends the listing, behind the batch.
    problem: Option<FsError>,
    done: bool,
}

impl ReadDir {
    pub(super) fn of(dir: Inode, path: &Path) -> Result<Self> {
        if dir.kind() != FileKind::Directory {
            return Err(FsError::NotADirectory);
        }
        let batch = Vec::new().into_iter();
        Ok(Self { dir, path: path.to_owned(), batch, cookie: 0, problem: None, done: false })
    }

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
                return Err(error);
            }
            let (batch, problem) = fetch(&self.dir, self.cookie);
            self.done = batch.len() < BATCH && problem.is_none();
            (self.batch, self.problem) = (batch.into_iter(), problem);
        }
    }
}

/// The next entries of a directory, `.` and `..` among them, and the error that ends them.
pub(super) fn fetch(dir: &Inode, cookie: u64) -> (Vec<DirEntry>, Option<FsError>) {
    let mut batch = Vec::with_capacity(16);
    let read = dir.fs().readdir(dir.ino(), cookie, &mut |entry| {
        batch.push(entry);
        batch.len() < BATCH
    });
    (batch, read.err())
}

impl Iterator for ReadDir {
    type Item = Result<DirItem>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_entry() {
            Ok(entry) => entry
                .map(|entry| Ok(DirItem { dir: self.dir.clone(), path: self.path.clone(), entry })),
            Err(e) => {
                self.done = true;
                self.batch = Vec::new().into_iter();
                Some(Err(e))
            }
        }
    }
}

/// One entry of a directory.
#[derive(Debug)]
pub struct DirItem {
    dir: Inode,
    path: PathBuf,
    entry: DirEntry,
}

impl DirItem {
    /// Name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        OsString::from_vec(self.entry.name.clone())
    }

    /// The directory's path, as it was given, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.join(OsStr::from_bytes(&self.entry.name))
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
            None => Ok(self.inode()?.kind()),
        }
    }

    /// Attributes of what the entry names; links are not followed.
    ///
    /// # Errors
    /// `NotFound` if the name is gone.
    pub fn metadata(&self) -> Result<Attr> {
        self.inode()?.attr()
    }

    /// A reference on what the entry names.
    ///
    /// # Errors
    /// `NotFound` if the name is gone.
    pub fn inode(&self) -> Result<Inode> {
        self.dir.lookup(&self.entry.name)
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
}

impl Iterator for Walk {
    type Item = Result<WalkItem>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some((node, path)) = self.start.take() {
            return Some(self.show(node, path));
        }
        loop {
            match self.open.last_mut()?.next() {
                None => {
                    self.open.pop();
                }
                Some(Err(e)) => return Some(Err(e)),
                Some(Ok(item)) => match item.inode() {
                    Ok(node) => return Some(self.show(node, item.path())),
                    Err(FsError::NotFound) => {}
                    Err(e) => return Some(Err(e)),
                },
            }
        }
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

    /// How many directories below the start: 0 for itself.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.depth
    }
}
