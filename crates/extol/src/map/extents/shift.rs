//! Moving all extents of a range along the file: collapse range (towards the front) and insert
//! range (towards the end).
//!
//! ```text
//!  collapse, delta -3     ab[cde]fghi   →   abfghi        front to back, leaf after leaf
//!  insert,   delta +3     ab|cde        →   ab___cde      back to front: no two extents collide
//! ```
//!
//! Only keys change; the data stays where it is. One leaf is one step: without credits for the next
//! one the caller writes the inode, restarts, and goes on with the range that is left. Between
//! steps the tree is in order, with a gap as wide as the shift. An extent around the insertion
//! point is split there before anything moves. The seam of a collapse is joined where the extents
//! on its two sides continue each other.

use extol_vfs::{FsError, Result};

use super::change::replace;
use super::edit::Editor;
use super::lookup;
use super::node;
use super::path::Path;
use crate::map::store::StoreMut;
use crate::map::{MappedRun, Mapping, Progress, Root, credits};

/// Adds `delta` to the logical block of every extent in `from..to`. The room must be free: a hole
/// of `-delta` blocks before `from`, or `delta` blocks of space at the end. Go on with `from = at`
/// (negative) or `to = at` (positive).
pub(in crate::map) fn shift<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    from: u32,
    to: u32,
    delta: i64,
) -> Result<Progress> {
    let mut ed = Editor::new(io, root);
    match (u32::try_from(delta.unsigned_abs()), delta < 0) {
        (Err(_), _) => Err(FsError::Invalid("shift beyond the largest file")),
        (Ok(0), _) => Ok(Progress::Done),
        (Ok(by), true) => towards_front(&mut ed, from, to, by),
        (Ok(by), false) => towards_end(&mut ed, from, to, by),
    }
}

fn towards_front<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    from: u32,
    to: u32,
    by: u32,
) -> Result<Progress> {
    if by > from {
        return Err(FsError::Invalid("shift before the start of the file"));
    }
    if !matches!(lookup(ed.io, ed.root, from - by)?, Mapping::Hole { len } if len >= u64::from(by))
    {
        return Err(FsError::Invalid("shift over mapped blocks"));
    }
    let mut cur = from;
    while cur < to {
        let path = ed.descend(cur)?;
        let leaf = path.leaf();
        let hi = leaf.hi;
        // Entries before `at` begin at or before `cur`; the last of them may begin exactly there.
        let mut first = leaf.at;
        if first > 0 && leaf.extent(ed.io, ed.root, first - 1)?.lblk >= cur {
            first -= 1;
        }
        let mut end = first;
        while end < leaf.count && leaf.extent(ed.io, ed.root, end)?.lblk < to {
            end += 1;
        }
        if end > first {
            if !ed.io.reserve(credits::splice(path.depth() as u32))? {
                return Ok(Progress::Restart { at: cur });
            }
            // The neighbour before takes part, so that the seam is joined.
            let window = first.saturating_sub(1)..end;
            let old = ed.extents(leaf, window.clone())?;
            let mut new = old.clone();
            for run in &mut new[first - window.start..] {
                run.lblk = run.lblk.saturating_sub(by);
            }
            replace_in_order(ed, &path, window.start, &old, &new)?;
        }
        if hi >= u64::from(to) {
            break;
        }
        cur = hi as u32;
    }
    Ok(Progress::Done)
}

fn towards_end<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    from: u32,
    to: u32,
    by: u32,
) -> Result<Progress> {
    if from >= to {
        return Ok(Progress::Done);
    }
    check_room(ed, from, to, by)?;
    if !split_at(ed, from)? {
        return Ok(Progress::Restart { at: to });
    }
    let mut end = to;
    while end > from {
        let path = ed.descend(end - 1)?;
        let leaf = path.leaf();
        let mut first = leaf.at;
        while first > 0 && leaf.extent(ed.io, ed.root, first - 1)?.lblk >= from {
            first -= 1;
        }
        let next = leaf.lo;
        if first < leaf.at {
            if !ed.io.reserve(credits::splice(path.depth() as u32))? {
                return Ok(Progress::Restart { at: end });
            }
            let old = ed.extents(leaf, first..leaf.at)?;
            let mut new = old.clone();
            for run in &mut new {
                run.lblk = run.lblk.saturating_add(by);
            }
            replace_in_order(ed, &path, first, &old, &new)?;
        }
        if first > 0 || next <= from || next >= end {
            break;
        }
        end = next;
    }
    Ok(Progress::Done)
}

/// Fails unless the last extent of `from..to` can move by `by`.
fn check_room<S: StoreMut>(ed: &Editor<'_, S>, from: u32, to: u32, by: u32) -> Result<()> {
    let path = ed.descend(to - 1)?;
    let leaf = path.leaf();
    if leaf.at == 0 {
        return Ok(());
    }
    let last = leaf.extent(ed.io, ed.root, leaf.at - 1)?.end();
    let room = leaf.key_or_end(ed.root, leaf.at);
    if last > u64::from(from) && last + u64::from(by) > room {
        return Err(FsError::FileTooLarge);
    }
    Ok(())
}

/// Splits the extent around `lblk`, if there is one, so that one begins there. False without
/// credits.
fn split_at<S: StoreMut>(ed: &mut Editor<'_, S>, lblk: u32) -> Result<bool> {
    let path = ed.descend(lblk)?;
    let leaf = path.leaf();
    if leaf.at == 0 {
        return Ok(true);
    }
    let (head, tail) = leaf.extent(ed.io, ed.root, leaf.at - 1)?.split(lblk);
    if head.len == 0 || tail.len == 0 {
        return Ok(true);
    }
    if !ed.io.reserve(credits::splice(path.depth() as u32))? {
        return Ok(false);
    }
    ed.prepare(&path, 1)?;
    ed.splice_leaf(&path, leaf.at - 1, 1, &[node::extent_entry(&head), node::extent_entry(&tail)])?;
    Ok(true)
}

/// [`replace`], after a look that the new extents do not overlap (they cannot, unless the tree was
/// wrong before).
fn replace_in_order<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    path: &Path<S::Block>,
    first: usize,
    old: &[MappedRun],
    new: &[MappedRun],
) -> Result<()> {
    if new.windows(2).any(|w| w[0].end() > u64::from(w[1].lblk)) {
        return Err(ed.root.corrupt("shifted extents overlap"));
    }
    replace(ed, path, first, old, new)
}
