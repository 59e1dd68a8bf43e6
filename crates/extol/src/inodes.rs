//! Inodes in memory: who is known, who is decoded, who is locked.
//!
//! Two tables, because they have different sizes. *References* are what front ends know: an inode
//! number and a count, a few bytes each, so a million known inodes cost some tens of megabytes.
//! *Cells* are decoded inodes with their lock and dirty pages: a bounded cache, reloaded from the
//! inode table when needed.
//!
//! To be known is not to be in use. A front end may say which files are open
//! ([`InodeTable::open`]); then one that is known and not open is deleted with its last name, as if
//! nobody knew it, and what stays is its *ghost*: a cell without an inode, which can tell what the
//! file was and nothing else. It goes when the front end forgets the file. For Linux every file is
//! known that was looked at lately, and it forgets a file only after its name is gone.
//!
//! Invariants
//! - N1: at most one cell per inode number is in the table (`InodeTable::get` inserts it locked,
//!   then loads).
//! - N2: a cell leaves the table only if nobody uses it, all its data is on the device and its
//!   inode has a name, so an unlinked inode that somebody references is deleted exactly once, by
//!   whoever takes the last reference (`Shard::make_room`).
//! - N3: a cell without state is dead: it failed to load, or its inode was deleted. Whoever finds
//!   one looks it up again or reports `Stale`.
//! - N4: nobody opens a ghost, and no file that is open becomes one: both are decided under the
//!   lock of the shard (`InodeTable::open`, `InodeTable::bury`). Nothing changes or reads a ghost's
//!   inode: only [`Cell::read_ghost`] and [`Cell::write_ghost`] see it.
//! - N5: a ghost's number is nobody else's ([`Allocator::hold_inode`]): it is held before the inode
//!   is freed, and let go with the last reference, both under the lock of the shard.
//! - N6: who has a cell's lock finds all data that is in no dirty page on the device
//!   ([`InodeState::settle`]).
//!
//! [`Allocator::hold_inode`]: crate::alloc::Allocator::hold_inode
//!
//! Locking: shard lock, then (only by `try_write`) a cell's lock.

mod cell;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_utils::CachePadded;
use extol_ondisk::{InodeFlags, InodeNr};
use extol_sync::rank::{Mutex, Rank};
use extol_vfs::{FsError, Result};
use foldhash::fast::RandomState;

pub(crate) use cell::{Cell, InodeState, WriteGuard};

use crate::node::Node;
use crate::volume::Volume;

const SHARDS: usize = 64;
const CLOCK_STEPS: usize = 8;

/// What a front end does with an inode.
#[derive(Default)]
struct Refs {
    /// References that it has.
    known: u64,
    /// How often it has it open, if it says so.
    open: u32,
    /// The inode is deleted.
    ghost: bool,
}

#[derive(Default)]
struct Shard {
    cells: HashMap<u32, Arc<Cell>, RandomState>,
    refs: HashMap<u32, Refs, RandomState>,
    clock: VecDeque<u32>,
}

impl Shard {
    fn make_room(&mut self, capacity: usize, vol: &Volume) {
        let mut steps = CLOCK_STEPS;
        while self.cells.len() >= capacity && steps > 0 {
            steps -= 1;
            let Some(ino) = self.clock.pop_front() else { return };
            let Some(cell) = self.cells.get(&ino) else { continue };
            let busy = Arc::strong_count(cell) > 1 || cell.recent.swap(false, Ordering::Relaxed);
            if busy || !Self::evict(cell, vol) {
                self.clock.push_back(ino);
            } else {
                self.cells.remove(&ino);
            }
        }
    }

    fn evict(cell: &Cell, vol: &Volume) -> bool {
        let Some(mut state) = cell.state.try_write() else { return false };
        let Some(s) = &mut *state else { return true };
        let deferred = s.deferred.as_ref().is_some_and(|deferred| !deferred.is_settled());
        if !s.pages.is_empty() || s.node.raw.links == 0 || s.lazy_times || deferred {
            return false;
        }
        vol.alloc.release(&mut s.window);
        true
    }

    fn insert(&mut self, cell: &Arc<Cell>, capacity: usize, vol: &Volume) {
        self.make_room(capacity, vol);
        self.clock.push_back(cell.ino);
        self.cells.insert(cell.ino, Arc::clone(cell));
        if self.clock.len() > 2 * self.cells.len() + 64 {
            let cells = &self.cells;
            let mut seen = std::collections::HashSet::with_capacity(cells.len());
            self.clock.retain(|ino| cells.contains_key(ino) && seen.insert(*ino));
        }
    }
}

/// All inodes in memory.
pub(crate) struct InodeTable {
    shards: Vec<CachePadded<Mutex<Shard, { Rank::InodeShard as u8 }>>>,
    /// Cells per shard.
    capacity: usize,
    /// The front end says which files are open.
    counts_opens: AtomicBool,
    /// There may be a directory whose changes are durable at once (`chattr +S`, `+D`): one was
    /// loaded, or got the flag. Set under the lock of the inode, and for good.
    promises: AtomicBool,
}

impl std::fmt::Debug for InodeTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InodeTable").finish_non_exhaustive()
    }
}

impl InodeTable {
    /// A table that keeps about `cells` inodes decoded.
    pub fn new(cells: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            capacity: (cells / SHARDS).max(4),
            counts_opens: AtomicBool::new(false),
            promises: AtomicBool::new(false),
        }
    }

    /// About how many inodes it keeps decoded.
    pub fn capacity(&self) -> usize {
        self.capacity * SHARDS
    }

    fn shard(&self, ino: u32) -> &Mutex<Shard, { Rank::InodeShard as u8 }> {
        &self.shards[(ino.wrapping_mul(0x9E37_79B1) >> 26) as usize % SHARDS]
    }

    /// The inode's cell, loaded.
    pub fn get(&self, vol: &Volume, ino: u32) -> Result<Arc<Cell>> {
        let mut shard = self.shard(ino).lock();
        if let Some(cell) = shard.cells.get(&ino) {
            return Ok(cell.used());
        }
        let cell = Arc::new(Cell::empty(ino));
        let mut state = cell.state.write();
        shard.insert(&cell, self.capacity, vol);
        drop(shard);
        match vol.read_inode(InodeNr(ino)) {
            Ok(raw) => {
                cell.set_kind(raw.is_dir());
                self.note_flags(raw.flags);
                let node = Node { ino: InodeNr(ino), raw };
                *state = Some(InodeState::new(node, vol.journal.newest()));
                drop(state);
                Ok(cell)
            }
            Err(e) => {
                cell.set_kind(false);
                drop(state);
                self.remove(&cell);
                Err(e)
            }
        }
    }

    /// An inode has these flags. For those who have its lock.
    pub fn note_flags(&self, flags: InodeFlags) {
        if flags.intersects(InodeFlags::SYNC.union(InodeFlags::DIRSYNC)) {
            self.promises.store(true, Ordering::Relaxed);
        }
    }

    /// False if no inode in memory has the flags `S` or `D`. (Who has just had the lock of one and
    /// asks about it gets the right answer.)
    pub fn may_promise(&self) -> bool {
        self.promises.load(Ordering::Relaxed)
    }

    /// The cell if it is in memory.
    pub fn cached(&self, ino: u32) -> Option<Arc<Cell>> {
        self.shard(ino).lock().cells.get(&ino).cloned()
    }

    /// The same for somebody who uses it.
    pub fn used(&self, ino: u32) -> Option<Arc<Cell>> {
        self.shard(ino).lock().cells.get(&ino).map(Cell::used)
    }

    /// A cell for an inode that was just created; replaces a dead one of the same number.
    pub fn insert(&self, vol: &Volume, state: InodeState) -> Arc<Cell> {
        self.note_flags(state.node.raw.flags);
        let cell = Arc::new(Cell::loaded(state));
        self.shard(cell.ino).lock().insert(&cell, self.capacity, vol);
        cell
    }

    fn remove(&self, cell: &Arc<Cell>) {
        let mut shard = self.shard(cell.ino).lock();
        if shard.cells.get(&cell.ino).is_some_and(|c| Arc::ptr_eq(c, cell)) {
            shard.cells.remove(&cell.ino);
        }
    }

    /// The inode is deleted: its cell dies and leaves the table. No lock of it may be held.
    pub fn kill(&self, cell: &Arc<Cell>) {
        cell.kill();
        self.remove(cell);
    }

    /// Takes a reference.
    pub fn retain(&self, ino: u32) {
        self.shard(ino).lock().refs.entry(ino).or_default().known += 1;
    }

    /// Takes a reference; gives the cell if it is in memory.
    pub fn refer(&self, ino: u32) -> Option<Arc<Cell>> {
        let mut shard = self.shard(ino).lock();
        shard.refs.entry(ino).or_default().known += 1;
        shard.cells.get(&ino).map(Cell::used)
    }

    /// Gives back `n` references; true if nobody refers to the inode any more, and it may have to
    /// be deleted.
    pub fn release(&self, vol: &Volume, ino: u32, n: u64) -> bool {
        self.refer_less(vol, ino, |refs| refs.known = refs.known.saturating_sub(n))
    }

    /// From now on known inodes that are not [open](Self::open) are deleted with their last name.
    pub fn count_opens(&self) {
        self.counts_opens.store(true, Ordering::Release);
    }

    /// The front end opens a file that it knows.
    pub fn open(&self, ino: u32) -> Result<()> {
        let mut shard = self.shard(ino).lock();
        let refs = shard.refs.entry(ino).or_default();
        if refs.ghost {
            return Err(FsError::Stale);
        }
        refs.open += 1;
        Ok(())
    }

    /// It has closed it; true as for [`release`](Self::release).
    pub fn close(&self, vol: &Volume, ino: u32) -> bool {
        self.refer_less(vol, ino, |refs| refs.open = refs.open.saturating_sub(1))
    }

    fn refer_less(&self, vol: &Volume, ino: u32, less: impl FnOnce(&mut Refs)) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(refs) = shard.refs.get_mut(&ino) else { return true };
        less(refs);
        if refs.known > 0 || refs.open > 0 {
            return false;
        }
        let ghost = refs.ghost;
        shard.refs.remove(&ino);
        if shard.refs.capacity() > 1024 && shard.refs.len() * 8 < shard.refs.capacity() {
            shard.refs.shrink_to_fit();
        }
        if ghost {
            // (Dropped without the lock.)
            let cell = shard.cells.remove(&ino);
            vol.alloc.release_inode(InodeNr(ino));
            drop(shard);
            drop(cell);
        }
        !ghost
    }

    /// True if somebody refers to the inode.
    pub fn is_referenced(&self, ino: u32) -> bool {
        self.shard(ino).lock().refs.contains_key(&ino)
    }

    /// True if the inode is in use: somebody refers to it who may read or change it. `idle`: those
    /// who know it do neither as long as they have not opened it.
    pub fn is_in_use(&self, ino: u32, idle: bool) -> bool {
        let idle = idle && self.counts_opens.load(Ordering::Acquire);
        self.shard(ino).lock().refs.get(&ino).is_some_and(|refs| refs.open > 0 || !idle)
    }

    /// The inode is about to be deleted, by whoever has its lock: a ghost stays if somebody knows
    /// it. False, and nothing has changed, if it is [in use](Self::is_in_use).
    pub fn bury(&self, vol: &Volume, ino: u32, idle: bool) -> bool {
        let idle = idle && self.counts_opens.load(Ordering::Acquire);
        let mut shard = self.shard(ino).lock();
        let Some(refs) = shard.refs.get_mut(&ino) else { return true };
        if refs.open > 0 || !idle {
            return false;
        }
        refs.ghost = true;
        vol.alloc.hold_inode(InodeNr(ino));
        true
    }

    /// It was not deleted after all.
    pub fn revive(&self, vol: &Volume, ino: u32) {
        let mut shard = self.shard(ino).lock();
        if let Some(refs) = shard.refs.get_mut(&ino) {
            refs.ghost = false;
        }
        vol.alloc.release_inode(InodeNr(ino));
    }

    /// True if the inode is deleted, and somebody knows it still.
    pub fn is_ghost(&self, ino: u32) -> bool {
        self.shard(ino).lock().refs.get(&ino).is_some_and(|refs| refs.ghost)
    }

    /// Forgets every reference (the front end is gone).
    pub fn release_all(&self, vol: &Volume) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let refs = std::mem::take(&mut shard.refs);
            for (ino, _) in refs.iter().filter(|(_, refs)| refs.ghost) {
                shard.cells.remove(ino);
                vol.alloc.release_inode(InodeNr(*ino));
            }
        }
    }

    /// All cells in memory, by inode number.
    pub fn cells(&self) -> Vec<Arc<Cell>> {
        let shards = self.shards.iter();
        let mut all: Vec<_> =
            shards.flat_map(|s| s.lock().cells.values().cloned().collect::<Vec<_>>()).collect();
        all.sort_unstable_by_key(|cell| cell.ino);
        all
    }

    /// Numbers for the statistics: cells, references.
    pub fn counts(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(c, r), s| {
            let s = s.lock();
            (c + s.cells.len(), r + s.refs.len())
        })
    }
}
