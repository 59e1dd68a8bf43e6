//! Writeback of many small files: few writes, each file with its data, and after a crash complete
//! or empty.

mod common;

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use extol::vfs::{FileSystem, FsError};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice, DeviceOp, MemDevice, Result, ScatteredWrite};
use extol_devices::{Event, Fault, FaultDevice, RecordingDevice};
use extol_sync::plain::Mutex;

const MIB: usize = 1 << 20;
const FILES: usize = 200;
/// The first bytes of every file.
const MARK: &[u8] = b"the beginning of a file";

/// Between 1 byte and 24 KB: ends lie anywhere in a block.
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

/// Waits until the service has written back the oldest files, with `dirty_mb=1`.
fn wait_for_room(fs: &Ext4) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs.stats().dirty_bytes > MIB / 8 * 3 {
        assert!(Instant::now() < deadline, "{} bytes", fs.stats().dirty_bytes);
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
fn small_files_share_writes_and_other_files_do_not() {
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
        // Files that have blocks join no batch.
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

/// The page cache holds the data of a batch.
#[test]
fn data_of_batches_stays_in_memory() {
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

/// Crashes at each of these points: every file is empty or complete (WB-1). Returns how many files
/// were complete, in all.
fn complete_files(dev: &RecordingDevice, cuts: &[usize]) -> usize {
    let mut complete = 0;
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
                complete += usize::from(!data.is_empty());
            }
            fs.unmount().unwrap();
            if Some(&cut) == cuts.last() {
                assert_clean(&after, "after a crash");
            }
        }
    }
    complete
}

/// WB-1, with any subset of the writes since the last flush on the medium.
#[test]
fn a_crash_leaves_complete_files() {
    let (dev, fs) = recorded(&[], "");
    let home = dir(&fs, fs.root(), "d");
    make(&fs, home);
    let begin = dev.position();
    fs.sync().unwrap();
    let end = dev.position();
    let cuts: Vec<usize> =
        (begin..=end).step_by(((end - begin) / 12).max(1)).chain([end]).collect();
    assert!(complete_files(&dev, &cuts) > FILES);
}

/// Commits just before and just after each write of file data.
#[derive(Debug)]
struct CommitAround {
    inner: Arc<RecordingDevice>,
    committer: Mutex<Option<Committer>>,
}

/// Creates a file and syncs it, which commits the running transaction.
#[derive(Debug)]
struct Committer {
    fs: Arc<Ext4>,
    count: usize,
}

impl Committer {
    fn commit(&mut self) {
        self.count += 1;
        let Self { fs, count } = self;
        // A thread of its own: it holds none of the writer's locks.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ino = file(fs, fs.root(), &format!("other{count}"));
                fs.fsync(ino, false).unwrap();
            });
        });
    }
}

impl CommitAround {
    fn around<'a>(
        &self,
        mut bufs: impl Iterator<Item = &'a [u8]>,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let is_data = bufs.any(|buf| buf.starts_with(MARK));
        let taken = if is_data { self.committer.lock().take() } else { None };
        let Some(mut committer) = taken else { return write() };
        committer.commit();
        write()?;
        committer.commit();
        *self.committer.lock() = Some(committer);
        Ok(())
    }
}

impl BlockDevice for CommitAround {
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

/// A commit at any moment of a batch maps no file before its data is durable; also with fast
/// commits, which flush only if they know of unflushed data.
#[test]
fn a_commit_beside_a_batch_leaves_complete_files() {
    for features in ["^fast_commit", "fast_commit"] {
        let inner = Arc::new(RecordingDevice::new(
            image("64M", &["-t", "ext4", "-O", features]).snapshot(),
        ));
        let dev = Arc::new(CommitAround { inner: Arc::clone(&inner), committer: Mutex::new(None) });
        let fs = Ext4::open(Arc::clone(&dev) as _, &MountOptions::default()).unwrap();
        let home = dir(&fs, fs.root(), "d");
        let inodes = make(&fs, home);
        *dev.committer.lock() = Some(Committer { fs: Arc::clone(&fs), count: 0 });
        let begin = inner.position();
        fs.sync().unwrap();
        let beside = dev.committer.lock().take().unwrap().count;
        assert!(beside >= 4, "{beside} commits beside batches");
        fs.fsync(inodes[0], false).unwrap();
        let log = inner.log();
        // Every point at which writes became durable, and the end.
        let durable =
            |event: &Event| matches!(event, Event::Flush | Event::Write { fua: true, .. });
        let cuts = (begin..log.len()).filter(|i| durable(&log[*i])).map(|i| i + 1);
        let cuts: Vec<usize> = cuts.chain([log.len()]).collect();
        assert!(complete_files(&inner, &cuts) > FILES, "{features}");
        fs.unmount().unwrap();
    }
}

/// A fast commit that maps a file flushes its data first.
#[test]
fn a_fast_commit_flushes_the_data_of_a_batch() {
    let (dev, fs) = recorded(&["-O", "fast_commit"], "dirty_mb=1");
    let home = dir(&fs, fs.root(), "d");
    let inodes: Vec<u32> = (0..FILES).map(|n| file(&fs, home, &format!("{n}"))).collect();
    fs.sync().unwrap();
    // The first fast commit flushes in any case.
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

/// WB-2: data that could not be written is not mapped, and fsync fails.
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
        assert!(contents(&fs, *ino) == bytes(n), "file {n} is still in memory");
    }
    dev.disarm();
    assert!(fs.fsync(inodes[0], false).is_err(), "the journal has aborted");
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

/// With more than half of `dirty_bytes` dirty, only the oldest files are written back.
#[test]
fn the_newest_files_stay_in_memory() {
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
    assert_clean(&dev, "after writeback");
}
