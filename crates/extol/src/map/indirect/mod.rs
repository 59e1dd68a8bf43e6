//! Indirect block maps of ext2 and ext3.
//!
//! ```text
//!  i_block[0..12]   data
//!  i_block[12]   ─► p pointers to data                                  p = block size / 4
//!  i_block[13]   ─► p pointers ─► p pointers to data
//!  i_block[14]   ─► p pointers ─► p pointers ─► p pointers to data
//! ```
//!
//! Pointers are 32-bit block numbers, 0 is a hole. The blocks have neither header nor checksum:
//! every pointer is checked where it is followed, and the depth is fixed, so a cycle ends the walk.
//! There are no unwritten blocks. Blocks of pointers are made when the first of their pointers is
//! set, and freed when the last one is cleared.

mod change;
#[cfg(test)]
mod tests;

pub(super) use change::{insert, relocate, relocate_nodes, remove};

use std::sync::Arc;

use extol_block::{BlockNr, BlockSize};
use extol_ondisk::indirect as layout;
use extol_vfs::{FsError, Result};

use super::store::{Cached, Store};
use super::{MappedRun, Mapping, Root};

/// Pointers to data in the inode.
const DIRECT: u64 = layout::DIRECT as u64;
/// All pointers in the inode.
#[cfg(test)]
const SLOTS: usize = 15;

fn pointer(bytes: &[u8], i: usize) -> u32 {
    layout::pointer(bytes, i as u32)
}

fn set_pointer(bytes: &mut [u8], i: usize, nr: u32) {
    layout::set_pointer(bytes, i as u32, nr);
}

/// True if there are blocks of pointers.
pub(super) fn has_blocks(root: &[u8; 60]) -> bool {
    (DIRECT as usize..15).any(|slot| pointer(root, slot) != 0)
}

/// Blocks of pointers that `n` data blocks without holes need.
pub(super) fn map_blocks(n: u64, p: u64) -> u64 {
    let single = n.saturating_sub(DIRECT).min(p);
    let double = n.saturating_sub(DIRECT + p).min(p * p);
    let triple = n.saturating_sub(DIRECT + p + p * p);
    single.div_ceil(p)
        + double.div_ceil(p)
        + double.div_ceil(p * p)
        + triple.div_ceil(p)
        + triple.div_ceil(p * p)
        + triple.div_ceil(p * p * p)
}

/// The place of a logical block: the slot in the inode and the pointer to follow in each block
/// below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    slot: usize,
    /// Blocks of pointers on the path, 0 to 3.
    depth: usize,
    /// Only the first `depth` count.
    index: [usize; 3],
}

impl Place {
    fn of(lblk: u32, bs: BlockSize) -> Option<Self> {
        let path = layout::path(lblk, bs)?;
        let (&slot, below) = path.slots().split_first()?;
        let mut index = [0; 3];
        index.iter_mut().zip(below).for_each(|(to, &from)| *to = from as usize);
        Some(Self { slot: slot as usize, depth: path.depth(), index })
    }
}

/// Pointers that are zero from `i` on, within `bytes`.
fn zeros(bytes: &[u8], i: usize) -> u64 {
    (i..bytes.len() / 4).take_while(|&i| pointer(bytes, i) == 0).count() as u64
}

/// Pointers from `i` on that name neighbouring blocks.
fn neighbours(bytes: &[u8], i: usize, limit: usize) -> u32 {
    let first = u64::from(pointer(bytes, i));
    (i..limit).zip(first..).take_while(|&(i, nr)| u64::from(pointer(bytes, i)) == nr).count() as u32
}

fn per_block<S: Store>(io: &S) -> u64 {
    u64::from(layout::pointers(io.shape().block_size))
}

fn read<S: Store>(io: &S, root: &Root, nr: u32) -> Result<Arc<S::Block>> {
    io.read(BlockNr(u64::from(nr))).map_err(|e| root.blame(e))
}

fn data_run<S: Store>(io: &S, root: &Root, lblk: u32, nr: u32, len: u32) -> Result<MappedRun> {
    if !io.shape().holds(u64::from(nr), u64::from(len)) {
        let e = FsError::corrupt("block map points outside the volume").at_block(u64::from(nr));
        return Err(root.blame(e));
    }
    Ok(MappedRun { lblk, pblk: BlockNr(u64::from(nr)), len, unwritten: false })
}

/// What `lblk` is mapped to.
pub(super) fn lookup<S: Store>(io: &S, root: &Root, lblk: u32) -> Result<Mapping> {
    let p = per_block(io);
    let Some(place) = Place::of(lblk, io.shape().block_size) else {
        return Ok(Mapping::Hole { len: (1 << 32) - u64::from(lblk) });
    };
    let nr = pointer(&root.bytes, place.slot);
    if place.depth == 0 {
        if nr == 0 {
            let len = zeros(&root.bytes[..DIRECT as usize * 4], place.slot);
            return Ok(Mapping::Hole { len });
        }
        let run =
            data_run(io, root, lblk, nr, neighbours(&root.bytes, place.slot, DIRECT as usize))?;
        return Ok(Mapping::Mapped { pblk: run.pblk, len: run.len, unwritten: false });
    }
    // Blocks that a pointer of the level stands for, and how far in `lblk` is.
    let mut covers = p.pow(place.depth as u32);
    let inside = |covers: u64, place: &Place, level: usize| {
        place.index[level..place.depth].iter().fold(0, |n, &i| n * p + i as u64) % covers
    };
    if nr == 0 {
        return Ok(Mapping::Hole { len: covers - inside(covers, &place, 0) });
    }
    let mut nr = nr;
    for level in 0..place.depth {
        let block = read(io, root, nr)?;
        let bytes = block.bytes();
        let i = place.index[level];
        nr = pointer(&bytes, i);
        covers /= p;
        if nr == 0 {
            return Ok(Mapping::Hole {
                len: zeros(&bytes, i) * covers - inside(covers, &place, level + 1),
            });
        }
        if level + 1 == place.depth {
            let run = data_run(io, root, lblk, nr, neighbours(&bytes, i, p as usize))?;
            return Ok(Mapping::Mapped { pblk: run.pblk, len: run.len, unwritten: false });
        }
    }
    Err(root.corrupt("block map without end"))
}

/// A mapped block shortly before `lblk`, in the same block of pointers.
pub(super) fn before<S: Store>(io: &S, root: &Root, lblk: u32) -> Result<Option<MappedRun>> {
    let Some(last) = lblk.checked_sub(1) else { return Ok(None) };
    let Some(place) = Place::of(last, io.shape().block_size) else { return Ok(None) };
    let mut nr = pointer(&root.bytes, place.slot);
    let (mut block, mut index) = (None, place.slot);
    for i in &place.index[..place.depth] {
        if nr == 0 {
            return Ok(None);
        }
        let b = read(io, root, nr)?;
        nr = pointer(&b.bytes(), *i);
        (block, index) = (Some(b), *i);
    }
    let bytes = block.map(|b| b.bytes());
    let bytes = bytes.as_ref().map_or(&root.bytes[..], |b| b.as_slice());
    for back in 0..=index.min(last as usize) {
        let nr = pointer(bytes, index - back);
        if nr != 0 {
            return data_run(io, root, last - back as u32, nr, 1).map(Some);
        }
    }
    Ok(None)
}
