//! Listings of directories, and attributes of what their entries lead to, by inode number.
//!
//! A list with the attributes of all files would look each name up, though the entry has the inode
//! number. The number alone is not enough: the name may be gone, and the number that of another
//! file. So a listing knows the version of the directory that it was read from, and attributes that
//! were read by number count only if the directory has that version afterwards: then the name led
//! to the inode all the time. Else the name is looked up.
//!
//! No lock is held between the listing and the attributes, and no reference is taken on the inode.
//! An inode that is not in memory is read from its block and not kept: a list of millions of files
//! pushes no inode out of the table.
//!
//! ```text
//!   lock directory │ entries, version │ unlock
//!     … read inode …
//!   lock directory │ same version?    │ unlock
//! ```
//!
//! Invariants
//! - LT-1: the cell of the directory stays the same while the version is compared: the listing
//!   holds it, so it is not evicted, and one that is not in the table any more counts for nothing
//!   ([`Listed::is_current`]).
//! - LT-2: attributes of an inode whose newest state is in memory come from there: a cell leaves
//!   the table only when its block has all of it (IN-2), and the table is asked first
//!   ([`by_number`]).

use std::sync::Arc;

use extol_ondisk::InodeNr;
use extol_vfs::{Attr, DirEntry, FsError, Result};

use super::names::check_entry;
use crate::dir;
use crate::encrypted;
use crate::inodes::{Cell, InodeState};
use crate::mounted::MountedFs;
use crate::ops::files::{touch_atime, wants_atime};

/// Entries that [`readdir`] reads before it hands them out.
const BATCH: usize = 512;

/// Which directory entries were read from, and its version then.
#[derive(Debug)]
pub(crate) struct Listed {
    cell: Arc<Cell>,
    version: u64,
}

/// Entries of a directory that belong together.
#[derive(Default, Debug)]
pub(crate) struct Listing {
    /// The entries, `.` and `..` among them.
    pub entries: Vec<DirEntry>,
    /// `None` if every name has to be looked up: in an encrypted directory the inode has to fit.
    pub listed: Option<Arc<Listed>>,
    /// What ends the listing behind these entries.
    pub problem: Option<FsError>,
}

/// Reads up to `most` entries behind `cookie`.
pub(crate) fn list(fs: &MountedFs, dir: u32, cookie: u64, most: usize) -> Result<Listing> {
    let cell = fs.cell(dir)?;
    let mut entries = Vec::with_capacity(16);
    let (version, touch, outcome) = {
        let st = cell.read()?;
        if !st.is_dir() {
            return Err(FsError::NotADirectory);
        }
        if st.node.raw.links == 0 {
            return Ok(Listing::default());
        }
        let outcome = dir::iterate(&fs.vol, &st.node, cookie, &mut |entry| {
            entries.push(entry);
            entries.len() < most
        });
        let version = (!encrypted::is_encrypted(&st.node)).then(|| cell.version());
        (version, wants_atime(fs, &st), outcome)
    };
    if touch {
        touch_atime(fs, &cell);
    }
    let listed = version.map(|version| Arc::new(Listed { cell, version }));
    Ok(Listing { entries, listed, problem: outcome.err() })
}

/// Entries from `cookie` on. They are read in batches under the directory's lock and handed out
/// without it.
///
/// # Errors
/// After the entries that can be read.
pub(crate) fn readdir(
    fs: &MountedFs,
    dir: u32,
    cookie: u64,
    each: &mut dyn FnMut(DirEntry) -> bool,
) -> Result<()> {
    let mut cookie = cookie;
    loop {
        let Listing { entries, problem, .. } = list(fs, dir, cookie, BATCH)?;
        let full = entries.len() >= BATCH;
        for entry in entries {
            cookie = entry.cookie;
            if !each(entry) {
                return Ok(());
            }
        }
        match problem {
            Some(error) => return Err(error),
            None if !full => return Ok(()),
            None => {}
        }
    }
}

impl Listed {
    /// True if no name of the directory has changed since.
    fn is_current(&self, fs: &MountedFs) -> bool {
        let cell = fs.table.cached(self.cell.ino);
        let is_same = cell.is_some_and(|cell| Arc::ptr_eq(&cell, &self.cell));
        is_same && self.cell.read().is_ok_and(|_locked| self.cell.version() == self.version)
    }
}

/// The attributes of what an entry leads to. `None`: the name must be looked up, which finds the
/// reason.
pub(crate) fn entry_attr(fs: &MountedFs, listed: &Listed, ino: u32) -> Option<Attr> {
    check_entry(fs, InodeNr(listed.cell.ino), InodeNr(ino)).ok()?;
    let attr = by_number(fs, ino)?;
    listed.is_current(fs).then_some(attr)
}

/// The attributes of an inode that has a name.
fn by_number(fs: &MountedFs, ino: u32) -> Option<Attr> {
    if let Some(cell) = fs.table.used(ino) {
        let st = cell.read().ok()?;
        return is_named(&st).then(|| fs.attr(&st));
    }
    let node = fs.table.peek(&fs.vol, ino).ok()?;
    let st = InodeState::new(node, fs.vol.journal.newest());
    is_named(&st).then(|| fs.attr(&st))
}

fn is_named(st: &InodeState) -> bool {
    st.node.raw.links != 0 && st.kind().is_some()
}
