//! Flush of one inode: its dirty pages to the device, its time stamps to the inode table.
//!
//! Locking: the caller holds the inode's lock.
//!
//! Invariant
//! - WB-3: a page leaves memory only after its data was written and mapped; on an error it comes
//!   back, so a later fsync fails or writes it ([`clusters::put_back`]).

use extol_jbd2::JournalError;
use extol_vfs::{FsError, Result};
use smallvec::SmallVec;

use super::clusters;
use super::delalloc::Page;
use super::order::Purpose;
use super::writepages::{Source, write_blocks, write_journalled};
use crate::error;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

/// Most blocks of one write.
const MAX_WRITE: u32 = 1024;
/// Commits to wait for freed blocks before a flush fails with no space.
const RETRIES: u32 = 8;

/// Writes back all dirty pages of an inode, and its time stamps. On an error the pages not written
/// stay (WB-3).
pub(crate) fn flush(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    flush_from(fs, st, 0, u32::MAX)
}

/// As [`flush`], for a caller that waits until all of it is durable.
pub(crate) fn flush_for_fsync(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    flush_part(fs, st, 0, u32::MAX, Purpose::Fsync)
}

/// Writes back dirty pages of `from..to`; with the whole file, its time stamps as well.
pub(crate) fn flush_from(fs: &MountedFs, st: &mut InodeState, from: u32, to: u32) -> Result<()> {
    flush_part(fs, st, from, to, Purpose::Other)
}

fn flush_part(
    fs: &MountedFs,
    st: &mut InodeState,
    from: u32,
    to: u32,
    purpose: Purpose,
) -> Result<()> {
    let bs = fs.vol.geo.block_len();
    let journalled = fs.journals_data(st);
    let mut at = from;
    let mut retries = RETRIES;
    while let Some(lblk) = st.pages.next(at).filter(|l| *l < to) {
        let run = st.pages.run(lblk, MAX_WRITE.min(to - lblk));
        // (Most flushes write few pages.)
        let (mut pages, mut kinds) = (SmallVec::<[_; 4]>::new(), SmallVec::<[_; 4]>::new());
        let mut held = clusters::take_edges(fs, st, lblk, lblk.saturating_add(run));
        for i in 0..run {
            if let Some(page) = st.pages.remove(lblk + i) {
                held += u64::from(page.reserved);
                kinds.push((page.hole, page.unwritten));
                pages.push(page.data);
            }
        }
        let run = pages.len() as u32;
        let source = Source::Pages(&pages);
        let (result, used) = if journalled {
            let mut used = 0;
            (write_journalled(fs, st, lblk, run, &source, held, &mut used), used)
        } else {
            write_blocks(fs, st, lblk, run, &source, held, purpose)
        };
        match result {
            Ok(()) => {
                fs.unreserve_data(st, held.saturating_sub(used));
                fs.dirty.shrink(pages.len() * bs);
            }
            Err(e) => {
                let pages = (lblk..).zip(pages).zip(kinds).map(|((lblk, data), kind)| {
                    (lblk, Page { data, hole: kind.0, reserved: false, unwritten: kind.1 })
                });
                let range = (lblk, lblk.saturating_add(run));
                clusters::put_back(fs, st, range, pages, held.saturating_sub(used));
                // Reservations also count freed blocks, which a commit makes usable.
                if e == FsError::NoSpace && retries > 0 && fs.vol.alloc.pending_free() > 0 {
                    retries -= 1;
                    match fs.vol.journal.commit_all() {
                        Ok(()) => continue,
                        // Within a batch freed blocks stay what they are.
                        Err(JournalError::InBatch) => return Err(e),
                        Err(other) => return Err(error::journal(other)),
                    }
                }
                return Err(e);
            }
        }
        at = lblk.saturating_add(run);
        if at == u32::MAX {
            break;
        }
    }
    if st.pages.is_empty() {
        fs.vol.alloc.unreserve(std::mem::take(&mut st.pages.meta_reserved));
        let grew = st.disk_size != st.node.raw.size && st.is_regular();
        if grew {
            st.disk_size = st.node.raw.size;
        }
        if (grew || st.lazy_times) && from == 0 && to == u32::MAX {
            fs.transact(1, |h| st.store(fs, h, grew))?;
        }
        if !st.lazy_times {
            fs.dirty.remove(st.node.ino.0);
        }
    }
    Ok(())
}
