//! Attributes in the form they are stored, in the two places of an inode. [`super`] tells where
//! each goes.

use crate::fast_commit::reason::Reason;
use extol_jbd2::Handle;
use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_vfs::{FsError, Result, XattrSet};

use super::large;
use super::shared::{self, BlockArea};
use crate::error;
use crate::fast_commit::eligibility;
use crate::node::Node;
use crate::volume::Volume;

/// Credits for one change, the inode not included: the old block (counter, or freed: bitmap,
/// descriptor, revoke), and a new one (itself, bitmap, descriptor).
pub(crate) const CREDITS: u32 = 7;

/// True if the inode has any attribute at all. Reads no block.
pub(crate) fn has_any(node: &Node) -> bool {
    node.raw.file_acl != 0 || (node.raw.extra_isize != 0 && node.raw.tail.iter().any(|&b| b != 0))
}

/// Drops all attributes of an inode that is being deleted, and its attribute block.
pub(crate) fn drop_all(vol: &Volume, h: &mut Handle, node: &mut Node) -> Result<()> {
    if node.raw.extra_isize != 0 {
        node.raw.tail.fill(0);
    }
    match BlockArea::load(vol, node)? {
        Some(old) => shared::store(vol, h, node, Some(&old), Vec::new()),
        None => Ok(()),
    }
}

/// Both places of an inode's attributes, parsed.
pub(super) struct Areas {
    body: Vec<XattrEntry>,
    block: Option<BlockArea>,
}

impl Areas {
    pub fn load(vol: &Volume, node: &Node) -> Result<Self> {
        Ok(Self { body: body(node)?, block: BlockArea::load(vol, node)? })
    }

    pub fn all(&self) -> impl Iterator<Item = &XattrEntry> {
        self.body.iter().chain(self.block.iter().flat_map(|b| &b.entries))
    }
}

/// Attributes inside the inode.
pub(crate) fn body(node: &Node) -> Result<Vec<XattrEntry>> {
    if node.raw.extra_isize == 0 {
        return Ok(Vec::new());
    }
    format::parse_ibody(&node.raw.tail).map_err(|e| error::ondisk(e).in_inode(node.ino.0.into()))
}

/// Value of an attribute in the form it is stored.
pub(crate) fn get_raw(
    vol: &Volume,
    node: &Node,
    index: u8,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let value = |entry: &XattrEntry| match entry.value_inum {
        0 => Ok(entry.value.clone()),
        _ => large::read(vol, entry),
    };
    if let Some(entry) = body(node)?.iter().find(|e| e.is(index, name)) {
        return value(entry).map(Some);
    }
    match BlockArea::load(vol, node)? {
        Some(block) => block.entries.iter().find(|e| e.is(index, name)).map(value).transpose(),
        None => Ok(None),
    }
}

/// Replaces or appends.
fn with(entries: &[XattrEntry], new: XattrEntry) -> Vec<XattrEntry> {
    let mut out = entries.to_vec();
    match out.iter_mut().find(|e| e.is(new.index, &new.name)) {
        Some(old) => *old = new,
        None => out.push(new),
    }
    out
}

fn without(entries: &[XattrEntry], index: u8, name: &[u8]) -> Vec<XattrEntry> {
    entries.iter().filter(|e| !e.is(index, name)).cloned().collect()
}

/// Stores the attributes inside the inode; false if they do not fit.
pub(crate) fn put_body(node: &mut Node, entries: &[XattrEntry]) -> bool {
    match format::build_ibody(entries, node.raw.tail.len()) {
        Some(bytes) => {
            node.raw.tail = bytes;
            true
        }
        None => false,
    }
}

/// Sets (`Some`) or removes an attribute in the form it is stored. `NoSpace` changes nothing.
pub(super) fn set_raw(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    index: u8,
    name: &[u8],
    value: Option<&[u8]>,
    how: XattrSet,
) -> Result<()> {
    node.raw.expand_extra(&vol.geo);
    let areas = Areas::load(vol, node)?;
    let found = areas.all().find(|e| e.is(index, name));
    match (found, how, value) {
        (Some(_), XattrSet::Create, Some(_)) => return Err(FsError::Exists),
        (None, XattrSet::Replace, _) => return Err(FsError::NoAttribute),
        (None, _, None) => return Ok(()),
        (Some(old), _, Some(new)) if old.value_inum == 0 && old.value == new => return Ok(()),
        (Some(old), ..) if old.value_inum != 0 => {
            return Err(FsError::NotSupported("changing a large attribute"));
        }
        _ => {}
    }
    // (A block that only this inode uses changes in place, which the inode does not show.)
    eligibility::note_ineligible(h, node.ino, Reason::Xattr);
    match value {
        Some(value) => put(vol, h, node, &areas, XattrEntry::new(index, name, value)),
        None => take_out(vol, h, node, &areas, index, name),
    }
}

/// Puts an attribute into the inode if it fits, else into the block, and takes it out of the other.
fn put(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    areas: &Areas,
    new: XattrEntry,
) -> Result<()> {
    let body = with(&areas.body, new.clone());
    if let Some(tail) = format::build_ibody(&body, node.raw.tail.len()) {
        leave_block(vol, h, node, areas, new.index, &new.name)?;
        node.raw.tail = tail;
        return Ok(());
    }
    let block = areas.block.as_ref();
    let entries = block.map_or(&[][..], |b| &b.entries);
    let body = without(&areas.body, new.index, &new.name);
    shared::store(vol, h, node, block, with(entries, new))?;
    put_body(node, &body);
    Ok(())
}

fn take_out(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    areas: &Areas,
    index: u8,
    name: &[u8],
) -> Result<()> {
    leave_block(vol, h, node, areas, index, name)?;
    // (Shrinking always fits.)
    put_body(node, &without(&areas.body, index, name));
    Ok(())
}

/// Takes an attribute out of the block, if it is there.
fn leave_block(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    areas: &Areas,
    index: u8,
    name: &[u8],
) -> Result<()> {
    match areas.block.as_ref().filter(|b| b.entries.iter().any(|e| e.is(index, name))) {
        Some(b) => shared::store(vol, h, node, Some(b), without(&b.entries, index, name)),
        None => Ok(()),
    }
}
