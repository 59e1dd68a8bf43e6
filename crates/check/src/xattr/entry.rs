//! Entries of an attribute area, and the map that shows that they do not overlap.

use extol_ondisk::xattr;

use crate::bytes::{le8, le16, le32, part};

/// An entry without its name.
pub(super) const ENTRY_LEN: usize = 16;

/// Pieces of an area that are taken; they may not overlap.
pub(super) struct Area {
    taken: Vec<(usize, usize)>,
    len: usize,
}

impl Area {
    pub(super) fn new(len: usize) -> Self {
        Self { taken: Vec::new(), len }
    }

    /// Takes a piece. False if it is empty, outside, or overlaps another.
    pub(super) fn take(&mut self, from: usize, len: usize) -> bool {
        let Some(end) = from.checked_add(len).filter(|&end| len > 0 && end <= self.len) else {
            return false;
        };
        let at = self.taken.partition_point(|&(start, _)| start < from);
        let before_ok = at == 0 || self.taken.get(at - 1).is_none_or(|&(_, e)| e <= from);
        let behind_ok = self.taken.get(at).is_none_or(|&(start, _)| start >= end);
        if before_ok && behind_ok {
            self.taken.insert(at, (from, end));
        }
        before_ok && behind_ok
    }
}

/// A length rounded up to whole words.
pub(super) fn pad4(n: usize) -> usize {
    n.saturating_add(3) & !3
}

/// An entry's fixed fields and name.
pub(super) struct Entry<'a> {
    pub b: &'a [u8],
    pub at: usize,
}

impl<'a> Entry<'a> {
    pub(super) fn name_len(&self) -> usize {
        usize::from(le8(self.b, self.at))
    }

    pub(super) fn index(&self) -> u8 {
        le8(self.b, self.at + 1)
    }

    pub(super) fn offset(&self) -> usize {
        usize::from(le16(self.b, self.at + 2))
    }

    pub(super) fn inode(&self) -> u32 {
        le32(self.b, self.at + 4)
    }

    pub(super) fn size(&self) -> usize {
        le32(self.b, self.at + 8) as usize
    }

    pub(super) fn hash(&self) -> u32 {
        le32(self.b, self.at + 12)
    }

    pub(super) fn name(&self) -> &'a [u8] {
        part(self.b, self.at + ENTRY_LEN, self.at + ENTRY_LEN + self.name_len())
    }

    pub(super) fn len(&self) -> usize {
        pad4(ENTRY_LEN + self.name_len())
    }

    pub(super) fn is_last(&self) -> bool {
        le32(self.b, self.at) == 0
    }

    pub(super) fn next(&self) -> Self {
        Self { b: self.b, at: self.at + self.len() }
    }

    /// True if the stored hash fits the value, with its padding. Names may have been hashed with
    /// signed characters.
    pub(super) fn hash_fits(&self, value: &[u8]) -> bool {
        let found = self.hash();
        found == xattr::entry_hash(self.name(), value) || found == signed_hash(self.name(), value)
    }
}

fn signed_hash(name: &[u8], value: &[u8]) -> u32 {
    let named = name.iter().fold(0u32, |h, &c| h.rotate_left(5) ^ (c as i8 as u32));
    value.chunks(4).fold(named, |h, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        h.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_an_area() {
        let mut area = Area::new(100);
        assert!(area.take(0, 4) && area.take(96, 4) && area.take(40, 10));
        assert!(!area.take(39, 2) && !area.take(49, 1) && !area.take(45, 1) && !area.take(3, 1));
        assert!(!area.take(50, 0) && !area.take(95, 10) && !area.take(usize::MAX, 2));
        assert!(area.take(50, 46) && area.take(4, 36) && !area.take(10, 1));
    }
}
