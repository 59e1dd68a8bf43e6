//! Extended attributes.
//!
//! The attributes of an inode are in two places: behind its extra fields, and in one block
//! (`file_acl`), which inodes with equal attributes share. A value is searched for in the inode
//! first. It is stored there if it fits, else in the block:
//!
//! ```text
//!   set ──► fits into the inode? ──yes──► there; taken out of the block if it was in it
//!                 │ no
//!                 └─► fits into the block? ──yes──► there; taken out of the inode if it was in it
//!                           │ no
//!                           └─► NoSpace, nothing changed; or, with the feature ea_inode, the
//!                               same again with the value in an inode of its own
//! ```
//!
//! Both places are small, so a change parses one as a list, edits the list and builds it anew
//! ([`extol_ondisk::xattr`]).
//!
//! | file | what |
//! | --- | --- |
//! | `mod` | full names, and what users may do with them |
//! | `store` | attributes as they are stored, in both places |
//! | `shared` | attribute blocks and their reference count |
//! | `sharing` | which blocks may be shared |
//! | `acl` | access control lists, which are tied to the mode |
//! | `value` | values in inodes of their own |
//! | `numbers` | which inodes these are, for a volume that becomes smaller |
//!
//! Invariants
//! - XA-1: all functions work under the inode's lock, with the handle of the operation. They change
//!   `node.raw`; the caller writes it. Each change may take one block, which the operation has
//!   reserved.
//! - XA-2: an attribute is in one of the two places, never in both (`store::set_raw`).

pub(crate) mod acl;
mod numbers;
mod shared;
pub(crate) mod sharing;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod value;

use extol_jbd2::Handle;
use extol_ondisk::FileType;
use extol_ondisk::xattr::{XattrEntry, index};
use extol_vfs::{FsError, Result, XattrSet};

use crate::node::Node;
use crate::volume::Volume;
pub(crate) use numbers::{forget_value, renumber_in_block, renumber_in_body, value_numbers};
pub(crate) use shared::{Moved, relocate};
use store::{Areas, get_raw, set_raw};
pub(crate) use store::{
    CREDITS, blocks, body, count_values, credits, credits_to_drop, drop_all, drop_value, has_any,
    put_body,
};
pub(crate) use store::{get_raw as get_stored, set_raw as set_stored};
pub(crate) use value::{OrphanCheck, Values, are_allowed as are_values_allowed, is_value};

/// Longest full name, and longest value, that Linux lets through.
pub(crate) const MAX_NAME: usize = 255;
pub(crate) const MAX_VALUE: usize = 65536;

const NO_SUCH_SPACE: FsError = FsError::NotSupported("this attribute name space");

/// A full name, parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name<'a> {
    /// In one of the plain name spaces.
    Plain { index: u8, name: &'a [u8] },
    /// An access control list: stored in another form.
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

/// Value of an attribute by its full name. Access control lists are in the form of Linux's API.
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
    values: &mut Values<'_>,
    full: &[u8],
    value: Option<&[u8]>,
    how: XattrSet,
) -> Result<()> {
    if value.is_some_and(|v| v.len() > MAX_VALUE) {
        return Err(FsError::TooBig);
    }
    match parse_name(full)? {
        Name::Acl(which) => acl::set(vol, h, node, values, which, value),
        Name::Plain { index: index::USER, .. } if !allows_user(node) => Err(FsError::NotPermitted),
        Name::Plain { index, name } => set_raw(vol, h, node, values, (index, name), value, how),
    }
}

/// Full names of all attributes that users may see.
pub(crate) fn list(vol: &Volume, node: &Node) -> Result<Vec<Vec<u8>>> {
    let areas = Areas::load(vol, node)?;
    Ok(areas.all().filter_map(full_name).collect())
}
