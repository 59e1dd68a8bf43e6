//! Entries and values in an area: the part that the inode's and the block's form share.

use super::entry::{ENTRY_LEN, XattrEntry, entry_hash, entry_space};
use super::{END_LEN, MAX_INODE_VALUE};
use crate::bytes::{get8, get16, get32, put, put8, put16, put32};
use crate::error::{Result, ensure};
use crate::ids::InodeNr;

/// Entries from `first` on; value offsets count from `base`.
pub(super) fn parse(area: &[u8], base: usize, first: usize) -> Result<Vec<XattrEntry>> {
    // First the entries up to their end, then the values, which must lie behind it.
    let mut heads = Vec::new();
    let mut at = first;
    loop {
        ensure(at + END_LEN <= area.len(), "attribute entries without an end")?;
        if get32(area, at) == 0 {
            break;
        }
        ensure(at + ENTRY_LEN <= area.len(), "attribute entry is cut short")?;
        let name_len = usize::from(get8(area, at));
        let next = at + entry_space(name_len);
        ensure(next + END_LEN <= area.len(), "attribute entry is cut short")?;
        heads.push(at);
        at = next;
    }
    let values_from = at + END_LEN;
    let mut out = Vec::with_capacity(heads.len());
    for at in heads {
        let start = at + ENTRY_LEN;
        let name = area.get(start..start + usize::from(get8(area, at))).unwrap_or_default();
        ensure(!name.contains(&0), "attribute name with a zero byte")?;
        // Built anew, such an entry would look like the end of the list and hide what follows it.
        ensure(!name.is_empty() || get8(area, at + 1) != 0, "attribute without a name")?;
        let (value_inum, value_size) = (get32(area, at + 4), get32(area, at + 8));
        ensure(value_size <= MAX_INODE_VALUE, "attribute value is too long")?;
        ensure(value_inum == 0 || value_size > 0, "empty attribute value in an inode")?;
        let value = if value_inum == 0 && value_size > 0 {
            let from = base + usize::from(get16(area, at + 2));
            let to = from + value_size as usize;
            ensure(from >= values_from, "attribute value overlaps the entries")?;
            ensure(to.next_multiple_of(4) <= area.len(), "attribute value is outside its area")?;
            area.get(from..to).unwrap_or_default().to_vec()
        } else {
            Vec::new()
        };
        out.push(XattrEntry {
            index: get8(area, at + 1),
            name: name.to_vec(),
            value,
            value_inum,
            value_size,
            hash: get32(area, at + 12),
        });
    }
    Ok(out)
}

/// Names another inode in the entries from `first` on whose value is in inode `old`. Nothing else
/// depends on the number: hashes are those of values.
pub(super) fn renumber(area: &mut [u8], first: usize, (old, new): (InodeNr, InodeNr)) {
    let mut at = first;
    while at + ENTRY_LEN <= area.len() && get32(area, at) != 0 {
        if get32(area, at + 4) == old.0 {
            put32(area, at + 4, new.0);
        }
        at += entry_space(usize::from(get8(area, at)));
    }
}

/// Fills `area` (zeros) with entries from `first` on and values from its end.
pub(super) fn build(
    area: &mut [u8],
    base: usize,
    first: usize,
    entries: &[XattrEntry],
    hashed: bool,
) {
    let mut at = first;
    let mut end = area.len() & !3;
    for e in entries {
        let name_len = e.name.len().min(255);
        let mut offset = 0;
        if e.value_inum == 0 && !e.value.is_empty() {
            end -= e.value.len().next_multiple_of(4);
            offset = end - base;
            put(area, end, &e.value);
        }
        put8(area, at, name_len as u8);
        put8(area, at + 1, e.index);
        put16(area, at + 2, offset as u16);
        put32(area, at + 4, e.value_inum);
        put32(area, at + 8, e.value_size);
        let hash = match (e.value_inum, hashed) {
            (0, true) => entry_hash(&e.name, &e.value),
            (0, false) => 0,
            _ => e.hash,
        };
        put32(area, at + 12, hash);
        put(area, at + ENTRY_LEN, &e.name[..name_len]);
        at += entry_space(name_len);
    }
}
