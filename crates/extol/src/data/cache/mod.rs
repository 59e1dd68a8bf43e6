//! Data cache: clean file data that small reads and writes left in memory.
//!
//! ```text
//!   read ──► dirty page, else this cache, else the device ──► insert ─┐
//!   writeback ──► prepare ─┐                                          ▼
//!                          ▼                                  shard ◄─── by block of the DEVICE
//!   every write ──► CachedDevice ──► device ──► updates prepared and held blocks, or drops them
//! ```
//!
//! A mount does without it (`CacheOptions::kernel_caches`): there the kernel's page cache holds the
//! data.
//!
//! # A mirror of the device
//!
//! The key is the block of the device, not inode and offset, and every change of the device passes
//! by ([`CachedDevice`]): file data from pages and from the caller's memory, deferred data, zeroes,
//! the log, metadata in place, discards. So truncating, punching, moving or deleting a file, or
//! giving its blocks to another one, invalidates nothing here: the file's map names the blocks, and
//! the cache holds the device's bytes. Blocks of no file are evicted in time.
//!
//! Invariants
//! - PC-1: bytes come only from the device: after a successful write of them (`DataCache::wrote`)
//!   or from a read (`insert`). A failed write or a discard leaves unknown bytes, so its
//!   blocks are dropped (`DataCache::invalidate`); a failed flush drops all, since the kernel may
//!   have lost earlier writes.
//! - PC-2: bytes read are not inserted if a write of their place has ended since the read began
//!   (`WriteCounts`; `RegionBlocks::add`). A write under way at the insert updates them when it
//!   ends. (Two concurrent writes of one block have no order on the device either; no caller makes
//!   them.)
//! - PC-3: data newer than the device, in dirty pages or in the log, is not looked up here: pages
//!   come first, and files with journalled data do not use the cache (`read::read_mapped`).
//!   Deferred data is on the device before a reader gets the inode's lock (`Cell::read`).
//! - PC-4: memory stays within the limit, beside some fifty bytes per block (`Shard::admit`).
//!
//! # What is kept
//!
//! Reads and writes from [`LARGE`] on bypass the cache (blocks that it holds are updated), and so
//! does sequential reading of a large file ([`DataCache::takes_file`]). For eviction see [`shard`].
//!
//! # Cost of a write, and locking
//!
//! Every write of the volume passes by, and most touch no held block. So the device is divided into
//! regions of [`REGION`] blocks, and each region has a word ([`Region`]; some share one): blocks
//! held, and writes ended. After a write, one atomic addition counts it and shows whether blocks
//! are held. An insert counts its block in the same word and so learns whether a write has ended:
//! of the two, one always sees the other. Each shard has a lock, the last of all ranks; a region
//! lies in one shard.

mod device;
mod shard;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{BlockNr, BlockSize};
use extol_sync::rank::{Mutex, Rank};
use serde::{Deserialize, Serialize};

pub(crate) use device::CachedDevice;
use shard::Shard;

/// From this many bytes on, reads and writes bypass the cache, and whole blocks that are written
/// also the dirty pages: a copy costs more than it saves, and they would evict much else.
pub(crate) const LARGE: usize = 256 * 1024;
/// Blocks of a region: the size of a small file.
const REGION: u64 = 16;
/// Words for regions: at least as many as a cache of the default size holds regions, so few writes
/// lock a shard in vain.
const REGIONS: usize = 1 << 14;
const SHARDS: usize = 16;
/// A file that is read sequentially is kept if so many of its size fit.
const FILES: usize = 16;

/// Figures of the data cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DataCacheStats {
    /// Limit in bytes.
    pub limit: usize,
    /// Bytes held.
    pub bytes: usize,
    /// Bytes that reads found in it.
    pub hit_bytes: u64,
    /// Bytes that reads did not find.
    pub miss_bytes: u64,
}

/// Upper half: writes that have ended. Lower half: blocks held.
#[derive(Debug, Default)]
struct Region(AtomicU64);

const ENDED: u64 = 1 << 32;

impl Region {
    fn ended(&self) -> u32 {
        (self.0.load(Ordering::Acquire) >> 32) as u32
    }

    /// Counts an ended write. True if blocks are held here.
    fn note_write(&self) -> bool {
        self.0.fetch_add(ENDED, Ordering::AcqRel) as u32 != 0
    }

    /// Counts a block to be held; returns the writes that have ended.
    fn add(&self) -> u32 {
        (self.0.fetch_add(1, Ordering::AcqRel) >> 32) as u32
    }

    fn sub(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Ended writes of each region of a read, from before the read (PC-2).
#[derive(Debug)]
pub(crate) struct WriteCounts(Vec<u32>);

/// The data cache of one volume. See the module.
pub(crate) struct DataCache {
    shards: Vec<Mutex<Shard, { Rank::DataCache as u8 }>>,
    regions: Vec<Region>,
    bits: u32,
    limit: usize,
    hit_bytes: AtomicU64,
    miss_bytes: AtomicU64,
}

impl std::fmt::Debug for DataCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataCache").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl DataCache {
    /// A cache of so many bytes; `None` if a shard has no room for a block.
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

    /// True if a file of that size is kept when it is read sequentially.
    pub fn takes_file(&self, size: u64) -> bool {
        size <= (self.limit / FILES) as u64
    }

    /// Fills the front of `to` with held bytes of the device from `at` on. Returns how many.
    pub fn copy(&self, at: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        for part in self.regions_of(at, to.len()) {
            let mut shard = part.shard.lock();
            for block in part.blocks {
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

    /// True if all these bytes are held, so that readahead can skip them.
    pub fn holds(&self, at: u64, len: usize) -> bool {
        self.regions_of(at, len).all(|part| {
            let shard = part.shard.lock();
            part.blocks.clone().all(|block| shard.is_filled(block))
        })
    }

    fn count(&self, hit: usize, miss: usize) {
        for (count, bytes) in [(&self.hit_bytes, hit), (&self.miss_bytes, miss)] {
            if bytes > 0 {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        }
    }

    /// To be taken before a read of these bytes of the device.
    pub fn write_counts(&self, at: u64, len: usize) -> WriteCounts {
        WriteCounts(self.regions_of(at, len).map(|part| part.region.ended()).collect())
    }

    /// Inserts whole blocks of bytes that were read, with the lock of their file held.
    pub fn insert(&self, at: u64, bytes: &[u8], counts: &WriteCounts) {
        for (part, ended) in self.regions_of(at, bytes.len()).zip(&counts.0) {
            let mut shard = part.shard.lock();
            for block in part.blocks.clone() {
                if let Some(whole) = self.whole(block, at, bytes) {
                    part.add(&self.regions, &mut shard, block, Some(whole), Some(*ended));
                }
            }
        }
    }

    /// The bytes of a block, if they are all among these.
    fn whole<'a>(&self, block: u64, at: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let from = usize::try_from((block << self.bits).checked_sub(at)?).ok()?;
        bytes.get(from..from.checked_add(1 << self.bits)?)
    }

    /// Small writes of all these blocks are about to begin: their bytes are held once they succeed.
    pub fn prepare(&self, start: BlockNr, blocks: u32) {
        for part in self.regions_of(start.0 << self.bits, (blocks as usize) << self.bits) {
            let mut shard = part.shard.lock();
            for block in part.blocks.clone() {
                part.add(&self.regions, &mut shard, block, None, None);
            }
        }
    }

    /// These bytes were written at byte `at` of the device.
    fn wrote(&self, mut at: u64, bufs: &[IoSlice<'_>]) {
        for buf in bufs {
            for part in self.regions_of(at, buf.len()).filter(|part| part.region.note_write()) {
                let mut shard = part.shard.lock();
                for block in part.blocks.clone() {
                    let start = block << self.bits;
                    let from = usize::try_from(start.saturating_sub(at))
                        .unwrap_or(usize::MAX)
                        .min(buf.len());
                    let inside = at.saturating_sub(start) as usize;
                    let k = ((1_usize << self.bits) - inside).min(buf.len() - from);
                    if !shard.update(block, inside, &buf[from..from + k]) {
                        part.remove(&mut shard, block);
                    }
                }
            }
            at += buf.len() as u64;
        }
    }

    /// The device's bytes there are unknown.
    fn invalidate(&self, at: u64, len: u64) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        for part in self.regions_of(at, len).filter(|part| part.region.note_write()) {
            let mut shard = part.shard.lock();
            for block in part.blocks.clone() {
                part.remove(&mut shard, block);
            }
        }
    }

    /// All bytes of the device are unknown.
    fn invalidate_all(&self) {
        self.regions.iter().for_each(|region| {
            region.note_write();
        });
        for shard in &self.shards {
            let mut shard = shard.lock();
            for block in shard.blocks() {
                self.regions[region_of(block)].sub();
            }
            shard.clear();
        }
    }

    /// The blocks that these bytes touch, by region.
    fn regions_of(&self, at: u64, len: usize) -> impl Iterator<Item = RegionBlocks<'_>> {
        let end = at.saturating_add(len as u64).div_ceil(1 << self.bits);
        let mut next = at >> self.bits;
        std::iter::from_fn(move || {
            let blocks = next..end.min((next / REGION + 1) * REGION);
            next = blocks.end;
            (!blocks.is_empty()).then(|| {
                let index = region_of(blocks.start);
                RegionBlocks {
                    shard: &self.shards[index % SHARDS],
                    region: &self.regions[index],
                    blocks,
                }
            })
        })
    }
}

/// The word of a block's region. (The multiplication spreads neighbouring files over words and
/// shards.)
fn region_of(block: u64) -> usize {
    ((block / REGION).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - REGIONS.trailing_zeros()))
        as usize
}

/// Neighbouring blocks in one region.
struct RegionBlocks<'a> {
    shard: &'a Mutex<Shard, { Rank::DataCache as u8 }>,
    region: &'a Region,
    blocks: Range<u64>,
}

impl RegionBlocks<'_> {
    /// Inserts a block, or a place for its bytes. With `ended`: only if as many writes have ended
    /// (PC-2).
    fn add(
        &self,
        regions: &[Region],
        shard: &mut Shard,
        block: u64,
        bytes: Option<&[u8]>,
        ended: Option<u32>,
    ) {
        if shard.has(block) {
            // It is counted: a write that ends later waits for the shard and finds it.
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
