//! Changes of an indirect map: one block of pointers at a time.

use std::sync::Arc;

use extol_block::BlockNr;
use extol_ondisk::indirect as layout;
use extol_vfs::{FsError, Result};

use super::{DIRECT, Place, data_run, neighbours, per_block, pointer, read, set_pointer};
use crate::map::clusters::Left;
use crate::map::store::{Cached, Store, StoreMut};
use crate::map::{Discard, MappedRun, Progress, Root, credits};

/// Maps a hole. An error leaves nothing mapped.
pub(in crate::map) fn insert<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    run: MappedRun,
) -> Result<()> {
    let mut rest = run;
    if rest.pblk.0 + u64::from(rest.len) > 1 << 32 {
        return Err(FsError::NoSpace);
    }
    while rest.len > 0 {
        match insert_in_leaf(io, root, rest) {
            Ok(len) => rest = rest.tail(rest.lblk.saturating_add(len)),
            Err(e) => {
                let _ = remove(io, root, run.lblk, rest.lblk, Discard::Keep)?;
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Maps as much of `run` as one block of pointers (or the inode) holds; returns how much.
fn insert_in_leaf<S: StoreMut>(io: &mut S, root: &mut Root, run: MappedRun) -> Result<u32> {
    let p = per_block(io) as usize;
    let Some(place) = Place::of(run.lblk, io.shape().block_size) else {
        return Err(FsError::FileTooLarge);
    };
    let first = run.pblk.0 as u32;
    if place.depth == 0 {
        let len = run.len.min((DIRECT as usize - place.slot) as u32);
        occupied(root, &root.bytes, place.slot, len)?;
        fill(&mut root.bytes, place.slot, first, len);
        root.count(io.shape(), len);
        return Ok(len);
    }
    let leaf_index = place.index[place.depth - 1];
    let len = run.len.min((p - leaf_index) as u32);
    // As far down as there are blocks.
    let mut parent: Option<(Arc<S::Block>, usize)> = None;
    let mut nr = pointer(&root.bytes, place.slot);
    let mut level = 0;
    while level < place.depth && nr != 0 {
        let block = read(io, root, nr)?;
        let i = place.index[level];
        nr = pointer(&block.bytes(), i);
        parent = Some((block, i));
        level += 1;
    }
    if level == place.depth {
        let Some((leaf, i)) = parent else { return Err(root.corrupt("block map without a leaf")) };
        occupied(root, &leaf.bytes(), i, len)?;
        io.modify(&leaf, |bytes| fill(bytes, i, first, len))?;
        root.count(io.shape(), len);
        return Ok(len);
    }
    let goal = parent.as_ref().map_or_else(|| io.inode_goal(), |(_, _)| BlockNr(run.pblk.0));
    let new = take(io, place.depth - level, goal)?;
    for (k, &nr) in new.iter().enumerate() {
        let block = io.create(BlockNr(u64::from(nr)))?;
        let i = place.index[level + k];
        let below = new.get(k + 1).copied();
        io.modify(&block, |bytes| match below {
            Some(below) => set_pointer(bytes, i, below),
            None => fill(bytes, i, first, len),
        })?;
    }
    let top = new.first().copied().unwrap_or(0);
    match parent {
        Some((block, i)) => io.modify(&block, |bytes| set_pointer(bytes, i, top))?,
        None => set_pointer(&mut root.bytes, place.slot, top),
    }
    root.count(io.shape(), len + new.len() as u32);
    Ok(len)
}

/// Takes `n` blocks for pointers, all or none.
fn take<S: StoreMut>(io: &mut S, n: usize, goal: BlockNr) -> Result<Vec<u32>> {
    let mut new = Vec::with_capacity(n);
    while new.len() < n {
        let failed = match io.alloc(goal) {
            Ok(nr) => match u32::try_from(nr.0) {
                Ok(nr) => {
                    new.push(nr);
                    continue;
                }
                Err(_) => {
                    io.free(nr.0, 1)?;
                    FsError::NoSpace
                }
            },
            Err(e) => e,
        };
        for nr in new {
            io.free(u64::from(nr), 1)?;
        }
        return Err(failed);
    }
    Ok(new)
}

fn fill(bytes: &mut [u8], at: usize, first: u32, len: u32) {
    for k in 0..len {
        set_pointer(bytes, at + k as usize, first.wrapping_add(k));
    }
}

fn occupied(root: &Root, bytes: &[u8], at: usize, len: u32) -> Result<()> {
    if (at..at + len as usize).all(|i| pointer(bytes, i) == 0) {
        return Ok(());
    }
    Err(root.corrupt("mapping over a mapping"))
}

/// Maps `len` blocks from `lblk` on, which one block of pointers (or the inode) maps to neighbours,
/// to those from `to` on; `leave` frees the old ones. An error leaves all as it was.
pub(in crate::map) fn relocate<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    (lblk, len): (u32, u32),
    to: BlockNr,
    leave: impl FnOnce(&mut S, MappedRun) -> Result<()>,
) -> Result<()> {
    let not_one = || FsError::Invalid("blocks to be moved are not one run");
    let first = u32::try_from(to.0).ok().and_then(|first| first.checked_add(len).map(|_| first));
    let first = first.ok_or(FsError::NoSpace)?;
    let place = Place::of(lblk, io.shape().block_size).ok_or_else(not_one)?;
    let path = Path::to(io, root, lblk, place)?;
    let leaf = path.leaf().map(|(_, block)| Arc::clone(block));
    let at = match (&leaf, path.place.depth) {
        (_, 0) => path.place.slot,
        (Some(_), depth) => path.place.index[depth - 1],
        (None, _) => return Err(not_one()),
    };
    let bytes = leaf.as_ref().map(|block| block.bytes());
    let (pointers, limit) = match &bytes {
        Some(bytes) => (bytes.as_slice(), per_block(io) as usize),
        None => (&root.bytes[..], DIRECT as usize),
    };
    let old = pointer(pointers, at);
    if old == 0 || neighbours(pointers, at, limit) < len {
        return Err(not_one());
    }
    drop(bytes);
    let old = data_run(io, root, lblk, old, len)?;
    leave(io, old).map_err(|e| root.blame(e))?;
    match leaf {
        Some(block) => io.modify(&block, |bytes| fill(bytes, at, first, len)),
        None => {
            fill(&mut root.bytes, at, first, len);
            Ok(())
        }
    }
}

/// Moves the blocks of pointers between the inode and `lblk` that lie at or behind `limit`. Gives
/// how many, and the first block of the file behind the lowest of them, or behind the hole there.
pub(in crate::map) fn relocate_nodes<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    lblk: u32,
    limit: BlockNr,
) -> Result<(u32, u64)> {
    let Some(place) = Place::of(lblk, io.shape().block_size) else { return Ok((0, 1 << 32)) };
    if place.depth == 0 {
        return Ok((0, DIRECT));
    }
    let mut count = 0;
    let path = Path::to(io, root, lblk, place)?;
    let levels = path.place.depth.saturating_sub(path.blocks.len()).max(1);
    let next = path.start.saturating_add(per_block(io).pow(levels as u32));
    let mut above: Option<Arc<S::Block>> = None;
    for (level, (old, block)) in path.blocks.into_iter().enumerate() {
        if u64::from(old) < limit.0 {
            above = Some(block);
            continue;
        }
        let bytes = block.bytes();
        let [nr] = take(io, 1, io.inode_goal())?[..] else { return Err(FsError::NoSpace) };
        let moved = io.create(BlockNr(u64::from(nr)))?;
        io.modify(&moved, |to| to.copy_from_slice(&bytes))?;
        match above {
            Some(above) => {
                io.modify(&above, |bytes| set_pointer(bytes, path.place.index[level - 1], nr))?;
            }
            None => set_pointer(&mut root.bytes, path.place.slot, nr),
        }
        io.free(u64::from(old), 1).map_err(|e| root.blame(e))?;
        io.forget(BlockNr(u64::from(old)), true)?;
        above = Some(moved);
        count += 1;
    }
    Ok((count, next))
}

/// The path to the block of pointers of a logical block.
struct Path<B> {
    place: Place,
    /// Number and block of each level, as far as they exist.
    blocks: Vec<(u32, Arc<B>)>,
    /// First logical block of the lowest of them (or of the slot), and how many it covers.
    start: u64,
}

impl<B: Cached> Path<B> {
    fn to<S: Store<Block = B>>(io: &S, root: &Root, lblk: u32, place: Place) -> Result<Self> {
        let p = per_block(io);
        let mut blocks = Vec::with_capacity(place.depth);
        let mut nr = pointer(&root.bytes, place.slot);
        let offset =
            |from: usize| place.index[from..place.depth].iter().fold(0, |n, &i| n * p + i as u64);
        let mut start = u64::from(lblk) - offset(0);
        for level in 0..place.depth {
            if nr == 0 {
                break;
            }
            let block = read(io, root, nr)?;
            start = u64::from(lblk) - offset(level);
            let below = pointer(&block.bytes(), place.index[level]);
            blocks.push((nr, block));
            nr = below;
            if nr == 0 && level + 1 < place.depth {
                // The hole below: as wide as one pointer of this level.
                start = u64::from(lblk) - offset(level + 1);
                break;
            }
        }
        Ok(Self { place, blocks, start })
    }

    fn leaf(&self) -> Option<&(u32, Arc<B>)> {
        if self.blocks.len() == self.place.depth { self.blocks.last() } else { None }
    }
}

/// Unmaps `from..to`, from the end backwards.
pub(in crate::map) fn remove<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    from: u32,
    to: u32,
    data: Discard,
) -> Result<Progress> {
    let bs = io.shape().block_size;
    let mut end = to.min(u32::try_from(layout::max_blocks(bs)).unwrap_or(u32::MAX));
    while end > from {
        let last = end - 1;
        let Some(place) = Place::of(last, bs) else { break };
        let path = Path::to(io, root, last, place)?;
        if place.depth > 0 && path.leaf().is_none() {
            end = path.start as u32;
            continue;
        }
        let start = if place.depth == 0 { 0 } else { path.start as u32 };
        let low = from.max(start);
        let (came_to, outcome) = clear(io, root, &path, start, low, end, data);
        unlink(io, root, &path, (came_to - start) as usize, (end - start) as usize)?;
        end = came_to;
        match outcome {
            Ok(true) => {}
            Ok(false) => return Ok(Progress::Restart { at: end }),
            Err(e) => return Err(e),
        }
    }
    Ok(Progress::Done)
}

/// Frees the data that the leaf's pointers for `low..end` name, from the end backwards, without
/// touching the pointers. Returns how far it came, and false if credits ran out.
fn clear<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    path: &Path<S::Block>,
    start: u32,
    low: u32,
    end: u32,
    data: Discard,
) -> (u32, Result<bool>) {
    let bytes = path.leaf().map(|(_, b)| b.bytes());
    let inode = root.bytes;
    let bytes = bytes.as_ref().map_or(&inode[..], |b| b.as_slice());
    let at = |lblk: u32| pointer(bytes, (lblk - start) as usize);
    let mut cur = end;
    while cur > low {
        let last = at(cur - 1);
        if last == 0 {
            cur -= 1;
            continue;
        }
        let mut len = 1;
        while cur - len > low && u64::from(at(cur - len - 1)) + u64::from(len) == u64::from(last) {
            len += 1;
        }
        let run = match data_run(io, root, cur - len, at(cur - len), len) {
            Ok(run) => run,
            Err(e) => return (cur, Err(e)),
        };
        let piece = data.last_piece(io.shape(), run);
        match data.reserve(io, credits::indirect_step() + data.credits(io.shape(), piece)) {
            Ok(true) => {}
            Ok(false) => return (cur, Ok(false)),
            Err(e) => return (cur, Err(e)),
        }
        if let Err(e) = data.discard(io, piece, &Left::all(piece)) {
            return (cur, Err(root.blame(e)));
        }
        root.uncount(io.shape(), piece.len);
        cur = piece.lblk;
    }
    (cur, Ok(true))
}

/// Clears pointers `low..high` of the leaf, and frees blocks of pointers that are empty then.
fn unlink<S: StoreMut>(
    io: &mut S,
    root: &mut Root,
    path: &Path<S::Block>,
    low: usize,
    high: usize,
) -> Result<()> {
    let (mut low, mut high) = (low, high);
    for (level, (nr, block)) in path.blocks.iter().enumerate().rev() {
        let bytes = block.bytes();
        let used = |i: &usize| pointer(&bytes, *i) != 0;
        let others = (0..low).chain(high..bytes.len() / 4).any(|i| used(&i));
        let any = (low..high).any(|i| used(&i));
        drop(bytes);
        if others {
            if any {
                io.modify(block, |bytes| (low..high).for_each(|i| set_pointer(bytes, i, 0)))?;
            }
            return Ok(());
        }
        io.free(u64::from(*nr), 1).map_err(|e| root.blame(e))?;
        io.forget(BlockNr(u64::from(*nr)), true)?;
        root.uncount(io.shape(), 1);
        if level > 0 {
            low = path.place.index[level - 1];
            high = low + 1;
        } else {
            low = path.place.slot;
            high = low + 1;
        }
    }
    (low..high).for_each(|i| set_pointer(&mut root.bytes, i, 0));
    Ok(())
}
