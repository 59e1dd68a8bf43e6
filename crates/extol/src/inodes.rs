//! Inodes in memory: references, decoded inodes, locks.
//!
//! There are two tables. *References* count what a front end has looked up: an inode number and a
//! count, a few bytes each, so there can be millions. *Cells* are decoded inodes with their lock
//! and dirty pages: a bounded cache, reloaded from the inode table on disk when needed.
//!
//! A referenced inode need not be in use: Linux keeps a reference to every file that it used
//! recently, and drops it only after the last name is removed. A front end may say which files are
//! open ([`InodeTable::open`]); then a file that is referenced but not open is deleted with its
//! last name. Its number is *held* until the front end drops its references: no new inode gets the
//! number, and the cell stays, without an inode on disk, and has only the attributes of the deleted
//! file.
//!
//! ```text
//!   referenced ──open──► in use ──close──► referenced ──last name removed──► number held
//!                          │                                                   └─forget─► free
//!                          └──last name removed──► orphan ──close, forget──► deleted
//! ```
//!
//! Invariants
//! - IN-1: at most one cell per inode number is in the table ([`InodeTable::get`] inserts it
//!   locked, then loads).
//! - IN-2: a cell leaves the table only if it is not in use, all its data is on the device and its
//!   inode has a name, so an unlinked inode that is referenced is deleted exactly once, by the
//!   thread that takes the last reference (`Shard::make_room`).
//! - IN-3: a cell without state is dead: it failed to load, or its inode was deleted. A thread that
//!   finds one looks the inode up again or reports `Stale`.
//! - IN-4: a deleted file whose number is held is never opened, and no open file is deleted: both
//!   are decided under the lock of the shard ([`InodeTable::open`], [`InodeTable::hold`]). Its
//!   inode is neither changed nor read: only [`Cell::read_any`] and [`Cell::write_any`] give access
//!   to its cell.
//! - IN-5: a held number is that of no other inode ([`Allocator::hold_inode`]): it is held before
//!   the inode is freed, and released with the last reference, both under the lock of the shard.
//! - IN-6: the holder of a cell's lock finds all data that is in no dirty page on the device
//!   ([`InodeState::finish_deferred`]).
//! - IN-7: a number is *lost* if a front end refers to an inode by it that is gone, because the
//!   volume was opened again without it. Until the last reference is given back no operation finds
//!   an inode by the number ([`InodeTable::get`]), and if it is free, it is held.
//! - IN-8: an inode is *undone* if the volume was opened again without its newest changes. No fsync
//!   of it succeeds before one has told so, and none through an open from before that time before
//!   one through the same open has ([`InodeTable::tells_undone`]). A new inode with its number is
//!   not undone.
//!
//! [`Allocator::hold_inode`]: crate::alloc::Allocator::hold_inode
//!
//! Locking: shard lock, then (only by `try_write`) a cell's lock.

mod cell;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use extol_ondisk::xattr::ibody_names_inodes;
use extol_ondisk::{Inode, InodeFlags, InodeNr};
use extol_sync::rank::{Mutex, Rank};
use extol_vfs::{FsError, OpenNr, Result};
use foldhash::fast::RandomState;

pub(crate) use cell::{Cell, InodeState, WriteGuard};

use crate::node::Node;
use crate::volume::Volume;
use crate::xattr;

const SHARDS: usize = 64;
const CLOCK_STEPS: usize = 8;

/// A front end's references to an inode.
#[derive(Default)]
struct Refs {
    lookups: u64,
    /// Number of opens, if the front end reports them.
    open: u32,
    /// The inode is deleted, and its number held.
    held: bool,
    /// It was found in an encrypted directory to which it does not belong.
    misplaced: bool,
}

#[derive(Default)]
struct Shard {
    cells: HashMap<u32, Arc<Cell>, RandomState>,
    refs: HashMap<u32, Refs, RandomState>,
    clock: VecDeque<u32>,
    /// Numbers that mean something else than what the front end refers to (IN-7).
    lost: HashSet<u32, RandomState>,
    /// Inodes without their newest changes (IN-8).
    undone: HashMap<u32, Told, RandomState>,
}

/// Which fsyncs have told that an inode is undone.
struct Told {
    any: bool,
    /// Number of the newest open before the loss.
    before: OpenNr,
    /// The opens that are older than the loss, and through which one has told it.
    opens: HashSet<u64, RandomState>,
}

impl Told {
    /// None has.
    fn since(before: OpenNr) -> Self {
        Self { any: false, before, opens: HashSet::default() }
    }
}

/// What the volume, opened again, has of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Continuity {
    /// All of it.
    Whole,
    /// The inode, without its newest changes.
    Undone,
    /// Nothing: the number means another inode, or none.
    Lost,
}

impl Shard {
    fn is_lost(&self, ino: u32) -> bool {
        !self.lost.is_empty() && self.lost.contains(&ino)
    }

    fn make_room(&mut self, capacity: usize) {
        let mut steps = CLOCK_STEPS;
        while self.cells.len() >= capacity && steps > 0 {
            steps -= 1;
            let Some(ino) = self.clock.pop_front() else { return };
            let Some(cell) = self.cells.get(&ino) else { continue };
            let busy = Arc::strong_count(cell) > 1 || cell.recent.swap(false, Ordering::Relaxed);
            if busy || !Self::evict(cell) {
                self.clock.push_back(ino);
            } else {
                self.cells.remove(&ino);
            }
        }
    }

    fn evict(cell: &Cell) -> bool {
        let Some(mut state) = cell.state.try_write() else { return false };
        let Some(s) = &mut *state else { return true };
        let deferred = s.deferred.as_ref().is_some_and(|deferred| !deferred.is_written());
        if !s.pages.is_empty() || s.node.raw.links == 0 || s.lazy_times || deferred {
            return false;
        }
        s.window.empty();
        true
    }

    fn insert(&mut self, cell: &Arc<Cell>, capacity: usize) {
        self.make_room(capacity);
        self.clock.push_back(cell.ino);
        self.cells.insert(cell.ino, Arc::clone(cell));
        if self.clock.len() > 2 * self.cells.len() + 64 {
            let cells = &self.cells;
            let mut seen = std::collections::HashSet::with_capacity(cells.len());
            self.clock.retain(|ino| cells.contains_key(ino) && seen.insert(*ino));
        }
    }
}

/// The inode, if a name may lead to it. (Without the feature of values in inodes, an inode that
/// names one is damaged: what would become of the value?)
fn named(vol: &Volume, ino: u32, raw: Inode) -> Result<Inode> {
    let names_value = raw.extra_isize != 0 && ibody_names_inodes(&raw.tail);
    if names_value && !xattr::are_values_allowed(vol) {
        let what = "attribute value in an inode, without the feature ea_inode";
        return Err(FsError::corrupt(what).in_inode(ino.into()));
    }
    if raw.flags.contains(InodeFlags::EA_INODE) {
        let what = "a name leads to an inode that holds the value of an attribute";
        return Err(FsError::corrupt(what).in_inode(ino.into()));
    }
    Ok(raw)
}

/// All inodes in memory.
pub(crate) struct InodeTable {
    shards: Vec<CachePadded<Mutex<Shard, { Rank::InodeShard as u8 }>>>,
    /// Cells per shard.
    capacity: usize,
    /// The front end reports which files are open.
    counts_opens: AtomicBool,
    /// Set once an inode with the flag `S` or `D` (changes are durable at once) is loaded or made.
    /// Set under the lock of the inode, and never cleared.
    has_sync_dirs: AtomicBool,
    /// Set by [`adopt`](Self::adopt) if some inode is undone (IN-8).
    has_undone: AtomicBool,
    /// Number of the newest open.
    opens: AtomicU64,
    /// Changes are lost, and no sync of the volume has told so.
    sync_tells: AtomicBool,
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
            has_sync_dirs: AtomicBool::new(false),
            has_undone: AtomicBool::new(false),
            opens: AtomicU64::new(0),
            sync_tells: AtomicBool::new(false),
        }
    }

    /// About how many inodes the table keeps decoded.
    pub fn capacity(&self) -> usize {
        self.capacity * SHARDS
    }

    fn shard(&self, ino: u32) -> &Mutex<Shard, { Rank::InodeShard as u8 }> {
        &self.shards[(ino.wrapping_mul(0x9E37_79B1) >> 26) as usize % SHARDS]
    }

    /// The inode's cell, loaded.
    pub fn get(&self, vol: &Volume, ino: u32) -> Result<Arc<Cell>> {
        let mut shard = self.shard(ino).lock();
        if shard.is_lost(ino) {
            return Err(FsError::Stale);
        }
        if let Some(cell) = shard.cells.get(&ino) {
            return Ok(cell.used());
        }
        let cell = Arc::new(Cell::empty(ino));
        let mut state = cell.state.write();
        shard.insert(&cell, self.capacity);
        drop(shard);
        match vol.read_inode(InodeNr(ino)).and_then(|raw| named(vol, ino, raw)) {
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

    /// An inode that is not in memory, read and not kept.
    pub fn peek(&self, vol: &Volume, ino: u32) -> Result<Node> {
        if self.shard(ino).lock().is_lost(ino) {
            return Err(FsError::Stale);
        }
        let raw = vol.read_inode(InodeNr(ino)).and_then(|raw| named(vol, ino, raw))?;
        Ok(Node { ino: InodeNr(ino), raw })
    }

    /// Notes the flags of an inode. Called with its lock held.
    pub fn note_flags(&self, flags: InodeFlags) {
        if flags.intersects(InodeFlags::SYNC.union(InodeFlags::DIRSYNC)) {
            self.has_sync_dirs.store(true, Ordering::Relaxed);
        }
    }

    /// False if no inode in memory has the flags `S` or `D`. (Exact for an inode whose lock the
    /// caller has just held.)
    pub fn may_have_sync_dirs(&self) -> bool {
        self.has_sync_dirs.load(Ordering::Relaxed)
    }

    /// The cell if it is in memory.
    pub fn cached(&self, ino: u32) -> Option<Arc<Cell>> {
        self.shard(ino).lock().cells.get(&ino).cloned()
    }

    /// [`cached`](Self::cached); counts as a use.
    pub fn used(&self, ino: u32) -> Option<Arc<Cell>> {
        self.shard(ino).lock().cells.get(&ino).map(Cell::used)
    }

    /// Drops all cells that are not in use and have nothing to be written.
    pub fn drop_idle(&self) {
        for shard in &self.shards {
            let in_use = |cell: &Arc<Cell>| Arc::strong_count(cell) > 1 || !Shard::evict(cell);
            shard.lock().cells.retain(|_, cell| in_use(cell));
        }
    }

    /// A cell for an inode that was just created; replaces a dead one of the same number.
    pub fn insert(&self, state: InodeState) -> Arc<Cell> {
        self.note_flags(state.node.raw.flags);
        let cell = Arc::new(Cell::loaded(state));
        let mut shard = self.shard(cell.ino).lock();
        shard.undone.remove(&cell.ino);
        shard.insert(&cell, self.capacity);
        drop(shard);
        cell
    }

    fn remove(&self, cell: &Arc<Cell>) {
        let mut shard = self.shard(cell.ino).lock();
        if shard.cells.get(&cell.ino).is_some_and(|c| Arc::ptr_eq(c, cell)) {
            shard.cells.remove(&cell.ino);
        }
    }

    /// Called when the inode is deleted: removes its cell. The caller holds no lock of it.
    pub fn kill(&self, cell: &Arc<Cell>) {
        cell.kill();
        self.remove(cell);
    }

    /// Takes a reference.
    pub fn retain(&self, ino: u32) {
        self.shard(ino).lock().refs.entry(ino).or_default().lookups += 1;
    }

    /// An inode on which there is a reference is in an encrypted directory to which it does not
    /// belong: as long as there is one, it is not opened. (Linux refuses an open by this name only;
    /// here other names that a front end knows lead to the same inode.)
    pub fn note_misplaced(&self, ino: u32) {
        self.shard(ino).lock().refs.entry(ino).or_default().misplaced = true;
    }

    /// True after that.
    pub fn is_misplaced(&self, ino: u32) -> bool {
        self.shard(ino).lock().refs.get(&ino).is_some_and(|refs| refs.misplaced)
    }

    /// Takes a reference; gives the cell if it is in memory.
    pub fn refer(&self, ino: u32) -> Option<Arc<Cell>> {
        let mut shard = self.shard(ino).lock();
        shard.refs.entry(ino).or_default().lookups += 1;
        shard.cells.get(&ino).map(Cell::used)
    }

    /// Drops `n` references; true if none is left, and the inode may have to be deleted.
    pub fn release(&self, vol: &Volume, ino: u32, n: u64) -> bool {
        self.drop_refs(vol, ino, |refs| refs.lookups = refs.lookups.saturating_sub(n))
    }

    /// From now on referenced files that are not [open](Self::open) are deleted with their last
    /// name.
    pub fn count_opens(&self) {
        self.counts_opens.store(true, Ordering::Release);
    }

    /// The front end opens a file that it has looked up.
    pub fn open(&self, ino: u32) -> Result<OpenNr> {
        let mut shard = self.shard(ino).lock();
        let refs = shard.refs.entry(ino).or_default();
        let held = refs.held;
        let misplaced = refs.misplaced;
        if held || shard.is_lost(ino) {
            return Err(FsError::Stale);
        }
        if misplaced {
            return Err(FsError::NotPermitted);
        }
        shard.refs.entry(ino).or_default().open += 1;
        Ok(OpenNr(self.opens.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// True if the front end has it open.
    pub fn is_open(&self, ino: u32) -> bool {
        self.shard(ino).lock().refs.get(&ino).is_some_and(|refs| refs.open > 0)
    }

    /// All inodes that the front end knows, and the root.
    pub fn referenced(&self) -> Vec<u32> {
        let shards = self.shards.iter();
        let known = shards.flat_map(|s| s.lock().refs.keys().copied().collect::<Vec<_>>());
        known.chain([InodeNr::ROOT.0]).collect()
    }

    /// The front end has closed it; true as for [`release`](Self::release).
    pub fn close(&self, vol: &Volume, ino: u32) -> bool {
        self.drop_refs(vol, ino, |refs| refs.open = refs.open.saturating_sub(1))
    }

    fn drop_refs(&self, vol: &Volume, ino: u32, drop_some: impl FnOnce(&mut Refs)) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(refs) = shard.refs.get_mut(&ino) else { return true };
        drop_some(refs);
        let is_closed = refs.open == 0;
        if is_closed && shard.undone.get(&ino).is_some_and(|told| told.any) {
            shard.undone.remove(&ino);
        }
        let Some(refs) = shard.refs.get(&ino) else { return true };
        if refs.lookups > 0 || refs.open > 0 {
            return false;
        }
        let held = refs.held;
        shard.refs.remove(&ino);
        let was_lost = !shard.lost.is_empty() && shard.lost.remove(&ino);
        if shard.refs.capacity() > 1024 && shard.refs.len() * 8 < shard.refs.capacity() {
            shard.refs.shrink_to_fit();
        }
        if held {
            let cell = shard.cells.remove(&ino);
            vol.alloc.release_inode(InodeNr(ino));
            drop(shard);
            drop(cell);
        }
        !held && !was_lost
    }

    /// Takes over what a front end refers to in the table of a mount that has ended. `compare`
    /// tells what is left of an inode there. Gives all the numbers, and the root, which needs no
    /// reference.
    pub fn adopt(&self, old: &Self, vol: &Volume, compare: impl Fn(u32) -> Continuity) -> Vec<u32> {
        let counts_opens = old.counts_opens.load(Ordering::Acquire);
        self.counts_opens.store(counts_opens, Ordering::Release);
        let opens = old.opens.load(Ordering::Acquire);
        self.opens.store(opens, Ordering::Release);
        let mut all = vec![InodeNr::ROOT.0];
        for (ino, refs) in
            old.shards.iter().flat_map(|shard| std::mem::take(&mut shard.lock().refs))
        {
            let is_root = ino == InodeNr::ROOT.0;
            if !is_root {
                all.push(ino);
            }
            let lost = !is_root && compare(ino) == Continuity::Lost;
            let held = lost && !vol.is_in_use(InodeNr(ino));
            if held {
                vol.alloc.hold_inode(InodeNr(ino));
            }
            let mut shard = self.shard(ino).lock();
            if lost {
                shard.lost.insert(ino);
                self.sync_tells.store(true, Ordering::Release);
            }
            shard.refs.insert(ino, Refs { held, ..refs });
        }
        let was_to_tell = old.sync_tells.load(Ordering::Acquire);
        self.sync_tells.fetch_or(was_to_tell, Ordering::AcqRel);
        // (An fsync may also come through an open that is still to be made.)
        let in_memory = old.cells().into_iter().map(|cell| cell.ino);
        for ino in all.iter().copied().chain(in_memory) {
            if compare(ino) == Continuity::Undone {
                self.shard(ino).lock().undone.insert(ino, Told::since(OpenNr(opens)));
                self.has_undone.store(true, Ordering::Release);
                self.sync_tells.store(true, Ordering::Release);
            }
        }
        for (ino, told) in
            old.shards.iter().flat_map(|shard| std::mem::take(&mut shard.lock().undone))
        {
            if compare(ino) == Continuity::Whole {
                self.shard(ino).lock().undone.insert(ino, told);
                self.has_undone.store(true, Ordering::Release);
            }
        }
        all
    }

    /// True if an fsync of this inode has to fail, because changes before it are lost (IN-8).
    pub fn tells_undone(&self, ino: u32, open: OpenNr) -> bool {
        if !self.has_undone.load(Ordering::Acquire) {
            return false;
        }
        let mut shard = self.shard(ino).lock();
        let is_open = shard.refs.get(&ino).is_some_and(|refs| refs.open > 0);
        let Some(told) = shard.undone.get_mut(&ino) else { return false };
        let is_older = (1..=told.before.0).contains(&open.0);
        let tells = if is_older { told.opens.insert(open.0) } else { !told.any };
        told.any = true;
        if !is_open {
            shard.undone.remove(&ino);
        }
        tells
    }

    /// True for the first sync of the volume after changes were lost.
    pub fn sync_tells_undone(&self) -> bool {
        self.sync_tells.load(Ordering::Acquire) && self.sync_tells.swap(false, Ordering::AcqRel)
    }

    /// True if the next sync of the volume has to fail.
    pub fn has_sync_to_tell(&self) -> bool {
        self.sync_tells.load(Ordering::Acquire)
    }

    /// True if there is a reference to the inode.
    pub fn is_referenced(&self, ino: u32) -> bool {
        self.shard(ino).lock().refs.contains_key(&ino)
    }

    /// True if the inode is in use: there is a reference that may read or change it. `needs_open`:
    /// only one that has the file open does.
    pub fn is_in_use(&self, ino: u32, needs_open: bool) -> bool {
        let needs_open = needs_open && self.counts_opens.load(Ordering::Acquire);
        self.shard(ino).lock().refs.get(&ino).is_some_and(|refs| refs.open > 0 || !needs_open)
    }

    /// Holds the number of an inode that is about to be deleted, if it is referenced. Called with
    /// the inode's lock held. False, and nothing has changed, if it is [in use](Self::is_in_use).
    pub fn hold(&self, vol: &Volume, ino: u32, needs_open: bool) -> bool {
        let needs_open = needs_open && self.counts_opens.load(Ordering::Acquire);
        let mut shard = self.shard(ino).lock();
        let Some(refs) = shard.refs.get_mut(&ino) else { return true };
        if refs.open > 0 || !needs_open {
            return false;
        }
        refs.held = true;
        vol.alloc.hold_inode(InodeNr(ino));
        true
    }

    /// Undoes [`hold`](Self::hold): the inode could not be deleted.
    pub fn undo_hold(&self, vol: &Volume, ino: u32) {
        let mut shard = self.shard(ino).lock();
        if let Some(refs) = shard.refs.get_mut(&ino) {
            refs.held = false;
        }
        vol.alloc.release_inode(InodeNr(ino));
    }

    /// True if the inode is deleted, and its number held.
    pub fn is_held(&self, ino: u32) -> bool {
        self.shard(ino).lock().refs.get(&ino).is_some_and(|refs| refs.held)
    }

    /// Drops all references, when the front end has ended.
    pub fn release_all(&self, vol: &Volume) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let refs = std::mem::take(&mut shard.refs);
            for (ino, _) in refs.iter().filter(|(_, refs)| refs.held) {
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
