//! The block map of a file: extent trees and indirect maps behind one interface.
//!
//! ```text
//!   lookup, next_mapped, iterate        (read only)
//!   insert, convert, remove, shift      (with a handle)
//!   relocate, relocate_nodes
//!        │                 flags & EXTENTS
//!   ┌────┴─────┐      ┌───────────────────────┐
//!   │ this file │─────►│ extents/  indirect/   │──► store (block cache, allocator, credits)
//!   └──────────┘      └───────────────────────┘
//! ```
//!
//! The map begins in the 60 bytes of `node.raw.i_block`. Functions that change it change
//! `node.raw.i_block` and `node.raw.blocks` (data and tree blocks, 512-byte units) and tree blocks
//! through the handle; the caller writes the inode afterwards, **also when they fail**, since the
//! tree blocks may already be changed. The caller holds the inode's lock: shared for reading,
//! exclusive for changing.
//!
//! The caller allocates data blocks (`Allocator::take`, `commit_take`, then [`insert`]); [`remove`]
//! frees them. Steps that can fail for lack of space come before any change.
//!
//! Operations on many extents are bounded by the handle's credits: they extend it while the
//! transaction has room and then answer [`Progress::Restart`]. The caller writes the inode,
//! restarts the handle and calls again with the range that is left.
//!
//! Inline data and fast symlinks have no map; the caller checks for them.

mod clusters;
mod credits;
mod extents;
#[cfg(test)]
mod fake;
mod goal;
#[cfg(test)]
mod images;
mod indirect;
mod limits;
mod notes;
mod run;
mod store;
mod stretch;

pub(crate) use credits::{
    for_convert as credits_for_convert, for_insert as credits_for_insert,
    for_relocate as credits_for_relocate, for_relocate_nodes as credits_for_relocate_nodes,
    for_remove_all as credits_for_remove_all, for_remove_step as credits_for_remove_step,
    for_shift_step as credits_for_shift_step,
};
pub(crate) use goal::goal;
pub(crate) use limits::max_file_size;
pub(crate) use run::{Discard, MappedRun, Mapping, Progress};
pub(crate) use stretch::{Stretch, relocate};

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::{Geometry, Incompat, Inode, InodeFlags};
use extol_vfs::{FsError, Result};

use crate::alloc::Run;
use crate::fast_commit::eligibility;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::quota::usage::Ids;
use crate::volume::Volume;
use run::Root;
use store::{Reader, Shape, Store, Writer};

/// The first block behind the last mapped one, of a map without tree blocks; `u32::MAX` if it has
/// some.
pub(crate) fn end_of_root(root: &[u8; 60]) -> u32 {
    extents::end(root)
}

/// Number of extents of a map without tree blocks. `None` if it has some, or no extents.
pub(crate) fn extents_in_root(node: &Node) -> Option<usize> {
    has_extents(node).then(|| extents::count_in_root(&node.raw.i_block))?
}

fn has_extents(node: &Node) -> bool {
    node.raw.flags.contains(InodeFlags::EXTENTS)
}

/// Gives a new inode an empty map: an extent tree if the volume has extents, else an indirect map.
pub(crate) fn init(geo: &Geometry, raw: &mut Inode) {
    raw.i_block = [0; 60];
    if geo.incompat().contains(Incompat::EXTENTS) {
        raw.flags |= InodeFlags::EXTENTS;
        extents::init(&mut raw.i_block);
    } else {
        raw.flags &= !InodeFlags::EXTENTS;
    }
}

/// What block `lblk` of the file is mapped to, and for how many blocks from there on. The length is
/// a lower bound: the next stretch may be of the same kind.
pub(crate) fn lookup(vol: &Volume, node: &Node, lblk: u32) -> Result<Mapping> {
    find(&Reader::new(vol, node), &Root::of(node), has_extents(node), lblk)
}

/// Where the blocks of a hole go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NewBlocks {
    /// Into a cluster that the file has: so many as are left of it.
    Shared(Run),
    /// Into new clusters: so many, as the next cluster is the file's already.
    Fresh(u32),
}

/// Where the `len` blocks from `lblk` on go, all of which are in one hole, or the first of them.
pub(crate) fn new_blocks(vol: &Volume, node: &Node, lblk: u32, len: u32) -> Result<NewBlocks> {
    let (io, root) = (Reader::new(vol, node), Root::of(node));
    check_map(&io, &root, has_extents(node))?;
    match clusters::shared(&io, &root, lblk)? {
        Some(start) => {
            let left = io.shape().ratio - vol.geo.inside_cluster(u64::from(lblk));
            Ok(NewBlocks::Shared(Run { start, len: len.min(left) }))
        }
        None => clusters::fresh(&io, &root, lblk, len).map(NewBlocks::Fresh),
    }
}

/// How many new clusters the holes in `lblk..lblk + len` need.
pub(crate) fn fresh_clusters(vol: &Volume, node: &Node, lblk: u32, len: u32) -> Result<u64> {
    let ratio = u64::from(vol.geo.cluster_ratio);
    let (mut at, end) = (lblk, lblk.saturating_add(len));
    // The first cluster that was not counted.
    let (mut next, mut count) = (0, 0);
    while at < end {
        let len = match lookup(vol, node, at)? {
            Mapping::Mapped { len, .. } => len,
            Mapping::Hole { len } => {
                let len = u32::try_from(len).unwrap_or(u32::MAX).min(end - at);
                match new_blocks(vol, node, at, len)? {
                    NewBlocks::Shared(run) => run.len,
                    NewBlocks::Fresh(len) => {
                        let first = u64::from(at) / ratio;
                        let last = (u64::from(at) + u64::from(len)).div_ceil(ratio);
                        count += last.saturating_sub(first.max(next));
                        next = last;
                        len
                    }
                }
            }
        };
        at = at.saturating_add(len.max(1));
    }
    Ok(count)
}

/// On a volume with clusters, files have extents.
fn check_map<S: Store>(io: &S, root: &Root, extents: bool) -> Result<()> {
    if io.shape().ratio > 1 && !extents {
        return Err(root.corrupt("a file without extents on a volume with clusters"));
    }
    Ok(())
}

/// The first mapped stretch that overlaps `from..to`, cut to that range.
pub(crate) fn next_mapped(
    vol: &Volume,
    node: &Node,
    from: u32,
    to: u32,
) -> Result<Option<MappedRun>> {
    walk(&Reader::new(vol, node), &Root::of(node), has_extents(node), from, to)
}

fn find<S: Store>(io: &S, root: &Root, extents: bool, lblk: u32) -> Result<Mapping> {
    if extents { extents::lookup(io, root, lblk) } else { indirect::lookup(io, root, lblk) }
}

fn walk<S: Store>(
    io: &S,
    root: &Root,
    extents: bool,
    from: u32,
    to: u32,
) -> Result<Option<MappedRun>> {
    let mut at = from;
    while at < to {
        match find(io, root, extents, at)? {
            Mapping::Hole { len } => match u32::try_from(u64::from(at) + len) {
                Ok(next) => at = next,
                Err(_) => break,
            },
            Mapping::Mapped { pblk, len, unwritten } => {
                return Ok(Some(MappedRun { lblk: at, pblk, len: len.min(to - at), unwritten }));
            }
        }
    }
    Ok(None)
}

/// Bound for walks of a map: a damaged one may name a pointer block many times.
const TOO_MANY: &str = "file maps more blocks than the volume has";

/// All mapped stretches of `from..to` in order, until `each` returns false.
pub(crate) fn iterate(
    vol: &Volume,
    node: &Node,
    from: u32,
    to: u32,
    each: &mut dyn FnMut(MappedRun) -> bool,
) -> Result<()> {
    let mut at = from;
    let mut budget = vol.geo.blocks();
    while let Some(run) = next_mapped(vol, node, at, to)? {
        budget = budget
            .checked_sub(u64::from(run.len))
            .ok_or_else(|| FsError::corrupt(TOO_MANY).in_inode(u64::from(node.ino.0)))?;
        if !each(run) {
            break;
        }
        at = run.lblk.saturating_add(run.len);
    }
    Ok(())
}

/// Maps block `lblk` of a file of metadata, a hole, to a block of the cluster that the file has
/// there, or else of a new one near `goal`. `NoSpace` changes nothing.
///
/// Credits: those of [`insert`] for one block, with its bitmap and descriptor.
pub(crate) fn insert_meta(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
    goal: BlockNr,
) -> Result<BlockNr> {
    if let NewBlocks::Shared(run) = new_blocks(vol, node, lblk, 1)? {
        vol.alloc.check_not_system(run).map_err(|e| e.in_inode(node.ino.0.into()))?;
        return insert(vol, h, node, lblk, run, false).map(|()| run.start);
    }
    let run = vol.alloc.take(vol.geo.in_place_of(goal, lblk), 1, 1)?;
    vol.alloc.commit_take(h, run).inspect_err(|_| vol.alloc.give_back(run))?;
    if let Err(e) = insert(vol, h, node, lblk, run, false) {
        // The bits are set but nothing points at the block.
        let _ = vol.alloc.free(h, run);
        return Err(e);
    }
    Ok(run.start)
}

/// Maps a hole to `run`, whose blocks the caller has taken in the same transaction. Joins what
/// continues a neighbour. On an error nothing is mapped and the caller still owns the blocks.
/// Where they are unwritten, or those of a directory, limits of the owners must allow what the tree
/// needs.
///
/// Credits: [`credits_for_insert`], beside those for the bitmaps (`commit_take`) and the inode.
pub(crate) fn insert(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
    run: Run,
    unwritten: bool,
) -> Result<()> {
    // (Limits have promised the blocks of written data, and a page that was accepted must get a
    // place.)
    let limited = unwritten || node.raw.is_dir();
    insert_as(vol, h, node, (lblk, run), unwritten, limited)
}

/// As [`insert`], of written blocks: limits must allow what the tree needs. For a write that may
/// still be refused.
pub(crate) fn insert_limited(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
    run: Run,
) -> Result<()> {
    insert_as(vol, h, node, (lblk, run), false, true)
}

fn insert_as(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    (lblk, run): (u32, Run),
    unwritten: bool,
    limited: bool,
) -> Result<()> {
    if run.len == 0 {
        return Ok(());
    }
    let run = MappedRun { lblk, pblk: run.start, len: run.len, unwritten };
    if !Shape::of(&vol.geo, node).holds(run.pblk.0, u64::from(run.len)) {
        return Err(FsError::corrupt("mapping of blocks outside the volume")
            .in_inode(u64::from(node.ino.0)));
    }
    let before = node.raw.i_block;
    let limited = limited.then(|| Ids::of_inode(&node.raw));
    change(vol, h, node, |io, root, extents| {
        io.limited = limited;
        match extents {
            true => extents::insert(io, root, run),
            false if io.shape().ratio > 1 => check_map(io, root, extents),
            false if unwritten => {
                Err(FsError::NotSupported("unwritten blocks in a file without extents"))
            }
            false => indirect::insert(io, root, run),
        }
    })?;
    notes::inserted(h, node, &before, run);
    Ok(())
}

/// Makes all mapped blocks of `lblk..lblk + len` written or unwritten; holes stay holes. After
/// [`Progress::Restart`] go on from there to the same end.
///
/// Credits: [`credits_for_convert`] always suffice for one range inside one extent.
pub(crate) fn convert(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
    len: u32,
    to_written: bool,
) -> Result<Progress> {
    let to = lblk.saturating_add(len);
    let before = node.raw.i_block;
    let result = change(vol, h, node, |io, root, extents| match extents {
        true => extents::convert(io, root, lblk, to, !to_written),
        false if to_written => Ok(Progress::Done),
        false => Err(FsError::NotSupported("unwritten blocks in a file without extents")),
    });
    // (After an error, too: the map shows how far it came.)
    notes::converted(vol, h, node, &before, lblk, to);
    result
}

/// Unmaps `from..to` (`to` exclusive; `u32::MAX` means to the end), frees tree blocks that become
/// empty and treats data blocks as `data` says. Works from the end backwards; after
/// [`Progress::Restart`] call again with `to = at` and at least [`credits_for_remove_step`]
/// credits.
pub(crate) fn remove(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    from: u32,
    to: u32,
    data: Discard,
) -> Result<Progress> {
    let data = data.of(&node.raw);
    let before = node.raw.i_block;
    let result = change(vol, h, node, |io, root, extents| match extents {
        true => extents::remove(io, root, from, to, data),
        false => {
            check_map(io, root, extents)?;
            indirect::remove(io, root, from, to, data)
        }
    });
    notes::removed(h, node, &before, (from, to), result.as_ref().ok().copied());
    result
}

/// Moves the mappings of `from..to` by `delta` blocks (collapse and insert range; extents only). To
/// the front, the blocks before `from` must be a hole as wide; after [`Progress::Restart`] go on
/// with `from = at`. To the end, an extent around `from` is split; go on with `to = at`. Each call
/// needs [`credits_for_shift_step`] credits.
pub(crate) fn shift(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    from: u32,
    to: u32,
    delta: i64,
) -> Result<Progress> {
    eligibility::note_ineligible(h, node.ino, Reason::FallocRange);
    change(vol, h, node, |io, root, extents| match extents {
        true => extents::shift(io, root, from, to, delta),
        false => Err(FsError::NotSupported("collapse and insert range in a file without extents")),
    })
}

/// Moves the tree blocks on the way to block `lblk` of the file that lie at or behind `limit` to
/// others, which the allocator takes. Gives how many were moved, and where the next step begins
/// (`None`: this was the last one). If none was moved, nothing has changed.
///
/// Credits: [`credits_for_relocate_nodes`].
pub(crate) fn relocate_nodes(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    lblk: u32,
    limit: BlockNr,
) -> Result<(u32, Option<u32>)> {
    let (moved, next) = change(vol, h, node, |io, root, extents| match extents {
        true => extents::relocate_nodes(io, root, lblk, limit),
        false => indirect::relocate_nodes(io, root, lblk, limit),
    })?;
    if moved > 0 {
        eligibility::note_ineligible(h, node.ino, Reason::BlocksMoved);
    }
    let end = u64::from(extents::node::END_OF_SPACE);
    Ok((moved, u32::try_from(next).ok().filter(|next| u64::from(*next) < end)))
}

/// True if the map has blocks of its own.
pub(crate) fn has_tree_blocks(node: &Node) -> bool {
    match has_extents(node) {
        true => extents::depth(&node.raw.i_block) > 0,
        false => indirect::has_blocks(&node.raw.i_block),
    }
}

/// Runs a change on a copy of the inode's part of the map and puts the copy back, also on an error:
/// it must match the tree blocks.
fn change<R>(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    f: impl FnOnce(&mut Writer<'_>, &mut Root, bool) -> Result<R>,
) -> Result<R> {
    let mut root = Root::of(node);
    let extents = has_extents(node);
    let result = f(&mut Writer::new(vol, h, node), &mut root, extents);
    node.raw.i_block = root.bytes;
    node.raw.blocks = root.blocks;
    result
}
