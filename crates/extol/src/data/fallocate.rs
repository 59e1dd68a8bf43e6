//! fallocate(2): allocate, punch hole, zero range, collapse range, insert range.
//!
//! Each writes the file back first, so only the map has to change. Allocation maps unwritten
//! extents, which read as zeros; files without extents cannot have them and give `NotSupported`, as
//! in Linux.

use std::sync::Arc;

use extol_ondisk::InodeFlags;
use extol_vfs::{Fallocate, FsError, Result};

use super::truncate::{drop_pages, unmap, zero_inside};
use super::writepages::{check_not_system, credits_for_groups};
use super::{flush, write};
use crate::alloc::Run;
use crate::encrypted;
use crate::error;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map::{self, Mapping, NewBlocks, Progress};
use crate::mounted::MountedFs;

/// Most blocks allocated by one handle.
const STEP: u32 = 8192;
/// Bytes of a page of Linux.
const PAGE: u64 = 4096;

/// Does what `mode` says with `offset..offset + len`.
pub(crate) fn fallocate(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    mode: Fallocate,
    offset: u64,
    len: u64,
) -> Result<()> {
    if len == 0 {
        return Err(FsError::Invalid("length of zero"));
    }
    let end = offset.checked_add(len).ok_or(FsError::FileTooLarge)?;
    if end > map::max_file_size(&fs.vol.geo, st.node.raw.flags) {
        return Err(FsError::FileTooLarge);
    }
    let shifts = matches!(mode, Fallocate::CollapseRange | Fallocate::InsertRange);
    if shifts && encrypted::is_encrypted(&st.node) {
        return Err(FsError::NotSupported(
            "moving blocks of an encrypted file: each is encrypted for its place",
        ));
    }
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        let contents = inline::read(&st.node)?;
        write::move_out(fs, st, &contents)?;
    }
    let extents = st.node.raw.flags.contains(InodeFlags::EXTENTS);
    if !extents && !matches!(mode, Fallocate::PunchHole) {
        return Err(FsError::NotSupported("preallocation in a file without extents"));
    }
    flush::flush(fs, st)?;
    match mode {
        Fallocate::Allocate { keep_size } => {
            allocate(fs, st, offset, end)?;
            grow(fs, cell, st, end, keep_size)?;
        }
        Fallocate::ZeroRange { keep_size } => {
            zero(fs, st, offset, end)?;
            allocate(fs, st, offset, end)?;
            grow(fs, cell, st, end, keep_size)?;
        }
        Fallocate::PunchHole => punch(fs, st, offset, end)?,
        Fallocate::CollapseRange => collapse(fs, st, offset, len)?,
        Fallocate::InsertRange => insert(fs, st, offset, len)?,
    }
    write::note_change(fs, cell, st);
    flush::flush(fs, st)
}

fn block_of(fs: &MountedFs, offset: u64) -> Result<u32> {
    u32::try_from(offset >> fs.vol.geo.block_size.bits()).map_err(|_| FsError::FileTooLarge)
}

fn grow(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    end: u64,
    keep_size: bool,
) -> Result<()> {
    if keep_size || end <= st.node.raw.size {
        return Ok(());
    }
    fs.need_size(end)?;
    write::zero_tail(fs, cell, st, st.node.raw.size)?;
    fs.transact(1, |h| {
        (st.node.raw.size, st.disk_size) = (end, end);
        st.store(fs, h, true)
    })
}

/// Fills the holes of a byte range with unwritten extents. If the volume fills up, those already
/// mapped stay.
fn allocate(fs: &MountedFs, st: &mut InodeState, offset: u64, end: u64) -> Result<()> {
    let vol = &fs.vol;
    let mut at = block_of(fs, offset)?;
    let to = block_of(fs, end.saturating_sub(1))?.checked_add(1).ok_or(FsError::FileTooLarge)?;
    while at < to {
        let len = match map::lookup(vol, &st.node, at)? {
            Mapping::Mapped { len, .. } => len,
            Mapping::Hole { len } => {
                let want = u32::try_from(len).unwrap_or(u32::MAX).min(to - at).min(STEP);
                fill_hole(fs, st, at, want)?
            }
        };
        at = at.saturating_add(len.max(1));
    }
    Ok(())
}

/// Maps unwritten blocks in a hole from `at` on, `want` or fewer; returns how many.
fn fill_hole(fs: &MountedFs, st: &mut InodeState, at: u32, want: u32) -> Result<u32> {
    const META: u64 = 8;
    let geo = &fs.vol.geo;
    match map::new_blocks(&fs.vol, &st.node, at, want)? {
        NewBlocks::Shared(run) => {
            check_not_system(fs, st, run.start, run.len)?;
            fs.reserve(META)?;
            let result = map_unwritten(fs, st, at, run, false);
            fs.vol.alloc.unreserve(META);
            result
        }
        NewBlocks::Fresh(want) => {
            let needed = geo.clusters_touched(u64::from(at), u64::from(want));
            let reserved = fs.reserve_some(st, needed, META)?;
            let most = geo.cluster_blocks(reserved) - u64::from(geo.inside_cluster(u64::from(at)));
            let want = u32::try_from(most).unwrap_or(u32::MAX).min(want);
            let result = map::goal(&fs.vol, &st.node, at)
                .and_then(|goal| fs.vol.alloc.take(goal, want, 1))
                .and_then(|run| map_unwritten(fs, st, at, run, true));
            fs.unreserve_data(st, reserved + META);
            result
        }
    }
}

/// Maps unwritten blocks; `is_new`: in clusters that were taken for them.
fn map_unwritten(
    fs: &MountedFs,
    st: &mut InodeState,
    at: u32,
    run: Run,
    is_new: bool,
) -> Result<u32> {
    let vol = &fs.vol;
    let credits = map::credits_for_insert(&st.node, run.len, vol.geo.block_size.bytes())
        + credits_for_groups(run.len, vol.geo.blocks_per_group)
        + 1;
    let give_back = || {
        if is_new {
            vol.alloc.give_back(run);
        }
    };
    let mut h = fs.start(credits).inspect_err(|_| give_back())?;
    if is_new {
        vol.alloc.commit_take(&mut h, run)?;
    }
    let mapped = map::insert(vol, &mut h, &mut st.node, at, run, true);
    if mapped.is_err() && is_new {
        vol.alloc.free(&mut h, run)?;
    }
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)?;
    mapped.map(|()| run.len)
}

/// Zeros the edges of a byte range; returns the whole blocks inside it.
fn whole_blocks(fs: &MountedFs, st: &mut InodeState, offset: u64, end: u64) -> Result<(u32, u32)> {
    let bs = fs.vol.geo.block_len() as u64;
    let first = block_of(fs, offset.div_ceil(bs) * bs)?;
    let last = block_of(fs, end)?;
    let (head, tail) = ((offset % bs) as usize, (end % bs) as usize);
    if offset / bs == end / bs {
        if head < tail {
            zero_inside(fs, st, block_of(fs, offset)?, head, tail)?;
        }
        return Ok((first, first));
    }
    if head > 0 {
        zero_inside(fs, st, block_of(fs, offset)?, head, bs as usize)?;
    }
    if tail > 0 {
        zero_inside(fs, st, last, 0, tail)?;
    }
    Ok((first, last.max(first)))
}

fn punch(fs: &MountedFs, st: &mut InodeState, offset: u64, end: u64) -> Result<()> {
    let size = st.node.raw.size;
    if offset >= size {
        return Ok(());
    }
    // A range beyond the end of the file ends with the page in which that is, as in Linux: blocks
    // that were allocated further behind stay.
    let end = if end > size {
        let page = PAGE.max(u64::from(fs.vol.geo.block_size.bytes()));
        size.next_multiple_of(page).min(map::max_file_size(&fs.vol.geo, st.node.raw.flags))
    } else {
        end
    };
    let (from, to) = whole_blocks(fs, st, offset, end)?;
    if from < to {
        unmap(fs, st, from, to, false)?;
    }
    Ok(())
}

/// Makes the written blocks of a range unwritten.
fn zero(fs: &MountedFs, st: &mut InodeState, offset: u64, end: u64) -> Result<()> {
    let vol = &fs.vol;
    let (from, to) = whole_blocks(fs, st, offset, end)?;
    if fs.journals_data(st) {
        // The log holds journalled blocks as written ones: they are unmapped instead.
        return if from < to { unmap(fs, st, from, to, false) } else { Ok(()) };
    }
    let mut at = from;
    while let Some(run) = map::next_mapped(vol, &st.node, at, to)? {
        at = run.lblk.saturating_add(run.len);
        if run.unwritten {
            continue;
        }
        let mut h = fs.start(map::credits_for_convert(&st.node) + 1)?;
        let progress = map::convert(vol, &mut h, &mut st.node, run.lblk, run.len, false);
        st.store(fs, &mut h, true)?;
        h.stop().map_err(error::journal)?;
        if let Progress::Restart { at: again } = progress? {
            at = again;
        }
    }
    Ok(())
}

fn aligned(fs: &MountedFs, offset: u64, len: u64) -> Result<(u32, u32)> {
    let unit = fs.vol.geo.cluster_blocks(fs.vol.geo.block_len() as u64);
    if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) {
        return Err(FsError::Invalid(
            "offset and length must be multiples of the block size (with bigalloc: of the cluster)",
        ));
    }
    Ok((block_of(fs, offset)?, block_of(fs, len)?))
}

fn collapse(fs: &MountedFs, st: &mut InodeState, offset: u64, len: u64) -> Result<()> {
    let (from, blocks) = aligned(fs, offset, len)?;
    let size = st.node.raw.size;
    if offset + len >= size {
        return Err(FsError::Invalid("the range reaches the end of the file: truncate instead"));
    }
    let to = from.saturating_add(blocks);
    drop_pages(fs, st, from, to);
    st.window.empty();
    unmap(fs, st, from, to, false)?;
    shift(fs, st, to, -i64::from(blocks), size - len)
}

fn insert(fs: &MountedFs, st: &mut InodeState, offset: u64, len: u64) -> Result<()> {
    let (from, blocks) = aligned(fs, offset, len)?;
    let size = st.node.raw.size;
    if offset >= size {
        return Err(FsError::Invalid("the offset is not inside the file"));
    }
    let new = size.checked_add(len).ok_or(FsError::FileTooLarge)?;
    if new > map::max_file_size(&fs.vol.geo, st.node.raw.flags) {
        return Err(FsError::FileTooLarge);
    }
    fs.need_size(new)?;
    st.window.empty();
    shift(fs, st, from, i64::from(blocks), new)
}

/// Shifts all blocks from `from` on, and sets the size. A growing size is set first, so that no
/// block lies behind it.
fn shift(fs: &MountedFs, st: &mut InodeState, from: u32, delta: i64, size: u64) -> Result<()> {
    let vol = &fs.vol;
    fs.reserve(8)?;
    let result = shift_reserved(fs, st, from, delta, size);
    vol.alloc.unreserve(8);
    result
}

fn shift_reserved(
    fs: &MountedFs,
    st: &mut InodeState,
    from: u32,
    delta: i64,
    size: u64,
) -> Result<()> {
    let vol = &fs.vol;
    let credits = |st: &InodeState| map::credits_for_shift_step(&st.node) + 1;
    let mut h = fs.start(credits(st))?;
    if delta > 0 {
        (st.node.raw.size, st.disk_size) = (size, size);
    }
    let (mut from, mut to) = (from, u32::MAX);
    loop {
        let progress = map::shift(vol, &mut h, &mut st.node, from, to, delta);
        if progress.is_err() {
            st.store(fs, &mut h, true)?;
        }
        match progress? {
            Progress::Done => break,
            Progress::Restart { at } if delta < 0 => from = at,
            Progress::Restart { at } => to = at,
        }
        st.store(fs, &mut h, true)?;
        h.restart(credits(st)).map_err(error::journal)?;
    }
    (st.node.raw.size, st.disk_size) = (size, size);
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)
}
