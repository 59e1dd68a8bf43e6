//! Write-back of many small files: few writes, each file as it was written, and after a crash as a
//! whole or not at all.

mod common;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use extol::vfs::{FileSystem, FsError};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice, DeviceOp, MemDevice, Result, ScatteredWrite};
use extol_devices::{Event, Fault, FaultDevice, RecordingDevice};
use parking_lot::Mutex;

const MIB: usize = 1 << 20;
const FILES: usize = 200;
/// What every file begins with.
const MARK: &[u8] = b"the beginning of a file";

/// Between 1 byte and 24 KB, so that ends lie anywhere in a block.
fn bytes(n: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..1 + n * 7919 % 24_000).map(|i| (i * 31 + n * 7 + 1) as u8 | 1).collect();
    let mark = MARK.len().min(bytes.len());
    bytes[..mark].copy_from_slice(&MARK[..mark]);
    bytes
}

fn contents(fs: &Ext4, ino: u32) -> Vec<u8> {
    let size = fs.getattr(ino).unwrap().size;
    let mut all = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut all).unwrap(), all.len());
    all
}

fn make(fs: &Ext4, home: u32) -> Vec<u32> {
    let put = |n| {
        let ino = file(fs, home, &format!("{n}"));
        let data = bytes(n);
        assert_eq!(fs.write(ino, 0, &data), Ok(data.len()));
        ino
    };
    (0..FILES).map(put).collect()
}

fn recorded(mkfs: &[&str], options: &str) -> (Arc<RecordingDevice>, Arc<Ext4>) {
    let dev =
        Arc::new(RecordingDevice::new(image("64M", &[&["-t", "ext4"], mkfs].concat()).snapshot()));
    let fs = Ext4::open(Arc::clone(&dev) as _, &MountOptions::parse(options).unwrap()).unwrap();
    (dev, fs)
}

/// Which events a crash keeps: none, all, or some.
fn keep(pattern: u64, i: usize) -> bool {
    match pattern {
        0 => false,
        1 => true,
        _ => {
            (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_mul(pattern * 2 + 1) >> 63 == 1
        }
    }
}

/// Waits until the oldest of what is dirty has been written back, with `dirty_mb=1`.
fn wait_for_room(fs: &Ext4) {
    let patience = Instant::now() + Duration::from_secs(60);
    while fs.stats().dirty_bytes > MIB / 8 * 3 {
        assert!(Instant::now() < patience, "{} bytes", fs.stats().dirty_bytes);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes of file data among these events.
fn data_writes(events: &[Event]) -> usize {
    let is_data = |event: &&Event| match event {
        Event::Write { data, .. } => data.starts_with(MARK),
        _ => false,
    };
    events.iter().filter(is_data).count()
}

#[test]
fn small_files_share_writes_and_others_go_alone() {
    for block in ["1024", "4096"] {
        let (dev, fs) = recorded(&["-b", block], "");
        let home = dir(&fs, fs.root(), "d");
        let inodes = make(&fs, home);
        let mut expected: Vec<Vec<u8>> = (0..FILES).map(bytes).collect();
        // A hole, a long one, and one without its beginning.
        fs.write(inodes[10], 100_000, b"behind a hole").unwrap();
        expected[10].resize(100_000, 0);
        expected[10].extend(b"behind a hole");
        expected[50] = vec![3; 150_000];
        fs.write(inodes[50], 0, &expected[50]).unwrap();
        fs.write(inodes[90], 60_000, b"nothing but this").unwrap();
        expected[90].resize(60_000, 0);
        expected[90].extend(b"nothing but this");
        let before = dev.position();
        fs.sync().unwrap();
        assert_eq!(fs.stats().dirty_bytes, 0);
        let writes = data_writes(&dev.log()[before..]);
        assert!((1..=20).contains(&writes), "{block}: {writes} writes for {FILES} files");
        // Blocks that are there already are no matter for a row.
        for n in [20, 21, 22] {
            expected[n][..5].copy_from_slice(b"other");
            fs.write(inodes[n], 0, b"other").unwrap();
        }
        fs.sync().unwrap();
        for (n, ino) in inodes.iter().enumerate() {
            assert!(contents(&fs, *ino) == expected[n], "{block}: file {n}");
        }
        let stats = fs.stats();
        assert_eq!((stats.dirty_bytes, stats.reserved_blocks), (0, 0), "{block}");
        fs.unmount().unwrap();
        let dev = Arc::new(dev.current());
        assert_clean(&dev, block);
        let fs = open(&dev, "");
        for (n, ino) in inodes.iter().enumerate() {
            assert!(contents(&fs, *ino) == expected[n], "{block}: file {n} after a mount");
        }
        fs.unmount().unwrap();
    }
}

/// What went out in a row is found in memory, as what went alone.
#[test]
fn rows_stay_in_memory() {
    let (_dev, fs) = recorded(&[], "");
    let home = dir(&fs, fs.root(), "d");
    let inodes = make(&fs, home);
    fs.sync().unwrap();
    for (n, ino) in inodes.iter().enumerate() {
        assert!(contents(&fs, *ino) == bytes(n), "file {n}");
    }
    let all: usize = (0..FILES).map(|n| bytes(n).len()).sum();
    let stats = fs.stats().data_cache;
    assert!(stats.hit_bytes as usize > all / 10 * 9, "{stats:?} of {all}");
}

/// Crashes at each of these points: a file is empty, or it is whole. Gives how many files were
/// whole, in all.
fn whole_files(dev: &RecordingDevice, cuts: &[usize]) -> usize {
    let mut whole = 0;
    for &cut in cuts {
        for kept in 0..4 {
            let after = Arc::new(dev.image_at(cut, |i| keep(kept, i)));
            let fs = open(&after, "");
            for n in 0..FILES {
                let Ok(home) = fs.lookup(fs.root(), b"d") else { continue };
                let Ok(found) = fs.lookup(home.id.ino, format!("{n}").as_bytes()) else { continue };
                let data = contents(&fs, found.id.ino);
                assert!(
                    data.is_empty() || data == bytes(n),
                    "file {n} after a crash at {cut}, {kept}"
                );
                whole += usize::from(!data.is_empty());
            }
            fs.unmount().unwrap();
            if Some(&cut) == cuts.last() {
                assert_clean(&after, "after a crash");
            }
        }
    }
    whole
}

/// Whatever of the writes since the last flush is on the medium: a file is empty, or it is whole.
#[test]
fn a_crash_leaves_whole_files() {
    let (dev, fs) = recorded(&[], "");
    let home = dir(&fs, fs.root(), "d");
    make(&fs, home);
    let begin = dev.position();
    fs.sync().unwrap();
    let end = dev.position();
    let cuts: Vec<usize> =
        (begin..=end).step_by(((end - begin) / 12).max(1)).chain([end]).collect();
    assert!(whole_files(&dev, &cuts) > FILES);
}

/// A device on which somebody else does something just before file data is written, and just after.
#[derive(Debug)]
struct Beside {
    inner: Arc<RecordingDevice>,
    other: Mutex<Option<Other>>,
}

/// Creates a file and syncs it, so that everything commits that is in the running transaction.
#[derive(Debug)]
struct Other {
    fs: Arc<Ext4>,
    count: usize,
}

impl Other {
    fn commit(&mut self) {
        self.count += 1;
        let Self { fs, count } = self;
        // In a thread of its own, as it holds none of the writer's locks.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ino = file(fs, fs.root(), &format!("other{count}"));
                fs.fsync(ino, false).unwrap();
            });
        });
    }
}

impl Beside {
    fn around<'a>(
        &self,
        mut bufs: impl Iterator<Item = &'a [u8]>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let other =
            if bufs.any(|buf| buf.starts_with(MARK)) { self.other.lock().take() } else { None };
        let Some(mut other) = other else { return write() };
        other.commit();
        write()?;
        other.commit();
        *self.other.lock() = Some(other);
        Ok(())
    }
}

impl BlockDevice for Beside {
    extol_block::pass_on!(shape, abilities, reads, ends);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.around([buf].into_iter(), || self.inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.around(bufs.iter().map(|buf| &buf[..]), || self.inner.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        let bufs = writes.iter().flat_map(|write| write.bufs).map(|buf| &buf[..]);
        self.around(bufs, || self.inner.write_scattered(writes))
    }
}

/// Somebody else's commit may come at any moment while rows are under way. None says of a file
/// where its data lies before the data is there; with fast commits, too, which flush only what they
/// know of.
#[test]
fn a_commit_beside_a_row_leaves_whole_files() {
    for features in ["^fast_commit", "fast_commit"] {
        let inner = Arc::new(RecordingDevice::new(
            image("64M", &["-t", "ext4", "-O", features]).snapshot(),
        ));
        let dev = Arc::new(Beside { inner: Arc::clone(&inner), other: Mutex::new(None) });
        let fs = Ext4::open(Arc::clone(&dev) as _, &MountOptions::default()).unwrap();
        let home = dir(&fs, fs.root(), "d");
        let inodes = make(&fs, home);
        *dev.other.lock() = Some(Other { fs: Arc::clone(&fs), count: 0 });
        let begin = inner.position();
        fs.sync().unwrap();
        let beside = dev.other.lock().take().unwrap().count;
        assert!(beside >= 4, "{beside} commits beside rows");
        fs.fsync(inodes[0], false).unwrap();
        let log = inner.log();
        // The moments at which something became durable, and the end.
        let durable =
            |event: &Event| matches!(event, Event::Flush | Event::Write { fua: true, .. });
        let cuts = (begin..log.len()).filter(|i| durable(&log[*i])).map(|i| i + 1);
        let cuts: Vec<usize> = cuts.chain([log.len()]).collect();
        assert!(whole_files(&inner, &cuts) > FILES, "{features}");
        fs.unmount().unwrap();
    }
}

/// A fast commit says of a file where its data lies, and nobody flushed since that was written.
#[test]
fn a_fast_commit_comes_behind_the_data() {
    let (dev, fs) = recorded(&["-O", "fast_commit"], "dirty_mb=1");
    let home = dir(&fs, fs.root(), "d");
    let inodes: Vec<u32> = (0..FILES).map(|n| file(&fs, home, &format!("{n}"))).collect();
    fs.sync().unwrap();
    // The first fast commit flushes for reasons of its own.
    fs.write(inodes[FILES - 1], 0, b"first").unwrap();
    fs.fsync(inodes[FILES - 1], false).unwrap();
    let page = |n: usize| vec![n as u8 | 1; 4096];
    for (n, &ino) in inodes[..FILES - 1].iter().enumerate() {
        assert_eq!(fs.write(ino, 0, &page(n)), Ok(4096));
    }
    wait_for_room(&fs);
    let mut seen = 0;
    for n in [0, 1, 2] {
        let begin = dev.position();
        fs.fsync(inodes[n], false).unwrap();
        for cut in begin + 1..=dev.position() {
            for kept in 0..6 {
                let after = Arc::new(dev.image_at(cut, |i| i >= begin || keep(kept, i)));
                let fs = open(&after, "");
                let home = fs.lookup(fs.root(), b"d").unwrap().id.ino;
                let found = fs.lookup(home, format!("{n}").as_bytes()).unwrap();
                let data = contents(&fs, found.id.ino);
                assert!(
                    data.is_empty() || data == page(n),
                    "file {n} after a crash at {cut}, {kept}"
                );
                seen += usize::from(!data.is_empty());
                fs.unmount().unwrap();
            }
        }
    }
    let stats = fs.stats().journal.fast_commit;
    assert!(seen > 0 && stats.commits > 0, "{seen}, {stats:?}");
    fs.unmount().unwrap();
}

/// What could not be written is mapped nowhere, and whoever syncs hears of it.
#[test]
fn a_failed_write_maps_nothing() {
    let dev = Arc::new(FaultDevice::new(image("64M", &["-t", "ext4"]).snapshot(), []));
    let fs = Ext4::open(Arc::clone(&dev) as _, &MountOptions::default()).unwrap();
    let home = dir(&fs, fs.root(), "d");
    fs.sync().unwrap();
    let inodes = make(&fs, home);
    dev.arm(Fault::from_then_on(DeviceOp::Write, 0));
    assert!(matches!(fs.sync(), Err(FsError::Io(_) | FsError::ReadOnly)));
    for (n, ino) in inodes.iter().enumerate() {
        assert!(contents(&fs, *ino) == bytes(n), "file {n} is still there to be read");
    }
    dev.disarm();
    assert!(fs.fsync(inodes[0], false).is_err(), "nothing can be promised any more");
    let _ = fs.unmount();
    let after = Arc::new(MemDevice::from_bytes(&dev.inner().to_bytes()));
    let fs = open(&after, "");
    let home = fs.lookup(fs.root(), b"d").unwrap().id.ino;
    for n in 0..FILES {
        if let Ok(found) = fs.lookup(home, format!("{n}").as_bytes()) {
            assert!(contents(&fs, found.id.ino).is_empty(), "file {n}");
        }
    }
    fs.unmount().unwrap();
    assert_clean(&after, "after a failed write");
}

/// More than half of what may be dirty: the oldest goes, and no more than makes room.
#[test]
fn what_is_new_stays_in_memory() {
    let dev = image("64M", &["-t", "ext4"]);
    let fs = open(&dev, "dirty_mb=1");
    let home = dir(&fs, fs.root(), "d");
    for n in 0..FILES {
        let ino = file(&fs, home, &format!("{n}"));
        fs.write(ino, 0, &[7; 4096]).unwrap();
    }
    wait_for_room(&fs);
    let left = fs.stats().dirty_bytes;
    assert!(left > MIB / 16, "{left} bytes are left");
    fs.unmount().unwrap();
    assert_clean(&dev, "after write-back");
}
