//! Extended attributes: in the inode, in a block that inodes share, and values in inodes of their
//! own.
//!
//! Nothing in an area may overlap: header, entries, end mark and values are entered into a map of
//! the area piece by piece. A shared block is judged when it is met first; each further meeting
//! counts down its number of users, and what is left at the end is wrong.

use std::collections::HashMap;

use extol_block::BlockNr;
use extol_ondisk::{Compat, InodeFlags, xattr};

use crate::bytes::{le8, le16, le32, part};
use crate::claims::Claims;
use crate::error::Result;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

const ENTRY_LEN: usize = 16;

/// Attribute blocks and attribute inodes that were met.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    blocks: HashMap<u64, Block>,
    /// How many attributes name an inode as their value.
    pub value_refs: HashMap<u32, u64>,
}

#[derive(Debug)]
struct Block {
    /// Users that are stated and were not met yet.
    left: i64,
    /// Blocks that the values in inodes of their own count for.
    charged: u64,
}

impl Shared {
    /// Reports the blocks whose number of users is wrong.
    pub(crate) fn finish(&self, out: &mut Findings) {
        let mut wrong: Vec<_> = self.blocks.iter().filter(|(_, b)| b.left != 0).collect();
        wrong.sort_unstable_by_key(|(nr, _)| **nr);
        for (nr, block) in wrong {
            let (kind, n) = (Kind::XattrRefcount, block.left.unsigned_abs());
            let what = if block.left > 0 {
                format!("the attribute block states {n} users more than it has")
            } else {
                format!("the attribute block has {n} users more than it states")
            };
            out.push(Finding::error(kind, what).block(*nr));
        }
    }
}

/// Pieces of an area that are taken; they may not overlap.
struct Area {
    taken: Vec<(usize, usize)>,
    len: usize,
}

impl Area {
    fn new(len: usize) -> Self {
        Self { taken: Vec::new(), len }
    }

    /// Takes a piece. False if it is empty, outside, or overlaps another.
    fn take(&mut self, from: usize, len: usize) -> bool {
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

fn pad4(n: usize) -> usize {
    n.saturating_add(3) & !3
}

/// An entry's fixed fields and name.
struct Entry<'a> {
    b: &'a [u8],
    at: usize,
}

impl<'a> Entry<'a> {
    fn name_len(&self) -> usize {
        usize::from(le8(self.b, self.at))
    }

    fn index(&self) -> u8 {
        le8(self.b, self.at + 1)
    }

    fn offset(&self) -> usize {
        usize::from(le16(self.b, self.at + 2))
    }

    fn inode(&self) -> u32 {
        le32(self.b, self.at + 4)
    }

    fn size(&self) -> usize {
        le32(self.b, self.at + 8) as usize
    }

    fn hash(&self) -> u32 {
        le32(self.b, self.at + 12)
    }

    fn name(&self) -> &'a [u8] {
        part(self.b, self.at + ENTRY_LEN, self.at + ENTRY_LEN + self.name_len())
    }

    fn len(&self) -> usize {
        pad4(ENTRY_LEN + self.name_len())
    }

    fn is_last(&self) -> bool {
        le32(self.b, self.at) == 0
    }

    fn next(&self) -> Self {
        Self { b: self.b, at: self.at + self.len() }
    }

    /// True if the stored hash fits the value, with its padding. Names may have been hashed with
    /// signed characters.
    fn hash_fits(&self, value: &[u8]) -> bool {
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

/// What one inode's attributes need to be judged.
pub(crate) struct Attributes<'a> {
    pub vol: &'a Vol,
    pub claims: &'a Claims,
    pub raw: Raw<'a>,
}

impl Attributes<'_> {
    fn error(&self, out: &mut Findings, kind: Kind, block: Option<u64>, what: &str) {
        let mut finding = Finding::error(kind, what).inode(self.raw.ino);
        finding.block = block;
        out.push(finding);
    }

    /// Judges the attributes in the inode; gives the blocks that values in other inodes count for.
    pub(crate) fn in_inode(&self, shared: &mut Shared, out: &mut Findings) -> Result<u64> {
        let area = self.raw.attributes();
        // Without room for anything behind the magic number there is nothing to see.
        if area.len() <= 4 || le32(area, 0) != xattr::MAGIC {
            return Ok(0);
        }
        let mut charged = 0;
        if let Err(kind_what) = self.walk_inode(area, &mut charged, out)? {
            let (kind, what) = kind_what;
            self.error(out, kind, None, what);
        }
        self.count_values(area, 4, shared);
        Ok(charged)
    }

    fn walk_inode(
        &self,
        area: &[u8],
        charged: &mut u64,
        out: &mut Findings,
    ) -> Result<std::result::Result<(), (Kind, &'static str)>> {
        let mut map = Area::new(area.len());
        map.take(0, 4);
        let mut remain = area.len() - 4;
        let mut e = Entry { b: area, at: 4 };
        let overlap = Err((Kind::XattrEntry, "attributes in the inode overlap or leave it"));
        while remain >= ENTRY_LEN && !e.is_last() {
            if !map.take(e.at, e.len()) {
                return Ok(overlap);
            }
            remain -= ENTRY_LEN;
            if pad4(e.name_len()) > remain {
                return Ok(Err((
                    Kind::XattrEntry,
                    "an attribute in the inode has a name that is too long",
                )));
            }
            remain -= pad4(e.name_len());
            if e.inode() == 0 {
                if e.size() > remain {
                    return Ok(Err((
                        Kind::XattrEntry,
                        "an attribute in the inode has a value that is too long",
                    )));
                }
                let from = 4 + e.offset();
                if e.size() > 0 && !map.take(from, pad4(e.size())) {
                    return Ok(overlap);
                }
                if e.hash() != 0 && !e.hash_fits(part(area, from, from + pad4(e.size()))) {
                    return Ok(Err((
                        Kind::XattrHash,
                        "an attribute in the inode has a wrong hash",
                    )));
                }
                remain -= e.size();
            } else if !self.value_inode(&e, charged, out)? {
                return Ok(Ok(()));
            }
            e = e.next();
        }
        Ok(if map.take(e.at, 4) { Ok(()) } else { overlap })
    }

    /// Judges an entry whose value is in an inode of its own.
    fn value_inode(&self, e: &Entry<'_>, charged: &mut u64, out: &mut Findings) -> Result<bool> {
        let (ino, geo) = (e.inode(), &self.vol.geo);
        let bytes = if ino < geo.first_ino.0 { None } else { self.vol.inode(ino)? };
        let Some(bytes) = bytes else {
            let what = format!("an attribute's value is in impossible inode {ino}");
            self.error(out, Kind::XattrInode, None, &what);
            return Ok(false);
        };
        let value = Raw { b: &bytes, ino };
        // The access time of such an inode is the checksum of its contents.
        let stored = le32(&bytes, 8).to_le_bytes();
        if e.hash_fits(&stored) {
            let cluster = geo.block_len() as u64 * u64::from(geo.cluster_ratio);
            *charged += (e.size() as u64).div_ceil(cluster);
        } else if le32(&bytes, 0x10) == self.raw.ino && value.generation() == self.raw.generation()
        {
            // The old form: the inode names the one file it belongs to.
        } else {
            let what = format!("an attribute's value in inode {ino} does not fit its hash");
            self.error(out, Kind::XattrInode, None, &what);
            return Ok(false);
        }
        if !value.has(InodeFlags::EA_INODE) {
            let what =
                format!("an attribute's value is in inode {ino}, which is not made for values");
            self.error(out, Kind::XattrInode, None, &what);
            return Ok(false);
        }
        Ok(true)
    }

    /// Counts the value inodes that entries name, up to the first that leaves the area.
    fn count_values(&self, area: &[u8], first: usize, shared: &mut Shared) {
        let mut e = Entry { b: area, at: first };
        while e.at < area.len() && !e.is_last() {
            if e.inode() != 0 {
                *shared.value_refs.entry(e.inode()).or_default() += 1;
            }
            e = e.next();
        }
    }

    /// Judges the attribute block; gives the clusters that the inode's count of blocks must
    /// include. `hidden`: the inode has no name.
    pub(crate) fn in_block(
        &self,
        hidden: bool,
        shared: &mut Shared,
        out: &mut Findings,
    ) -> Result<u64> {
        let nr = self.raw.file_acl(&self.vol.geo);
        if nr == 0 {
            return Ok(0);
        }
        let what = if !self.vol.compat(Compat::EXT_ATTR) {
            Some("there is an attribute block, but the feature is not set".to_owned())
        } else if !self.vol.is_block(nr) {
            Some(format!("the attribute block is impossible block {nr}"))
        } else {
            None
        };
        if let Some(what) = what {
            let finding = Finding::error(Kind::XattrBlock, what).inode(self.raw.ino);
            // e2fsck reports such inodes where it meets their names.
            let nameless = self.raw.ino != 2 && self.raw.ino < self.vol.geo.first_ino.0 || hidden;
            out.push(if nameless { finding.beyond() } else { finding });
            return Ok(0);
        }
        if let Some(block) = shared.blocks.get_mut(&nr) {
            block.left -= 1;
            return Ok(1 + block.charged);
        }
        let bytes = self.vol.block(nr)?;
        let mut charged = 0;
        if let Err((kind, what)) = self.walk_block(&bytes, nr, &mut charged, out)? {
            self.error(out, kind, Some(nr), &what);
        }
        self.count_values(&bytes, xattr::BLOCK_HEADER_LEN, shared);
        let left = i64::from(le32(&bytes, 4)) - 1;
        shared.blocks.insert(nr, Block { left, charged });
        self.claims.claim(nr, 1, self.raw.ino, "the attribute block", out);
        Ok(1 + charged)
    }

    fn walk_block(
        &self,
        b: &[u8],
        nr: u64,
        charged: &mut u64,
        out: &mut Findings,
    ) -> Result<std::result::Result<(), (Kind, String)>> {
        let bad = |kind, what: &str| Ok(Err((kind, what.to_owned())));
        if le32(b, 0) != xattr::MAGIC {
            return bad(Kind::XattrBlock, "the attribute block has a bad magic number");
        }
        if self.vol.has_csum()
            && let Err(error) = xattr::verify_csum(b, BlockNr(nr), self.vol.geo.fs_seed)
        {
            self.error(out, Kind::XattrChecksum, Some(nr), &error.to_string());
        }
        if le32(b, 8) != 1 {
            return bad(Kind::XattrBlock, "the attribute block claims to be several blocks");
        }
        let mut map = Area::new(b.len());
        map.take(0, xattr::BLOCK_HEADER_LEN);
        let mut e = Entry { b, at: xattr::BLOCK_HEADER_LEN };
        let overlap = "attributes in the block overlap or leave it";
        while e.at < b.len() && !e.is_last() {
            if !map.take(e.at, e.len()) {
                return bad(Kind::XattrEntry, overlap);
            }
            if e.index() == 0 {
                return bad(Kind::XattrEntry, "an attribute in the block has no name space");
            }
            if e.inode() == 0 {
                if e.offset().saturating_add(e.size()) > b.len() {
                    return bad(Kind::XattrEntry, "an attribute's value leaves its block");
                }
                if e.size() > 0 && !map.take(e.offset(), pad4(e.size())) {
                    return bad(Kind::XattrEntry, overlap);
                }
                if !e.hash_fits(part(b, e.offset(), e.offset() + pad4(e.size()))) {
                    return bad(Kind::XattrHash, "an attribute in the block has a wrong hash");
                }
            } else {
                self.value_inode(&e, charged, out)?;
            }
            e = e.next();
        }
        if map.take(e.at, 4) { Ok(Ok(())) } else { bad(Kind::XattrEntry, overlap) }
    }

    /// The value of an attribute. `None` if it is not there, or if the attributes cannot be read as
    /// a whole. `padded`: zero bytes behind the name do not matter.
    pub(crate) fn value(&self, index: u8, name: &[u8], padded: bool) -> Result<Option<Vec<u8>>> {
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
    index: u8,
    (name, padded): (&[u8], bool),
    found: &mut Option<Vec<u8>>,
) {
    let mut e = Entry { b, at: entries.start };
    while e.at < entries.end && found.is_none() {
        let mut own = e.name();
        if padded {
            own = own.split(|&c| c == 0).next().unwrap_or_default();
        }
        if e.index() == index && own == name {
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
    fn pieces_of_an_area() {
        let mut area = Area::new(100);
        assert!(area.take(0, 4) && area.take(96, 4) && area.take(40, 10));
        assert!(!area.take(39, 2) && !area.take(49, 1) && !area.take(45, 1) && !area.take(3, 1));
        assert!(!area.take(50, 0) && !area.take(95, 10) && !area.take(usize::MAX, 2));
        assert!(area.take(50, 46) && area.take(4, 36) && !area.take(10, 1));
    }

    #[test]
    fn values_are_found() {
        let entries = [
            xattr::XattrEntry::new(1, b"a", b"first"),
            xattr::XattrEntry::new(7, b"data", b""),
            xattr::XattrEntry::new(9, b"c", b"context"),
        ];
        let area = xattr::build_ibody(&entries, 120).unwrap();
        let end = readable(&area, 4, 4).unwrap();
        let get = |index, name: &[u8]| {
            let mut found = None;
            find(&area, 4, 4..end, index, (name, false), &mut found);
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
