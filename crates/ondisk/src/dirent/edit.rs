//! Changes to the entries of a directory block's area.
//!
//! Each change first checks the part of the chain that it relies on: an error leaves the area
//! unchanged.

use super::{Entry, HASH_LEN, HEADER_LEN, MAX_NAME, entry_at, entry_len, find, iter};
use crate::bytes::{put, put8, put16, put32};
use crate::error::Result;
use crate::htree::NameHash;
use crate::ids::InodeNr;
use crate::inode::FileType;

fn put_rec_len(area: &mut [u8], at: usize, rec_len: usize) {
    debug_assert!(rec_len <= 65536);
    put16(area, at + 4, u16::try_from(rec_len).unwrap_or(u16::MAX));
}

fn put_entry(area: &mut [u8], at: usize, rec_len: usize, new: &NewEntry<'_>) {
    let name = new.name;
    debug_assert!((1..=MAX_NAME).contains(&name.len()) && new.needs() <= rec_len);
    let len = name.len().min(MAX_NAME);
    put32(area, at, new.ino.0);
    put_rec_len(area, at, rec_len);
    put8(area, at + 6, len as u8);
    put8(area, at + 7, new.file_type.map_or(0, FileType::code));
    put(area, at + HEADER_LEN, &name[..len]);
    let end = at + entry_len(len);
    if let Some(pad) = area.get_mut(at + HEADER_LEN + len..end) {
        pad.fill(0);
    }
    if let Some(hash) = new.hash {
        put32(area, end, hash.hash);
        put32(area, end + 4, hash.minor);
    }
}

/// Adds an entry where it fits first; false if there is no room. The caller knows that the name is
/// new.
///
/// # Errors
/// A broken chain; the area is unchanged.
pub fn add(area: &mut [u8], name: &[u8], ino: InodeNr, kind: Option<FileType>) -> Result<bool> {
    let need = entry_len(name.len());
    let full = |entry: &Entry<'_>| entry.rec_len - entry.used_len() < need;
    match iter(area).find(|entry| !entry.as_ref().is_ok_and(full)) {
        Some(entry) => {
            let at = entry?.offset;
            add_at(area, at, &NewEntry { name, ino, file_type: kind, hash: None })
        }
        None => Ok(false),
    }
}

/// Adds an entry behind the one at `at`, or instead of it if that is unused; false if there is no
/// room. The caller has found the place and knows that the name is new. If it has a hash, so have
/// all entries of the area.
///
/// # Errors
/// No sound entry there; the area is unchanged.
pub fn add_at(area: &mut [u8], at: usize, new: &NewEntry<'_>) -> Result<bool> {
    let entry = entry_at(area, at)?;
    let hash_len = if new.hash.is_some() { HASH_LEN } else { 0 };
    let used = if entry.is_used() { entry.used_len() + hash_len } else { 0 };
    let rec_len = entry.rec_len;
    if rec_len.saturating_sub(used) < new.needs() {
        return Ok(false);
    }
    if used > 0 {
        put_rec_len(area, at, used);
    }
    put_entry(area, at + used, rec_len - used, new);
    Ok(true)
}

/// Removes the entry at `at` if it has this name and `before` (`None`: it is the first) leads to
/// it; returns its inode. `None`: the area is not as the caller found it, and is unchanged.
pub fn remove_at(
    area: &mut [u8],
    before: Option<usize>,
    at: usize,
    name: &[u8],
) -> Option<InodeNr> {
    let hit = entry_at(area, at).ok().filter(|entry| entry.is_used() && entry.name == name)?;
    let (rec_len, ino) = (hit.rec_len, hit.ino);
    let len = match before {
        Some(before) => {
            entry_at(area, before).ok().map(|e| e.rec_len).filter(|len| before + len == at)?
        }
        None => (at == 0).then_some(0)?,
    };
    area.get_mut(at..at + rec_len)?.fill(0);
    put_rec_len(area, before.unwrap_or(at), len + rec_len);
    Some(ino)
}

/// Removes an entry and returns its inode; `None` if there is no such name.
///
/// # Errors
/// A broken chain; the area is unchanged.
pub fn remove(area: &mut [u8], name: &[u8]) -> Result<Option<InodeNr>> {
    let mut before = None;
    for entry in iter(area) {
        let entry = entry?;
        if entry.is_used() && entry.name == name {
            let at = entry.offset;
            return Ok(remove_at(area, before, at, name));
        }
        before = Some(entry.offset);
    }
    Ok(None)
}

/// Makes an entry name another inode and returns the old one; `None` if there is no such name.
///
/// # Errors
/// A broken chain; the area is unchanged.
pub fn replace(
    area: &mut [u8],
    name: &[u8],
    ino: InodeNr,
    kind: Option<FileType>,
) -> Result<Option<InodeNr>> {
    let Some(entry) = find(area, name)? else { return Ok(None) };
    let (at, old) = (entry.offset, entry.ino);
    put32(area, at, ino.0);
    put8(area, at + 7, kind.map_or(0, FileType::code));
    Ok(Some(old))
}

/// Makes all entries of an inode lead to another one; gives how many these were.
///
/// # Errors
/// A broken chain; the area is unchanged.
pub fn renumber(area: &mut [u8], old: InodeNr, new: InodeNr) -> Result<usize> {
    let its = |entry: &Result<Entry<'_>>| {
        entry.as_ref().map_or(true, |entry| entry.is_used() && entry.ino == old)
    };
    let places = iter(area).filter(its).map(|entry| Ok(entry?.offset));
    let places = places.collect::<Result<Vec<_>>>()?;
    places.iter().for_each(|at| put32(area, *at, new.0));
    Ok(places.len())
}

/// Makes the area one unused entry.
pub fn init_area(area: &mut [u8]) {
    area.fill(0);
    put_rec_len(area, 0, area.len());
}

/// Makes the area that of a new directory: `.` and `..`, the latter with all the room. `kind` is
/// [`FileType::Directory`] on volumes that record types.
pub fn init_dots(area: &mut [u8], own: InodeNr, parent: InodeNr, kind: Option<FileType>) {
    area.fill(0);
    let first = entry_len(1);
    let dot = |name, ino| NewEntry { name, ino, file_type: kind, hash: None };
    put_entry(area, 0, first, &dot(b".", own));
    put_entry(area, first, area.len().saturating_sub(first), &dot(b"..", parent));
}

/// An entry to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode.
    pub ino: InodeNr,
    /// Type, if the volume records it.
    pub file_type: Option<FileType>,
    /// Hash behind the name, in a directory that is encrypted and casefolded.
    pub hash: Option<NameHash>,
}

impl NewEntry<'_> {
    /// Bytes that it needs.
    #[must_use]
    pub fn needs(&self) -> usize {
        entry_len(self.name.len()) + self.hash.map_or(0, |_| HASH_LEN)
    }
}

/// Fills the area with these entries, one behind the other; the last one gets the rest. False, with
/// the area unchanged, if they do not fit.
#[must_use]
pub fn pack(area: &mut [u8], entries: &[NewEntry<'_>]) -> bool {
    let total: usize = entries.iter().map(NewEntry::needs).sum();
    if total > area.len() {
        return false;
    }
    init_area(area);
    let mut at = 0;
    for (i, entry) in entries.iter().enumerate() {
        let len = if i + 1 == entries.len() { area.len() - at } else { entry.needs() };
        put_entry(area, at, len, entry);
        at += len;
    }
    true
}
