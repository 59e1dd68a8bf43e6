//! The names of a directory.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use extol_vfs::{DirEntry, FileKind, FsError, Result};

/// `.` and `..` have the first two.
const FIRST_COOKIE: u64 = 3;

/// An entry of a directory.
pub struct Entry {
    name: Box<[u8]>,
    pub ino: u32,
    pub kind: FileKind,
}

/// The names of a directory, by name and in the order in which they were made.
pub struct Names {
    by_name: HashMap<Box<[u8]>, u64>,
    by_cookie: BTreeMap<u64, Entry>,
    next: u64,
    pub parent: u32,
}

impl Names {
    /// None yet.
    pub fn new(parent: u32) -> Self {
        Self { by_name: HashMap::new(), by_cookie: BTreeMap::new(), next: FIRST_COOKIE, parent }
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The entries behind a cookie.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = DirEntry> {
        let range = (Bound::Excluded(cookie), Bound::Unbounded);
        self.by_cookie.range(range).map(|(cookie, entry)| DirEntry {
            ino: entry.ino,
            cookie: *cookie,
            kind: Some(entry.kind),
            name: entry.name.to_vec(),
        })
    }

    pub fn find(&self, name: &[u8]) -> Result<&Entry> {
        let cookie = self.by_name.get(name).ok_or(FsError::NotFound)?;
        self.by_cookie.get(cookie).ok_or(FsError::NotFound)
    }

    pub fn insert(&mut self, name: &[u8], ino: u32, kind: FileKind) -> Result<()> {
        if self.by_name.contains_key(name) {
            return Err(FsError::Exists);
        }
        let cookie = self.next;
        self.next += 1;
        self.by_name.insert(name.into(), cookie);
        self.by_cookie.insert(cookie, Entry { name: name.into(), ino, kind });
        Ok(())
    }

    pub fn remove(&mut self, name: &[u8]) -> Result<Entry> {
        let cookie = self.by_name.remove(name).ok_or(FsError::NotFound)?;
        self.by_cookie.remove(&cookie).ok_or(FsError::NotFound)
    }
}
