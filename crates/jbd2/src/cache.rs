//! The metadata block cache.
//!
//! A cached block is a [`Buf`]: a number and an `Arc` to its bytes behind a small lock. Readers
//! clone the `Arc` and look at bytes that can no longer change. A writer
//! ([`crate::Handle::modify`]) changes the bytes in place if there is no snapshot and clones
//! them first if there is one. A commit holds snapshots, so it never makes a writer wait, and
//! always logs what the block was when its transaction closed.
//!
//! ```text
//!   Buf.data ──► Arc<bytes v7>      newest, changed by the running transaction
//!   commit   ──► Arc<bytes v6>      being logged
//!   checkpoint ► Arc<bytes v5>      committed, waiting to go home
//! ```
//!
//! A block that changes many times in a transaction needs its checksum once: when the transaction
//! closes. The writer may leave a [`Seal`] instead ([`crate::Handle::modify_sealed`]), which
//! the snapshot gets before it is used.
//!
//! Invariants
//! - BC-1: a block is in the map at most once, and is loaded by one reader while others wait
//!   (`BlockCache::read`).
//! - BC-2: a buffer leaves the map only if no transaction changed it and no snapshot of it is on
//!   its way home, so a read from the device never sees a version older than the newest committed
//!   one (`Shard::make_room`).
//! - BC-3: bytes that leave memory have the checksum of their newest change: only snapshots of
//!   closed transactions are written, and a seal that is due is set before the snapshot is taken
//!   (`Transaction::close`). Every change replaces the seal, or takes it away if it leaves the
//!   checksum right itself, so a block that became something else has its own.
//!
//! Locking: shard, then buffer; both are leaves. The buffer lock is held over the device read that
//! fills it, and over nothing else.
//!
//! Every operation looks up a dozen blocks, so a hit takes the shard's lock and nothing more: what
//! it writes lies in the shard (the counters) or was the same before (the mark for the clock), and
//! that the buffer was filled is a flag.

use std::collections::{HashMap, VecDeque};
use std::io::IoSliceMut;
use std::sync::Arc;
// Hints and statistics; see `extol_sync` for why they are not its own.
use std::sync::atomic::AtomicU64;

use crossbeam_utils::CachePadded;
use extol_block::{BlockNr, BlockSize, SharedDevice};
use extol_sync::atomic::{AtomicBool, Ordering};
use extol_sync::rank::{Mutex, Rank};
use extol_sync::thread;
use foldhash::fast::RandomState;

use crate::types::{JournalError, Result, Tid};

/// A cached metadata block.
#[derive(Debug)]
pub struct Buf {
    nr: BlockNr,
    verified: AtomicBool,
    /// It has bytes: they were read, or made up.
    loaded: AtomicBool,
    /// Second chance for the clock.
    recent: AtomicBool,
    pub(crate) state: Mutex<BufState, { Rank::Buffer as u8 }>,
}

/// How a block gets its checksum: a function of its bytes, its number and a seed.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    /// Puts the checksum into the block.
    pub set: fn(&mut [u8], BlockNr, u32),
    /// What the function needs to know beside block and number.
    pub seed: u32,
}

#[derive(Debug)]
pub(crate) struct BufState {
    /// The newest bytes. Empty while loading, and for ever if loading failed.
    pub data: Arc<Vec<u8>>,
    /// The checksum that the newest change left to the end of the transaction.
    pub seal: Option<Seal>,
    /// The running transaction that changed it.
    pub tx: Option<Tid>,
    /// Snapshots that are being logged or wait to go home.
    pub pending: u32,
}

impl Buf {
    fn new(nr: BlockNr, data: Vec<u8>, verified: bool) -> Self {
        Self {
            nr,
            verified: AtomicBool::new(verified),
            loaded: AtomicBool::new(!data.is_empty()),
            recent: AtomicBool::new(true),
            state: Mutex::new(BufState { data: Arc::new(data), seal: None, tx: None, pending: 0 }),
        }
    }

    /// Its block number on the file system's device.
    #[must_use]
    pub fn nr(&self) -> BlockNr {
        self.nr
    }

    /// The present bytes (exactly one block). The snapshot never changes.
    #[must_use]
    pub fn data(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.state.lock().data)
    }

    /// True if the file system has checked checksum and structure of these bytes since they were
    /// read.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Acquire)
    }

    /// Remembers that the bytes were checked.
    pub fn set_verified(&self) {
        self.verified.store(true, Ordering::Release);
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.tx.is_none() && state.pending == 0
    }
}

const SHARDS: usize = 64;
/// How many buffers one insertion may look at for a victim: bounds the time under the shard lock.
const CLOCK_STEPS: usize = 16;

#[derive(Debug, Default)]
struct Shard {
    map: HashMap<BlockNr, Arc<Buf>, RandomState>,
    hits: u64,
    misses: u64,
    clock: VecDeque<BlockNr>,
}

impl Shard {
    fn make_room(&mut self, capacity: usize) {
        let mut steps = CLOCK_STEPS;
        while self.map.len() >= capacity && steps > 0 {
            steps -= 1;
            let Some(nr) = self.clock.pop_front() else { return };
            let Some(buf) = self.map.get(&nr) else { continue };
            let in_use = Arc::strong_count(buf) > 1;
            if in_use || buf.recent.swap(false, Ordering::Relaxed) || !buf.is_idle() {
                self.clock.push_back(nr);
            } else {
                self.map.remove(&nr);
            }
        }
    }

    /// Adds a buffer. Make room before, with no buffer locked.
    fn insert(&mut self, buf: &Arc<Buf>) {
        self.clock.push_back(buf.nr);
        self.map.insert(buf.nr, Arc::clone(buf));
        // Blocks forgotten and created again leave old names in the clock: drop them before they
        // pile up.
        if self.clock.len() > 2 * self.map.len() + 64 {
            let map = &self.map;
            let mut seen = std::collections::HashSet::with_capacity(map.len());
            self.clock.retain(|nr| map.contains_key(nr) && seen.insert(*nr));
        }
    }
}

/// All cached blocks of one device.
#[derive(Debug)]
pub(crate) struct BlockCache {
    dev: SharedDevice,
    block_size: BlockSize,
    /// Blocks on the volume; never fewer while it is open.
    blocks: AtomicU64,
    /// Buffers per shard.
    capacity: usize,
    shards: Vec<CachePadded<Mutex<Shard, { Rank::CacheShard as u8 }>>>,
    /// One more than the number of the block that could not be read last; 0: none.
    failed_read: AtomicU64,
}

impl BlockCache {
    pub fn new(dev: SharedDevice, block_size: BlockSize, blocks: u64, bytes: usize) -> Self {
        let capacity = (bytes / block_size.len() / SHARDS).max(8);
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Self {
            dev,
            block_size,
            blocks: blocks.into(),
            capacity,
            shards,
            failed_read: AtomicU64::new(0),
        }
    }

    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    fn shard(&self, nr: BlockNr) -> &Mutex<Shard, { Rank::CacheShard as u8 }> {
        // Fibonacci hashing spreads runs of neighbouring blocks over the shards.
        let at = (nr.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58) as usize;
        &self.shards[at % SHARDS]
    }

    pub fn in_range(&self, nr: BlockNr) -> bool {
        nr.0 < self.blocks.load(Ordering::Acquire)
    }

    /// The volume has so many blocks from now on.
    pub fn extend_to(&self, blocks: u64) {
        self.blocks.fetch_max(blocks, Ordering::AcqRel);
    }

    /// Err if it is not.
    pub fn check(&self, nr: BlockNr) -> Result<()> {
        let what = "block number past the end of the volume";
        self.in_range(nr).then_some(()).ok_or_else(|| JournalError::corrupt(what, nr.0))
    }

    /// The block, from memory or from the device.
    pub fn read(&self, nr: BlockNr) -> Result<Arc<Buf>> {
        self.check(nr)?;
        loop {
            let mut shard = self.shard(nr).lock();
            let hit = shard.map.get(&nr).map(Arc::clone);
            if let Some(buf) = hit {
                shard.hits += 1;
                drop(shard);
                // (The lock waits for its loader.)
                if !buf.loaded.load(Ordering::Acquire) && buf.state.lock().data.is_empty() {
                    // Its loader failed and is about to take it out of the map.
                    thread::yield_now();
                    continue;
                }
                if !buf.recent.load(Ordering::Relaxed) {
                    buf.recent.store(true, Ordering::Relaxed);
                }
                return Ok(buf);
            }
            shard.misses += 1;
            let buf = Arc::new(Buf::new(nr, Vec::new(), false));
            shard.make_room(self.capacity);
            let mut state = buf.state.lock();
            shard.insert(&buf);
            drop(shard);
            let mut bytes = vec![0; self.block_size.len()];
            match self.dev.read_at(&mut bytes, nr.offset(self.block_size)) {
                Ok(()) => {
                    state.data = Arc::new(bytes);
                    drop(state);
                    buf.loaded.store(true, Ordering::Release);
                    return Ok(buf);
                }
                Err(e) => {
                    drop(state);
                    self.remove(&buf);
                    crate::order::read_failed();
                    self.failed_read.store(nr.0.saturating_add(1), Ordering::Release);
                    return Err(e.into());
                }
            }
        }
    }

    /// The block that could not be read last, if it was not taken since.
    pub fn take_failed_read(&self) -> Option<BlockNr> {
        match self.failed_read.load(Ordering::Acquire) {
            0 => None,
            _ => self.failed_read.swap(0, Ordering::AcqRel).checked_sub(1).map(BlockNr),
        }
    }

    /// The block if it is in memory and loaded.
    pub fn cached(&self, nr: BlockNr) -> Option<Arc<Buf>> {
        let buf = self.shard(nr).lock().map.get(&nr).cloned()?;
        let loaded = buf.loaded.load(Ordering::Acquire) || !buf.state.lock().data.is_empty();
        loaded.then_some(buf)
    }

    /// A block whose old contents do not matter: zeros, verified.
    pub fn fresh(&self, nr: BlockNr) -> Result<Arc<Buf>> {
        self.check(nr)?;
        let buf = Arc::new(Buf::new(nr, vec![0; self.block_size.len()], true));
        let mut shard = self.shard(nr).lock();
        shard.make_room(self.capacity);
        shard.insert(&buf);
        Ok(buf)
    }

    /// Reads neighbouring blocks at once, up to the first that is in memory or past the end, no
    /// more than a small part of what fits. None of them may change meanwhile. What cannot be
    /// read is left to a later read.
    pub fn read_ahead(&self, first: BlockNr, count: u64) {
        let most = (self.capacity * SHARDS / 16) as u64;
        let wanted = (0..count.min(most)).map(|n| first.plus(n));
        // One that is in memory may be newer than the device. One that is not is as it is there
        // (BC-2).
        let absent = wanted
            .take_while(|nr| self.in_range(*nr) && !self.shard(*nr).lock().map.contains_key(nr));
        // Each into bytes of its own: they become the buffers.
        let mut blocks: Vec<Vec<u8>> = absent.map(|_| vec![0; self.block_size.len()]).collect();
        let mut bufs: Vec<IoSliceMut<'_>> =
            blocks.iter_mut().map(|block| IoSliceMut::new(block)).collect();
        let at = first.offset(self.block_size);
        if bufs.is_empty() || self.dev.read_vectored_at(&mut bufs, at).is_err() {
            return;
        }
        for (n, block) in (0..).zip(blocks) {
            let nr = first.plus(n);
            let mut shard = self.shard(nr).lock();
            if !shard.map.contains_key(&nr) {
                shard.make_room(self.capacity);
                shard.insert(&Arc::new(Buf::new(nr, block, false)));
            }
        }
    }

    /// Takes the block out of memory. Snapshots that others hold live on.
    pub fn forget(&self, nr: BlockNr) -> Option<Arc<Buf>> {
        self.shard(nr).lock().map.remove(&nr)
    }

    /// Takes blocks out of memory that are at home as they are here; false if one is not. (A
    /// thread that reads one just now keeps its own copy, which no other will see.)
    pub fn forget_clean(&self, first: BlockNr, count: u64) -> bool {
        let mut all = true;
        for nr in (0..count).map(|n| first.plus(n)) {
            let Some(buf) = self.shard(nr).lock().map.get(&nr).cloned() else { continue };
            // Waits for its reader, if it is being loaded.
            if buf.is_idle() {
                self.remove(&buf);
            } else {
                all = false;
            }
        }
        all
    }

    /// Drops every unused block that is at home as it is here.
    pub fn drop_idle(&self) {
        for shard in &self.shards {
            shard.lock().map.retain(|_, buf| Arc::strong_count(buf) > 1 || !buf.is_idle());
        }
    }

    fn remove(&self, buf: &Arc<Buf>) {
        let mut shard = self.shard(buf.nr).lock();
        if shard.map.get(&buf.nr).is_some_and(|b| Arc::ptr_eq(b, buf)) {
            shard.map.remove(&buf.nr);
        }
    }

    /// Lookups that found their block in memory, and those that did not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.shards.iter().map(|s| s.lock()).fold((0, 0), |(h, m), s| (h + s.hits, m + s.misses))
    }

    /// Blocks in memory.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().map.len()).sum()
    }
}

#[cfg(test)]
mod tests;
