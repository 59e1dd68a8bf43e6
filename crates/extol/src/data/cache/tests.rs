//! The cache against a model, with every operation that changes file data; and cases that a random
//! run does not meet.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extol_block::{
    BlockDevice, BlockNr, BlockSize, DeviceError, DeviceOp, MemDevice, Result, ScatteredWrite,
    SharedDevice,
};
use extol_devices::{CountingDevice, Fault, FaultDevice};
use extol_vfs::{Fallocate, FileSystem as _};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::{CachedDevice, DataCache, LARGE, REGION};
use crate::mkfs::{MkfsOptions, mkfs};
use crate::path::OpenOptions;
use crate::{Ext4, File, MountOptions};

const BLOCK: usize = 4096;
const KIB: u64 = 1 << 10;

fn cache(bytes: usize) -> DataCache {
    DataCache::new(bytes, BlockSize::new(BLOCK as u32).unwrap()).unwrap()
}

fn options(data_cache: usize) -> MountOptions {
    let mut options = MountOptions::default();
    options.cache.data = Some(data_cache);
    options.data.dirty_bytes = 1 << 20;
    options
}

fn open(dev: SharedDevice, data_cache: usize) -> Arc<Ext4> {
    mkfs(&*dev, &MkfsOptions::default(), &mut |_| {}).unwrap();
    Ext4::open(dev, &options(data_cache)).unwrap()
}

fn make(fs: &Arc<Ext4>, name: &str) -> File {
    fs.open_file(name, OpenOptions::new().read(true).write(true).create(true)).unwrap()
}

fn cache_of(fs: &Ext4) -> &DataCache {
    fs.inner().data_cache.as_ref().unwrap()
}

/// PC-1: every held block equals the device's. (While no write is under way.)
fn assert_mirrors(cache: &DataCache, dev: &dyn BlockDevice) {
    let block_len = 1_usize << cache.bits;
    let mut counted = 0;
    for shard in &cache.shards {
        let mut shard = shard.lock();
        for block in shard.blocks() {
            counted += 1;
            let mut there = vec![0; block_len];
            dev.read_at(&mut there, block << cache.bits).unwrap();
            assert!(
                shard.get(block).is_none_or(|held| held == there),
                "block {block} is not the device's"
            );
        }
    }
    let words: usize =
        cache.regions.iter().map(|r| r.0.load(Ordering::Relaxed) as u32 as usize).sum();
    assert_eq!(words, counted, "blocks as the regions count them");
}

/// Written blocks are held before anything reads them, and follow the device.
#[test]
fn written_blocks_are_held() {
    const FILES: u64 = 64;
    let limit = 2 * FILES as usize * BLOCK;
    let dev: SharedDevice = Arc::new(MemDevice::new(64 << 20));
    let fs = open(Arc::clone(&dev), limit);
    let write = |name: &str, byte: u8| {
        let file = make(&fs, name);
        file.write_at(&[byte; BLOCK], 0).unwrap();
        file.sync_data().unwrap();
        file
    };
    let first = write("/f0", 1);
    let _files: Vec<File> = (1..FILES).map(|i| write(&format!("/f{i}"), 1)).collect();
    let kept = fs.stats().data_cache.bytes;
    assert!(kept >= FILES as usize * BLOCK, "{kept} of {limit}");
    first.write_at(&[2; BLOCK], 0).unwrap();
    first.sync_data().unwrap();
    let mut got = [0; BLOCK];
    let hits = fs.stats().data_cache.hit_bytes;
    assert_eq!((first.read_at(&mut got, 0).unwrap(), got), (BLOCK, [2; BLOCK]));
    assert_eq!(fs.stats().data_cache.hit_bytes, hits + BLOCK as u64);
    assert_mirrors(cache_of(&fs), &*dev);
    let more = write("/more", 3);
    assert_eq!((more.read_at(&mut got, 0).unwrap(), got), (BLOCK, [3; BLOCK]));
    assert_eq!(fs.stats().data_cache.hit_bytes, hits + 2 * BLOCK as u64);
}

#[test]
fn a_write_that_ends_between_reading_and_putting() {
    let cache = cache(1 << 20);
    let (old, new) = ([1; BLOCK], [2; BLOCK]);
    let at = 40 * BLOCK as u64;
    let mut got = [0; BLOCK];
    // No block of the region is held: the write only counts.
    let counts = cache.write_counts(at, BLOCK);
    cache.wrote(at, &[IoSlice::new(&new)]);
    cache.insert(at, &old, &counts);
    assert_eq!(cache.copy(at, &mut got), 0);
    // The block itself has a slot.
    cache.prepare(BlockNr(40), 1);
    let counts = cache.write_counts(at, BLOCK);
    cache.wrote(at, &[IoSlice::new(&new)]);
    cache.insert(at, &old, &counts);
    assert_eq!((cache.copy(at, &mut got), got), (BLOCK, new));
    // A write elsewhere in the region prevents this insert, but not the next.
    let counts = cache.write_counts(at + BLOCK as u64, BLOCK);
    cache.invalidate((40 / REGION * REGION) * BLOCK as u64, 1);
    cache.insert(at + BLOCK as u64, &old, &counts);
    assert_eq!(cache.copy(at + BLOCK as u64, &mut got), 0);
    cache.insert(at + BLOCK as u64, &old, &cache.write_counts(at + BLOCK as u64, BLOCK));
    assert_eq!((cache.copy(at + BLOCK as u64, &mut got), got), (BLOCK, old));
}

#[test]
fn parts_of_blocks_and_large_writes() {
    let cache = cache(4 << 20);
    cache.insert(0, &[1; 4 * BLOCK], &cache.write_counts(0, 4 * BLOCK));
    cache.wrote(100, &[IoSlice::new(&[2; 50]), IoSlice::new(&[3; BLOCK])]);
    let mut got = vec![0; 4 * BLOCK];
    assert_eq!(cache.copy(0, &mut got), 4 * BLOCK);
    let mut want = vec![1; 4 * BLOCK];
    want[100..150].fill(2);
    want[150..150 + BLOCK].fill(3);
    assert_eq!(got, want);
    assert_eq!(cache.copy(BLOCK as u64 + 7, &mut got[..BLOCK]), BLOCK);
    assert_eq!(got[..BLOCK], want[BLOCK + 7..2 * BLOCK + 7]);
    cache.wrote(0, &[IoSlice::new(&vec![4; LARGE])]);
    assert_eq!(cache.copy(0, &mut got), got.len());
    assert_eq!(got, [4; 4 * BLOCK]);
    assert_eq!(cache.stats().bytes, got.len(), "the rest of a large write passes by");
}

#[test]
fn memory_is_bounded() {
    let cache = cache(1 << 20);
    for n in 0..4096_u64 {
        let at = n * 16 * KIB;
        cache.insert(at, &[1; 16 << 10], &cache.write_counts(at, 16 << 10));
        assert!(cache.stats().bytes <= 1 << 20, "{n}");
    }
    assert_eq!(cache.stats().bytes, 1 << 20);
    // A slot for a block about to be written counts.
    for n in 0..4096_u64 {
        cache.prepare(BlockNr(100_000 + n * REGION), 1);
    }
    assert_eq!(cache.stats().bytes, 0);
    let counted = |n: u64| n as u32;
    let held: u32 = cache.regions.iter().map(|r| counted(r.0.load(Ordering::Relaxed))).sum();
    assert_eq!(held as usize * BLOCK, 1 << 20);
}

/// A device that writes half of a request that fails, and other bytes into what it discards.
#[derive(Debug)]
struct Torn {
    inner: MemDevice,
    fails: AtomicBool,
}

impl Torn {
    /// Writes all bytes, or half.
    fn put(&self, op: DeviceOp, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.fails.load(Ordering::Relaxed) {
            return self.inner.write_at(bytes, offset);
        }
        self.inner.write_at(&bytes[..bytes.len() / 2], offset)?;
        Err(DeviceError::new(op, offset, bytes.len() as u64, io::Error::other("torn")))
    }
}

impl BlockDevice for Torn {
    extol_block::pass_on!(shape, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.put(DeviceOp::Write, buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.put(DeviceOp::Flush, &[], 0)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.put(DeviceOp::Discard, &vec![0xDD; len as usize], offset)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.put(DeviceOp::Zero, &vec![0; len as usize], offset)
    }
}

/// PC-1 with every way to change the device, successful or not. A failure that may have lost
///      earlier
/// writes leaves no block.
#[test]
fn every_change_updates_the_cache() {
    type Change = fn(&CachedDevice, &[u8], u64) -> Result<()>;
    // Name, change, and whether its failure concerns only its own range.
    let changes: [(&str, Change, bool); 8] = [
        ("write", |dev, buf, at| dev.write_at(buf, at), true),
        ("vectored", |dev, buf, at| dev.write_vectored_at(&[IoSlice::new(buf)], at), true),
        (
            "scattered",
            |dev, buf, at| {
                let (front, back) = buf.split_at(2 * BLOCK);
                let (front, back) = ([IoSlice::new(front)], [IoSlice::new(back)]);
                let behind = ScatteredWrite { offset: at + 2 * BLOCK as u64, bufs: &back };
                dev.write_scattered(&[ScatteredWrite { offset: at, bufs: &front }, behind])
            },
            true,
        ),
        ("FUA", |dev, buf, at| dev.write_fua(buf, at), false),
        ("mark", |dev, buf, at| dev.write_mark(buf, at), true),
        ("flush", |dev, _, _| dev.flush(), false),
        ("discard", |dev, buf, at| dev.discard(at, buf.len() as u64), true),
        ("zeros", |dev, buf, at| dev.zero_range(at, buf.len() as u64), true),
    ];
    let len = 10 * BLOCK;
    for ((name, change, alone), fails) in changes.iter().flat_map(|c| [(c, false), (c, true)]) {
        let torn = Arc::new(Torn { inner: MemDevice::new(64 * BLOCK as u64), fails: false.into() });
        let cache = Arc::new(cache(1 << 20));
        let dev = CachedDevice::new(Arc::clone(&torn) as _, Arc::clone(&cache));
        let all = vec![1; 64 * BLOCK];
        dev.write_at(&all, 0).unwrap();
        cache.insert(0, &all, &cache.write_counts(0, all.len()));
        assert_eq!(cache.stats().bytes, all.len());
        torn.fails.store(fails, Ordering::Relaxed);
        // In the middle of regions.
        assert_eq!(change(&dev, &vec![2; len], 13 * BLOCK as u64).is_err(), fails, "{name}");
        println!("{name}, fails: {fails}: {} bytes", cache.stats().bytes);
        assert_mirrors(&cache, &torn.inner);
        let left = cache.stats().bytes;
        let expected = if fails && !alone { 0..=0 } else { all.len() - len..=all.len() };
        assert!(expected.contains(&left), "{name}, fails: {fails}: {left} bytes are left");
    }
}

/// Makes a write after the device has answered a read and before the read returns.
#[derive(Debug)]
struct WriteBehindRead {
    inner: MemDevice,
    /// Device, offset and bytes of that write.
    write: extol_sync::plain::Mutex<Option<(SharedDevice, u64, Vec<u8>)>>,
}

impl BlockDevice for WriteBehindRead {
    extol_block::pass_on!(shape, abilities);

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        match self.write.lock().take() {
            Some((dev, at, bytes)) => dev.write_at(&bytes, at),
            None => Ok(()),
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.zero_range(offset, len)
    }
}

/// PC-2: bytes read before a write of the same place (such as a checkpoint) are not cached.
#[test]
fn a_write_beside_a_read() {
    for (from, len) in [(0, BLOCK), (100, 50)] {
        let dev = Arc::new(WriteBehindRead {
            inner: MemDevice::new(64 << 20),
            write: Default::default(),
        });
        let fs = open(Arc::clone(&dev) as SharedDevice, 8 << 20);
        let file = make(&fs, "file");
        file.write_all_at(&[1; BLOCK], 0).unwrap();
        file.sync_all().unwrap();
        let place = fs.fiemap(file.inode().ino(), 0, u64::MAX).unwrap()[0].physical;
        cache_of(&fs).invalidate_all();
        *dev.write.lock() = Some((Arc::clone(&fs.inner().vol.dev), place, vec![2; BLOCK]));
        let mut got = vec![0; len];
        assert_eq!(file.read_at(&mut got, from).unwrap(), len);
        assert!(dev.write.lock().is_none(), "it was read from the device");
        assert_mirrors(cache_of(&fs), &dev.inner);
        assert_eq!(file.read_at(&mut got, from).unwrap(), len);
        assert!(got == vec![2; len], "{from}: {}", got[0]);
        fs.unmount().unwrap();
    }
}

/// Small writes and small reads are read again without the device.
#[test]
fn no_second_read() {
    let dev = Arc::new(CountingDevice::new(MemDevice::new(64 << 20)));
    let fs = open(Arc::clone(&dev) as SharedDevice, 8 << 20);
    let bytes: Vec<u8> = (0..50_000_u32).map(|n| n as u8).collect();
    let file = make(&fs, "mail");
    file.write_all_at(&bytes, 0).unwrap();
    file.sync_all().unwrap();
    let read = |expected: bool| {
        let before = dev.stats().read_bytes;
        let mut got = vec![0; 100_000];
        assert_eq!(file.read_at(&mut got, 0).unwrap(), bytes.len());
        assert_eq!(got[..bytes.len()], bytes);
        assert_eq!(dev.stats().read_bytes > before, expected);
    };
    read(false);
    cache_of(&fs).invalidate_all();
    read(true);
    read(false);
    // Sequential reads of held data need no readahead.
    let (before, mut got) = (dev.stats().read_bytes, vec![0; bytes.len()]);
    let again = fs.open_file("mail", OpenOptions::new().read(true)).unwrap();
    for at in (0..got.len()).step_by(5000) {
        assert_eq!(again.read_at(&mut got[at..at + 5000], at as u64).unwrap(), 5000);
    }
    drop(again);
    assert!(got == bytes && dev.stats().read_bytes == before);
    // An append inside a block needs the block's beginning.
    let before = dev.stats().read_bytes;
    file.write_all_at(&[7; 100], bytes.len() as u64).unwrap();
    assert_eq!(dev.stats().read_bytes, before);
    fs.unmount().unwrap();
}

/// PC-1 after a failed write and after a failed flush.
#[test]
fn failures_leave_nothing_behind() {
    for op in [DeviceOp::Write, DeviceOp::Flush] {
        let inner = Arc::new(MemDevice::new(64 << 20));
        let dev = Arc::new(FaultDevice::new(Arc::clone(&inner), []));
        let fs = open(Arc::clone(&dev) as SharedDevice, 8 << 20);
        let file = make(&fs, "file");
        file.write_all_at(&[1; 10 * BLOCK], 0).unwrap();
        file.sync_all().unwrap();
        assert!(fs.stats().data_cache.bytes >= 10 * BLOCK);
        dev.arm(Fault::from_then_on(op, 0));
        file.write_all_at(&[2; 10 * BLOCK], 0).unwrap();
        file.sync_all().unwrap_err();
        assert_mirrors(cache_of(&fs), &*inner);
        let left = fs.stats().data_cache.bytes;
        assert!(op == DeviceOp::Write || left == 0, "{left} bytes are kept after a failed flush");
        let _ = fs.unmount();
    }
}

/// A file and its expected contents.
struct Modelled<'a> {
    fs: &'a Arc<Ext4>,
    name: String,
    file: File,
    model: Vec<u8>,
    rng: SmallRng,
}

impl<'a> Modelled<'a> {
    fn new(fs: &'a Arc<Ext4>, name: String, seed: u64) -> Self {
        let file = make(fs, &name);
        Self { fs, name, file, model: Vec::new(), rng: SmallRng::seed_from_u64(seed) }
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[at..end].copy_from_slice(bytes);
    }

    fn step(&mut self) {
        let most = 700 << 10;
        let at = self.rng.random_range(0..most);
        let block = at / BLOCK * BLOCK;
        let len = self.rng.random_range(1..3 * BLOCK);
        let fresh = self.rng.random_range(1..=255_u8);
        match self.rng.random_range(0..24) {
            0..6 => {
                self.file.write_all_at(&vec![fresh; len], at as u64).unwrap();
                self.set(at, &vec![fresh; len]);
            }
            6 | 7 => {
                let bytes = vec![fresh; LARGE + len];
                self.file.write_all_at(&bytes, block as u64).unwrap();
                self.set(block, &bytes);
            }
            8 => {
                self.file.set_len(at as u64).unwrap();
                self.model.resize(at, 0);
            }
            9 | 10 => {
                self.file.allocate(Fallocate::PunchHole, at as u64, len as u64).unwrap();
                let end = (at + len).min(self.model.len());
                self.model[at.min(end)..end].fill(0);
            }
            11 => {
                self.file
                    .allocate(Fallocate::ZeroRange { keep_size: false }, at as u64, len as u64)
                    .unwrap();
                self.set(at, &vec![0; len]);
            }
            12 => {
                self.file
                    .allocate(Fallocate::Allocate { keep_size: false }, at as u64, len as u64)
                    .unwrap();
                let end = self.model.len().max(at + len);
                self.model.resize(end, 0);
            }
            13 if block + BLOCK < self.model.len() => {
                self.file.allocate(Fallocate::CollapseRange, block as u64, BLOCK as u64).unwrap();
                self.model.drain(block..block + BLOCK);
            }
            14 if block < self.model.len() => {
                self.file.allocate(Fallocate::InsertRange, block as u64, BLOCK as u64).unwrap();
                self.model.splice(block..block, vec![0; BLOCK]);
            }
            15 => {
                self.fs.remove_file(&self.name).unwrap();
                self.file = make(self.fs, &self.name);
                self.model.clear();
            }
            16 | 17 => self.file.sync_data().unwrap(),
            _ => {
                let len = if self.rng.random_range(0..8) == 0 { 2 * LARGE } else { len };
                self.compare(at, len);
            }
        }
    }

    fn compare(&self, at: usize, len: usize) {
        let mut got = vec![0; len];
        let n = self.file.read_at(&mut got, at as u64).unwrap();
        let end = (at + len).min(self.model.len());
        let want = &self.model[at.min(end)..end];
        assert_eq!(n, want.len(), "length at {at}");
        if let Some(wrong) = (0..n).find(|i| got[*i] != want[*i]) {
            panic!("{} byte {}: {} for {}", self.name, at + wrong, got[wrong], want[wrong]);
        }
    }
}

/// Threads change files of their own in every way; blocks pass from one file to another. The
/// smaller caches are always full.
#[test]
fn never_older_than_the_last_write() {
    for (seed, size) in [(1, 256 << 10), (2, 2 << 20), (3, 64 << 20)] {
        let dev = Arc::new(MemDevice::new(24 << 20));
        let fs = open(Arc::clone(&dev) as SharedDevice, size);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let fs = &fs;
                scope.spawn(move || {
                    let mut file = Modelled::new(fs, format!("f{thread}"), seed * 100 + thread);
                    for step in 0..400 {
                        file.step();
                        if step % 50 == 0 {
                            file.compare(0, file.model.len());
                        }
                    }
                    file.compare(0, file.model.len());
                });
            }
        });
        fs.sync().unwrap();
        assert_mirrors(cache_of(&fs), &*dev);
        let stats = fs.stats().data_cache;
        assert!(stats.hit_bytes > 0 && stats.bytes <= size, "{stats:?}");
        fs.unmount().unwrap();
    }
}
