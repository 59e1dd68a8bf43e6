//! Directory blocks: a chain of entries that covers the block without gaps.
//!
//! ```text
//!  ┌ inode ┬ rec_len ┬ name_len ┬ type ┬ name … padding ┐┌ next entry …  ┐ … ┌ tail: 0, 12, 0, 0xDE, checksum ┐
//!  └ le32  ┴ le16    ┴ u8       ┴ u8   ┴ to rec_len     ┘└               ┘   └ only with metadata_csum        ┘
//! ```
//!
//! An entry may be longer than its name needs: the rest is room for another. Inode 0 marks an
//! unused entry. Removing an entry gives its bytes to the one before it (the first one becomes
//! unused instead). In blocks of 64 KiB the length 65536 is stored as 65535 (0 is read the same
//! way).
//!
//! All functions work on the *area* of entries: the block without its tail ([`area_len`]). Every
//! step along the chain is checked, so a hostile block gives an error, not a loop.

use crate::bytes::{get8, get16, get32, put, put8, put16, put32};
use crate::checksum::InodeSeed;
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::geometry::Geometry;
use crate::ids::InodeNr;
use crate::inode::FileType;

/// Bytes of an entry before its name.
pub const HEADER_LEN: usize = 8;
/// Longest name.
pub const MAX_NAME: usize = 255;
/// Length of the checksum tail.
pub const TAIL_LEN: usize = 12;
const TAIL_TYPE: u8 = 0xDE;

/// Bytes an entry needs for a name.
#[must_use]
pub fn entry_len(name_len: usize) -> usize {
    (HEADER_LEN + name_len).next_multiple_of(4)
}

/// Bytes that the tail takes in the volume's directory blocks.
#[must_use]
pub fn tail_size(geo: &Geometry) -> usize {
    if geo.has_metadata_csum() { TAIL_LEN } else { 0 }
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

fn put_rec_len(area: &mut [u8], at: usize, rec_len: usize) {
    debug_assert!(rec_len <= 65536);
    put16(area, at + 4, u16::try_from(rec_len).unwrap_or(u16::MAX));
}

fn put_entry(
    area: &mut [u8],
    at: usize,
    rec_len: usize,
    name: &[u8],
    ino: InodeNr,
    kind: Option<FileType>,
) {
    debug_assert!((1..=MAX_NAME).contains(&name.len()) && entry_len(name.len()) <= rec_len);
    let len = name.len().min(MAX_NAME);
    put32(area, at, ino.0);
    put_rec_len(area, at, rec_len);
    put8(area, at + 6, len as u8);
    put8(area, at + 7, kind.map_or(0, FileType::code));
    put(area, at + HEADER_LEN, &name[..len]);
    let pad = at + HEADER_LEN + len..at + entry_len(len);
    if let Some(pad) = area.get_mut(pad) {
        pad.fill(0);
    }
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

/// First entry with room for a name of this length, behind its own name or instead of it.
fn find_room(area: &[u8], name_len: usize) -> Result<Option<Entry<'_>>> {
    let need = entry_len(name_len);
    for entry in iter(area) {
        let entry = entry?;
        if entry.rec_len - entry.used_len() >= need {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// True if a name of this length can be added.
///
/// # Errors
/// A broken chain.
pub fn has_room(area: &[u8], name_len: usize) -> Result<bool> {
    Ok(find_room(area, name_len)?.is_some())
}

/// Adds an entry where it fits first; false if there is no room. The caller knows that the name is
/// new.
///
/// # Errors
/// A broken chain; the area is unchanged.
pub fn add(area: &mut [u8], name: &[u8], ino: InodeNr, kind: Option<FileType>) -> Result<bool> {
    let Some(at) = find_room(area, name.len())?.map(|entry| entry.offset) else { return Ok(false) };
    add_at(area, at, name, ino, kind)
}

/// Adds an entry behind the one at `at`, or instead of it if that is unused; false if there is no
/// room. For who has just looked; the caller knows that the name is new.
///
/// # Errors
/// No sound entry there; the area is unchanged.
pub fn add_at(
    area: &mut [u8],
    at: usize,
    name: &[u8],
    ino: InodeNr,
    kind: Option<FileType>,
) -> Result<bool> {
    let entry = entry_at(area, at)?;
    let (rec_len, used) = (entry.rec_len, entry.used_len());
    if rec_len - used < entry_len(name.len()) {
        return Ok(false);
    }
    if used > 0 {
        put_rec_len(area, at, used);
    }
    put_entry(area, at + used, rec_len - used, name, ino, kind);
    Ok(true)
}

/// Removes the entry at `at` if it has this name and `before` (`None`: it is the first) leads to
/// it; returns its inode. For who has just looked. `None`: it is not so, and nothing was changed.
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
    let mut before: Option<(usize, usize)> = None;
    let mut hit = None;
    for entry in iter(area) {
        let entry = entry?;
        if entry.is_used() && entry.name == name {
            hit = Some((entry.offset, entry.rec_len, entry.ino));
            break;
        }
        before = Some((entry.offset, entry.rec_len));
    }
    let Some((offset, rec_len, ino)) = hit else { return Ok(None) };
    if let Some(bytes) = area.get_mut(offset..offset + rec_len) {
        bytes.fill(0);
    }
    match before {
        Some((at, len)) => put_rec_len(area, at, len + rec_len),
        None => put_rec_len(area, offset, rec_len),
    }
    Ok(Some(ino))
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
    put_entry(area, 0, first, b".", own, kind);
    put_entry(area, first, area.len().saturating_sub(first), b"..", parent, kind);
}

/// One entry to be packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEntry<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Inode.
    pub ino: InodeNr,
    /// Type, if the volume records it.
    pub file_type: Option<FileType>,
}

/// Fills the area with these entries, one behind the other; the last one gets the rest. False, with
/// the area unchanged, if they do not fit.
#[must_use]
pub fn pack(area: &mut [u8], entries: &[NewEntry<'_>]) -> bool {
    let total: usize = entries.iter().map(|e| entry_len(e.name.len())).sum();
    if total > area.len() {
        return false;
    }
    init_area(area);
    let mut at = 0;
    for (i, entry) in entries.iter().enumerate() {
        let len =
            if i + 1 == entries.len() { area.len() - at } else { entry_len(entry.name.len()) };
        put_entry(area, at, len, entry.name, entry.ino, entry.file_type);
        at += len;
    }
    true
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

/// Writes the tail of a directory block and its checksum. Only call with metadata_csum, for a whole
/// block that is no dx node (those have their own checksum, see [`htree`](crate::htree)).
pub fn set_csum(block: &mut [u8], seed: InodeSeed) {
    let at = block.len().saturating_sub(TAIL_LEN);
    put32(block, at, 0);
    put16(block, at + 4, TAIL_LEN as u16);
    put8(block, at + 6, 0);
    put8(block, at + 7, TAIL_TYPE);
    let sum = seed.crc(block.get(..at).unwrap_or_default());
    put32(block, at + 8, sum);
}

/// Verifies tail and checksum of a directory block. Only call with metadata_csum.
///
/// # Errors
/// A missing tail or a wrong checksum.
pub fn verify_csum(block: &[u8], seed: InodeSeed) -> Result<()> {
    let at = block
        .len()
        .checked_sub(TAIL_LEN)
        .ok_or(OnDiskError::bad("directory block is cut short"))?;
    let tail_ok = get32(block, at) == 0
        && usize::from(get16(block, at + 4)) == TAIL_LEN
        && get8(block, at + 6) == 0
        && get8(block, at + 7) == TAIL_TYPE;
    ensure(tail_ok, "directory block without a checksum")?;
    ensure_csum(
        "directory block",
        get32(block, at + 8),
        seed.crc(block.get(..at).unwrap_or_default()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(area: &[u8]) -> Vec<(String, u32)> {
        iter(area)
            .map(|e| e.expect("chain"))
            .filter(Entry::is_used)
            .map(|e| (String::from_utf8_lossy(e.name).into_owned(), e.ino.0))
            .collect()
    }

    #[test]
    fn add_remove_and_fill() {
        let mut area = vec![0xAA; 1012];
        init_dots(&mut area, InodeNr(12), InodeNr(2), Some(FileType::Directory));
        assert_eq!(&area[..12], [12, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
        assert_eq!(&area[12..24], [2, 0, 0, 0, 0xE8, 3, 2, 2, b'.', b'.', 0, 0]);
        assert!(is_empty(&area).unwrap());
        let mut added = 0;
        while add(&mut area, format!("name{added:03}").as_bytes(), InodeNr(100 + added), None)
            .unwrap()
        {
            added += 1;
        }
        assert_eq!(added, (1012 - 24) / 16);
        assert!(has_room(&area, 4).unwrap() && !has_room(&area, 5).unwrap());
        assert_eq!(remove(&mut area, b"name005").unwrap(), Some(InodeNr(105)));
        assert_eq!(remove(&mut area, b"name005").unwrap(), None);
        assert_eq!(remove(&mut area, b"name006").unwrap(), Some(InodeNr(106)));
        let too_long = b"a longer name than the others";
        assert!(!add(&mut area, too_long, InodeNr(7), Some(FileType::Fifo)).unwrap());
        assert!(add(&mut area, b"twenty bytes of name", InodeNr(7), Some(FileType::Fifo)).unwrap());
        let hit = find(&area, b"twenty bytes of name").unwrap().unwrap();
        assert_eq!((hit.ino, hit.file_type, hit.rec_len), (InodeNr(7), Some(FileType::Fifo), 32));
        assert_eq!(
            replace(&mut area, b"..", InodeNr(77), Some(FileType::Directory)).unwrap(),
            Some(InodeNr(2))
        );
        assert_eq!(names(&area)[1], ("..".into(), 77));
        assert_eq!(names(&area).len() as u32, 2 + added - 1);
        assert!(!is_empty(&area).unwrap());
    }

    #[test]
    fn first_entry_becomes_unused() {
        let mut area = vec![0; 64];
        init_area(&mut area);
        assert!(add(&mut area, b"a", InodeNr(5), None).unwrap());
        assert!(add(&mut area, b"b", InodeNr(6), None).unwrap());
        assert_eq!(remove(&mut area, b"a").unwrap(), Some(InodeNr(5)));
        assert_eq!(names(&area), [("b".to_owned(), 6)]);
        assert!(add(&mut area, b"c", InodeNr(9), None).unwrap());
        assert_eq!(names(&area)[0], ("c".to_owned(), 9));
    }

    #[test]
    fn changes_at_a_known_place_look_first() {
        let mut area = vec![0; 64];
        init_area(&mut area);
        for (name, ino) in [(b"a", 5), (b"b", 6), (b"c", 7)] {
            assert!(add(&mut area, name, InodeNr(ino), None).unwrap());
        }
        let before = area.clone();
        // Another name, another entry before it, no entry, not the first.
        for (back, at, name) in
            [(Some(0), 12, b"c"), (Some(12), 12, b"b"), (Some(0), 14, b"b"), (None, 12, b"b")]
        {
            assert_eq!(remove_at(&mut area, back, at, name), None);
        }
        assert!(!add_at(&mut area, 0, b"d", InodeNr(8), None).unwrap(), "no room behind the first");
        assert!(add_at(&mut area, 13, b"d", InodeNr(8), None).is_err());
        assert_eq!(area, before);
        let mut by_name = before.clone();
        assert_eq!(remove_at(&mut area, Some(0), 12, b"b"), remove(&mut by_name, b"b").unwrap());
        assert_eq!(area, by_name);
        assert_eq!(remove_at(&mut area, None, 0, b"a"), remove(&mut by_name, b"a").unwrap());
        assert_eq!(area, by_name);
        assert!(add_at(&mut area, 0, b"e", InodeNr(9), None).unwrap());
        assert!(add(&mut by_name, b"e", InodeNr(9), None).unwrap());
        assert_eq!(area, by_name);
    }

    #[test]
    fn whole_64k_block() {
        let mut area = vec![0; 65536];
        init_area(&mut area);
        assert_eq!(get16(&area, 4), 65535);
        assert_eq!(entry_at(&area, 0).unwrap().rec_len, 65536);
        assert!(add(&mut area, b"x", InodeNr(3), None).unwrap());
        assert!(add(&mut area, b"y", InodeNr(4), None).unwrap());
        assert_eq!(names(&area).len(), 2);
    }

    #[test]
    fn packs() {
        let mut area = vec![0; 48];
        let e =
            |name, ino| NewEntry { name, ino: InodeNr(ino), file_type: Some(FileType::Regular) };
        assert!(pack(&mut area, &[e(b"one", 1), e(b"three", 3), e(b"z", 9)]));
        assert_eq!(names(&area), [("one".into(), 1), ("three".into(), 3), ("z".into(), 9)]);
        let before = area.clone();
        assert!(!pack(&mut area, &[e(b"0123456789012345678", 1), e(b"0123456789012345678", 3)]));
        assert_eq!(area, before);
        assert!(pack(&mut area, &[]) && names(&area).is_empty());
    }

    #[test]
    fn hostile_chains() {
        let good = {
            let mut area = vec![0; 64];
            init_dots(&mut area, InodeNr(2), InodeNr(2), None);
            area
        };
        for (at, value) in [(4, 0u8), (4, 13), (4, 4), (4, 68), (5, 1), (6, 5), (16, 56), (6, 0)] {
            let mut area = good.clone();
            area[at] = value;
            assert!(iter(&area).any(|e| e.is_err()), "byte {at} = {value}");
            assert!(add(&mut area.clone(), &[b'n'; 60], InodeNr(3), None).is_err());
            assert!(remove(&mut area, b"none").is_err());
        }
        assert!(entry_at(&good, 63).is_err() && entry_at(&good, 1000).is_err());
    }

    #[test]
    fn tail() {
        let mut block = vec![0; 1024];
        init_area(&mut block[..1012]);
        set_csum(&mut block, InodeSeed(7));
        assert_eq!(&block[1012..1020], [0, 0, 0, 0, 12, 0, 0, 0xDE]);
        verify_csum(&block, InodeSeed(7)).unwrap();
        assert!(verify_csum(&block, InodeSeed(8)).unwrap_err().is_checksum());
        block[1019] = 0;
        assert!(!verify_csum(&block, InodeSeed(7)).unwrap_err().is_checksum());
    }
}
