//! Clean file data in memory: what was read in small pieces, or written back, need not be read
//! again.
//!
//! ```text
//!   read ──► dirty page, else this cache, else the device ──► put ─┐
//!   write-back ──► want ─┐                                         ▼
//!                        ▼                                  shard ◄─── by block of the DEVICE
//!   every write ──► CachedDevice ──► device ──► wrote: what is wanted or held here gets the new bytes, or goes
//! ```
//!
//! A mount does without it (`MountOptions::kernel_caches`): there the kernel keeps the data, and
//! asks for none of it twice.
//!
//! # A mirror of the device
//!
//! Blocks are known by where they lie, not by whose they are, and whatever changes the device comes
//! by here ([`CachedDevice`]): file data from pages and from the caller's memory,
//! deferred data, zeroes, the log, metadata going home, discards. So truncating, punching, moving,
//! deleting a file, or giving its blocks to another one, is nothing this has to hear of: the file's
//! map says where its data is, and what is held for that place is what the device has there. Blocks
//! that belong to nobody any more are turned out by others in time.
//!
//! - K1: bytes come in only from the device itself: after a write of them has succeeded
//!   (`DataCache::wrote`), or by a reader (`put`). What a failed write or a discard may
//!   have left there is not known, and goes (`DataCache::gone`); after a failed flush everything
//!   does, for the kernel may have dropped what was written before it.
//! - K2: what a reader has read is not put in if a write of its place has ended since it began to
//!   read (`Ticket`; `Shelf::add`). A write that is still under way when it puts the bytes in will
//!   find them. (Two writes to one block at the same time have no order on the device either, and
//!   nobody makes them.)
//! - K3: what is newer than the device, in dirty pages or in the log, is not looked for here: pages
//!   come first, and files whose data is journalled do not come here (`read::read_mapped`).
//!   Deferred data is on the device before anybody reads it (`Cell::read`).
//! - K4: memory is at most what was asked for, beside some fifty bytes per block (`Shard::admit`).
//!
//! # What is kept
//!
//! Pieces from [`LARGE`] on pass by in both directions (what is held of their place follows them),
//! and so does a file that is read from one end to the other unless it is small
//! ([`DataCache::takes_file`]). What is written is kept as long as somebody reads: who writes file
//! after file, and nobody asks for any of them, would pay for memory that is touched for the first
//! time and for turning out what he wrote before, up to a tenth of what a small file takes. After
//! so many such blocks in a row ([`UNREAD`]) they pass by as well, until somebody looks for data.
//! For the rest see [`shard`].
//!
//! # Locks, and what a write costs
//!
//! Every write of the volume asks here, most in vain. So the blocks of the device are divided into
//! regions of [`REGION`] neighbours, and each region has a word ([`Region`]; some share one): how
//! many blocks of it are held, and how many writes have ended. One atomic addition after a write
//! notes that it has ended and says whether there is anything to do. Who puts a block in counts it
//! in the same word first and so learns, in one step, whether a write has ended: of the two one
//! always sees the other. Shards have a lock each, the last of all ranks; a region lies in one
//! shard.

mod device;
mod list;
mod shard;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use extol_block::{BlockNr, BlockSize};
use extol_sync::rank::{Mutex, Rank};
use serde::{Deserialize, Serialize};

pub(crate) use device::CachedDevice;
use shard::Shard;

/// From this many bytes on, reads and writes pass by: copying them would cost more than it saves,
/// and they would turn out much else. (As for large writes and dirty pages.)
pub(crate) const LARGE: usize = super::write::DIRECT;
/// Blocks of a region: as many as a small file has.
const REGION: u64 = 16;
/// Words for regions: with fewer than there are regions in a cache of the default size, writes
/// would often look in vain.
const REGIONS: usize = 1 << 14;
const SHARDS: usize = 16;
/// A file that is read from one end to the other comes in if so many like it had room.
const FILES: usize = 16;
/// This part of the room is filled with what was written before somebody has to look for data.
const UNREAD: usize = 8;

/// What the cache holds, and what it was good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DataCacheStats {
    /// Bytes it may hold.
    pub limit: usize,
    /// Bytes that it holds.
    pub bytes: usize,
    /// Bytes that readers found in it.
    pub hit_bytes: u64,
    /// Bytes that readers looked for in vain.
    pub miss_bytes: u64,
}

/// Upper half: writes that have ended. Lower half: blocks that are held.
#[derive(Debug, Default)]
struct Region(AtomicU64);

const ENDED: u64 = 1 << 32;

impl Region {
    fn ended(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// A write has ended. True if blocks are held here.
    fn note_write(&self) -> bool {
        self.0.fetch_add(ENDED, Ordering::AcqRel) as u32 != 0
    }

    /// One more is held; with the writes that had ended before.
    fn add(&self) -> u32 {
        (self.0.fetch_add(1, Ordering::AcqRel) >> 32) as u32
    }

    fn sub(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A reader is about to ask the device: the writes that have ended in each region that it reads.
#[derive(Debug)]
pub(crate) struct Ticket(Vec<u32>);

/// See the module's story.
pub(crate) struct DataCache {
    shards: Vec<Mutex<Shard, { Rank::DataCache as u8 }>>,
    regions: Vec<Region>,
    bits: u32,
    limit: usize,
    hit_bytes: AtomicU64,
    miss_bytes: AtomicU64,
    /// Bytes that were wanted by writers since somebody looked for data.
    unread: AtomicUsize,
}

impl std::fmt::Debug for DataCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataCache").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl DataCache {
    /// A cache of so many bytes; none if there is no room for a block in each shard.
    pub fn new(bytes: usize, block_size: BlockSize) -> Option<Self> {
        let each = bytes / SHARDS / block_size.bytes() as usize;
        (each > 0).then(|| Self {
            shards: (0..SHARDS)
                .map(|_| Mutex::new(Shard::new(each, block_size.bytes() as usize)))
                .collect(),
            regions: (0..REGIONS).map(|_| Region::default()).collect(),
            bits: block_size.bits(),
            limit: bytes,
            hit_bytes: AtomicU64::new(0),
            miss_bytes: AtomicU64::new(0),
            unread: AtomicUsize::new(0),
        })
    }

    pub fn stats(&self) -> DataCacheStats {
        let blocks: usize = self.shards.iter().map(|shard| shard.lock().filled()).sum();
        DataCacheStats {
            limit: self.limit,
            bytes: blocks << self.bits,
            hit_bytes: self.hit_bytes.load(Ordering::Relaxed),
            miss_bytes: self.miss_bytes.load(Ordering::Relaxed),
        }
    }

    /// True if a file of that size, read from one end to the other, is worth a place.
    pub fn takes_file(&self, size: u64) -> bool {
        size <= (self.limit / FILES) as u64
    }

    /// Fills the front of `to` with what is held of the device from byte `at` on. Returns how much
    /// that was.
    pub fn copy(&self, at: u64, to: &mut [u8]) -> usize {
        if self.unread.load(Ordering::Relaxed) != 0 {
            self.unread.store(0, Ordering::Relaxed);
        }
        let mut done = 0;
        for shelf in self.shelves(at, to.len()) {
            let mut shard = shelf.shard.lock();
            for block in shelf.blocks {
                let inside = ((at + done as u64) - (block << self.bits)) as usize;
                let Some(bytes) = shard.get(block) else {
                    self.count(done, to.len() - done);
                    return done;
                };
                let part = bytes.get(inside..).unwrap_or_default();
                let k = part.len().min(to.len() - done);
                to[done..done + k].copy_from_slice(&part[..k]);
                done += k;
            }
        }
        self.count(done, 0);
        done
    }

    /// True if all of this is held, so that nobody need read it ahead.
    pub fn holds(&self, at: u64, len: usize) -> bool {
        self.shelves(at, len).all(|shelf| {
            let shard = shelf.shard.lock();
            shelf.blocks.clone().all(|block| shard.is_filled(block))
        })
    }

    fn count(&self, hit: usize, miss: usize) {
        for (count, bytes) in [(&self.hit_bytes, hit), (&self.miss_bytes, miss)] {
            if bytes > 0 {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }

    /// For a reader who is about to ask the device for so many bytes.
    pub fn ticket(&self, at: u64, len: usize) -> Ticket {
        Ticket(self.shelves(at, len).map(|shelf| shelf.region.ended()).collect())
    }

    /// The reader has read these bytes, and holds the lock of the file that they are of. Blocks
    /// that are there as a whole are taken in.
    pub fn put(&self, at: u64, bytes: &[u8], ticket: &Ticket) {
        for (shelf, ended) in self.shelves(at, bytes.len()).zip(&ticket.0) {
            let mut shard = shelf.shard.lock();
            for block in shelf.blocks.clone() {
                if let Some(whole) = self.whole(block, at, bytes) {
                    shelf.add(&self.regions, &mut shard, block, Some(whole), Some(*ended));
                }
            }
        }
    }

    /// The bytes of a block, if they are all among these.
    fn whole<'a>(&self, block: u64, at: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let from = usize::try_from((block << self.bits).checked_sub(at)?).ok()?;
        bytes.get(from..from.checked_add(1 << self.bits)?)
    }

    /// File data is about to be written there, all of these blocks, in small pieces: it will be
    /// held if that succeeds, unless nobody has looked for data for long.
    pub fn want(&self, start: BlockNr, blocks: u32) {
        if self.unread.load(Ordering::Relaxed) > self.limit / UNREAD {
            return;
        }
        self.unread.fetch_add((blocks as usize) << self.bits, Ordering::Relaxed);
        for shelf in self.shelves(start.0 << self.bits, (blocks as usize) << self.bits) {
            let mut shard = shelf.shard.lock();
            for block in shelf.blocks.clone() {
                shelf.add(&self.regions, &mut shard, block, None, None);
            }
        }
    }

    /// These bytes were written at byte `at` of the device.
    fn wrote(&self, mut at: u64, bufs: &[IoSlice<'_>]) {
        for buf in bufs {
            for shelf in self.shelves(at, buf.len()).filter(|shelf| shelf.region.note_write()) {
                let mut shard = shelf.shard.lock();
                for block in shelf.blocks.clone() {
                    let start = block << self.bits;
                    let from = usize::try_from(start.saturating_sub(at))
                        .unwrap_or(usize::MAX)
                        .min(buf.len());
                    let inside = at.saturating_sub(start) as usize;
                    let k = ((1_usize << self.bits) - inside).min(buf.len() - from);
                    if !shard.update(block, inside, &buf[from..from + k]) {
                        shelf.remove(&mut shard, block);
                    }
                }
            }
            at += buf.len() as u64;
        }
    }

    /// Nobody here knows what the device has there now.
    fn gone(&self, at: u64, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        for shelf in self.shelves(at, len).filter(|shelf| shelf.region.note_write()) {
            let mut shard = shelf.shard.lock();
            for block in shelf.blocks.clone() {
                shelf.remove(&mut shard, block);
            }
        }
    }

    /// Nobody knows what the device has anywhere.
    fn forget_all(&self) {
        self.regions.iter().for_each(|region| {
            region.note_write();
        });
        for shard in &self.shards {
            let mut shard = shard.lock();
            for block in shard.blocks() {
                shard.remove(block);
                self.regions[region_of(block)].sub();
            }
        }
    }

    /// The blocks that these bytes touch, a region at a time.
    fn shelves(&self, at: u64, len: usize) -> impl Iterator<Item = Shelf<'_>> {
        let end = at.saturating_add(len as u64).div_ceil(1 << self.bits);
        let mut next = at >> self.bits;
        std::iter::from_fn(move || {
            let blocks = next..end.min((next / REGION + 1) * REGION);
            next = blocks.end;
            (!blocks.is_empty()).then(|| {
                let index = region_of(blocks.start);
                Shelf { shard: &self.shards[index % SHARDS], region: &self.regions[index], blocks }
            })
        })
    }
}

/// The word of a block's region. (A multiplication spreads files that lie side by side over words
/// and shards.)
fn region_of(block: u64) -> usize {
    ((block / REGION).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - REGIONS.trailing_zeros()))
        as usize
}

/// Neighbours in one region.
struct Shelf<'a> {
    shard: &'a Mutex<Shard, { Rank::DataCache as u8 }>,
    region: &'a Region,
    blocks: Range<u64>,
}

impl Shelf<'_> {
    /// Takes a block in, or only a place for it. `ended`: not if another number of writes has
    /// ended.
    fn add(
        &self,
        regions: &[Region],
        shard: &mut Shard,
        block: u64,
        bytes: Option<&[u8]>,
        ended: Option<u32>,
    ) {
        if shard.has(block) {
            // It is counted: a write that ends from now on waits for the shard, and finds it.
            if let Some(bytes) = bytes.filter(|_| ended.is_none_or(|n| n == self.region.ended())) {
                shard.fill(block, bytes);
            }
            return;
        }
        let before = self.region.add();
        if ended.is_some_and(|n| n != before) {
            self.region.sub();
            return;
        }
        if let Some(out) = shard.admit(block, bytes) {
            regions[region_of(out)].sub();
        }
    }

    fn remove(&self, shard: &mut Shard, block: u64) {
        if shard.remove(block) {
            self.region.sub();
        }
    }
}
