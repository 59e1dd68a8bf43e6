//! Attribute blocks and their users.
//!
//! A block counts the inodes that point to it. A change never touches what other inodes see:
//!
//! ```text
//!   new contents ──► an equal block noted? ──yes──► its counter + 1, leave the old block
//!                          │ no
//!                          ├─ this inode is the only user ──► rewrite in place
//!                          └─ else ──► new block, leave the old one
//!   leave a block: counter − 1; the last user frees it
//! ```
//!
//! An entry whose value is in an inode of its own makes its block a user of that inode
//! ([`super::value`]): a new block adds users, one that is freed takes them away, and joining or
//! leaving a block that stays changes none.
//!
//! [`Sharing`](super::sharing::Sharing) notes a few hundred recent blocks by the hash of their
//! contents. It is a hint: a block that is found there counts only if it is in the cache and every
//! byte is equal.
//!
//! Invariants
//! - XA-3: a noted block is in use: it is noted by an inode that points to it, under that inode's
//!   lock, and removed before it is freed (`leave`).
//!
//! Locking: different inodes reach one block under different inode locks, so every change of a
//! counter, and of a block that could be shared meanwhile, happens under the lock of `Sharing`.
//! It is a leaf of the lock order, like a buffer's lock: held while buffers change, never across
//! I/O or a call into the allocator.

use std::collections::HashMap;
use std::sync::Arc;

use extol_block::BlockNr;
use extol_jbd2::{Buf, Handle};
use extol_ondisk::xattr::{self as format, BlockHeader, XattrEntry};
use extol_vfs::{FsError, Result};

use foldhash::fast::RandomState;

use super::sharing::Noted;
use super::value::{self, Values};
use crate::alloc::Run;
use crate::error;
use crate::fast_commit::eligibility;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::volume::Volume;

/// An inode's attribute block, checked and parsed.
pub(super) struct BlockArea {
    nr: BlockNr,
    pub buf: Arc<Buf>,
    hash: u32,
    pub entries: Vec<XattrEntry>,
}

impl BlockArea {
    /// Reads the block, if the inode has one.
    pub fn load(vol: &Volume, node: &Node) -> Result<Option<Self>> {
        if node.raw.file_acl == 0 {
            return Ok(None);
        }
        let nr = BlockNr(node.raw.file_acl);
        let ino = u64::from(node.ino.0);
        if !vol.geo.is_valid_block(nr) {
            return Err(FsError::corrupt("attribute block is outside the volume")
                .in_inode(ino)
                .at_block(nr.0));
        }
        vol.alloc.check_not_system(Run { start: nr, len: 1 }).map_err(|e| e.in_inode(ino))?;
        let bad = |e| error::ondisk(e).in_inode(ino).at_block(nr.0);
        let buf = vol.journal.read(nr).map_err(error::journal)?;
        let data = buf.data();
        let (header, entries) = format::parse_block(&data).map_err(bad)?;
        value::check_entries(vol, node, &entries)?;
        if !buf.is_verified() {
            if vol.geo.has_metadata_csum() {
                format::verify_csum(&data, nr, vol.geo.fs_seed).map_err(bad)?;
            }
            buf.set_verified();
        }
        Ok(Some(Self { nr, buf, hash: header.hash, entries }))
    }
}

/// Writes into an attribute block and brings its checksum up to date.
pub(super) fn modify(
    vol: &Volume,
    h: &mut Handle,
    buf: &Arc<Buf>,
    f: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let nr = buf.nr();
    h.modify(buf, |bytes| {
        f(bytes);
        if vol.geo.has_metadata_csum() {
            format::set_csum(bytes, nr, vol.geo.fs_seed);
        }
    })
    .map_err(error::journal)
}

/// Users of a block, from its present bytes.
fn users(block: &[u8]) -> u32 {
    BlockHeader::decode(block).map_or(0, |header| header.refcount)
}

/// True if two blocks differ only in their users and checksums.
fn same_contents(a: &[u8], b: &[u8]) -> bool {
    let part = |block: &[u8], from: usize, to: usize| block.get(from..to).map(<[u8]>::to_vec);
    a.len() == b.len()
        && part(a, 0, 4) == part(b, 0, 4)
        && part(a, 8, 16) == part(b, 8, 16)
        && a.get(20..) == b.get(20..)
}

/// Notes a block that may be shared.
fn note(noted: &mut Noted<BlockNr>, hash: u32, nr: BlockNr) {
    if hash != 0 {
        noted.insert(hash, nr);
    }
}

/// Makes `entries` the contents of the inode's block: `old` is the present one. No entries: no
/// block. `fresh`: the entry for whose value the caller has added a user. `NoSpace` and
/// `QuotaExceeded` change nothing.
pub(super) fn store(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    old: Option<&BlockArea>,
    mut entries: Vec<XattrEntry>,
    fresh: Option<&XattrEntry>,
) -> Result<()> {
    let unit = vol.geo.cluster_blocks(u64::from(vol.geo.block_size.bytes() / 512));
    if entries.is_empty() {
        if let Some(old) = old {
            leave(vol, h, node, values, old)?;
            node.raw.file_acl = 0;
            node.raw.blocks = node.raw.blocks.saturating_sub(unit);
        }
        return Ok(());
    }
    let bytes =
        format::build_block(&mut entries, vol.geo.block_len(), 1).ok_or(FsError::NoSpace)?;
    if old.is_none() {
        // (For one that others have, too.)
        vol.promise(node, 1)?;
    }
    let hash = BlockHeader::decode(&bytes).map_or(0, |header| header.hash);
    if let Some(old) = old {
        // Known from now on, in case this inode leaves it to others.
        note(&mut vol.sharing.noted.lock(), old.hash, old.nr);
    }
    let is_fresh = |entry: &XattrEntry| fresh.is_some_and(|f| f.is(entry.index, &entry.name));
    let nr = if let Some(nr) = join(vol, h, &bytes, hash)? {
        // That block is a user already.
        if let Some(fresh) = fresh {
            value::release(vol, h, values, node, fresh)?;
        }
        nr
    } else if let Some(old) = old
        && rewrite(vol, h, old, &bytes, hash)?
    {
        let stays = |e: &XattrEntry| {
            entries.iter().any(|new| {
                new.is(e.index, &e.name) && new.value_inum == e.value_inum && !is_fresh(new)
            })
        };
        let gone = old.entries.iter().filter(|e| !stays(e));
        return gone.into_iter().try_for_each(|e| value::release(vol, h, values, node, e));
    } else {
        let nr = create(vol, h, node, &bytes, hash)?;
        for entry in entries.iter().filter(|e| !is_fresh(e)) {
            value::add_user(vol, h, entry)?;
        }
        nr
    };
    node.raw.file_acl = nr.0;
    match old {
        Some(old) => leave(vol, h, node, values, old),
        None => {
            node.raw.blocks = node.raw.blocks.saturating_add(unit);
            Ok(())
        }
    }
}

/// Takes an entry out of the inode's block, in place. False: other inodes share it.
pub(super) fn take_out(
    vol: &Volume,
    h: &mut Handle,
    node: &Node,
    values: &mut Values<'_>,
    old: &BlockArea,
    gone: &XattrEntry,
) -> Result<bool> {
    let mut left = old.entries.clone();
    left.retain(|e| !e.is(gone.index, &gone.name));
    // (Fewer entries fit.)
    let bytes = format::build_block(&mut left, vol.geo.block_len(), 1).ok_or(FsError::NoSpace)?;
    let hash = BlockHeader::decode(&bytes).map_or(0, |header| header.hash);
    let is_out = rewrite(vol, h, old, &bytes, hash)?;
    if is_out {
        value::release(vol, h, values, node, gone)?;
    }
    Ok(is_out)
}

/// Becomes one more user of a block with these contents, if one is noted.
fn join(vol: &Volume, h: &mut Handle, bytes: &[u8], hash: u32) -> Result<Option<BlockNr>> {
    let mut noted = vol.sharing.noted.lock();
    let Some(nr) = noted.by_hash.get(&hash).copied() else { return Ok(None) };
    let Some(buf) = vol.journal.cached(nr) else {
        noted.remove(hash, nr);
        return Ok(None);
    };
    let data = buf.data();
    let count = users(&data);
    if !(1..format::MAX_REFCOUNT).contains(&count) || !same_contents(&data, bytes) {
        noted.remove(hash, nr);
        return Ok(None);
    }
    drop(data);
    modify(vol, h, &buf, |b| BlockHeader::put_refcount(b, count + 1))?;
    Ok(Some(nr))
}

/// Rewrites the block if this inode is its only user.
fn rewrite(vol: &Volume, h: &mut Handle, old: &BlockArea, bytes: &[u8], hash: u32) -> Result<bool> {
    let mut noted = vol.sharing.noted.lock();
    if users(&old.buf.data()) != 1 {
        return Ok(false);
    }
    noted.remove(old.hash, old.nr);
    modify(vol, h, &old.buf, |b| b.copy_from_slice(bytes))?;
    note(&mut noted, hash, old.nr);
    Ok(true)
}

/// Takes and fills a new block.
fn create(vol: &Volume, h: &mut Handle, node: &Node, bytes: &[u8], hash: u32) -> Result<BlockNr> {
    let nr = vol.alloc.alloc_meta(h, vol.alloc.meta_goal(node.ino))?;
    let buf = h.create(nr).map_err(error::journal)?;
    modify(vol, h, &buf, |b| b.copy_from_slice(bytes))?;
    note(&mut vol.sharing.noted.lock(), hash, nr);
    Ok(nr)
}

/// Attribute blocks that were moved: where other users of a block find its copy.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    copies: HashMap<u64, BlockNr, RandomState>,
}

/// Moves the inode's attribute block, if it lies at or behind `limit`: the inode becomes a user of
/// the block's copy, and leaves the old one to the others until they come. True if it moved.
///
/// Credits: [`credits`](super::credits). All changes of attributes must be committed.
pub(crate) fn relocate(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    limit: BlockNr,
    moved: &mut Moved,
) -> Result<bool> {
    if node.raw.file_acl < limit.0 {
        return Ok(false);
    }
    let Some(old) = BlockArea::load(vol, node)? else { return Ok(false) };
    eligibility::note_ineligible(h, node.ino, Reason::Xattr);
    let known = match moved.copies.get(&old.nr.0) {
        Some(nr) => join_copy(vol, h, *nr)?,
        None => None,
    };
    let nr = match known {
        Some(nr) => nr,
        None => {
            let mut bytes = old.buf.data().to_vec();
            BlockHeader::put_refcount(&mut bytes, 1);
            let nr = create(vol, h, node, &bytes, old.hash)?;
            for entry in &old.entries {
                value::add_user(vol, h, entry)?;
            }
            nr
        }
    };
    let is_last = users(&old.buf.data()) <= 1;
    node.raw.file_acl = nr.0;
    leave(vol, h, node, values, &old)?;
    if is_last {
        moved.copies.remove(&old.nr.0);
    } else {
        moved.copies.insert(old.nr.0, nr);
    }
    Ok(true)
}

/// Becomes one more user of a copy, if it may have more.
fn join_copy(vol: &Volume, h: &mut Handle, nr: BlockNr) -> Result<Option<BlockNr>> {
    let buf = vol.journal.read(nr).map_err(error::journal)?;
    let _noted = vol.sharing.noted.lock();
    let count = users(&buf.data());
    if !(1..format::MAX_REFCOUNT).contains(&count) {
        return Ok(None);
    }
    modify(vol, h, &buf, |b| BlockHeader::put_refcount(b, count + 1))?;
    Ok(Some(nr))
}

/// Drops this inode's use of the block. The last one frees it.
fn leave(
    vol: &Volume,
    h: &mut Handle,
    node: &Node,
    values: &mut Values<'_>,
    old: &BlockArea,
) -> Result<()> {
    let mut noted = vol.sharing.noted.lock();
    let count = users(&old.buf.data());
    if count > 1 {
        return modify(vol, h, &old.buf, |b| BlockHeader::put_refcount(b, count - 1));
    }
    noted.remove(old.hash, old.nr);
    drop(noted);
    h.forget(old.nr, true).map_err(error::journal)?;
    vol.alloc.free(h, Run { start: old.nr, len: 1 })?;
    old.entries.iter().try_for_each(|entry| value::release(vol, h, values, node, entry))
}
