//! Finding one attribute's value.

use extol_ondisk::{BlockNr, xattr};

use super::Attributes;
use super::entry::{ENTRY_LEN, Entry, pad4};
use crate::bytes::{le32, part};
use crate::error::Result;

impl Attributes<'_> {
    /// The value of an attribute. `None` if it is not there, or if the attributes cannot be read as
    /// a whole. `index`: which indexes are meant. `padded`: zero bytes behind the name do not
    /// matter.
    pub(crate) fn value(
        &self,
        index: impl Fn(u8) -> bool + Copy,
        name: &[u8],
        padded: bool,
    ) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        let area = self.raw.attributes();
        if area.len() > 4 && le32(area, 0) == xattr::MAGIC {
            match readable(area, 4, 4) {
                Some(end) => find(area, 4, 4..end, index, (name, padded), &mut found),
                None => return Ok(None),
            }
        }
        let nr = self.raw.file_acl(&self.vol.geo);
        if nr != 0 {
            if !self.vol.is_block(nr) {
                return Ok(None);
            }
            let b = self.vol.block(nr)?;
            let csum_ok = !self.vol.has_csum()
                || xattr::verify_csum(&b, BlockNr(nr), self.vol.geo.fs_seed).is_ok();
            if le32(&b, 0) != xattr::MAGIC || le32(&b, 8) != 1 || !csum_ok {
                return Ok(None);
            }
            let first = xattr::BLOCK_HEADER_LEN;
            match readable(&b, 0, first) {
                Some(end) => find(&b, 0, first..end, index, (name, padded), &mut found),
                None => return Ok(None),
            }
        }
        Ok(found)
    }
}

/// Where the entries of an area end, if all of them can be read.
fn readable(b: &[u8], base: usize, first: usize) -> Option<usize> {
    let mut e = Entry { b, at: first };
    while e.at + ENTRY_LEN <= b.len() && !e.is_last() {
        if e.at + e.len() > b.len() {
            return None;
        }
        e = e.next();
    }
    let end = e.at;
    let mut e = Entry { b, at: first };
    while e.at < end {
        if e.inode() == 0 {
            let from = base + e.offset();
            let value_end = from.checked_add(e.size()).filter(|&to| to <= b.len())?;
            if e.size() > 0 && from < end + 4 {
                return None;
            }
            if e.hash() != 0 && !e.hash_fits(part(b, from, pad4(value_end - from) + from)) {
                return None;
            }
        }
        e = e.next();
    }
    Some(end)
}

fn find(
    b: &[u8],
    base: usize,
    entries: std::ops::Range<usize>,
    index: impl Fn(u8) -> bool,
    (name, padded): (&[u8], bool),
    found: &mut Option<Vec<u8>>,
) {
    let mut e = Entry { b, at: entries.start };
    while e.at < entries.end && found.is_none() {
        let mut own = e.name();
        if padded {
            own = own.split(|&c| c == 0).next().unwrap_or_default();
        }
        if index(e.index()) && own == name {
            let from = base + e.offset();
            *found = Some(if e.size() == 0 {
                Vec::new()
            } else {
                part(b, from, from + e.size()).to_vec()
            });
        }
        e = e.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found() {
        let entries = [
            xattr::XattrEntry::new(1, b"a", b"first"),
            xattr::XattrEntry::new(7, b"data", b""),
            xattr::XattrEntry::new(9, b"c", b"context"),
        ];
        let area = xattr::build_ibody(&entries, 120).unwrap();
        let end = readable(&area, 4, 4).unwrap();
        let get = |index: u8, name: &[u8]| {
            let mut found = None;
            find(&area, 4, 4..end, |i| i == index, (name, false), &mut found);
            found
        };
        assert_eq!(get(9, b"c").as_deref(), Some(&b"context"[..]));
        assert_eq!(get(7, b"data").as_deref(), Some(&b""[..]));
        assert_eq!(get(7, b"dat"), None);
        let mut bad = area.clone();
        bad[6] = 200;
        assert_eq!(readable(&bad, 4, 4), None);
    }
}
