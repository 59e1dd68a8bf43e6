//! Hashed directories: finding the leaf of a name, and making room where there is none.
//!
//! ```text
//!   root ──► inner node ──► (one more with large_dir) ──► leaf
//!    at        at                 at
//!   ╰─────── a Path: the nodes, and the entry taken in each ─────╯
//! ```
//!
//! Names with one hash may span several leaves; the keys of all but the first have their lowest bit
//! set. A search begins at the first and continues while the next key has the hash.
//!
//! Adding to a full leaf: pack it if only its slack is scattered, else divide it and insert the new
//! leaf's key into the node above. Where nodes are full as well they are split first, from the top
//! down, and a full root moves its entries into a new node. All blocks are taken before the first
//! change, so [`FsError::NoSpace`] (volume full, or index full at its greatest height) leaves the
//! directory as it was.
//!
//! An index whose structure makes no sense gives [`IndexError::Structure`], and the caller reads
//! the directory as a linear one. A wrong checksum is an error as everywhere.

use std::sync::Arc;

use extol_jbd2::{Buf, Handle};
use extol_ondisk::dirent::{self, NewEntry};
use extol_ondisk::htree::{self, DxBlock, DxEntry, DxInfo, DxKind};
use extol_ondisk::{InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use super::blocks::{self, Blocks, Fresh};
use super::hashes::Hashes;
use super::index_path::{Frame, IndexError, IndexResult, Path};
use super::leaf::{self, Division};
use super::misplaced;
use super::place::{Place, Vacant, note_room, put_in_leaf, scan_leaf};
use super::shape::{BlockKind, Shape};
use super::sought::Sought;
use crate::fast_commit::eligibility;
use crate::node::Node;
use crate::volume::Volume;

/// Most blocks that adding one name appends: two index nodes and a leaf.
pub(super) const MAX_NEW: u32 = 3;

/// Finds a name, or the leaf it belongs into if that has room. Looks at no more blocks than the
/// directory has, whatever the index says.
pub(super) fn find(blocks: &mut Blocks<'_, '_>, sought: &Sought<'_>) -> IndexResult<Place> {
    let mut hash = None;
    let (mut path, _) = Path::find(blocks, |hashes| {
        hash = sought.hash(hashes);
        hash
    })?;
    search(blocks, &mut path, hash, sought)
}

fn search(
    blocks: &mut Blocks<'_, '_>,
    path: &mut Path,
    hash: Option<u32>,
    sought: &Sought<'_>,
) -> IndexResult<Place> {
    let mut first = None;
    for n in 0..blocks.shape.blocks {
        match scan_leaf(blocks, path.leaf(), sought)? {
            // Names are put into the first leaf that may hold them.
            Place::Vacant(here) if n == 0 => first = here,
            Place::Vacant(_) => {}
            found => return Ok(found),
        }
        if !path.advance_within(blocks, hash)? {
            return Ok(Place::Vacant(first));
        }
    }
    Err(IndexError::Structure("directory index with a loop"))
}

/// Adds a name.
pub(super) fn add(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    new: NewEntry<'_>,
) -> IndexResult<()> {
    let mut blocks = Blocks::new(vol, dir);
    let shape = blocks.shape;
    let sought = Sought::new(vol, blocks.dir(), &shape, new.name)?;
    let mut hash = None;
    let (path, hashes) = Path::find(&mut blocks, |hashes| {
        hash = sought.hash(hashes);
        hash
    })?;
    let Some(buf) = blocks.leaf(path.leaf())? else {
        return Err(IndexError::Structure("hole instead of a directory leaf"));
    };
    let scan = leaf::scan(shape.area(&buf.data()), &shape, &sought)?;
    let next_continues = path.next_key().is_some_and(|(_, key)| Some(key & !1) == hash);
    if scan.found.is_some()
        || next_continues
            && matches!(search(&mut blocks, &mut path.clone(), hash, &sought)?, Place::Found(_))
    {
        return Err(FsError::Exists.into());
    }
    if misplaced::find(&mut blocks, &sought)?.is_some() {
        return Err(FsError::Exists.into());
    }
    let vacant = scan.room.map(|room| Vacant { buf: Arc::clone(&buf), room });
    if let Some(vacant) = vacant.as_ref().filter(|_| !scan.is_filled(&shape, new.name)) {
        return Ok(put_in_leaf(h, &shape, vacant, new)?);
    }
    match (split_leaf(vol, h, dir, path, hashes, &buf, new), vacant) {
        (Err(IndexError::Other(FsError::NoSpace)), Some(vacant)) => {
            Ok(put_in_leaf(h, &shape, &vacant, new)?)
        }
        (result, _) => result,
    }
}

/// Adds a name to a filled leaf: packs the leaf if that makes room, else divides it.
fn split_leaf(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    path: Path,
    hashes: Hashes,
    buf: &Arc<Buf>,
    new: NewEntry<'_>,
) -> IndexResult<()> {
    let shape = Shape::of(vol, dir);
    // The snapshot stays as it is while the block itself is filled anew.
    let data = buf.data();
    let items = leaf::sorted(shape.area(&data), &shape, false, new, hashes)?;
    let (keep, key) = match leaf::divide(&items, &shape) {
        Some(Division::Split(keep, key)) => (keep, key),
        Some(Division::Fits) => {
            note_room(h, &shape, buf, Some(new.name));
            blocks::modify_leaf(h, &shape, buf, |bytes| leaf::fill(bytes, &shape, &items))?;
            return Ok(());
        }
        None => return Err(shape.corrupt("directory leaf cannot be divided").into()),
    };
    divide_leaf(vol, h, dir, path, buf, (&items, keep, key), Some(new.name))
}

/// Leaves the first `keep` of a leaf's entries in it; the others go into a new leaf with `key`.
/// `added`: the name that was not there.
pub(super) fn divide_leaf(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    path: Path,
    buf: &Arc<Buf>,
    (items, keep, key): (&[leaf::Hashed<'_>], usize, u32),
    added: Option<&[u8]>,
) -> IndexResult<()> {
    let shape = Shape::of(vol, dir);
    let full = path.nodes_to_split(&shape);
    let mut tree = Tree::open(shape, path)?;
    let fresh = match full {
        Some(full) => blocks::append(vol, h, dir, full as u32 + 1)?,
        None => return Err(FsError::NoSpace.into()),
    };
    let Some((right, nodes)) = fresh.split_last() else { return Ok(()) };
    note_room(h, &shape, buf, added);
    eligibility::divided(h, shape.ino, shape.leaf(buf), &right.buf);
    tree.make_room(h, nodes.len(), nodes)?;
    let (stay, go) = items.split_at(keep);
    blocks::modify_leaf(h, &shape, &right.buf, |bytes| leaf::fill(bytes, &shape, go))?;
    blocks::modify_leaf(h, &shape, buf, |bytes| leaf::fill(bytes, &shape, stay))?;
    tree.insert(h, tree.levels.len() - 1, key, right.lblk)?;
    Ok(())
}

/// The nodes on the path to a leaf, decoded for changes. Decoding is what can fail; it comes before
/// the first change.
struct Tree<'v> {
    shape: Shape<'v>,
    levels: Vec<Level>,
}

struct Level {
    buf: Arc<Buf>,
    node: DxBlock,
    /// The entry taken.
    at: usize,
}

impl<'v> Tree<'v> {
    fn open(shape: Shape<'v>, path: Path) -> IndexResult<Self> {
        let decode = |Frame { buf, kind, at, .. }: Frame| match DxBlock::decode_with(
            &buf.data(),
            kind,
            shape.geo,
            shape.hash_len,
        ) {
            Ok(node) => Ok(Level { node, at, buf: Arc::clone(&buf) }),
            Err(_) => Err(IndexError::Structure("directory index node makes no sense")),
        };
        let levels = path.frames.into_iter().map(decode).collect::<IndexResult<_>>()?;
        Ok(Self { shape, levels })
    }

    /// Inserts a key behind the entry taken at `level`.
    fn insert(&mut self, h: &mut Handle, level: usize, key: u32, lblk: u32) -> Result<()> {
        let Some(Level { buf, node, at }) = self.levels.get_mut(level) else { return Ok(()) };
        node.insert(*at, key, lblk).map_err(|e| self.shape.bad(e))?;
        write(h, &self.shape, buf, node)
    }

    /// Makes room in the lowest node: the `full` lowest nodes have none. Takes one fresh block for
    /// each.
    fn make_room(&mut self, h: &mut Handle, full: usize, fresh: &[Fresh]) -> Result<()> {
        debug_assert_eq!(full, fresh.len());
        let mut fresh = fresh.iter();
        let mut first = self.levels.len().saturating_sub(full);
        if first == 0
            && let Some(block) = fresh.next()
        {
            self.grow(h, block)?;
            // The node that took the root's entries is longer than the root: it has room.
            first = 2;
        }
        for (level, block) in (first..).zip(fresh) {
            self.split(h, level, block)?;
        }
        Ok(())
    }

    /// Moves the root's entries into a new node below it.
    fn grow(&mut self, h: &mut Handle, fresh: &Fresh) -> Result<()> {
        let geo = self.shape.geo;
        let Some(root) = self.levels.first_mut() else { return Ok(()) };
        let below = DxBlock {
            kind: DxKind::Node,
            limit: self.shape.limit(DxKind::Node),
            entries: root.node.entries.clone(),
        };
        root.node.entries = vec![DxEntry { hash: 0, block: fresh.lblk }];
        let at = std::mem::take(&mut root.at);
        let node = &root.node;
        blocks::modify(h, &self.shape, &root.buf, BlockKind::Index(DxKind::Root), |bytes| {
            node.encode_into(bytes);
            if let Ok(info) = htree::decode_info(bytes, geo) {
                htree::put_info(bytes, DxInfo { levels: info.levels + 1, ..info });
            }
        })?;
        write_fresh(h, &self.shape, &fresh.buf, &below)?;
        self.levels.insert(1, Level { buf: fresh.buf.clone(), node: below, at });
        Ok(())
    }

    /// Moves the upper half of the node at `level` into a new one. The node above has room for its
    /// key.
    fn split(&mut self, h: &mut Handle, level: usize, fresh: &Fresh) -> Result<()> {
        let Some(old) = self.levels.get_mut(level) else { return Ok(()) };
        let keep = old.node.entries.len() / 2;
        let entries = old.node.entries.split_off(keep);
        let key = entries.first().map_or(0, |entry| entry.hash);
        let node = DxBlock { kind: DxKind::Node, limit: old.node.limit, entries };
        write_fresh(h, &self.shape, &fresh.buf, &node)?;
        write(h, &self.shape, &old.buf, &old.node)?;
        let goes_right = old.at >= keep;
        if goes_right {
            *old = Level { buf: fresh.buf.clone(), node, at: old.at - keep };
        }
        self.insert(h, level - 1, key, fresh.lblk)?;
        if goes_right && let Some(above) = self.levels.get_mut(level - 1) {
            above.at += 1;
        }
        Ok(())
    }
}

fn write(h: &mut Handle, shape: &Shape<'_>, buf: &Arc<Buf>, node: &DxBlock) -> Result<()> {
    blocks::modify(h, shape, buf, BlockKind::Index(node.kind), |bytes| node.encode_into(bytes))
}

fn write_fresh(h: &mut Handle, shape: &Shape<'_>, buf: &Arc<Buf>, node: &DxBlock) -> Result<()> {
    blocks::modify(h, shape, buf, BlockKind::Index(DxKind::Node), |bytes| {
        // The one unused entry that hides it.
        dirent::init_area(bytes);
        node.encode_into(bytes);
    })
}

/// Turns a directory of one filled block into an indexed one and adds a name. `Ok(false)`: the
/// block does not have the form that is needed, and nothing was changed.
pub(super) fn build(
    vol: &Volume,
    h: &mut Handle,
    dir: &mut Node,
    new: NewEntry<'_>,
) -> Result<bool> {
    let mut blocks = Blocks::new(vol, dir);
    let shape = blocks.shape;
    let hashes = Hashes::default_for(&shape);
    let Some(buf) = blocks.leaf(0)? else { return Ok(false) };
    let data = buf.data();
    let area = shape.area(&data);
    let Some(parent) = parent_at_usual_place(area) else { return Ok(false) };
    let items = leaf::sorted(area, &shape, true, new, hashes)?;
    let (keep, key) = match leaf::divide(&items, &shape) {
        None => return Ok(false),
        Some(Division::Fits) => (items.len(), None),
        Some(Division::Split(keep, key)) => (keep, Some(key)),
    };
    let fresh = blocks::append(vol, h, dir, if key.is_some() { 2 } else { 1 })?;
    note_room(h, &shape, &buf, Some(new.name));
    let (stay, go) = items.split_at(keep);
    for (part, leaf) in [stay, go].into_iter().zip(&fresh) {
        eligibility::divided(h, shape.ino, shape.leaf(&buf), &leaf.buf);
        blocks::modify_leaf(h, &shape, &leaf.buf, |bytes| leaf::fill(bytes, &shape, part))?;
    }
    let mut root = DxBlock::new(DxKind::Root, shape.geo, fresh.first().map_or(0, |leaf| leaf.lblk));
    if let (Some(key), Some(right)) = (key, fresh.get(1)) {
        root.insert(0, key, right.lblk).map_err(|e| shape.bad(e))?;
    }
    let info = DxInfo { hash_version: hashes.to_disk(), levels: 0 };
    let kind = shape.stored_type(extol_ondisk::FileType::Directory);
    blocks::modify(h, &shape, &buf, BlockKind::Index(DxKind::Root), |bytes| {
        htree::init_root(bytes, shape.geo, shape.ino, parent, kind, info, 0);
        root.encode_into(bytes);
    })?;
    dir.raw.flags.insert(InodeFlags::INDEX);
    Ok(true)
}

/// The parent, if an area begins with `.` and `..` at the places where an index root has them.
fn parent_at_usual_place(area: &[u8]) -> Option<InodeNr> {
    let dot = dirent::entry_at(area, 0).ok()?;
    let dotdot = dirent::entry_at(area, 12).ok()?;
    let usual = dot.name == b"." && dot.rec_len == 12 && dotdot.name == b".." && dotdot.is_used();
    usual.then_some(dotdot.ino)
}
