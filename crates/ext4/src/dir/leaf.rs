//! What directories need of a block of entries beyond [`extol_ondisk::dirent`]: checking it when it comes from the
//! device, one pass that looks for a name and for room, and dividing an overfull one by hash.
//!
//! Nothing moves in a block that is read by byte offsets; only blocks that are read in the order of hashes are ever
//! packed anew.

use extol_ondisk::dirent::{self, NewEntry, entry_len};
use extol_ondisk::{FileType, InodeNr};
use extol_vfs::{FsError, Result};

use super::blocks::Shape;
use crate::error;

/// Checks a block of entries as it comes from the device.
pub(super) fn check(bytes: &[u8], shape: &Shape<'_>) -> Result<()> {
    if let Some(seed) = shape.seed {
        dirent::verify_csum(bytes, seed).map_err(error::ondisk)?;
    }
    for entry in dirent::iter(shape.area(bytes)) {
        let entry = entry.map_err(error::ondisk)?;
        if entry.is_used() && !shape.geo.is_valid_inode(entry.ino) {
            return Err(FsError::corrupt(format!("directory entry with inode number {}", entry.ino)));
        }
    }
    Ok(())
}

/// An entry with the name that was looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hit {
    /// Inode.
    pub ino: InodeNr,
    /// Type if recorded.
    pub file_type: Option<FileType>,
    /// Where it is.
    pub at: usize,
    /// Where the entry before it is.
    pub before: Option<usize>,
}

/// What [`scan`] found, up to the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Scan {
    /// The entry with the name.
    pub found: Option<Hit>,
    /// The first entry behind which, or instead of which, there is room for another with a name of this length.
    pub room: Option<usize>,
    /// Bytes of the entries in use.
    pub used: usize,
}

/// Looks for a name, and for room to add it. Stops at the name.
///
/// Most of the time of a lookup goes here, so the entries are not decoded but read as one word each.
pub(super) fn scan(area: &[u8], shape: &Shape<'_>, name: &[u8]) -> Result<Scan> {
    let need = entry_len(name.len());
    let (mut room, mut all) = (None, 0);
    let (mut at, mut before) = (0, None);
    while at < area.len() {
        let head =
            area.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |head| u64::from_le_bytes(*head));
        let (ino, name_len) = (head as u32, usize::from((head >> 48) as u8));
        let mut rec_len = usize::from((head >> 32) as u16);
        let used = entry_len(name_len);
        if rec_len & 3 != 0 || rec_len < used || rec_len > area.len() - at || (name_len == 0 && ino != 0) {
            // Either wrong, or one of the lengths that are written in another way.
            rec_len = dirent::entry_at(area, at).map_err(|e| shape.bad(e))?.rec_len;
        }
        let mut left = rec_len;
        if ino != 0 {
            if name_len == name.len()
                && let Some(here) = area.get(at + dirent::HEADER_LEN..at + dirent::HEADER_LEN + name_len)
                && here.last() == name.last()
                && here == name
            {
                let file_type = FileType::from_code((head >> 56) as u8 & 7).filter(|_| shape.filetype);
                return Ok(Scan {
                    found: Some(Hit { ino: InodeNr(ino), file_type, at, before }),
                    room,
                    used: all,
                });
            }
            left = rec_len.saturating_sub(used);
            all += used;
        }
        if left >= need && room.is_none() {
            room = Some(at);
        }
        before = Some(at);
        at += rec_len;
    }
    Ok(Scan { found: None, room, used: all })
}

/// An entry with the hash of its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<'a> {
    /// Hash of the name.
    pub hash: u32,
    /// The entry.
    pub entry: NewEntry<'a>,
}

/// The entries in use of a block, except `.` and `..` if `skip_dots`, together with `new`, in the order of hashes.
pub(super) fn sorted<'a>(
    area: &'a [u8],
    shape: &Shape<'_>,
    skip_dots: bool,
    new: NewEntry<'a>,
    hash: impl Fn(&[u8]) -> u32,
) -> Result<Vec<Hashed<'a>>> {
    let mut items = vec![Hashed { hash: hash(new.name), entry: new }];
    for entry in dirent::iter(area) {
        let entry = entry.map_err(|e| shape.bad(e))?;
        if entry.is_used() && !(skip_dots && entry.is_dot()) {
            let file_type = entry.file_type.filter(|_| shape.filetype);
            let copy = NewEntry { name: entry.name, ino: entry.ino, file_type };
            items.push(Hashed { hash: hash(entry.name), entry: copy });
        }
    }
    items.sort_by_key(|item| item.hash);
    Ok(items)
}

/// How to divide the entries of an overfull block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Division {
    /// They fit into one block, packed.
    Fits,
    /// Into two: this many stay, and the key of the new block.
    Split(usize, u32),
}

/// Divides entries, sorted by hash, into one or two blocks of `capacity` bytes: near the middle, and if possible not
/// between entries with the same hash. `None` if two blocks are too few.
pub(super) fn divide(items: &[Hashed<'_>], capacity: usize) -> Option<Division> {
    let len = |item: &Hashed<'_>| entry_len(item.entry.name.len());
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
mod tests {
    use super::*;

    fn items(hashes_and_lengths: &[(u32, usize)]) -> Vec<Hashed<'static>> {
        static NAME: [u8; 255] = [b'n'; 255];
        let item = |&(hash, len): &(u32, usize)| Hashed {
            hash,
            entry: NewEntry { name: &NAME[..len], ino: InodeNr(12), file_type: None },
        };
        hashes_and_lengths.iter().map(item).collect()
    }

    #[test]
    fn divided_near_the_middle() {
        let items = items(&[(2, 4), (4, 4), (6, 4), (8, 4)]);
        assert_eq!(divide(&items, 48), Some(Division::Fits));
        assert_eq!(divide(&items, 47), Some(Division::Split(2, 6)));
        assert_eq!(divide(&items, 12), None);
    }

    #[test]
    fn divided_by_size_not_by_number() {
        let items = items(&[(2, 4), (4, 4), (6, 4), (8, 4), (10, 250)]);
        assert_eq!(divide(&items, 270), Some(Division::Split(4, 10)));
    }

    #[test]
    fn equal_hashes_stay_together_if_they_can() {
        let group = items(&[(2, 4), (6, 4), (6, 4), (6, 4), (8, 4)]);
        assert_eq!(divide(&group, 50), Some(Division::Split(1, 6)));
        // The new block continues the hash.
        let chain = items(&[(6, 4), (6, 4), (6, 4), (6, 4)]);
        assert_eq!(divide(&chain, 40), Some(Division::Split(2, 7)));
    }
}
