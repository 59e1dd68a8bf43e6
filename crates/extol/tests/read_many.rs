//! Several reads at a time: each gives what it would give alone.

mod common;

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use common::*;
use extol::vfs::{Fallocate, FileSystem, FsError, ReadJob, SetAttr};
use extol::{Ext4, MountOptions};
use extol_block::{
    BlockDevice, DeviceError, DeviceOp, MemDevice, ReadDone, Result as DeviceResult, ScatteredRead,
};
use parking_lot::Mutex;

type Between = Box<dyn FnOnce() + Send>;

/// A device on which something may happen before a batch of reads, and where some of them may fail.
struct Rig {
    inner: Arc<MemDevice>,
    between: Mutex<Option<Between>>,
    /// The read of this number fails, and how many reads the last batch had.
    bad: Mutex<Option<usize>>,
    batch: Mutex<usize>,
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rig")
    }
}

impl BlockDevice for Rig {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        self.inner.read_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> DeviceResult<()> {
        self.inner.read_vectored_at(bufs, offset)
    }

    fn read_scattered(&self, reads: &mut [ScatteredRead<'_>], done: ReadDone<'_>) {
        if let Some(between) = self.between.lock().take() {
            between();
        }
        *self.batch.lock() = reads.len();
        let bad = *self.bad.lock();
        // The last one first: they may end in any order.
        for (i, read) in reads.iter_mut().enumerate().rev() {
            let len = read.buf.len() as u64;
            let result = match bad == Some(i) {
                true => Err(DeviceError::new(
                    DeviceOp::Read,
                    read.offset,
                    len,
                    std::io::Error::from_raw_os_error(5),
                )),
                false => self.inner.read_at(read.buf, read.offset),
            };
            done(i, result.map(|()| &*read.buf));
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.inner.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> DeviceResult<()> {
        self.inner.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.inner.zero_range(offset, len)
    }
}

fn volume(size: &str) -> (Arc<Rig>, Arc<Ext4>) {
    let rig = Arc::new(Rig {
        inner: image(size, &["-t", "ext4", "-b", "4096"]),
        between: Mutex::new(None),
        bad: Mutex::new(None),
        batch: Mutex::new(0),
    });
    let fs = Ext4::open(Arc::clone(&rig) as _, &MountOptions::parse("").unwrap()).unwrap();
    (rig, fs)
}

/// Reads (file, place, bytes) together.
fn read_many(fs: &Ext4, wanted: &[(u32, u64, usize)]) -> Vec<Result<Vec<u8>, FsError>> {
    // What is in the buffers beforehand must not be taken for data.
    let mut memory: Vec<Vec<u8>> = wanted.iter().map(|(_, _, len)| vec![0xEE; *len]).collect();
    let jobs = wanted.iter().zip(&mut memory);
    let mut jobs: Vec<_> =
        jobs.map(|((ino, offset, _), buf)| ReadJob { ino: *ino, offset: *offset, buf }).collect();
    let mut results: Vec<Option<_>> = wanted.iter().map(|_| None).collect();
    fs.read_many(&mut jobs, &mut |i, result| {
        assert!(results[i].replace(result.map(<[u8]>::to_vec)).is_none(), "{i} is told twice");
    });
    results.into_iter().map(|result| result.expect("told")).collect()
}

fn alone(fs: &Ext4, (ino, offset, len): (u32, u64, usize)) -> Result<Vec<u8>, FsError> {
    let mut buf = vec![0xDD; len];
    let n = fs.read(ino, offset, &mut buf)?;
    buf.truncate(n);
    Ok(buf)
}

#[test]
fn what_comes_together_is_what_comes_alone() {
    let (rig, fs) = volume("64M");
    let home = dir(&fs, fs.root(), "d");
    let (f, g) = (file(&fs, home, "f"), file(&fs, home, "g"));
    let bytes = |n: usize, seed: usize| {
        (0..n).map(|i| (i * 31 + i / 4096 * 7 + seed) as u8).collect::<Vec<u8>>()
    };
    fs.write(f, 0, &bytes(300_000, 1)).unwrap();
    fs.write(f, 1 << 20, &bytes(50_001, 2)).unwrap(); // behind a hole, to an odd end
    fs.fallocate(f, Fallocate::Allocate { keep_size: false }, 600_000, 100_000).unwrap();
    fs.write(g, 0, &bytes(20_000, 3)).unwrap();
    fs.sync().unwrap();
    // In memory, not on the device: a page in the middle, and one that is new.
    fs.write(f, 8192 + 5, b"newer").unwrap();
    fs.write(f, 400_000, b"where a hole was").unwrap();
    let wanted = [
        (f, 0, 4096),
        (g, 4096, 4096),
        (f, 4096, 12288), // device, page, device
        (f, 8192, 4096),
        (f, 290_000, 20_000), // data, end of it, hole
        (f, 400_000, 16),
        (f, 620_000, 4096),            // unwritten
        (f, (1 << 20) + 49_152, 4096), // short
        (f, 5 << 20, 4096),            // behind the end
        (f, u64::MAX - 100, 4096),
        (g, 1, 19_998),
        (home, 0, 4096),
        (7_777_777, 0, 10),
        (0, 0, 10),
        (f, 4096, 0),
    ];
    let results = read_many(&fs, &wanted);
    assert!(*rig.batch.lock() >= 5, "nothing was read together");
    for (result, wanted) in results.into_iter().zip(wanted) {
        assert!(result == alone(&fs, wanted), "{wanted:?}");
    }
    assert!(read_many(&fs, &[]).is_empty());
    fs.unmount().unwrap();
    drop(fs);
    assert_clean(&rig.inner, "after reads");
    // A device that does one at a time, and nothing in memory.
    let fs = open(&rig.inner, "");
    assert!(!fs.reads_together());
    for (result, wanted) in read_many(&fs, &wanted).into_iter().zip(wanted) {
        assert!(result == alone(&fs, wanted), "{wanted:?}");
    }
    fs.unmount().unwrap();
}

/// An error is that of the read whose piece it was.
#[test]
fn an_error_hits_one() {
    let (rig, fs) = volume("64M");
    let f = file(&fs, fs.root(), "f");
    fs.write(f, 0, &[7; 40_960]).unwrap();
    fs.write(f, 81_920, &[8; 8192]).unwrap();
    fs.sync().unwrap();
    fs.write(f, 4096, b"page").unwrap();
    // The second has two pieces on the device and a page between, so they are reads 0, 1 and 2, 3.
    let wanted = [(f, 8192, 4096), (f, 0, 12_288), (f, 81_920, 4096)];
    for (bad, job) in [(0, 0), (1, 1), (2, 1), (3, 2)] {
        *rig.bad.lock() = Some(bad);
        for (i, result) in read_many(&fs, &wanted).into_iter().enumerate() {
            match result {
                Err(error) => {
                    assert!(i == job && matches!(error, FsError::Io(_)), "{bad}: {i} {error:?}")
                }
                Ok(bytes) => assert!(i != job && Ok(bytes) == alone(&fs, wanted[i]), "{bad}: {i}"),
            }
        }
    }
    *rig.bad.lock() = None;
    fs.unmount().unwrap();
}

/// Blocks that go to another file while a batch is on its way are not read as this file's.
#[test]
fn blocks_of_others_are_not_shown() {
    for pieces in [1, 2] {
        let (rig, fs) = volume("16M");
        let (f, other) = (file(&fs, fs.root(), "f"), file(&fs, fs.root(), "other"));
        fs.write(f, 0, &[b'f'; 2 << 20]).unwrap();
        fs.write(other, 0, &[b'o'; 8192]).unwrap();
        fs.sync().unwrap();
        if pieces == 2 {
            fs.write(f, 4096, b"page").unwrap();
        }
        let inside = Arc::clone(&fs);
        *rig.between.lock() = Some(Box::new(move || {
            inside.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
            inside.sync().unwrap();
            let secret = file(&inside, inside.root(), "secret");
            let mut at = 0;
            while let Ok(n @ 1..) = inside.write(secret, at, &[b's'; 1 << 20]) {
                at += n as u64;
            }
            let _ = inside.sync();
        }));
        let results = read_many(&fs, &[(f, 0, 12_288), (other, 0, 8192)]);
        assert!(rig.between.lock().is_none());
        assert_eq!(results[0], Ok(Vec::new()), "the file is empty");
        assert!(results[1].as_ref().is_ok_and(|bytes| bytes == &[b'o'; 8192]));
        fs.unmount().unwrap();
    }
}
