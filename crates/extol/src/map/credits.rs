//! Journal credits of the mapping operations, each beside its reason. All exclude the inode itself.
//!
//! Worst cases, so that a handle started with them never overdraws. Blocks already in the
//! transaction cost nothing, which is the usual case.

use super::run::Discard;
use super::{extents, has_extents};
use crate::node::Node;

/// A tree block that is new: itself, its bitmap and its group's descriptor.
const NEW_BLOCK: u32 = 3;
/// A freed tree block: bitmap, descriptor, a share in a revoke block.
const GONE_BLOCK: u32 = 3;
/// Most levels of an indirect map.
const INDIRECT_LEVELS: u32 = 3;

/// One [splice](super::extents) in a tree of this depth: every level below the root changes and
/// splits, the root grows; or every level goes and the root takes levels back.
pub(super) fn splice(depth: u32) -> u32 {
    let split = depth * (1 + NEW_BLOCK) + NEW_BLOCK;
    let shrink = depth * (1 + GONE_BLOCK) + GONE_BLOCK;
    split.max(shrink)
}

/// One step of an indirect map: the leaf and the blocks above it, changed and freed.
pub(super) fn indirect_step() -> u32 {
    INDIRECT_LEVELS * (1 + GONE_BLOCK)
}

/// Moving `blocks` blocks, in at most two groups, by [`super::relocate`]. Extents at both ends may
/// be divided or joined; those of other pieces keep their places in the tree.
pub(crate) fn for_relocate(node: &Node, blocks: u32, pieces: u32) -> u32 {
    let step =
        if has_extents(node) { splice(extents::depth(&node.raw.i_block)) } else { indirect_step() };
    let tree = step.saturating_mul(pieces.min(2)).saturating_add(pieces.saturating_sub(2));
    tree + Discard::credits_of_few(1, blocks)
}

/// Moving the tree blocks on one path: each is new, gone, and named anew in the one above.
pub(crate) fn for_relocate_nodes(node: &Node) -> u32 {
    let depth = if has_extents(node) { extents::depth(&node.raw.i_block) } else { INDIRECT_LEVELS };
    depth * (NEW_BLOCK + GONE_BLOCK + 1)
}

/// Inserting `blocks` blocks in one run.
pub(crate) fn for_insert(node: &Node, blocks: u32, block_size: u32) -> u32 {
    if has_extents(node) {
        // A run too long for one extent takes a splice for every 16 extents.
        let splices = 1 + blocks / (16 * extents::node::MAX_UNWRITTEN);
        return splice(extents::depth(&node.raw.i_block) + u32::from(splices > 1))
            .saturating_mul(splices);
    }
    // Leaves, the blocks above them, which neighbours share, and the top of the triple map: all may
    // be new.
    let per_leaf = (block_size / 4).max(1);
    let leaves = blocks / per_leaf + 2;
    let middles = leaves / per_leaf + 2;
    (leaves + middles + 1).saturating_mul(NEW_BLOCK)
}

/// Converting a range inside one extent, or a few of them in one leaf.
pub(crate) fn for_convert(node: &Node) -> u32 {
    splice(extents::depth(&node.raw.i_block))
}

/// One step of a removal: enough to make progress.
pub(crate) fn for_remove_step(node: &Node) -> u32 {
    let tree =
        if has_extents(node) { splice(extents::depth(&node.raw.i_block)) } else { indirect_step() };
    tree + Discard::MOST_CREDITS
}

/// Extents that the inode itself holds.
const ROOT_EXTENTS: u32 = 4;
/// Most blocks of a file that [`for_remove_all`] accepts: far fewer than a group has, and its
/// revokes fit a few blocks.
const FEW: u64 = 1024;

/// Removing the whole map in one step: `None` unless it has few extents and no tree blocks. (An
/// inode with a wrong block count may need more.)
pub(crate) fn for_remove_all(node: &Node, block_size: u32) -> Option<u32> {
    let flat = has_extents(node) && extents::depth(&node.raw.i_block) == 0;
    let few = node.raw.blocks <= FEW.saturating_mul(u64::from(block_size / 512));
    (flat && few).then(|| splice(0) + Discard::credits_of_few(ROOT_EXTENTS, FEW as u32))
}

/// One step of a shift: a leaf.
pub(crate) fn for_shift_step(node: &Node) -> u32 {
    splice(extents::depth(&node.raw.i_block))
}
