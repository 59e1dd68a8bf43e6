//! The index of dirty inodes: what writeback has to write.
//!
//! Invariant
//! - WB-4: an inode is in the index while it has dirty pages or time stamps to store
//!   ([`DirtyIndex::add`], `flush::flush_part`).
//!
//! Its lock is a leaf lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use extol_sync::rank::{Mutex, Rank};
use extol_task::Wakeup;
use foldhash::fast::RandomState;

use crate::inodes::Cell;

#[derive(Debug)]
struct DirtyInode {
    cell: Arc<Cell>,
    since_ns: u64,
}

/// Which inodes have dirty pages, and how many bytes there are in all.
#[derive(Debug, Default)]
pub(crate) struct DirtyIndex {
    bytes: AtomicUsize,
    /// Wakes the writeback service.
    pub service: Wakeup,
    /// The service was woken and has not run yet.
    pub woken: AtomicBool,
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
        // The cell of a deleted inode of that number may be dropped here; it takes the lock of a
        // group to give its preallocated blocks back, so it outlives this lock.
        let _before = match self.inodes.lock().entry(cell.ino) {
            Entry::Occupied(mut entry) => {
                Some(std::mem::replace(&mut entry.get_mut().cell, Arc::clone(cell)))
            }
            Entry::Vacant(entry) => {
                entry.insert(DirtyInode { cell: Arc::clone(cell), since_ns: now_ns });
                None
            }
        };
    }

    /// The inode has nothing more to write back. Called with its lock held.
    pub fn remove(&self, ino: u32) {
        let _gone = self.inodes.lock().remove(&ino);
    }

    /// The inode was deleted. (An entry of a new inode with its number stays.)
    pub fn remove_dead(&self, cell: &Arc<Cell>) {
        let mut inodes = self.inodes.lock();
        if inodes.get(&cell.ino).is_some_and(|d| Arc::ptr_eq(&d.cell, cell)) {
            inodes.remove(&cell.ino);
        }
    }

    /// Inodes that became dirty at or before that time, the oldest first.
    pub fn dirty_since(&self, before_ns: u64) -> Vec<(u64, Arc<Cell>)> {
        let inodes = self.inodes.lock();
        let old = inodes.values().filter(|d| d.since_ns <= before_ns);
        let mut cells: Vec<_> = old.map(|d| (d.since_ns, Arc::clone(&d.cell))).collect();
        drop(inodes);
        cells.sort_unstable_by_key(|(since, cell)| (*since, cell.ino));
        cells
    }

    /// All dirty inodes, by number.
    pub fn all(&self) -> Vec<Arc<Cell>> {
        let mut cells: Vec<_> =
            self.dirty_since(u64::MAX).into_iter().map(|(_, cell)| cell).collect();
        sort(&mut cells);
        cells
    }
}

/// By inode number: neighbours in the inode table, and often on the device.
pub(super) fn sort(cells: &mut [Arc<Cell>]) {
    cells.sort_unstable_by_key(|cell| cell.ino);
}
