//! Unmapping: truncate, punch hole, delete.
//!
//! Works from the end of the range backwards, a leaf at a time: the data of as many extents as the
//! handle's credits allow is freed, then one splice takes their entries out (or shortens the extent
//! at either end of the range, or splits the one around it). If credits run out the caller writes
//! the inode, restarts the handle and goes on with the range that is left; a crash in between
//! leaves a tree that ends earlier, which a truncate can finish.
//!
//! An extent over many groups is cut off piece by piece from its end, so that no step needs more
//! than [`credits::for_remove_step`].

use extol_vfs::Result;

use super::edit::Editor;
use super::node::{self, Entry};
use super::path::Path;
use crate::map::store::StoreMut;
use crate::map::{Discard, MappedRun, Progress, Root, clusters, credits};

/// Unmaps `from..to`.
pub(in crate::map) fn remove<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    from: u32,
    to: u32,
    data: Discard,
) -> Result<Progress> {
    let mut ed = Editor::new(io, root);
    let mut end = to;
    while end > from {
        let path = ed.descend(end - 1)?;
        let leaf = path.leaf();
        if leaf.at == 0 {
            if leaf.count > 0 || path.depth() == 0 || leaf.lo >= end {
                break;
            }
            // A leaf without entries, which Linux tolerates: it is freed.
            if !data.reserve(ed.io, credits::splice(path.depth() as u32))? {
                return Ok(Progress::Restart { at: end });
            }
            end = leaf.lo;
            ed.splice_leaf(&path, 0, 0, &[])?;
            ed.settle()?;
            continue;
        }
        let before = end;
        match trim_leaf(&mut ed, &path, (from, to), &mut end, data)? {
            Leaf::NoCredits => return Ok(Progress::Restart { at: end }),
            Leaf::Finished if end == before => break,
            Leaf::Finished => {}
        }
    }
    Ok(Progress::Done)
}

enum Leaf {
    /// Its part of the range is unmapped, or a piece of that.
    Finished,
    /// The transaction has no more room.
    NoCredits,
}

/// Unmaps what one leaf holds of `from..end` and moves `end` down to where it came; all up to `to`
/// is unmapped already. Leaves `end` alone if there is nothing.
fn trim_leaf<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    path: &Path<S::Block>,
    (from, to): (u32, u32),
    end: &mut u32,
    data: Discard,
) -> Result<Leaf> {
    let leaf = path.leaf();
    let mut at = leaf.at;
    let mut keep: Vec<Entry> = Vec::new();
    let mut outcome = Ok(Leaf::Finished);
    while at > 0 {
        let run = match leaf.extent(ed.io, ed.root, at - 1) {
            Ok(run) => run,
            Err(e) => {
                outcome = Err(e);
                break;
            }
        };
        if run.end() <= u64::from(from) {
            break;
        }
        let (rest, tail) = run.split(*end);
        let (head, gone) = rest.split(from.max(rest.lblk));
        let piece = data.last_piece(ed.io.shape(), gone);
        let head = MappedRun {
            len: head.len + (gone.len - piece.len),
            lblk: run.lblk,
            pblk: run.pblk,
            ..head
        };
        match free_piece(ed, path, (piece, to), head.len > 0 && tail.len > 0, data) {
            Ok(true) => {}
            Ok(false) => {
                outcome = Ok(Leaf::NoCredits);
                break;
            }
            Err(e) => {
                outcome = Err(e);
                break;
            }
        }
        *end = piece.lblk;
        at -= 1;
        if tail.len > 0 {
            keep.insert(0, node::extent_entry(&tail));
        }
        if head.len > 0 {
            keep.insert(0, node::extent_entry(&head));
            break;
        }
    }
    if at < leaf.at {
        ed.splice_leaf(path, at, leaf.at - at, &keep)?;
    }
    outcome
}

/// Frees the data of `piece`; all between it and `to` was freed. False without credits.
fn free_piece<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    path: &Path<S::Block>,
    (piece, to): (MappedRun, u32),
    splits: bool,
    data: Discard,
) -> Result<bool> {
    let fixed = credits::splice(path.depth() as u32);
    if !data.reserve(ed.io, fixed + data.credits(ed.io.shape(), piece))? {
        return Ok(false);
    }
    let left = clusters::left(ed.io, ed.root, piece, to)?;
    if splits {
        ed.prepare(path, 1)?;
    }
    if let Err(e) = data.discard(ed.io, piece, &left) {
        ed.release()?;
        return Err(ed.root.blame(e));
    }
    ed.root.uncount(ed.io.shape(), left.clusters);
    Ok(true)
}
