//! Extended attributes: in the inode, in a block that inodes share, and values in inodes of their
//! own.
//!
//! Nothing in an area may overlap: header, entries, end mark and values are entered into a map of
//! the area piece by piece. A shared block is checked when it is met first; each further meeting
//! counts down its number of users, and what is left at the end is wrong.

use std::collections::HashMap;

mod entry;
mod inode;
mod value;

use extol_ondisk::{BlockNr, Compat, Incompat, InodeFlags, xattr};

use crate::bytes::{le32, part};
use crate::claims::Claims;
use crate::error::Result;
use crate::policies::Policies;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

use entry::{Area, ENTRY_LEN, Entry, pad4};
pub(crate) use inode::value_inode;

/// Attribute blocks and attribute inodes that were met.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    blocks: HashMap<u64, Block>,
    /// How many attributes name an inode as their value.
    pub value_refs: HashMap<u32, u64>,
    /// Policies of encrypted inodes.
    pub policies: Policies,
}

#[derive(Debug)]
struct Block {
    /// One that uses it.
    ino: u32,
    /// Users that are stated and were not met yet.
    left: i64,
    /// What each of them pays for its values.
    charged: Charge,
}

/// What an inode pays for attribute values in inodes of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Charge {
    pub clusters: u64,
    pub inodes: u64,
}

impl Charge {
    /// With the attribute block itself.
    fn and_block(self) -> Self {
        Self { clusters: self.clusters + 1, ..self }
    }
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
            out.push(Finding::error(kind, what).inode(block.ino).block(*nr));
        }
    }
}

/// What one inode's attributes need for their check.
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

    /// Checks the attributes in the inode; gives what it pays for values in other inodes.
    pub(crate) fn in_inode(&self, shared: &mut Shared, out: &mut Findings) -> Result<Charge> {
        let area = self.raw.attributes();
        // Without room for anything behind the magic number there is nothing to see.
        if area.len() <= 4 || le32(area, 0) != xattr::MAGIC {
            return Ok(Charge::default());
        }
        let mut charged = Charge::default();
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
        charged: &mut Charge,
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
            self.name(&e, out);
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

    /// Checks an entry's name. Linux reads no attribute beside such a one; e2fsck passes over it.
    fn name(&self, e: &Entry<'_>, out: &mut Findings) {
        if e.name().contains(&0) {
            let what = "an attribute has a zero byte in its name";
            out.push(Finding::error(Kind::XattrEntry, what).inode(self.raw.ino).beyond());
        }
    }

    /// Checks an entry whose value is in an inode of its own.
    fn value_inode(&self, e: &Entry<'_>, charged: &mut Charge, out: &mut Findings) -> Result<bool> {
        let (ino, geo) = (e.inode(), &self.vol.geo);
        // Linux reads no attribute of such an inode; e2fsck passes over it.
        let mut beyond = |what: &str| {
            let what = format!("an attribute's value is in inode {ino}, but {what}");
            out.push(Finding::error(Kind::XattrInode, what).inode(self.raw.ino).beyond());
        };
        if !self.vol.incompat(Incompat::EA_INODE) {
            beyond("the feature ea_inode is not set");
        }
        if e.size() == 0 {
            beyond("the value is empty");
        }
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
            charged.clusters += (e.size() as u64).div_ceil(cluster);
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
        if value.size() != e.size() as u64 {
            let what = format!(
                "an attribute's value is of {} bytes, but inode {ino}, which holds it, has {}",
                e.size(),
                value.size()
            );
            self.error(out, Kind::XattrInode, None, &what);
            return Ok(false);
        }
        charged.inodes += 1;
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

    /// Checks the attribute block; gives the clusters that the inode's count of blocks must
    /// include, and the values in other inodes. `hidden`: the inode has no name.
    pub(crate) fn in_block(
        &self,
        hidden: bool,
        shared: &mut Shared,
        out: &mut Findings,
    ) -> Result<Charge> {
        let nr = self.raw.file_acl(&self.vol.geo);
        if nr == 0 {
            return Ok(Charge::default());
        }
        let what = if !self.vol.compat(Compat::EXT_ATTR) {
            Some("there is an attribute block, but the feature is not set".to_owned())
        } else if !self.vol.is_block(nr) {
            Some(format!("the attribute block is impossible block {nr}"))
        } else {
            None
        };
        if let Some(what) = what {
            // Linux never reads the attributes of an inode without a name, and e2fsck leaves such
            // a field as it is: it looks at it where it meets the inode's name.
            // (That a value has attributes at all is reported where values are checked.)
            let nameless = self.raw.ino != 2 && self.raw.ino < self.vol.geo.first_ino.0
                || hidden
                || self.raw.has(InodeFlags::EA_INODE);
            let finding = match nameless {
                true => Finding::note(Kind::XattrBlock, what),
                false => Finding::error(Kind::XattrBlock, what),
            };
            out.push(finding.inode(self.raw.ino));
            return Ok(Charge::default());
        }
        if let Some(block) = shared.blocks.get_mut(&nr) {
            block.left -= 1;
            return Ok(block.charged.and_block());
        }
        let bytes = self.vol.block(nr)?;
        let mut charged = Charge::default();
        if let Err((kind, what)) = self.walk_block(&bytes, nr, &mut charged, out)? {
            self.error(out, kind, Some(nr), &what);
        }
        self.count_values(&bytes, xattr::BLOCK_HEADER_LEN, shared);
        let left = i64::from(le32(&bytes, 4)) - 1;
        shared.blocks.insert(nr, Block { ino: self.raw.ino, left, charged });
        self.claims.claim(nr, 1, self.raw.ino, "the attribute block", out);
        Ok(charged.and_block())
    }

    fn walk_block(
        &self,
        b: &[u8],
        nr: u64,
        charged: &mut Charge,
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
            self.name(&e, out);
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
}
