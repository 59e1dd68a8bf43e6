//! A block of entries, beyond what [`extol_ondisk::dirent`] does: the check when it comes from the
//! device, the search for a name and for room, and the division of a full block by hash.
//!
//! Entries never move in a block that is listed by byte offsets; only blocks that are listed in
//! hash order are packed.

use extol_ondisk::dirent::{self, Entry, NewEntry, entry_len};
use extol_ondisk::htree::NameHash;
use extol_ondisk::{FileType, InodeNr, OnDiskError};
use extol_vfs::{FsError, Result};

use super::hashes::Hashes;
use super::shape::Shape;
use super::sought::Sought;
use crate::error;

/// Checks a block of entries as it comes from the device.
pub(super) fn check(bytes: &[u8], shape: &Shape<'_>) -> Result<()> {
    if let Some(seed) = shape.seed {
        dirent::verify_csum(bytes, seed).map_err(error::ondisk)?;
    }
    let area = shape.area(bytes);
    let mut at = 0;
    while at < area.len() {
        let head = head(area, at).map_err(error::ondisk)?;
        if head.ino.is_some() && !shape.geo.is_valid_inode(head.ino) {
            return Err(FsError::corrupt(format!(
                "directory entry with inode number {}",
                head.ino
            )));
        }
        at += head.rec_len;
    }
    Ok(())
}

/// What [`dirent::entry_at`] tells, without the name.
pub(super) struct Head {
    pub ino: InodeNr,
    pub rec_len: usize,
    pub name_len: usize,
    pub type_code: u8,
}

impl Head {
    /// Bytes that the entry needs itself.
    pub fn used_len(&self, shape: &Shape<'_>) -> usize {
        if self.ino.is_some() { shape.entry_len(self.name_len) } else { 0 }
    }

    /// Bytes that another entry could have. (`.` has no room for a hash.)
    pub fn left(&self, shape: &Shape<'_>) -> usize {
        self.rec_len.saturating_sub(self.used_len(shape))
    }

    /// The entry at `at`, which has the name that was searched for.
    pub fn hit(&self, shape: &Shape<'_>, at: usize, before: Option<usize>) -> Hit {
        let file_type = FileType::from_code(self.type_code).filter(|_| shape.filetype);
        Hit { ino: self.ino, file_type, at, before }
    }
}

/// The head of an entry as one word: inode, length (16 bits), length of the name (8), type (8).
/// Outside of the area: 0.
#[inline]
pub(super) fn word(area: &[u8], at: usize) -> u64 {
    area.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |head| u64::from_le_bytes(*head))
}

/// The checked head of the entry at an offset that the entry before it gave. A search spends most
/// of its time here, so the head is read as one word.
#[inline]
pub(super) fn head(area: &[u8], at: usize) -> std::result::Result<Head, OnDiskError> {
    let word = word(area, at);
    let (ino, name_len) = (InodeNr(word as u32), usize::from((word >> 48) as u8));
    let mut rec_len = usize::from((word >> 32) as u16);
    let is_short = rec_len < entry_len(name_len) || (name_len == 0 && ino.is_some());
    if is_short || rec_len & 3 != 0 || rec_len > area.len().saturating_sub(at) {
        // Either wrong, or one of the lengths that are encoded in another way.
        rec_len = dirent::entry_at(area, at)?.rec_len;
    }
    Ok(Head { ino, rec_len, name_len, type_code: (word >> 56) as u8 & 7 })
}

/// The entry with the name that was searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    /// Inode.
    pub ino: InodeNr,
    /// Type if recorded.
    pub file_type: Option<FileType>,
    /// Its offset.
    pub at: usize,
    /// Offset of the entry before it.
    pub before: Option<usize>,
}

/// What [`scan`] found, up to the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Scan {
    /// The entry with the name.
    pub found: Option<Hit>,
    /// The first entry behind which, or instead of which, there is room for another with a name of
    /// this length.
    pub room: Option<usize>,
    /// Bytes that the entries use, if all were seen.
    used: usize,
}

impl Scan {
    /// True if the leaf is to be divided rather than to take a name (DR-6). There may be room.
    pub fn is_filled(&self, shape: &Shape<'_>, name: &[u8]) -> bool {
        let divides = shape.indexed || shape.dir_index && shape.blocks == 1;
        divides && self.used + shape.entry_len(name.len()) > shape.leaf_limit
    }
}

/// Searches for a name, and for room to add it. Stops at the name.
pub(super) fn scan(area: &[u8], shape: &Shape<'_>, sought: &Sought<'_>) -> Result<Scan> {
    let (name, folds) = (sought.name, !sought.is_bytes());
    let need = shape.entry_len(name.len());
    let mut scan = Scan::default();
    let (mut at, mut before) = (0, None);
    while at < area.len() {
        let head = head(area, at).map_err(|e| shape.bad(e))?;
        if head.ino.is_some()
            && (head.name_len == name.len() || folds)
            && let Some(here) =
                area.get(at + dirent::HEADER_LEN..at + dirent::HEADER_LEN + head.name_len)
            && (here.last() == name.last() || folds)
            && sought.is(here, || hash_behind(area, shape, at))
        {
            scan.found = Some(head.hit(shape, at, before));
            return Ok(scan);
        }
        if scan.room.is_none() && head.left(shape) >= need {
            scan.room = Some(at);
        }
        scan.used += head.used_len(shape);
        before = Some(at);
        at += head.rec_len;
    }
    Ok(scan)
}

/// The hash behind the name of the entry at `at`.
fn hash_behind(area: &[u8], shape: &Shape<'_>, at: usize) -> Option<NameHash> {
    if shape.hash_len == 0 {
        return None;
    }
    dirent::hash_behind(area, &dirent::entry_at(area, at).ok()?)
}

/// The hash that an entry has behind its name, in a directory where each has one.
pub(super) fn stored_hash(
    area: &[u8],
    shape: &Shape<'_>,
    entry: &Entry<'_>,
) -> Result<Option<NameHash>> {
    if shape.hash_len == 0 {
        return Ok(None);
    }
    let missing = || shape.corrupt("directory entry without room for its hash");
    dirent::hash_behind(area, entry).ok_or_else(missing).map(Some)
}

/// An entry with the hash of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<'a> {
    /// Hash of the name.
    pub hash: u32,
    /// The entry.
    pub entry: NewEntry<'a>,
}

/// The entries in use of a block, except `.` and `..` if `skip_dots`, together with `new`, in the
/// order of hashes.
pub(super) fn sorted<'a>(
    area: &'a [u8],
    shape: &Shape<'_>,
    skip_dots: bool,
    new: NewEntry<'a>,
    hashes: Hashes,
) -> Result<Vec<Hashed<'a>>> {
    let hashed = |entry: NewEntry<'a>| {
        let hash = hashes.of(shape, entry.name, entry.hash).hash;
        Hashed { hash, entry }
    };
    // Capacity for names of eight bytes; shorter ones are rare.
    let mut items = Vec::with_capacity(area.len() / entry_len(8) + 1);
    items.push(hashed(new));
    for entry in dirent::iter(area) {
        let entry = entry.map_err(|e| shape.bad(e))?;
        if entry.is_used() && !(skip_dots && entry.is_dot()) {
            let file_type = entry.file_type.filter(|_| shape.filetype);
            let hash = stored_hash(area, shape, &entry)?;
            let copy = NewEntry { name: entry.name, ino: entry.ino, file_type, hash };
            items.push(hashed(copy));
        }
    }
    items.sort_by_key(|item| item.hash);
    Ok(items)
}

/// How to divide the entries of a full block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Division {
    /// They fit into one block, packed.
    Fits,
    /// Into two: this many stay, and the key of the new block.
    Split(usize, u32),
}

/// Divides entries, sorted by hash, into one or two blocks: within the leaf limit if that can be.
/// `None` if two blocks are too few.
pub(super) fn divide(items: &[Hashed<'_>], shape: &Shape<'_>) -> Option<Division> {
    divide_within(items, shape.leaf_limit)
        .or_else(|| divide_within(items, dirent::area_len(shape.geo)))
}

/// Divides entries into one or two blocks of `capacity` bytes: near the middle, and if possible not
/// between entries with the same hash.
pub(super) fn divide_within(items: &[Hashed<'_>], capacity: usize) -> Option<Division> {
    let len = |item: &Hashed<'_>| item.entry.needs();
    let total: usize = items.iter().map(len).sum();
    if total <= capacity {
        return Some(Division::Fits);
    }
    let mut left = 0;
    let mut best: Option<(usize, Division)> = None;
    for (i, pair) in items.windows(2).enumerate() {
        let [a, b] = pair else { continue };
        left += len(a);
        let right = total - left;
        if left > capacity || right > capacity {
            continue;
        }
        let same = a.hash == b.hash;
        let cost = left.abs_diff(right) + if same { total / 2 } else { 0 };
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, Division::Split(i + 1, b.hash | u32::from(same))));
        }
    }
    best.map(|(_, division)| division)
}

/// Fills a block with entries.
pub(super) fn fill(bytes: &mut [u8], shape: &Shape<'_>, items: &[Hashed<'_>]) {
    let entries: Vec<NewEntry<'_>> = items.iter().map(|item| item.entry).collect();
    let fits = dirent::pack(shape.area_mut(bytes), &entries);
    debug_assert!(fits, "entries were divided so that they fit");
}

#[cfg(test)]
mod tests;
