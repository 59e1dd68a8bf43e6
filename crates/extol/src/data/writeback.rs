//! Write-back: dirty pages go to the device, and who decides when.
//!
//! | when | what |
//! |---|---|
//! | fsync | the file |
//! | sync, unmount | everything |
//! | more than `dirty_bytes` | the file that is being written, by its writer |
//! | every second | files dirty for longer than 5 s |
//! | every second, or at once if many files make it three quarters | above half of `dirty_bytes`, or of the inodes that are kept decoded: the oldest, until three eighths are left |
//!
//! What is oldest goes first, and no more than makes room: much of what is new is changed again or
//! deleted before long, and need never go to the device. Small files go many at a time
//! ([`together`](super::together)).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use extol_sync::rank::{Mutex, Rank};
use extol_task::{Progress, Service, Wakeup};
use extol_vfs::{FsError, Result};
use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::dirty::Page;
use super::order::Purpose;
use super::place::{Source, place, place_journalled};
use super::together::{FILES, flush_cells};
use crate::error;
use crate::inodes::{Cell, InodeState};
use crate::mounted::MountedFs;

/// How long data may stay in memory only. Linux waits 30 s, but its pages are also visible to the
/// system's memory pressure; a daemon's are not.
const MAX_AGE_NS: u64 = 5_000_000_000;
const PERIOD: Duration = Duration::from_secs(1);
/// Blocks written back in one go: bounds the memory for a second copy of nothing, and the length of
/// a write.
const BATCH: u32 = 1024;
/// So many dirty files make it worth calling the service: what is in few, their writers write back
/// themselves, in large pieces.
const MANY: usize = 64;
/// Commits awaited for freed blocks before write-back gives up.
const RETRIES: u32 = 8;

#[derive(Debug)]
struct DirtyInode {
    cell: Arc<Cell>,
    since_ns: u64,
}

/// Which inodes have dirty pages, and how many bytes there are in all.
#[derive(Debug, Default)]
pub(crate) struct DirtyIndex {
    bytes: AtomicUsize,
    /// Wakes the service.
    pub service: Wakeup,
    /// It was called, and has not come yet.
    called: AtomicBool,
    inodes: Mutex<HashMap<u32, DirtyInode, RandomState>, { Rank::DirtyFiles as u8 }>,
}

impl DirtyIndex {
    /// Bytes in dirty pages.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Inodes with dirty pages or time stamps.
    pub fn len(&self) -> usize {
        self.inodes.lock().len()
    }

    pub fn grow(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The inode has something to write back.
    pub fn add(&self, cell: &Arc<Cell>, now_ns: u64) {
        // A dead cell of the same number may be dropped for good here, and gives its blocks back to
        // a group: not under this lock.
        let _before = match self.inodes.lock().entry(cell.ino) {
            Entry::Occupied(mut known) => {
                Some(std::mem::replace(&mut known.get_mut().cell, Arc::clone(cell)))
            }
            Entry::Vacant(room) => {
                room.insert(DirtyInode { cell: Arc::clone(cell), since_ns: now_ns });
                None
            }
        };
    }

    /// The inode has nothing to write back any more. Called with its lock held.
    pub fn remove(&self, ino: u32) {
        let _gone = self.inodes.lock().remove(&ino);
    }

    /// The cell is dead. (Its number may belong to a new inode by now, which stays.)
    pub(super) fn remove_dead(&self, cell: &Arc<Cell>) {
        let mut inodes = self.inodes.lock();
        if inodes.get(&cell.ino).is_some_and(|d| Arc::ptr_eq(&d.cell, cell)) {
            inodes.remove(&cell.ino);
        }
    }

    /// Those that are dirty since then or longer, the oldest first.
    fn since(&self, before_ns: u64) -> Vec<(u64, Arc<Cell>)> {
        let inodes = self.inodes.lock();
        let old = inodes.values().filter(|d| d.since_ns <= before_ns);
        let mut cells: Vec<_> = old.map(|d| (d.since_ns, Arc::clone(&d.cell))).collect();
        drop(inodes);
        cells.sort_unstable_by_key(|(since, cell)| (*since, cell.ino));
        cells
    }

    /// All of them.
    fn all(&self) -> Vec<Arc<Cell>> {
        let mut cells: Vec<_> = self.since(u64::MAX).into_iter().map(|(_, cell)| cell).collect();
        sort(&mut cells);
        cells
    }
}

/// By inode number: neighbours in the table, and often on the device.
fn sort(cells: &mut [Arc<Cell>]) {
    cells.sort_unstable_by_key(|cell| cell.ino);
}

/// More than so many eighths of what may be dirty are.
fn exceeds(fs: &MountedFs, eighths: usize) -> bool {
    fs.dirty.bytes() > fs.runtime.dirty_bytes() / 8 * eighths
        || fs.dirty.len() > fs.table.capacity() / 8 * eighths
}

/// A file was written: calls the service if it should not wait for its time.
pub(crate) fn grew(fs: &MountedFs) {
    let dirty = &fs.dirty;
    let much = dirty.bytes() > fs.runtime.dirty_bytes() / 8 * 6;
    if much && fs.threads && !dirty.called.load(Ordering::Relaxed) && dirty.len() >= MANY {
        dirty.called.store(true, Ordering::Relaxed);
        dirty.service.wake();
    }
}

/// Writes back all dirty pages of an inode, and its time stamps. On an error the pages that were
/// not written stay.
pub(crate) fn flush(fs: &MountedFs, st: &mut InodeState) -> Result<()> {
    flush_from(fs, st, 0, u32::MAX)
}

/// As [`flush`], for somebody who waits until all of it is durable.
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
        let run = st.pages.run(lblk, BATCH.min(to - lblk));
        // (Most files that are synced are small.)
        let (mut pages, mut reserved, mut unwritten) =
            (SmallVec::<[_; 4]>::new(), SmallVec::<[_; 4]>::new(), SmallVec::<[_; 4]>::new());
        for i in 0..run {
            if let Some(page) = st.pages.remove(lblk + i) {
                reserved.push(page.reserved);
                unwritten.push(page.unwritten);
                pages.push(page.data);
            }
        }
        let run = pages.len() as u32;
        let source = Source::Pages(&pages);
        let put = if journalled { place_journalled } else { place };
        let promised = reserved.iter().filter(|r| **r).count() as u64;
        let (result, used) = put(fs, st, lblk, run, &source, promised, purpose);
        match result {
            Ok(()) => {
                // A page may have lost its hole since it was reserved (nobody maps behind its back
                // today).
                fs.vol.alloc.unreserve(promised.saturating_sub(used));
                fs.dirty.shrink(pages.len() * bs);
            }
            Err(e) => {
                // Keep what may not have been written: a later fsync must not succeed without it.
                let pages = pages.into_iter().zip(reserved).zip(unwritten);
                let pages =
                    pages.map(|((data, reserved), unwritten)| Page { data, reserved, unwritten });
                put_back(st, lblk, pages, used);
                // Promises also count blocks that were freed and become usable by a commit.
                if e == FsError::NoSpace && retries > 0 && fs.vol.alloc.pending_free() > 0 {
                    retries -= 1;
                    fs.vol.journal.commit_all().map_err(error::journal)?;
                    continue;
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
            let mut h = fs.vol.journal.start(1).map_err(error::journal)?;
            st.store(fs, &mut h, grew)?;
            h.stop().map_err(error::journal)?;
        }
        if !st.lazy_times {
            fs.dirty.remove(st.node.ino.0);
        }
    }
    Ok(())
}

/// Puts pages back that could not be written; so many of their promises are used.
pub(super) fn put_back(
    st: &mut InodeState,
    lblk: u32,
    pages: impl Iterator<Item = Page>,
    mut used: u64,
) {
    for (lblk, mut page) in (lblk..).zip(pages) {
        if page.reserved && used > 0 {
            used -= 1;
            page.reserved = false;
        }
        st.pages.insert(lblk, page);
    }
}

/// Writes back everything. The first error is returned, after all were tried.
pub(crate) fn flush_all(fs: &MountedFs) -> Result<()> {
    let mut result = Ok(());
    flush_cells(fs, &fs.dirty.all(), &mut |one| {
        if result.is_ok() {
            result = one;
        }
    });
    result
}

/// Writes back every inode whose lock is free; for callers who hold inode locks themselves.
pub(crate) fn flush_unlocked(fs: &MountedFs) {
    for cell in fs.dirty.all() {
        if let Some(mut st) = cell.try_write() {
            // Pages that cannot be written stay, with their promises.
            let _ = flush(fs, &mut st);
        }
    }
}

/// The write-back service.
#[derive(Debug)]
pub(crate) struct Writeback(pub Weak<MountedFs>);

impl Service for Writeback {
    fn step(&mut self) -> Progress {
        let Some(fs) = self.0.upgrade() else { return Progress::Idle(None) };
        if fs.check_writable().is_err() {
            return Progress::Idle(Some(PERIOD));
        }
        fs.dirty.called.store(false, Ordering::Relaxed);
        let due = fs.clock.now_ns().saturating_sub(MAX_AGE_NS);
        // (An inode with time stamps to write stays decoded, too.)
        let pressed = exceeds(&fs, 4);
        for oldest in fs.dirty.since(if pressed { u64::MAX } else { due }).chunks(FILES) {
            let pressed = pressed && exceeds(&fs, 3);
            let wanted = oldest.iter().filter(|(since, _)| pressed || *since <= due);
            let mut cells: Vec<_> = wanted.map(|(_, cell)| Arc::clone(cell)).collect();
            if cells.is_empty() {
                break;
            }
            sort(&mut cells);
            flush_cells(&fs, &cells, &mut |flushed| {
                // Errors are kept by the inode's pages and by the journal; fsync reports them.
                let _ = fs.note(flushed);
            });
        }
        Progress::Idle(Some(PERIOD))
    }
}
