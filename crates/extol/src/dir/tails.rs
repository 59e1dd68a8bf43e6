//! The end of each block of entries, where a checksum goes: room for it on a volume that has none
//! yet, and the index nodes, whose last entry gives way to one.
//!
//! A leaf whose names leave no room is divided, or gives a name to a block behind the others where
//! the directory has no index. That is an ordinary change. A tail is an unused entry to all that
//! know no checksums, so leaves get theirs one after the other before the volume has the feature.
//! The limit of an index node is right with the feature or without it only: all nodes change
//! together with it.

use std::sync::Arc;

use extol_block::BlockNr;
use extol_jbd2::{Buf, Handle};
use extol_ondisk::dirent::{self, NewEntry, TAIL_LEN};
use extol_ondisk::htree::{self, DxBlock, DxKind};
use extol_ondisk::{Geometry, InodeSeed};
use extol_vfs::{FsError, Result};

use super::blocks::{self, Blocks};
use super::hashes::Hashes;
use super::htree::divide_leaf;
use super::index_path::Path;
use super::leaf::{self, Division};
use super::shape::{BlockKind, Shape};
use crate::error;
use crate::node::Node;
use crate::volume::Volume;

/// A node of the index of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexNode {
    pub block: BlockNr,
    kind: DxKind,
    hash_len: usize,
    /// Entries in use.
    count: usize,
}

impl IndexNode {
    /// True if it has as many entries as a volume of this geometry lets it have.
    pub fn fits(&self, geo: &Geometry) -> bool {
        self.count <= usize::from(self.kind.limit_with(geo, self.hash_len))
    }

    /// Gives it the limit, and with `seed` the checksum, that it has with the geometry `new`.
    pub fn convert(
        &self,
        vol: &Volume,
        h: &mut Handle,
        new: &Geometry,
        seed: Option<InodeSeed>,
    ) -> Result<()> {
        let buf = vol.journal.read(self.block).map_err(error::journal)?;
        let changed = h.modify(&buf, |bytes| {
            let mut node = DxBlock::decode_with(bytes, self.kind, &vol.geo, self.hash_len)?;
            node.limit = self.kind.limit_with(new, self.hash_len);
            node.encode_into(bytes);
            if let Some(seed) = seed {
                htree::set_csum(bytes, self.kind, seed);
            }
            Ok(())
        });
        changed.map_err(error::journal)?.map_err(error::ondisk)
    }
}

/// The nodes of a directory's index, and the blocks of the directory that are leaves.
pub(crate) fn parts(vol: &Volume, dir: &Node) -> Result<(Vec<IndexNode>, Vec<u32>)> {
    let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
    let mut blocks = Blocks::new(vol, dir);
    let mut at = 0;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        match blocks.any(lblk)? {
            Some((buf, BlockKind::Index(kind))) => {
                let hash_len = blocks.shape.hash_len;
                let node = DxBlock::decode_with(&buf.data(), kind, &vol.geo, hash_len);
                let node = node.map_err(|e| blocks.shape.bad(e))?;
                let count = node.entries.len();
                nodes.push(IndexNode { block: buf.nr(), kind, hash_len, count });
            }
            Some((_, BlockKind::Leaf)) => leaves.push(lblk),
            None => {}
        }
    }
    Ok((nodes, leaves))
}

/// The entries of a leaf that lead somewhere.
fn used<'a>(area: &'a [u8], shape: &Shape<'_>) -> Result<Vec<NewEntry<'a>>> {
    let mut all = Vec::new();
    for entry in dirent::iter(area) {
        let entry = entry.map_err(|e| shape.bad(e))?;
        if !entry.is_used() {
            continue;
        }
        let hash = if entry.is_dot() { None } else { leaf::stored_hash(area, shape, &entry)? };
        let file_type = entry.file_type.filter(|_| shape.filetype);
        all.push(NewEntry { name: entry.name, ino: entry.ino, file_type, hash });
    }
    Ok(all)
}

fn len_of(entries: &[NewEntry<'_>]) -> usize {
    entries.iter().map(NewEntry::needs).sum()
}

/// The leaf `lblk` of a directory and a copy of its bytes.
fn leaf_bytes(vol: &Volume, dir: &Node, lblk: u32) -> Result<(Arc<Buf>, Arc<Vec<u8>>)> {
    let mut blocks = Blocks::new(vol, dir);
    let buf = blocks.leaf(lblk)?.ok_or_else(|| blocks.shape.corrupt("a block is gone"))?;
    let bytes = buf.data();
    Ok((buf, bytes))
}

/// True if the names of a leaf leave no room for a tail.
pub(crate) fn lacks_room(vol: &Volume, dir: &Node, lblk: u32) -> Result<bool> {
    let shape = Shape::of(vol, dir);
    let (_, bytes) = leaf_bytes(vol, dir, lblk)?;
    Ok(len_of(&used(&bytes, &shape)?) + TAIL_LEN > bytes.len())
}

/// Makes room for a tail in a leaf that lacks it; the caller writes the inode of the directory.
/// `spill`: the block that has the names of other such leaves, where there is no index. Credits:
/// those of [`add`](super::add).
pub(crate) fn make_room(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    lblk: u32,
    spill: &mut Option<u32>,
) -> Result<()> {
    let shape = Shape::of(vol, dir);
    let (buf, bytes) = leaf_bytes(vol, dir, lblk)?;
    let mut entries = used(&bytes, &shape)?;
    let last = match shape.indexed {
        true => entries.last().copied(),
        // (A short name would have room where the tail is to be.)
        false => entries.iter().rposition(|e| !is_dot(e)).map(|at| entries.remove(at)),
    };
    let Some(last) = last else { return Err(shape.corrupt("a block of dots alone is full")) };
    if shape.indexed {
        return divide(vol, h, dir, &buf, lblk, last);
    }
    if let Some(other) = *spill {
        let (to, there) = leaf_bytes(vol, dir, other)?;
        let mut moved = used(&there, &shape)?;
        moved.push(last);
        if len_of(&moved) + TAIL_LEN <= there.len() {
            pack(h, &buf, &entries, None)?;
            return pack(h, &to, &moved, None);
        }
    }
    let fresh = blocks::append(vol, h, dir, 1)?;
    let Some(fresh) = fresh.first() else { return Err(FsError::NoSpace) };
    pack(h, &buf, &entries, None)?;
    pack(h, &fresh.buf, &[last], None)?;
    *spill = Some(fresh.lblk);
    Ok(())
}

fn is_dot(entry: &NewEntry<'_>) -> bool {
    matches!(entry.name, b"." | b"..")
}

/// Divides a leaf of an index. `entry` is one of its entries.
fn divide(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    buf: &Arc<Buf>,
    lblk: u32,
    entry: NewEntry<'_>,
) -> Result<()> {
    let shape = Shape::of(vol, dir);
    let mut blocks = Blocks::new(vol, dir);
    let mut hash = None;
    let hash_of = |hashes: &Hashes| Some(hashes.of(&shape, entry.name, entry.hash).hash);
    let found = Path::find(&mut blocks, |hashes| {
        hash = hash_of(hashes);
        hash
    });
    let (mut path, hashes) = found.map_err(|e| e.into_fs(&shape))?;
    while path.leaf() != lblk {
        if !path.advance_within(&mut blocks, hash).map_err(|e| e.into_fs(&shape))? {
            return Err(shape.corrupt("directory index does not lead to a leaf"));
        }
    }
    let bytes = buf.data();
    let mut items = leaf::sorted(shape.area(&bytes), &shape, false, entry, hashes)?;
    // (The entry is there twice.)
    if let Some(at) = items.iter().position(|item| item.entry.name == entry.name) {
        items.remove(at);
    }
    match leaf::divide_within(&items, bytes.len() - TAIL_LEN) {
        Some(Division::Split(keep, key)) => {
            divide_leaf(vol, h, dir, path, buf, (&items, keep, key), None)
                .map_err(|e| e.into_fs(&shape))
        }
        _ => Err(shape.corrupt("directory leaf cannot be divided")),
    }
}

/// Packs entries in front of a tail; with `seed` it has its checksum.
fn pack(
    h: &mut Handle,
    buf: &Arc<Buf>,
    entries: &[NewEntry<'_>],
    seed: Option<InodeSeed>,
) -> Result<()> {
    h.modify(buf, |bytes| {
        let (area, tail) = bytes.split_at_mut(bytes.len().saturating_sub(TAIL_LEN));
        dirent::init_area(tail);
        let fits = dirent::pack(area, entries);
        debug_assert!(fits, "the room was there");
        if let Some(seed) = seed {
            dirent::set_csum(bytes, seed);
        }
    })
    .map_err(error::journal)
}

/// Gives a leaf, which has room for it, a tail with a checksum of this seed: one credit.
pub(crate) fn add_tail(
    vol: &Volume,
    h: &mut Handle,
    dir: &Node,
    lblk: u32,
    seed: InodeSeed,
) -> Result<()> {
    let shape = Shape::of(vol, dir);
    let (buf, bytes) = leaf_bytes(vol, dir, lblk)?;
    let entries = used(&bytes, &shape)?;
    if len_of(&entries) + TAIL_LEN > bytes.len() {
        return Err(shape.corrupt("directory leaf without room for a checksum"));
    }
    pack(h, &buf, &entries, Some(seed))
}
