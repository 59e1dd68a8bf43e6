//! The cache against a model, with everything that changes file data; and the cases that a random run does not meet.

use std::io::IoSlice;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use extol_device::{
    BlockDevice, BlockNr, BlockSize, CountingDevice, DeviceOp, Fault, FaultDevice, MemDevice, SharedDevice,
};
use extol_testkit::pipe::holding;
use extol_vfs::{Fallocate, FileSystem as _};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::{DataCache, LARGE, REGION};
use crate::mkfs::{MkfsOptions, mkfs};
use crate::path::OpenOptions;
use crate::{Ext4, File, MountOptions};

const BLOCK: usize = 4096;
const KIB: u64 = 1 << 10;

fn cache(bytes: usize) -> DataCache {
    DataCache::new(bytes, BlockSize::new(BLOCK as u32).unwrap()).unwrap()
}

fn options(data_cache: usize) -> MountOptions {
    MountOptions { data_cache: Some(data_cache), dirty_bytes: 1 << 20, ..MountOptions::default() }
}

fn open(dev: SharedDevice, data_cache: usize) -> Arc<Ext4> {
    mkfs(&*dev, &MkfsOptions::default(), &mut |_| {}).unwrap();
    Ext4::open(dev, &options(data_cache)).unwrap()
}

fn make(fs: &Arc<Ext4>, name: &str) -> File {
    fs.open_file(name, OpenOptions::new().read(true).write(true).create(true)).unwrap()
}

/// Every block that is held is as the device has it. (For moments when nothing is being written.)
fn assert_mirrors(fs: &Ext4, dev: &dyn BlockDevice) {
    let cache = fs.inner().data_cache.as_ref().unwrap();
    let block_len = 1_usize << cache.bits;
    let mut counted = 0;
    for shard in &cache.shards {
        let mut shard = shard.lock();
        for block in shard.blocks() {
            counted += 1;
            let mut there = vec![0; block_len];
            dev.read_at(&mut there, block << cache.bits).unwrap();
            assert!(shard.get(block).is_none_or(|held| held == there), "block {block} is not the device's");
        }
    }
    let words: usize = cache.regions.iter().map(|r| r.0.load(super::Ordering::Relaxed) as u32 as usize).sum();
    assert_eq!(words, counted, "blocks as the regions count them");
}

#[test]
fn a_write_that_ends_between_reading_and_putting() {
    let cache = cache(1 << 20);
    let (old, new) = ([1; BLOCK], [2; BLOCK]);
    let at = 40 * BLOCK as u64;
    let mut got = [0; BLOCK];
    // Nothing is held in the region: the write only counts.
    let ticket = cache.ticket(at, BLOCK);
    cache.wrote(at, &[IoSlice::new(&new)]);
    cache.put(at, &old, &ticket);
    assert_eq!(cache.copy(at, &mut got), 0);
    // A place is held for the block itself.
    cache.want(BlockNr(40), 1);
    let ticket = cache.ticket(at, BLOCK);
    cache.wrote(at, &[IoSlice::new(&new)]);
    cache.put(at, &old, &ticket);
    assert_eq!((cache.copy(at, &mut got), got), (BLOCK, new));
    // Another write of the region: it is not put in, but could be.
    let ticket = cache.ticket(at + BLOCK as u64, BLOCK);
    cache.gone((40 / REGION * REGION) * BLOCK as u64, 1);
    cache.put(at + BLOCK as u64, &old, &ticket);
    assert_eq!(cache.copy(at + BLOCK as u64, &mut got), 0);
    cache.put(at + BLOCK as u64, &old, &cache.ticket(at + BLOCK as u64, BLOCK));
    assert_eq!((cache.copy(at + BLOCK as u64, &mut got), got), (BLOCK, old));
}

#[test]
fn parts_of_blocks_and_large_writes() {
    let cache = cache(4 << 20);
    cache.put(0, &[1; 4 * BLOCK], &cache.ticket(0, 4 * BLOCK));
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
        cache.put(at, &[1; 16 << 10], &cache.ticket(at, 16 << 10));
        assert!(cache.stats().bytes <= 1 << 20, "{n}");
    }
    assert_eq!(cache.stats().bytes, 1 << 20);
    // A place for what is about to be written counts as if it were.
    for n in 0..4096_u64 {
        cache.want(BlockNr(100_000 + n * REGION), 1);
    }
    assert_eq!(cache.stats().bytes, 0);
    let counted = |n: u64| n as u32;
    let held: u32 = cache.regions.iter().map(|r| counted(r.0.load(super::Ordering::Relaxed))).sum();
    assert_eq!(held as usize * BLOCK, 1 << 20);
}

/// What was written in small pieces is read without the device, and so is what was read before.
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
    fs.inner().data_cache.as_ref().unwrap().forget_all();
    read(true);
    read(false);
    // Somebody who reads on for whom nothing need be read ahead.
    let (before, mut got) = (dev.stats().read_bytes, vec![0; bytes.len()]);
    let again = fs.open_file("mail", OpenOptions::new().read(true)).unwrap();
    for at in (0..got.len()).step_by(5000) {
        assert_eq!(again.read_at(&mut got[at..at + 5000], at as u64).unwrap(), 5000);
    }
    drop(again);
    assert!(got == bytes && dev.stats().read_bytes == before);
    // An append to the middle of a block needs its beginning.
    let before = dev.stats().read_bytes;
    file.write_all_at(&[7; 100], bytes.len() as u64).unwrap();
    assert_eq!(dev.stats().read_bytes, before);
    fs.unmount().unwrap();
}

/// A write that fails, and a flush: what may not be on the device is not here either.
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
        assert_mirrors(&fs, &*inner);
        let left = fs.stats().data_cache.bytes;
        assert!(op == DeviceOp::Write || left == 0, "{left} bytes are kept after a failed flush");
        let _ = fs.unmount();
    }
}

/// One file and what it should be.
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
            6 => {
                let bytes = vec![fresh; LARGE + len];
                self.file.write_all_at(&bytes, block as u64).unwrap();
                self.set(block, &bytes);
            }
            7 => {
                let bytes = vec![fresh; LARGE + len];
                let (pipe, _end) = holding(&bytes).unwrap();
                let ino = self.file.inode().ino();
                if self.fs.write_piped(ino, block as u64, pipe.as_fd(), bytes.len()).unwrap() {
                    self.set(block, &bytes);
                }
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
                self.file.allocate(Fallocate::ZeroRange { keep_size: false }, at as u64, len as u64).unwrap();
                self.set(at, &vec![0; len]);
            }
            12 => {
                self.file.allocate(Fallocate::Allocate { keep_size: false }, at as u64, len as u64).unwrap();
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

/// Threads change files of their own in every way there is; blocks go from one to the other. The cache is so small that it is
/// always full.
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
        assert_mirrors(&fs, &*dev);
        let stats = fs.stats().data_cache;
        assert!(stats.hit_bytes > 0 && stats.bytes <= size, "{stats:?}");
        fs.unmount().unwrap();
    }
}
