//! Clusters of a file (bigalloc): which of them it has, and which a change gives or takes.
//!
//! ```text
//!   file       │0 1 2 3│4 5 6 7│8 9 …    extents 1..3 and 5..9
//!   volume     │. 1 2 .│       │         blocks 0 and 3 are holes in a cluster that the file has
//! ```
//!
//! Invariants
//! - KL-1: the mapped blocks of one cluster of a file lie in one cluster of the volume, at the same
//!   places in it, and no other file has blocks there. [`taken`] refuses what breaks it.
//! - KL-2: a hole in a cluster of which the file has another block gets its place there
//!   ([`shared`]); only other holes get new clusters.
//! - KL-3: a cluster is freed with the last mapped block in it ([`left`]), and is counted once in
//!   the inode's blocks, from its first mapped block on.
//!
//! Without bigalloc a cluster is a block, and none is shared.

use extol_block::BlockNr;
use extol_vfs::{FsError, Result};

use super::store::Store;
use super::{MappedRun, Root, walk};

pub(super) const OUT_OF_PLACE: &str = "blocks of a file do not keep to the clusters";

/// First block of the cluster that block `lblk` of a file lies in, and the end of the cluster.
fn bounds(ratio: u32, lblk: u32) -> (u32, u32) {
    let start = lblk & !(ratio - 1);
    (start, start.saturating_add(ratio))
}

/// The block of the volume at which the cluster of `run` begins.
fn place(root: &Root, ratio: u32, run: MappedRun) -> Result<u64> {
    let inside = u64::from(run.lblk & (ratio - 1));
    match run.pblk.0.checked_sub(inside).filter(|start| start.is_multiple_of(u64::from(ratio))) {
        Some(start) => Ok(start),
        None => Err(root.blame(FsError::corrupt(OUT_OF_PLACE).at_block(run.pblk.0))),
    }
}

/// The place of block `lblk`, a hole, in a cluster of which another block is mapped.
pub(super) fn shared<S: Store>(io: &S, root: &Root, lblk: u32) -> Result<Option<BlockNr>> {
    let ratio = io.shape().ratio;
    if ratio == 1 {
        return Ok(None);
    }
    let (start, end) = bounds(ratio, lblk);
    let Some(run) = walk(io, root, true, start, end)? else { return Ok(None) };
    Ok(Some(BlockNr(place(root, ratio, run)? + u64::from(lblk - start))))
}

/// How many of the `len` blocks from `lblk` on, a hole that begins in no cluster of the file, come
/// before a cluster that the file has.
pub(super) fn fresh<S: Store>(io: &S, root: &Root, lblk: u32, len: u32) -> Result<u32> {
    let ratio = io.shape().ratio;
    if ratio == 1 {
        return Ok(len);
    }
    let end = lblk.saturating_add(len);
    let (start, behind) = bounds(ratio, end.saturating_sub(1));
    if start <= lblk || end == behind || walk(io, root, true, end, behind)?.is_none() {
        return Ok(len);
    }
    Ok(start - lblk)
}

/// How many clusters a hole's `run` gives to the file: those it has no other block of.
pub(super) fn taken<S: Store>(io: &S, root: &Root, run: MappedRun) -> Result<u32> {
    let ratio = io.shape().ratio;
    if ratio == 1 || run.len == 0 {
        return Ok(run.len);
    }
    let here = place(root, ratio, run)?;
    let end = run.lblk.saturating_add(run.len);
    let ((first, _), (last, behind)) = (bounds(ratio, run.lblk), bounds(ratio, end - 1));
    let before = walk(io, root, true, first, run.lblk)?;
    let after = walk(io, root, true, end, behind)?;
    for other in before.iter().chain(&after) {
        let (start, _) = bounds(ratio, other.lblk);
        if place(root, ratio, *other)? != here + u64::from(start - first) {
            return Err(root.blame(FsError::corrupt(OUT_OF_PLACE).at_block(other.pblk.0)));
        }
    }
    let all = (last - first) / ratio + 1;
    let (before, after) = (u32::from(before.is_some()), u32::from(after.is_some()));
    Ok(if first == last { 1 - before.max(after) } else { all - before - after })
}

/// Clusters that a file leaves: their first block, and how many they are.
pub(super) struct Left {
    pub start: BlockNr,
    pub clusters: u32,
}

impl Left {
    /// Those of a whole piece, without bigalloc.
    pub fn all(piece: MappedRun) -> Self {
        Self { start: piece.pblk, clusters: piece.len }
    }
}

/// The clusters that the file leaves with `piece`. What lies between it and `to` is no longer the
/// file's, whatever the map says.
pub(super) fn left<S: Store>(io: &S, root: &Root, piece: MappedRun, to: u32) -> Result<Left> {
    let ratio = io.shape().ratio;
    if ratio == 1 || piece.len == 0 {
        return Ok(Left::all(piece));
    }
    let here = place(root, ratio, piece)?;
    let end = piece.lblk.saturating_add(piece.len);
    let ((first, _), (last, behind)) = (bounds(ratio, piece.lblk), bounds(ratio, end - 1));
    let before = walk(io, root, true, first, piece.lblk)?.is_some();
    let after = walk(io, root, true, end.max(to), behind)?.is_some();
    let skipped = u32::from(before);
    let all = (last - first) / ratio + 1;
    let clusters = all.saturating_sub(skipped + u32::from(after));
    Ok(Left { start: BlockNr(here + u64::from(skipped) * u64::from(ratio)), clusters })
}
