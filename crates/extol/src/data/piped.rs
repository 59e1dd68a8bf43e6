//! Writing what a pipe holds: large pieces, straight to the device, without a copy in our memory.
//!
//! What is taken out of the pipe is gone. So everything that may end in another way of writing is
//! decided before: the pages of inline files, small pieces, journalled data, and a volume that
//! might fill up meanwhile, where as much as fits has to be found out block by block. A refused
//! caller reads the pipe and writes the bytes.
//!
//! The rest of a piece that ends inside a block (the end of a file) is read and becomes a page,
//! like any small write.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use extol_block::pipe;
use extol_ondisk::InodeFlags;
use extol_vfs::{FsError, Result};

use super::truncate;
use super::write::{self, DIRECT};
use super::writepages::Source;
use crate::inodes::{Cell, InodeState};
use crate::map;
use crate::mounted::MountedFs;

/// Free bytes there must be beyond those of the piece, in pieces like it: more than its map takes,
/// and those that others write meanwhile. (And as many as file data may wait in memory, 64 MiB if
/// nothing else was asked for.)
const OTHERS: u64 = 16;

/// Writes the `len` bytes of the pipe at `offset`. False: that is not for pieces like this; nothing
/// was taken.
pub(crate) fn write(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    offset: u64,
    pipe: BorrowedFd<'_>,
    len: usize,
) -> Result<bool> {
    let bs = fs.vol.geo.block_len();
    let whole = len - len % bs;
    if !fits(fs, st, offset, len) {
        return Ok(false);
    }
    if offset > st.node.raw.size {
        truncate::zero_tail(fs, cell, st, st.node.raw.size)?;
    }
    let lblk = u32::try_from(offset / bs as u64).map_err(|_| FsError::FileTooLarge)?;
    write::write_direct(fs, st, lblk, whole / bs, &Source::Pipe(pipe))?;
    let end = offset + whole as u64;
    st.node.raw.size = st.node.raw.size.max(end);
    write::note_change(fs, cell, st);
    let mut tail = vec![0; len - whole];
    pipe::take(pipe, &mut tail).map_err(|e| FsError::Io(e.to_string()))?;
    if write::write(fs, cell, st, end, &tail)? < tail.len() {
        return Err(FsError::NoSpace);
    }
    Ok(true)
}

/// True if a piece can go from the pipe to the device, and nothing but the device can stop it on
/// its way.
fn fits(fs: &MountedFs, st: &InodeState, offset: u64, len: usize) -> bool {
    let bs = fs.vol.geo.block_len();
    let ends = offset.checked_add(len as u64);
    let room = fs.vol.alloc.counters().available;
    let ample = (len as u64 * OTHERS).max(fs.runtime.dirty_bytes() as u64);
    len - len % bs >= DIRECT
        && offset.is_multiple_of(bs as u64)
        && ends.is_some_and(|end| end <= map::max_file_size(&fs.vol.geo, st.node.raw.flags))
        && !fs.journals_data(st)
        && !st.node.raw.flags.contains(InodeFlags::INLINE_DATA)
        && fs.dirty.bytes() / 2 <= fs.runtime.dirty_bytes()
        && room.saturating_sub((len / bs) as u64) >= ample / bs as u64
}
