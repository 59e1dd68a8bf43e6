//! Attributes in the form they are stored, in the two places of an inode. [`super`] tells where
//! each goes.

use crate::fast_commit::reason::Reason;
use extol_jbd2::Handle;
use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_vfs::{FsError, Result, XattrSet};

use super::shared::{self, BlockArea};
use super::value::{self, Values};
use crate::error;
use crate::fast_commit::eligibility;
use crate::node::Node;
use crate::volume::Volume;

/// Credits for one change, the inode not included: the old block (counter, or freed: bitmap,
/// descriptor, revoke), and a new one (itself, bitmap, descriptor).
pub(crate) const CREDITS: u32 = 7;

/// Credits for one change of an attribute whose new value has `len` bytes at most, the inode not
/// included.
pub(crate) fn credits(vol: &Volume, node: &Node, len: usize) -> u32 {
    if !value::are_allowed(vol) {
        return CREDITS;
    }
    // A copy of a shared block is one more user of each value in it.
    let users = values_in_block(vol, node).unwrap_or(0);
    let make = if len > 0 { value::credits_to_make(vol, len) } else { 0 };
    CREDITS.saturating_add(users).saturating_add(make).saturating_add(value::RELEASE)
}

/// Blocks that a new value of `len` bytes may take beside the attribute block.
pub(crate) fn blocks(vol: &Volume, len: usize) -> u64 {
    // (One for the map.)
    if value::are_allowed(vol) { u64::from(value::blocks_to_make(vol, len)) + 1 } else { 0 }
}

fn values_in_block(vol: &Volume, node: &Node) -> Result<u32> {
    let block = BlockArea::load(vol, node)?;
    let count = block.iter().flat_map(|b| &b.entries).filter(|e| e.has_inode()).count();
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// How many values of the inode are in inodes of their own, as far as its attributes can be read.
pub(crate) fn count_values(vol: &Volume, node: &Node) -> u32 {
    if !value::are_allowed(vol) || !has_any(node) {
        return 0;
    }
    let count =
        Areas::load(vol, node).map_or(0, |areas| areas.all().filter(|e| e.has_inode()).count());
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Credits that so many values add to [`drop_all`].
pub(crate) fn credits_to_drop(values: u32) -> u32 {
    values.saturating_mul(value::RELEASE)
}

/// Takes one attribute whose value is in an inode of its own away from an inode that is being
/// deleted, unless other inodes share it. False: there is none. Credits: [`credits`].
pub(crate) fn drop_value(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
) -> Result<bool> {
    let areas = Areas::load(vol, node)?;
    let Some(e) = areas.all().find(|e| e.has_inode()) else { return Ok(false) };
    let uncharged = value::charge(vol, node, e);
    let is_out = match &areas.block {
        Some(block) if !areas.body.contains(e) => shared::take_out(vol, h, node, values, block, e)?,
        _ => {
            put_body(node, &without(&areas.body, e.index, &e.name));
            value::release(vol, h, values, node, e)?;
            true
        }
    };
    if is_out {
        values.discount(node, uncharged);
    }
    Ok(is_out)
}

/// True if the inode has any attribute at all. Reads no block.
pub(crate) fn has_any(node: &Node) -> bool {
    node.raw.file_acl != 0 || (node.raw.extra_isize != 0 && node.raw.tail.iter().any(|&b| b != 0))
}

/// Drops all attributes of an inode that is being deleted, and its attribute block.
pub(crate) fn drop_all(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
) -> Result<()> {
    // (Damage in the inode must not keep it from being deleted.)
    let named = if value::are_allowed(vol) { body(node).unwrap_or_default() } else { Vec::new() };
    let block = BlockArea::load(vol, node)?;
    let all = named.iter().chain(block.iter().flat_map(|b| &b.entries));
    let uncharged: Vec<_> = all.map(|entry| value::charge(vol, node, entry)).collect();
    if node.raw.extra_isize != 0 {
        node.raw.tail.fill(0);
    }
    uncharged.into_iter().for_each(|charge| values.discount(node, charge));
    for entry in &named {
        value::release(vol, h, values, node, entry)?;
    }
    match block {
        Some(old) => shared::store(vol, h, node, values, Some(&old), Vec::new(), None),
        None => Ok(()),
    }
}

/// Both places of an inode's attributes, parsed.
pub(super) struct Areas {
    pub body: Vec<XattrEntry>,
    pub block: Option<BlockArea>,
}

impl Areas {
    pub fn load(vol: &Volume, node: &Node) -> Result<Self> {
        let body = body(node)?;
        value::check_entries(vol, node, &body)?;
        Ok(Self { body, block: BlockArea::load(vol, node)? })
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
    let value = |entry: &XattrEntry| match entry.has_inode() {
        false => Ok(entry.value.clone()),
        true => value::read(vol, node, entry),
    };
    let body = body(node)?;
    value::check_entries(vol, node, &body)?;
    if let Some(entry) = body.iter().find(|e| e.is(index, name)) {
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
pub(crate) fn set_raw(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    (index, name): (u8, &[u8]),
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
        (Some(old), _, Some(new)) if is_same(vol, node, old, new) => return Ok(()),
        _ => {}
    }
    // (A block that only this inode uses changes in place, which the inode does not show.)
    eligibility::note_ineligible(h, node.ino, Reason::Xattr);
    // (Before it may be deleted.)
    let uncharged = found.and_then(|old| value::charge(vol, node, old));
    match value {
        Some(value) => store_value(vol, h, node, values, &areas, (index, name, value))?,
        None => take_out(vol, h, node, values, &areas, index, name)?,
    }
    values.discount(node, uncharged);
    Ok(())
}

/// True if an attribute has this value already.
fn is_same(vol: &Volume, node: &Node, entry: &XattrEntry, value: &[u8]) -> bool {
    match entry.has_inode() {
        false => entry.value == value,
        true => {
            entry.value_size as usize == value.len()
                && value::read(vol, node, entry).is_ok_and(|old| old == value)
        }
    }
}

/// Puts a value beside its name if it fits there, else into an inode of its own.
fn store_value(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    areas: &Areas,
    (index, name, value): (u8, &[u8], &[u8]),
) -> Result<()> {
    let here = put(vol, h, node, values, areas, XattrEntry::new(index, name, value));
    if here != Err(FsError::NoSpace) || !value::are_allowed(vol) || value.is_empty() {
        return here;
    }
    vol.promise_value(node, value.len())?;
    let (ino, hash) = value::obtain(vol, h, values, node, value)?;
    let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let entry = XattrEntry::in_inode(index, name, ino, size, hash);
    if let Err(e) = put(vol, h, node, values, areas, entry.clone()) {
        value::release(vol, h, values, node, &entry)?;
        return Err(e);
    }
    values.count(node, value::charge(vol, node, &entry));
    Ok(())
}

/// Puts an attribute into the inode if it fits, else into the block, and takes it out of the other.
/// The caller is a user of its value.
fn put(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    areas: &Areas,
    new: XattrEntry,
) -> Result<()> {
    let (index, name) = (new.index, new.name.clone());
    let body = with(&areas.body, new.clone());
    if let Some(tail) = format::build_ibody(&body, node.raw.tail.len()) {
        leave_block(vol, h, node, values, areas, index, &name)?;
        node.raw.tail = tail;
    } else {
        let block = areas.block.as_ref();
        let entries = with(block.map_or(&[][..], |b| &b.entries), new.clone());
        if !new.value.is_empty() && !value::leaves_names_room(vol, &entries) {
            return Err(FsError::NoSpace);
        }
        shared::store(vol, h, node, values, block, entries, Some(&new))?;
        put_body(node, &without(&areas.body, index, &name));
    }
    leave_body(vol, h, node, values, areas, index, &name)
}

fn take_out(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    areas: &Areas,
    index: u8,
    name: &[u8],
) -> Result<()> {
    leave_block(vol, h, node, values, areas, index, name)?;
    // (Shrinking always fits.)
    put_body(node, &without(&areas.body, index, name));
    leave_body(vol, h, node, values, areas, index, name)
}

/// Takes an attribute out of the block, if it is there.
fn leave_block(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    areas: &Areas,
    index: u8,
    name: &[u8],
) -> Result<()> {
    match areas.block.as_ref().filter(|b| b.entries.iter().any(|e| e.is(index, name))) {
        Some(b) => {
            let left = without(&b.entries, index, name);
            shared::store(vol, h, node, values, Some(b), left, None)
        }
        None => Ok(()),
    }
}

/// The inode's own entry of an attribute, if there was one, is gone: so is a user of its value.
fn leave_body(
    vol: &Volume,
    h: &mut Handle,
    node: &Node,
    values: &mut Values<'_>,
    areas: &Areas,
    index: u8,
    name: &[u8],
) -> Result<()> {
    match areas.body.iter().find(|e| e.is(index, name)) {
        Some(old) => value::release(vol, h, values, node, old),
        None => Ok(()),
    }
}
