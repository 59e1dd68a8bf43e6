//! Writes file data into dirty pages, or, for large aligned pieces, straight to the device.

use std::sync::Arc;

use extol_ondisk::InodeFlags;
use extol_vfs::{FsError, Result, is_direct};

use super::cache::LARGE;
use super::delalloc::Page;
use super::order::Purpose;
use super::writepages::{Source, check_not_system, write_blocks};
use super::{clusters, encryption, flush, order, read, writeback, zero_out};
use crate::encrypted;
use crate::error;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map::{self, Mapping};
use crate::mounted::MountedFs;

/// Writes `data` at `offset`. Returns how much was written: less than all only if the volume filled
/// up meanwhile, or the file has its greatest size.
pub(crate) fn write(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    offset: u64,
    data: &[u8],
) -> Result<usize> {
    if data.is_empty() {
        return Ok(0);
    }
    let most = map::max_file_size(&fs.vol.geo, st.node.raw.flags).saturating_sub(offset);
    if most == 0 {
        return Err(FsError::FileTooLarge);
    }
    let data = &data[..data.len().min(usize::try_from(most).unwrap_or(usize::MAX))];
    fs.need_size(offset + data.len() as u64)?;
    if write_inline(fs, st, offset, data)? {
        return Ok(data.len());
    }
    if fs.dirty.bytes() / 2 > fs.runtime.dirty_bytes.load() {
        // Pages that cannot be written back (a damaged map) must not pile up.
        flush::flush(fs, st)?;
    }
    if offset > st.node.raw.size {
        zero_tail(fs, cell, st, st.node.raw.size)?;
    }
    let bs = fs.vol.geo.block_len();
    let direct = !fs.journals_data(st);
    let large = if asks_for_map(fs, st) { bs } else { LARGE };
    // (What is encrypted is copied.)
    let most = if encryption::key(fs, st)?.is_some() { encryption::TOGETHER } else { usize::MAX };
    let mut done = 0;
    let mut result = Ok(());
    while done < data.len() {
        let at = offset + done as u64;
        let lblk = u32::try_from(at / bs as u64).map_err(|_| FsError::FileTooLarge)?;
        let inside = (at % bs as u64) as usize;
        let left = data.len() - done;
        let step = if direct && inside == 0 && left >= large {
            let whole = (left - left % bs).min(most);
            match write_direct(fs, st, lblk, whole / bs, &Source::Bytes(&data[done..done + whole]))
            {
                // No space for all: goes on block by block, as far as space lasts.
                Err(FsError::NoSpace | FsError::QuotaExceeded) => {
                    put_page(fs, cell, st, lblk, 0, &data[done..done + bs]).map(|()| bs)
                }
                result => result.map(|()| whole),
            }
        } else {
            let k = (bs - inside).min(left);
            put_page(fs, cell, st, lblk, inside, &data[done..done + k]).map(|()| k)
        };
        match step {
            Ok(k) => done += k,
            Err(e) => {
                result = Err(e);
                break;
            }
        }
        st.node.raw.size = st.node.raw.size.max(offset + done as u64);
    }
    if done == 0 {
        result?;
    }
    note_change(fs, cell, st);
    if fs.dirty.bytes() > fs.runtime.dirty_bytes.load() || fs.runtime.nodelalloc.load() {
        flush::flush(fs, st)?;
    }
    writeback::wake_if_needed(fs);
    Ok(done)
}

/// The file was written: its times change.
pub(super) fn note_change(fs: &MountedFs, cell: &Arc<Cell>, st: &mut InodeState) {
    st.touch(fs.now());
    st.lazy_times = true;
    fs.dirty.add(cell, fs.clock.now_ns());
}

/// The file grows from `old`: zeros the bytes behind `old` in its block on the device (DA-3).
/// Blocks written here are zero there already; other implementations may leave any bytes.
pub(crate) fn zero_tail(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    old: u64,
) -> Result<()> {
    let bs = fs.vol.geo.block_len() as u64;
    if old.is_multiple_of(bs) {
        return Ok(());
    }
    let lblk = u32::try_from(old / bs).map_err(|_| FsError::FileTooLarge)?;
    if st.pages.get(lblk).is_some() {
        return Ok(());
    }
    let Mapping::Mapped { pblk, unwritten: false, .. } = map::lookup(&fs.vol, &st.node, lblk)?
    else {
        return Ok(());
    };
    check_not_system(fs, st, pblk, 1)?;
    if fs.journals_data(st) {
        let block = read::block(fs, st, lblk)?;
        return put_page(fs, cell, st, lblk, 0, &block);
    }
    let inside = (old % bs) as usize;
    if encryption::zero_part(fs, st, (lblk, pblk), (inside, bs as usize))? {
        return Ok(());
    }
    let at = pblk.offset(fs.vol.geo.block_size) + inside as u64;
    let mut tail = vec![0; bs as usize - inside];
    fs.vol.dev.read_at(&mut tail, at).map_err(error::device)?;
    if tail.iter().any(|b| *b != 0) {
        tail.fill(0);
        order::about_to_change(&fs.vol, pblk, inside)?;
        let result = fs.vol.dev.write_at(&tail, at);
        fs.vol.journal.note_data_write();
        result.map_err(|e| fs.data_write_failed(e))?;
    }
    Ok(())
}

/// Keeps small files inside their inode while they fit. False: the caller writes blocks.
fn write_inline(fs: &MountedFs, st: &mut InodeState, offset: u64, data: &[u8]) -> Result<bool> {
    let vol = &fs.vol;
    let is_inline = st.node.raw.flags.contains(InodeFlags::INLINE_DATA);
    let may_begin = fs.inline_files()
        && !encrypted::is_encrypted(&st.node)
        && st.node.raw.size == 0
        && st.node.raw.blocks == 0
        && st.pages.is_empty();
    if !is_inline && !may_begin {
        return Ok(false);
    }
    let end = usize::try_from(offset + data.len() as u64).unwrap_or(usize::MAX);
    let old = if is_inline { inline::read(&st.node)? } else { Vec::new() };
    if end <= inline::max_size(vol, &st.node) {
        let mut all = old.clone();
        all.resize(all.len().max(end), 0);
        all[offset as usize..end].copy_from_slice(data);
        let mut h = fs.start(2)?;
        if inline::write(vol, &mut st.node, &all)? {
            st.node.raw.size = all.len() as u64;
            st.disk_size = st.node.raw.size;
            st.touch(fs.now());
            st.store(fs, &mut h, true)?;
            h.stop().map_err(error::journal)?;
            return Ok(true);
        }
    }
    if is_inline {
        move_out(fs, st, &old)?;
    }
    Ok(false)
}

/// Moves inline contents to a block: written first, then mapped in the transaction that clears the
/// inline area.
pub(crate) fn move_out(fs: &MountedFs, st: &mut InodeState, contents: &[u8]) -> Result<()> {
    let vol = &fs.vol;
    let bs = vol.geo.block_len();
    let size = st.node.raw.size;
    let needed = contents.len().div_ceil(bs) as u32;
    let clusters = vol.geo.clusters(u64::from(needed));
    fs.reserve_data(st, clusters)?;
    let taken = match needed {
        0 => None,
        n => {
            let goal = vol.alloc.inode_goal(st.node.ino);
            match vol.alloc.take(goal, n, n) {
                Ok(run) => Some(run),
                Err(e) => {
                    fs.unreserve_data(st, clusters);
                    return Err(e);
                }
            }
        }
    };
    if let Some(run) = taken {
        let mut bytes = contents.to_vec();
        bytes.resize(needed as usize * bs, 0);
        fs.note_data(run);
        let written = vol.dev.write_at(&bytes, run.start.offset(vol.geo.block_size));
        vol.journal.note_data_write();
        if let Err(e) = written {
            vol.alloc.give_back(run);
            fs.unreserve_data(st, clusters);
            return Err(fs.data_write_failed(e));
        }
    }
    let credits = map::credits_for_insert(&st.node, needed, bs as u32) + 8;
    let mut h = fs.start(credits)?;
    inline::clear(&mut st.node)?;
    map::init(&vol.geo, &mut st.node.raw);
    if let Some(run) = taken {
        vol.alloc.commit_reserved(&mut h, run)?;
        map::insert(vol, &mut h, &mut st.node, 0, run, false)?;
    }
    (st.node.raw.size, st.disk_size) = (size, size);
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// In the contents, which reach as far as what is put there. (Zero behind the end: DA-3.)
    Contents,
    /// Behind them, where fs-verity keeps what it needs.
    Behind,
}

/// Puts bytes into the page of one block, making the page if it is not there.
pub(crate) fn put_page(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    lblk: u32,
    inside: usize,
    bytes: &[u8],
) -> Result<()> {
    put(fs, cell, st, lblk, (inside, bytes), Part::Contents)
}

/// As [`put_page`], of a block behind the end of the file.
#[cfg_attr(not(feature = "verity"), expect(dead_code, reason = "fs-verity alone writes there"))]
pub(super) fn put_behind(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    lblk: u32,
    inside: usize,
    bytes: &[u8],
) -> Result<()> {
    put(fs, cell, st, lblk, (inside, bytes), Part::Behind)
}

fn put(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    lblk: u32,
    (inside, bytes): (usize, &[u8]),
    part: Part,
) -> Result<()> {
    if let Some(page) = st.pages.get_mut(lblk) {
        page.data[inside..inside + bytes.len()].copy_from_slice(bytes);
        return Ok(());
    }
    let bs = fs.vol.geo.block_len();
    let (hole, unwritten) = match map::lookup(&fs.vol, &st.node, lblk)? {
        Mapping::Hole { .. } => (true, false),
        Mapping::Mapped { pblk, unwritten, .. } => {
            // Checked here, where the caller still gets the error.
            check_not_system(fs, st, pblk, 1)?;
            (false, unwritten)
        }
    };
    let start = u64::from(lblk) * bs as u64;
    let data = if bytes.len() == bs {
        bytes.to_vec()
    } else {
        let mut data = match part {
            Part::Contents if !hole => read::block(fs, st, lblk)?,
            _ => vec![0; bs],
        };
        if part == Part::Behind && !hole {
            read::behind(fs, st, start, &mut data)?;
        }
        data[inside..inside + bytes.len()].copy_from_slice(bytes);
        data
    };
    let end = start + (inside + bytes.len()) as u64;
    let end = if part == Part::Contents { end } else { 0 };
    if hole && asks_for_map(fs, st) {
        // (Pages in front of it go first, as in [`write_direct`].)
        flush::flush(fs, st)?;
        return write_exact(fs, st, lblk, &data, end);
    }
    let needs_cluster = hole && !clusters::is_held(fs, st, lblk)?;
    if (hole || unwritten) && !reserve_page(fs, st, u64::from(needs_cluster))? {
        return write_exact(fs, st, lblk, &data, end);
    }
    st.pages.insert(lblk, Page { data, hole, reserved: needs_cluster, unwritten });
    fs.dirty.grow(bs);
    fs.dirty.add(cell, fs.clock.now_ns());
    Ok(())
}

/// True if limits must allow the blocks of a file's map before its data is accepted: without
/// delayed allocation and with O_DIRECT, as in Linux.
fn asks_for_map(fs: &MountedFs, st: &InodeState) -> bool {
    let at_once = fs.runtime.nodelalloc.load() || fs.journals_data(st) || is_direct();
    at_once && fs.quotas.get().is_some_and(|quotas| quotas.is_enforced())
}

/// Most mapping blocks that so many pages in holes can need: no two of them are neighbours.
fn mapping_blocks(fs: &MountedFs, st: &InodeState, pages: u64) -> u64 {
    // The tree grows by one level at a time, once per level.
    const GROWTH: u64 = 5;
    if !st.node.raw.flags.contains(InodeFlags::EXTENTS) {
        // Each page may lie below a leaf, and below a middle block, of its own.
        return GROWTH + 2 * pages;
    }
    let depth = u16::from_le_bytes([st.node.raw.i_block[6], st.node.raw.i_block[7]]);
    if depth == 0 {
        // All leaves will be new ones, at least half full.
        let per_leaf = (fs.vol.geo.block_len() as u64 / 12 / 2).max(1);
        // (An unwritten extent falls into three.)
        return GROWTH + (2 * pages).div_ceil(per_leaf);
    }
    // Each page may split a full leaf of its own.
    GROWTH + pages
}

/// Reserves what one more page needs: `clusters` if it is in a hole, and mapping blocks for its
/// inode. False: space is so short that only an exact allocation shows whether it suffices.
fn reserve_page(fs: &MountedFs, st: &mut InodeState, clusters: u64) -> Result<bool> {
    let pages = st.pages.map_changes() + 1;
    let meta = mapping_blocks(fs, st, pages);
    if clusters > 0 {
        fs.vol.promise(&st.node, clusters)?;
    }
    let more = meta.saturating_sub(st.pages.meta_reserved);
    if fs.vol.alloc.reserve(clusters + more, fs.uses_reserve(st)).is_ok() {
        st.pages.meta_reserved += more;
        return Ok(true);
    }
    fs.settle(st);
    // Turns every reservation into the blocks really needed, and gets back what commits free.
    flush::flush(fs, st)?;
    fs.settle_space();
    Ok(false)
}

/// With space short: takes the block, writes and maps it, or fails without a trace.
fn write_exact(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    data: &[u8],
    end: u64,
) -> Result<()> {
    // No block may be mapped behind the end of the file: the mapping transaction writes the new
    // size.
    let old = st.node.raw.size;
    st.node.raw.size = old.max(end);
    let (result, left) = write_reserved(fs, st, lblk, 1, &Source::Bytes(data), 0);
    fs.unreserve_data(st, left);
    let result = match result {
        // Preallocated space must hold data even if no block is left to split its extent.
        Err(FsError::NoSpace) => zero_out::around(fs, st, lblk),
        result => result,
    };
    if result.is_err() {
        st.node.raw.size = old.max(st.disk_size);
    }
    result
}

/// Writes whole blocks to the device and maps them.
pub(super) fn write_direct(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: usize,
    source: &Source<'_>,
) -> Result<()> {
    let bs = fs.vol.geo.block_len();
    let blocks = u32::try_from(blocks).map_err(|_| FsError::FileTooLarge)?;
    let end = (u64::from(lblk) + u64::from(blocks)) * bs as u64;
    // The new size will cover dirty pages in front of the piece: they go first (DA-2).
    let seen = u32::try_from(st.disk_size / bs as u64).unwrap_or(u32::MAX);
    if end > st.disk_size && seen < lblk {
        flush::flush_from(fs, st, seen, lblk)?;
    }
    // Pages in the range are overwritten, and their reserved blocks serve the new data.
    let behind = lblk.saturating_add(blocks);
    let at_edges = clusters::take_edges(fs, st, lblk, behind);
    let (pages, reserved) = st.pages.take_range(lblk, behind);
    let reserved = reserved + at_edges;
    fs.dirty.shrink(pages.len() * bs);
    let old = st.node.raw.size;
    // The mapping transaction writes the new size with it.
    st.node.raw.size = old.max(end);
    let (result, left) = write_reserved(fs, st, lblk, blocks, source, reserved);
    if result.is_err() {
        st.node.raw.size = old.max(st.disk_size);
        // Not all was written: the pages come back.
        fs.dirty.grow(pages.len() * bs);
        clusters::put_back(fs, st, (lblk, behind), pages.into_iter(), left);
    } else {
        fs.unreserve_data(st, left);
    }
    result
}

/// Reserves the clusters that holes in the range need beyond `held`, and writes the data. The
/// second part of the result is how many reserved ones are left.
fn write_reserved(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    blocks: u32,
    source: &Source<'_>,
    held: u64,
) -> (Result<()>, u64) {
    let fresh = map::fresh_clusters(&fs.vol, &st.node, lblk, blocks);
    let reserved = fresh.and_then(|fresh| {
        let more = fresh.saturating_sub(held);
        if more > 0 {
            fs.reserve_data(st, more)?;
        }
        Ok(held + more)
    });
    match reserved {
        Ok(reserved) => {
            let purpose = if asks_for_map(fs, st) { Purpose::Limited } else { Purpose::Other };
            let (result, used) = write_blocks(fs, st, lblk, blocks, source, reserved, purpose);
            (result, reserved.saturating_sub(used))
        }
        Err(e) => (Err(e), held),
    }
}
