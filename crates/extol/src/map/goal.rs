//! The goal of an allocation: where new data of a file should go.
//!
//! Behind the data before it in the file, at the distance it has in the file if that is short (so
//! that a file filled out of order ends up in order); if there is none, in front of what comes
//! behind it, in the same way; else at the start of the free space near its inode. Unlike in Linux,
//! the goal depends on no process: delayed allocation takes large runs, so files written at the
//! same time do not interleave.

use extol_block::BlockNr;
use extol_vfs::Result;

use super::store::Reader;
use super::{Mapping, Root, extents, has_extents, indirect, lookup};
use crate::node::Node;
use crate::volume::Volume;

/// A gap in the file up to this many blocks is kept free on the volume. The kernel writes a large
/// file back from several threads, and pieces arrive tens of megabytes early.
const KEPT_GAP: u64 = 32768;

/// The goal for block `lblk` of the file, at its place in the cluster.
pub(crate) fn goal(vol: &Volume, node: &Node, lblk: u32) -> Result<BlockNr> {
    find(vol, node, lblk).map(|goal| vol.geo.in_place_of(goal, lblk))
}

fn find(vol: &Volume, node: &Node, lblk: u32) -> Result<BlockNr> {
    let (io, root) = (Reader::new(vol, node), Root::of(node));
    let before = if has_extents(node) {
        extents::before(&io, &root, lblk)?
    } else {
        indirect::before(&io, &root, lblk)?
    };
    if before.is_none()
        && let Some(goal) = in_front(vol, node, lblk)?
    {
        return Ok(goal);
    }
    let near_inode = || {
        if node.raw.is_regular() {
            vol.alloc.inode_goal(node.ino)
        } else {
            vol.alloc.meta_goal(node.ino)
        }
    };
    let (behind, end) = match before {
        Some(run) => (run.pblk.plus(u64::from(run.len)), run.end()),
        None => (near_inode(), 0),
    };
    let gap = u64::from(lblk).saturating_sub(end);
    let goal = if gap <= KEPT_GAP { behind.plus(gap) } else { behind };
    Ok(if vol.geo.is_valid_block(goal) { goal } else { near_inode() })
}

/// For block `lblk`, with nothing before it: in front of what comes next.
fn in_front(vol: &Volume, node: &Node, lblk: u32) -> Result<Option<BlockNr>> {
    let Mapping::Hole { len: gap } = lookup(vol, node, lblk)? else { return Ok(None) };
    let Some(next) = lblk.checked_add(u32::try_from(gap).unwrap_or(u32::MAX)) else {
        return Ok(None);
    };
    if gap > KEPT_GAP {
        return Ok(None);
    }
    let Mapping::Mapped { pblk, .. } = lookup(vol, node, next)? else { return Ok(None) };
    Ok(pblk.0.checked_sub(gap).map(BlockNr).filter(|goal| vol.geo.is_valid_block(*goal)))
}
