//! Extended attributes.
//!
//! An inode's attributes are in two places: behind its extra fields, and in one block (`file_acl`),
//! which inodes with equal attributes share. A value is looked for in the inode first. It is stored
//! there if it fits, else in the block:
//!
//! ```text
//!   set ──► fits into the inode? ──yes──► there; taken out of the block if it was in it
//!                 │ no
//!                 └─► fits into the block? ──yes──► there; taken out of the inode if it was in it
//!                           │ no
//!                           └─► NoSpace, nothing changed
//! ```
//!
//! Both places are small, so a change parses one as a list, edits the list and builds it anew
//! ([`extol_ondisk::xattr`]). Sharing and its counter are in [`shared`], access control lists
//! (whose bytes differ between disk and API, and which are tied to the mode) in [`acl`], values in
//! inodes of their own (read only) in [`large`].
//!
//! Everything here works under the inode's lock, with the handle of the operation. Functions change
//! `node.raw`; the caller writes it. Each change may take one block, which the operation has
//! reserved.

pub(crate) mod acl;
mod large;
mod shared;
#[cfg(test)]
pub(crate) mod tests;

use crate::fast_commit::Reason;
use extol_jbd2::Handle;
use extol_ondisk::FileType;
use extol_ondisk::xattr::{self as format, XattrEntry, index};
use extol_vfs::{FsError, Result, XattrSet};

use crate::error;
use crate::fast_commit::eligibility;
use crate::node::Node;
use crate::volume::Volume;
use shared::BlockArea;
pub(crate) use shared::Sharing;

/// Credits for one change, the inode not included: the old block (counter, or freed: bitmap,
/// descriptor, revoke), and a new one (itself, bitmap, descriptor).
pub(crate) const CREDITS: u32 = 7;

/// Longest full name, and longest value, that Linux lets through.
const MAX_NAME: usize = 255;
const MAX_VALUE: usize = 65536;

const NO_SUCH_SPACE: FsError = FsError::NotSupported("this attribute name space");

/// A full name, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name<'a> {
    /// In one of the plain name spaces.
    Plain { index: u8, name: &'a [u8] },
    /// An access control list: kept in another form.
    Acl(acl::Which),
}

const PREFIXES: [(&[u8], u8); 3] =
    [(b"user.", index::USER), (b"trusted.", index::TRUSTED), (b"security.", index::SECURITY)];
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

fn parse_name(full: &[u8]) -> Result<Name<'_>> {
    if full.is_empty() || full.len() > MAX_NAME {
        return Err(FsError::Range);
    }
    match full {
        ACL_ACCESS => return Ok(Name::Acl(acl::Which::Access)),
        ACL_DEFAULT => return Ok(Name::Acl(acl::Which::Default)),
        _ => {}
    }
    for (prefix, index) in PREFIXES {
        if let Some(name) = full.strip_prefix(prefix) {
            if name.is_empty() || name.contains(&0) {
                return Err(FsError::Invalid("attribute name"));
            }
            return Ok(Name::Plain { index, name });
        }
    }
    Err(NO_SUCH_SPACE)
}

/// The full name of an entry, unless users do not see it (such as `system.data`).
fn full_name(entry: &XattrEntry) -> Option<Vec<u8>> {
    match entry.index {
        index::ACL_ACCESS if entry.name.is_empty() => Some(ACL_ACCESS.to_vec()),
        index::ACL_DEFAULT if entry.name.is_empty() => Some(ACL_DEFAULT.to_vec()),
        n => {
            let (prefix, _) = PREFIXES.iter().find(|(_, index)| *index == n)?;
            (!entry.name.is_empty()).then(|| [prefix, &entry.name[..]].concat())
        }
    }
}

/// `user.` attributes are for regular files and directories only.
fn allows_user(node: &Node) -> bool {
    matches!(node.raw.kind(), Some(FileType::Regular | FileType::Directory))
}

/// Value of an attribute by its full name. Lists are in Linux's attribute form.
pub(crate) fn get(vol: &Volume, node: &Node, full: &[u8]) -> Result<Vec<u8>> {
    match parse_name(full)? {
        Name::Acl(which) => acl::get(vol, node, which),
        Name::Plain { index: index::USER, .. } if !allows_user(node) => Err(FsError::NoAttribute),
        Name::Plain { index, name } => get_raw(vol, node, index, name)?.ok_or(FsError::NoAttribute),
    }
}

/// Sets an attribute, or removes it (`None`; with [`XattrSet::Replace`] it must be there). Setting
/// an access control list changes the mode as well.
pub(crate) fn set(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    full: &[u8],
    value: Option<&[u8]>,
    how: XattrSet,
) -> Result<()> {
    if value.is_some_and(|v| v.len() > MAX_VALUE) {
        return Err(FsError::TooBig);
    }
    match parse_name(full)? {
        Name::Acl(which) => acl::set(vol, h, node, which, value),
        Name::Plain { index: index::USER, .. } if !allows_user(node) => Err(FsError::NotPermitted),
        Name::Plain { index, name } => set_raw(vol, h, node, index, name, value, how),
    }
}

/// Full names of all attributes that users may see.
pub(crate) fn list(vol: &Volume, node: &Node) -> Result<Vec<Vec<u8>>> {
    let areas = Areas::load(vol, node)?;
    Ok(areas.all().filter_map(full_name).collect())
}

/// True if the inode has any attribute at all: without, nobody needs to look for one. Reads no
/// block.
pub(crate) fn has_any(node: &Node) -> bool {
    node.raw.file_acl != 0 || (node.raw.extra_isize != 0 && node.raw.tail.iter().any(|&b| b != 0))
}

/// The inode is being deleted: gives back its attribute block.
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
struct Areas {
    body: Vec<XattrEntry>,
    block: Option<BlockArea>,
}

impl Areas {
    fn load(vol: &Volume, node: &Node) -> Result<Self> {
        Ok(Self { body: body(node)?, block: BlockArea::load(vol, node)? })
    }

    fn all(&self) -> impl Iterator<Item = &XattrEntry> {
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
fn get_raw(vol: &Volume, node: &Node, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
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
fn set_raw(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    index: u8,
    name: &[u8],
    value: Option<&[u8]>,
    how: XattrSet,
) -> Result<()> {
    node.raw.adopt_extra(&vol.geo);
    let areas = Areas::load(vol, node)?;
    let block = areas.block.as_ref();
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
    // (A block that only this inode uses changes in its place, which the inode does not show.)
    eligibility::note_unfit(h, node.ino, Reason::Xattr);
    let in_block = block.is_some_and(|b| b.entries.iter().any(|e| e.is(index, name)));
    let leave_block = |vol: &Volume, h: &mut Handle, node: &mut Node| match block {
        Some(b) if in_block => shared::store(vol, h, node, block, without(&b.entries, index, name)),
        _ => Ok(()),
    };
    let body = match value {
        None => without(&areas.body, index, name),
        Some(value) => with(&areas.body, XattrEntry::new(index, name, value)),
    };
    if let Some(tail) = format::build_ibody(&body, node.raw.tail.len()) {
        leave_block(vol, h, node)?;
        node.raw.tail = tail;
        return Ok(());
    }
    // Shrinking always fits, so there is a value.
    let Some(value) = value else { return Err(FsError::NoSpace) };
    let entries = block.map_or(&[][..], |b| &b.entries);
    shared::store(vol, h, node, block, with(entries, XattrEntry::new(index, name, value)))?;
    put_body(node, &without(&areas.body, index, name));
    Ok(())
}
