//! Directory blocks: a chain of entries that covers the block without gaps.
//!
//! ```text
//!  ┌ inode ┬ rec_len ┬ name_len ┬ type ┬ name … padding ┐┌ next entry …┐ … ┌ tail ┐
//!  └ le32  ┴ le16    ┴ u8       ┴ u8   ┴ to rec_len     ┘└             ┘   └──────┘
//!  tail, only with metadata_csum: 0, 12, 0, 0xDE, checksum
//! ```
//!
//! An entry may be longer than its name needs: the rest is room for another. Inode 0 marks an
//! unused entry. Removing an entry gives its bytes to the one before it (the first one becomes
//! unused instead). In blocks of 64 KiB the length 65536 is stored as 65535 (0 is read the same
//! way).
//!
//! In a directory that is encrypted and casefolded the [hash](hash_behind) of each name but `.` and
//! `..` stands behind it, aligned to four bytes: 8 bytes that the entry needs more. (`..` has room
//! for it, too.)
//!
//! All functions work on the *area* of entries: the block without its tail ([`area_len`]). Every
//! step along the chain is checked, so a hostile block gives an error, not a loop.

mod edit;
mod tail;
#[cfg(test)]
mod tests;

pub use edit::{
    NewEntry, add, add_at, init_area, init_dots, pack, remove, remove_at, renumber, replace,
};
pub use tail::{TAIL_LEN, set_csum, tail_size, verify_csum};

use crate::bytes::{get8, get16, get32};
use crate::error::{Result, ensure};
use crate::geometry::Geometry;
use crate::htree::NameHash;
use crate::ids::InodeNr;
use crate::inode::FileType;

/// Bytes of an entry before its name.
pub const HEADER_LEN: usize = 8;
/// Bytes of the hash behind a name, where there is one.
pub const HASH_LEN: usize = 8;
/// Longest name.
pub const MAX_NAME: usize = 255;

/// Bytes an entry needs for a name.
#[must_use]
pub fn entry_len(name_len: usize) -> usize {
    (HEADER_LEN + name_len).next_multiple_of(4)
}

/// Bytes of a directory block that hold entries.
#[must_use]
pub fn area_len(geo: &Geometry) -> usize {
    geo.block_len() - tail_size(geo)
}

/// An entry as it lies in an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Offset in the area.
    pub offset: usize,
    /// Length with all room behind the name.
    pub rec_len: usize,
    /// Inode, 0 if unused.
    pub ino: InodeNr,
    /// Type, if recorded.
    pub file_type: Option<FileType>,
    /// Name.
    pub name: &'a [u8],
}

impl Entry<'_> {
    /// True if the entry names an inode.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.ino.is_some()
    }

    /// Bytes that the entry itself needs: none if unused.
    #[must_use]
    pub fn used_len(&self) -> usize {
        if self.is_used() { entry_len(self.name.len()) } else { 0 }
    }

    /// True for `.` and `..`.
    #[must_use]
    pub fn is_dot(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// The hash that stands behind the name of an entry of this area. `None`: the entry has no room for
/// one.
#[must_use]
pub fn hash_behind(area: &[u8], entry: &Entry<'_>) -> Option<NameHash> {
    let needs = entry_len(entry.name.len());
    let at = entry.offset + needs;
    (needs + HASH_LEN <= entry.rec_len)
        .then(|| NameHash { hash: get32(area, at), minor: get32(area, at + 4) })
}

/// True if a name may stand in a directory: not empty, not too long, without NUL and slash.
#[must_use]
pub fn is_legal_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.iter().any(|&b| b == 0 || b == b'/')
}

/// Walks along the entries of an area; ends after the first error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    area: &'a [u8],
    at: usize,
}

/// All entries of an area, unused ones too.
#[must_use]
pub fn iter(area: &[u8]) -> Entries<'_> {
    Entries { area, at: 0 }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.area.len() {
            return None;
        }
        let entry = entry_at(self.area, self.at);
        self.at = match &entry {
            Ok(entry) => entry.offset + entry.rec_len,
            Err(_) => self.area.len(),
        };
        Some(entry)
    }
}

/// The checked entry at an offset.
///
/// # Errors
/// An entry that leaves the area, is misaligned, or is too short for its name.
pub fn entry_at(area: &[u8], at: usize) -> Result<Entry<'_>> {
    let left = area.len().saturating_sub(at);
    ensure(left >= HEADER_LEN && at.is_multiple_of(4), "directory entry is cut short")?;
    let rec_len = match get16(area, at + 4) {
        0 | 65535 if area.len() == 65536 => 65536,
        n => usize::from(n),
    };
    ensure(rec_len >= HEADER_LEN && rec_len.is_multiple_of(4), "directory entry has a bad length")?;
    ensure(rec_len <= left, "directory entry leaves its block")?;
    let name_len = usize::from(get8(area, at + 6));
    ensure(entry_len(name_len) <= rec_len, "directory entry is too short for its name")?;
    let ino = InodeNr(get32(area, at));
    ensure(!ino.is_some() || name_len > 0, "directory entry without a name")?;
    let start = at + HEADER_LEN;
    let name = area.get(start..start + name_len).unwrap_or_default();
    // The upper bits of the type are reserved.
    Ok(Entry {
        offset: at,
        rec_len,
        ino,
        file_type: FileType::from_code(get8(area, at + 7) & 7),
        name,
    })
}

/// The used entry with this name.
///
/// # Errors
/// A broken chain before the name was found.
pub fn find<'a>(area: &'a [u8], name: &[u8]) -> Result<Option<Entry<'a>>> {
    for entry in iter(area) {
        let entry = entry?;
        if entry.is_used() && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// True if the area holds no names but `.` and `..`.
///
/// # Errors
/// A broken chain.
pub fn is_empty(area: &[u8]) -> Result<bool> {
    for entry in iter(area) {
        let entry = entry?;
        if entry.is_used() && !entry.is_dot() {
            return Ok(false);
        }
    }
    Ok(true)
}
