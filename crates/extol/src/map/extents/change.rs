//! Maps a hole, and converts unwritten extents to written ones and back.
//!
//! Both work on a window of a leaf: the extents touched and their neighbours on both sides. The
//! window is computed anew as a list, joined where runs continue each other, cut where they are too
//! long, and what differs from before is spliced into the leaf.

use extol_block::BlockNr;
use extol_vfs::{FsError, Result};

use super::Few;
use super::edit::Editor;
use super::node::{self, END_OF_SPACE, Entry};
use super::path::Path;
use super::remove::remove;
use crate::map::store::StoreMut;
use crate::map::{Discard, MappedRun, Progress, Root, clusters, credits};

const MOVES_A_HOLE: &str = "blocks to be moved are not one extent";

/// Extents changed by one splice: keeps the growth of a leaf below what one split can take.
const BATCH: usize = 16;

/// Maps `run`, which must be a hole, in one extent or as many as its length needs. An error leaves
/// nothing mapped.
pub(in crate::map) fn insert<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    run: MappedRun,
) -> Result<()> {
    if run.end() > u64::from(END_OF_SPACE) {
        return Err(FsError::FileTooLarge);
    }
    let clusters = clusters::taken(io, root, run)?;
    let mut rest = run;
    while rest.len > 0 {
        let (part, tail) = rest.split(rest.lblk.saturating_add(BATCH as u32 * node::MAX_UNWRITTEN));
        if let Err(e) = insert_part(io, root, part) {
            // (The removal takes them from the count.)
            root.count(io.shape(), clusters::taken(io, root, run.split(part.lblk).0)?);
            let _ = remove(io, root, run.lblk, part.lblk, Discard::Keep)?;
            return Err(e);
        }
        rest = tail;
    }
    root.count(io.shape(), clusters);
    Ok(())
}

fn insert_part<S: StoreMut>(io: &mut S, root: &mut Root, run: MappedRun) -> Result<()> {
    let mut ed = Editor::new(io, root);
    let path = ed.descend(run.lblk)?;
    let leaf = path.leaf();
    let (first, last) = (leaf.at.saturating_sub(1), (leaf.at + 1).min(leaf.count));
    let old = ed.extents(leaf, first..last)?;
    let mut new = old.clone();
    new.insert(leaf.at - first, run);
    let overlap = new.windows(2).any(|w| w[0].end() > u64::from(w[1].lblk));
    if overlap || run.end() > leaf.hi {
        return Err(ed.root.corrupt("mapping over a mapping"));
    }
    replace(&mut ed, &path, first, &old, &new)
}

/// Makes all that is mapped in `from..to` written or unwritten. Works from the front; after a
/// restart go on at `at`.
pub(in crate::map) fn convert<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    from: u32,
    to: u32,
    unwritten: bool,
) -> Result<Progress> {
    let mut ed = Editor::new(io, root);
    let mut cur = from;
    while cur < to {
        let path = ed.descend(cur)?;
        let leaf = path.leaf();
        let mut i = leaf.at;
        if i > 0 && leaf.extent(ed.io, ed.root, i - 1)?.end() > u64::from(cur) {
            i -= 1;
        }
        let mut end = i;
        let mut next = leaf.hi;
        let mut pieces = Vec::new();
        let mut differs = false;
        while end < leaf.count && end - i < BATCH {
            let run = leaf.extent(ed.io, ed.root, end)?;
            if run.lblk >= to {
                next = u64::from(to);
                break;
            }
            differs |= run.unwritten != unwritten;
            let (head, rest) = run.split(cur);
            let (body, tail) = rest.split(to);
            pieces.extend([head, MappedRun { unwritten, ..body }, tail]);
            next = run.end();
            end += 1;
        }
        if end == leaf.count && next < leaf.hi && end - i < BATCH {
            next = leaf.hi;
        }
        if differs {
            let (first, last) = (i.saturating_sub(1), (end + 1).min(leaf.count));
            let old = ed.extents(leaf, first..last)?;
            let mut new = old[..i - first].to_vec();
            new.extend(pieces);
            new.extend_from_slice(&old[end - first..]);
            if !ed.io.reserve(credits::splice(path.depth() as u32))? {
                return Ok(Progress::Restart { at: cur });
            }
            replace(&mut ed, &path, first, &old, &new)?;
        }
        if next >= u64::from(to) {
            break;
        }
        cur = next as u32;
    }
    Ok(Progress::Done)
}

/// Maps `len` blocks from `lblk` on, which lie in one extent, to those from `to` on; `leave` frees
/// the old ones. An error of either leaves all as it was.
pub(in crate::map) fn relocate<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    (lblk, len): (u32, u32),
    to: BlockNr,
    leave: impl FnOnce(&mut S, MappedRun) -> Result<()>,
) -> Result<()> {
    let mut ed = Editor::new(io, root);
    let path = ed.descend(lblk)?;
    let leaf = path.leaf();
    let at = leaf.at.checked_sub(1).ok_or(FsError::Invalid(MOVES_A_HOLE))?;
    let run = leaf.extent(ed.io, ed.root, at)?;
    if run.end() < u64::from(lblk) + u64::from(len) {
        return Err(FsError::Invalid(MOVES_A_HOLE));
    }
    let (head, rest) = run.split(lblk);
    let (body, tail) = rest.split(lblk.saturating_add(len));
    let (first, last) = (at.saturating_sub(1), (at + 2).min(leaf.count));
    let old = ed.extents(leaf, first..last)?;
    let mut new: Few<MappedRun> = old.iter().take(at - first).copied().collect();
    new.extend([head, MappedRun { pblk: to, ..body }, tail]);
    new.extend(old.iter().skip(at - first + 1).copied());
    replace_after(&mut ed, &path, first, &old, &new, |io| leave(io, body))
}

/// Replaces the extents `old`, which begin at entry `first` of the leaf, by `new`, joined and cut.
pub(super) fn replace<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    path: &Path<S::Block>,
    first: usize,
    old: &[MappedRun],
    new: &[MappedRun],
) -> Result<()> {
    replace_after(ed, path, first, old, new, |_| Ok(()))
}

/// As [`replace`], with `work` behind all that can fail for lack of space. Its error changes
/// nothing.
fn replace_after<S: StoreMut>(
    ed: &mut Editor<'_, S>,
    path: &Path<S::Block>,
    first: usize,
    old: &[MappedRun],
    new: &[MappedRun],
    work: impl FnOnce(&mut S) -> Result<()>,
) -> Result<()> {
    let new = node::coalesce(new);
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[same..], &new[same..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    if old.is_empty() && new.is_empty() {
        return work(ed.io);
    }
    let entries: Few<Entry> = new.iter().map(node::extent_entry).collect();
    ed.prepare(path, entries.len().cast_signed() - old.len().cast_signed())?;
    if let Err(e) = work(ed.io) {
        ed.release()?;
        return Err(ed.root.blame(e));
    }
    ed.splice_leaf(path, first + same, old.len(), &entries)
}
