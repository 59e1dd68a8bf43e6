//! Truncate, and the unmapping of ranges that punch, zero and delete share.

use std::sync::Arc;

use crate::fast_commit::Reason;
use extol_ondisk::InodeFlags;
use extol_vfs::{FsError, Result};

use super::clusters;
use super::encryption;
use super::order;
use super::writepages::check_not_system;
use super::{read, write};
use crate::error;
use crate::fast_commit::eligibility;
use crate::inline;
use crate::inodes::{Cell, InodeState};
use crate::map::{self, Discard, Mapping, Progress};
use crate::mounted::MountedFs;
use crate::orphan;

/// Changes the size of a regular file. The caller has checked permission, and sets the times.
///
/// A truncate that fits one transaction is atomic. A longer one puts the inode on the orphan list
/// in its first transaction, so recovery finishes it.
pub(crate) fn set_size(
    fs: &MountedFs,
    cell: &Arc<Cell>,
    st: &mut InodeState,
    size: u64,
) -> Result<()> {
    let vol = &fs.vol;
    let old = st.node.raw.size;
    if size > map::max_file_size(&vol.geo, st.node.raw.flags) {
        return Err(FsError::FileTooLarge);
    }
    fs.need_size(size)?;
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        return set_inline_size(fs, st, size);
    }
    if size >= old {
        // Bytes behind the old end in its block must read as zeros (DA-3).
        if size > old {
            write::zero_tail(fs, cell, st, old)?;
        }
        return fs.transact(1, |h| {
            st.node.raw.size = size;
            // Pages in holes below the new size are mapped later, and read as zeros until then.
            st.disk_size = if st.pages.is_empty() { size } else { st.disk_size.max(size) };
            st.store(fs, h, true)
        });
    }
    if vol.journal.has_batch()
        && let Some(part) = part_to_copy(fs, st, size)?
    {
        set_size(fs, cell, st, size - part.len() as u64)?;
        return write::write(fs, cell, st, st.node.raw.size, &part).map(drop);
    }
    let bs = vol.geo.block_len();
    let keep = u32::try_from(size.div_ceil(bs as u64)).unwrap_or(u32::MAX);
    drop_pages(fs, st, keep, u32::MAX);
    st.window.empty();
    zero_part(fs, st, size)?;
    st.node.raw.size = size;
    st.disk_size = if st.pages.is_empty() { size } else { size.min(st.disk_size) };
    unmap(fs, st, keep, u32::MAX, true)
}

fn set_inline_size(fs: &MountedFs, st: &mut InodeState, size: u64) -> Result<()> {
    let vol = &fs.vol;
    let mut contents = inline::read(&st.node)?;
    let fits = usize::try_from(size).is_ok_and(|s| s <= inline::max_size(vol, &st.node));
    if fits {
        contents.resize(size as usize, 0);
        let mut h = fs.start(2)?;
        if inline::write(vol, &mut st.node, &contents)? {
            (st.node.raw.size, st.disk_size) = (size, size);
            st.store(fs, &mut h, true)?;
            return h.stop().map_err(error::journal);
        }
    }
    write::move_out(fs, st, &contents)?;
    fs.transact(1, |h| {
        (st.node.raw.size, st.disk_size) = (size, size);
        st.store(fs, h, true)
    })
}

/// Drops dirty pages of a range.
pub(crate) fn drop_pages(fs: &MountedFs, st: &mut InodeState, from: u32, to: u32) {
    clusters::leave_edges(fs, st, from, to);
    let (dropped, reserved) = st.pages.drop_range(from, to);
    fs.dirty.shrink(dropped * fs.vol.geo.block_len());
    fs.unreserve_data(st, reserved);
    if st.pages.is_empty() {
        fs.vol.alloc.unreserve(std::mem::take(&mut st.pages.meta_reserved));
    }
}

/// The file shrinks to `size`: the rest of its last block becomes zero, in its page or on the
/// device.
fn zero_part(fs: &MountedFs, st: &mut InodeState, size: u64) -> Result<()> {
    let bs = fs.vol.geo.block_len() as u64;
    let inside = (size % bs) as usize;
    if inside == 0 {
        return Ok(());
    }
    let lblk = u32::try_from(size / bs).map_err(|_| FsError::FileTooLarge)?;
    zero_inside(fs, st, lblk, inside, bs as usize)
}

/// Within a batch: what stays of the last block of a file that shrinks to `size`, if that block was
/// there before and so may not be changed in place.
fn part_to_copy(fs: &MountedFs, st: &InodeState, size: u64) -> Result<Option<Vec<u8>>> {
    let bs = fs.vol.geo.block_len() as u64;
    let inside = (size % bs) as usize;
    let lblk = u32::try_from(size / bs).map_err(|_| FsError::FileTooLarge)?;
    if inside == 0 || st.pages.get(lblk).is_some() || fs.journals_data(st) {
        return Ok(None);
    }
    match map::lookup(&fs.vol, &st.node, lblk)? {
        Mapping::Mapped { unwritten: false, .. } => {
            let mut block = read::block(fs, st, lblk)?;
            block.truncate(inside);
            Ok(Some(block))
        }
        _ => Ok(None),
    }
}

/// Zeros `from..to` of one block of the file, in its page or on the device.
pub(crate) fn zero_inside(
    fs: &MountedFs,
    st: &mut InodeState,
    lblk: u32,
    from: usize,
    to: usize,
) -> Result<()> {
    if let Some(page) = st.pages.get_mut(lblk) {
        page.data[from..to].fill(0);
        return Ok(());
    }
    let Mapping::Mapped { pblk, unwritten: false, .. } = map::lookup(&fs.vol, &st.node, lblk)?
    else {
        return Ok(());
    };
    check_not_system(fs, st, pblk, 1)?;
    if fs.journals_data(st) {
        let mut block = read::block(fs, st, lblk)?;
        block[from..to].fill(0);
        return fs.transact(1, |h| {
            let buf = h.create(pblk).map_err(error::journal)?;
            h.modify(&buf, |b| b.copy_from_slice(&block)).map_err(error::journal)
        });
    }
    if encryption::zero_part(fs, st, (lblk, pblk), (from, to))? {
        return Ok(());
    }
    order::about_to_change(&fs.vol, pblk, from)?;
    let at = pblk.offset(fs.vol.geo.block_size) + from as u64;
    let result = fs.vol.dev.write_at(&vec![0; to - from], at);
    fs.vol.journal.note_data_write();
    result.map_err(|e| fs.data_write_failed(e))
}

/// Unmaps and frees `from..to`, in as many transactions as it takes; stores the inode in each. With
/// `orphan`, recovery finishes it after a crash (by truncating to the stored size).
pub(crate) fn unmap(
    fs: &MountedFs,
    st: &mut InodeState,
    from: u32,
    to: u32,
    orphan: bool,
) -> Result<()> {
    let vol = &fs.vol;
    let data = if fs.journals_data(st) { Discard::FreeJournalled } else { Discard::Free };
    let was_orphan = fs.orphans.contains(st.node.ino.0);
    let mut added = false;
    let step = |st: &InodeState| map::credits_for_remove_step(&st.node) + 1 + orphan::CREDITS;
    let mut h = fs.start(step(st))?;
    let mut to = to;
    loop {
        let progress = map::remove(vol, &mut h, &mut st.node, from, to, data);
        match progress {
            Ok(Progress::Done) => break,
            Ok(Progress::Restart { at }) => {
                if orphan && !was_orphan && !added {
                    fs.orphans.add(&fs.vol, &fs.sb, &mut h, st.node.ino.0)?;
                    eligibility::note_ineligible(&mut h, st.node.ino, Reason::Attributes);
                    added = true;
                }
                st.store(fs, &mut h, true)?;
                to = at;
                h.restart(step(st)).map_err(error::journal)?;
            }
            Err(e) => {
                st.store(fs, &mut h, true)?;
                return Err(e);
            }
        }
    }
    if added {
        fs.orphans.remove(&fs.vol, &fs.sb, &mut h, st.node.ino.0)?;
        eligibility::note_ineligible(&mut h, st.node.ino, Reason::Attributes);
        st.node.raw.dtime = 0;
    }
    st.store(fs, &mut h, true)?;
    h.stop().map_err(error::journal)
}

/// Frees blocks behind the end of the file (preallocated with keep-size), if there are any.
pub(crate) fn unmap_behind(fs: &MountedFs, st: &mut InodeState, size: u64) -> Result<()> {
    if !st.node.raw.maps_blocks() {
        return Ok(());
    }
    let from = u32::try_from(size.div_ceil(fs.vol.geo.block_len() as u64)).unwrap_or(u32::MAX);
    if map::next_mapped(&fs.vol, &st.node, from, u32::MAX)?.is_none() {
        return Ok(());
    }
    unmap(fs, st, from, u32::MAX, false)
}
