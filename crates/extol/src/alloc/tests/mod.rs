//! The allocator on images made by mke2fs, checked by e2fsck and dumpe2fs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extol_block::{BlockDevice, BlockNr, DeviceError, DeviceOp};
use extol_jbd2::{Handle, Journal, JournalConfig};
use extol_ondisk::{Geometry, GroupFlags, GroupNr, InodeNr, Superblock};
use extol_sync::plain::Mutex;
use extol_task::SystemClock;
use extol_vfs::FsError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::NamedTempFile;

use super::*;

mod blocks;
mod hostile;
mod inodes;
mod synced;
mod volumes;
mod zeroed;

/// An image file as a device that counts.
#[derive(Debug)]
struct FileDisk {
    file: File,
    reads: AtomicU64,
    discards: Mutex<Vec<(u64, u64)>>,
}

impl FileDisk {
    fn err(op: DeviceOp, offset: u64, len: usize) -> impl Fn(std::io::Error) -> DeviceError {
        move |e| DeviceError::new(op, offset, len as u64, e)
    }
}

impl BlockDevice for FileDisk {
    fn size(&self) -> u64 {
        self.file.metadata().unwrap().len()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.file.read_exact_at(buf, offset).map_err(Self::err(DeviceOp::Read, offset, buf.len()))
    }
    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> extol_block::Result<()> {
        let mut all = vec![0; bufs.iter().map(|buf| buf.len()).sum()];
        self.read_at(&mut all, offset)?;
        let mut rest = &all[..];
        for buf in bufs {
            let (part, behind) = rest.split_at(buf.len());
            buf.copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.file.write_all_at(buf, offset).map_err(Self::err(DeviceOp::Write, offset, buf.len()))
    }
    fn flush(&self) -> extol_block::Result<()> {
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.discards.lock().push((offset, len));
        Ok(())
    }
    fn zero_range(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.write_at(&vec![0; len as usize], offset)
    }
}

/// An image, and an allocator on it with a journal that has no log (a commit writes in place).
struct Rig {
    image: NamedTempFile,
    disk: Arc<FileDisk>,
    journal: Arc<Journal>,
    geo: Geometry,
    cell: SuperCell,
    alloc: Arc<Allocator>,
    reports: Arc<Mutex<Vec<FsError>>>,
}

fn mke2fs(args: &str, size: &str) -> NamedTempFile {
    let image = NamedTempFile::new().unwrap();
    let out = Command::new("mke2fs")
        .args(["-q", "-F", "-E", "lazy_itable_init=1,nodiscard"])
        .args(args.split_whitespace())
        .arg(image.path())
        .arg(size)
        .output()
        .expect("mke2fs (e2fsprogs) is needed");
    assert!(out.status.success(), "mke2fs {args}: {}", String::from_utf8_lossy(&out.stderr));
    image
}

fn open(image: NamedTempFile, opts: AllocOptions) -> Rig {
    let file = File::options().read(true).write(true).open(image.path()).unwrap();
    let disk = Arc::new(FileDisk { file, reads: AtomicU64::new(0), discards: Mutex::default() });
    let mut raw = [0; 1024];
    disk.read_at(&mut raw, 1024).unwrap();
    let sb = Superblock::decode(&raw).unwrap();
    let geo = Geometry::new(&sb, Some(disk.size())).unwrap();
    let journal = Journal::open(JournalConfig {
        device: disk.clone(),
        block_size: geo.block_size,
        blocks: geo.blocks(),
        log: None,
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: false,
        cache_bytes: 16 << 20,
        clock: Arc::new(SystemClock::new()),
    })
    .unwrap();
    let reports: Arc<Mutex<Vec<FsError>>> = Arc::default();
    let sink = reports.clone();
    let report = Some(Report(Arc::new(move |e| sink.lock().push(e.clone()))));
    let opts = AllocOptions { report, ..opts };
    let alloc = Allocator::open(journal.clone(), &geo, &sb, opts).unwrap();
    Rig { image, disk, journal, cell: SuperCell::new(sb, &geo), geo, alloc, reports }
}

fn clean(args: &str, size: &str) -> Rig {
    open(mke2fs(args, size), AllocOptions { trust_counters: true, ..AllocOptions::default() })
}

impl Rig {
    fn handle(&self) -> Handle {
        self.journal.start(64).unwrap()
    }

    fn commit(&self) {
        self.journal.commit_all().unwrap();
    }

    /// Takes and maps.
    fn own(&self, goal: u64, want: u32, min: u32) -> Result<Run> {
        let run = self.alloc.take(BlockNr(goal), want, min)?;
        let mut h = self.journal.start(2).unwrap();
        self.alloc.commit_take(&mut h, run)?;
        h.stop().unwrap();
        Ok(run)
    }

    fn free(&self, run: Run) -> Result<()> {
        let groups = bits::split(&self.geo, run.start, u64::from(run.len)).count();
        let mut h = self.journal.start(groups.min(32) as u32 * 2).unwrap();
        let result = self.alloc.free(&mut h, run);
        h.stop().unwrap();
        result
    }

    fn new_inode(&self, parent: u32, is_dir: bool, top: bool) -> Result<InodeNr> {
        let mut h = self.journal.start(Allocator::ALLOC_INODE_CREDITS).unwrap();
        let ino = self.alloc.alloc_inode(&mut h, InodeNr(parent), is_dir, top);
        h.stop().unwrap();
        ino
    }

    fn free_inode(&self, ino: InodeNr, was_dir: bool) -> Result<()> {
        let mut h = self.journal.start(Allocator::FREE_INODE_CREDITS).unwrap();
        let result = self.alloc.free_inode(&mut h, ino, was_dir);
        h.stop().unwrap();
        result
    }

    fn unmount(&self) {
        let mut h = self.journal.start(1).unwrap();
        self.alloc.flush_super(&mut h, &self.cell).unwrap();
        h.stop().unwrap();
        self.commit();
    }

    fn fsck(&self) {
        let out = Command::new("e2fsck").args(["-fn"]).arg(self.image.path()).output().unwrap();
        assert!(
            out.status.success(),
            "e2fsck: {}\n{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }

    /// Free blocks and free inodes as dumpe2fs reads them from the bitmaps (checking checksums).
    fn dump(&self) -> (BTreeSet<u64>, BTreeSet<u64>) {
        let out = Command::new("dumpe2fs").arg(self.image.path()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8_lossy(&out.stdout);
        let (mut blocks, mut inodes) = (BTreeSet::new(), BTreeSet::new());
        let ranges = |list: &str, into: &mut BTreeSet<u64>| {
            for range in list.split(", ").map(str::trim).filter(|r| !r.is_empty()) {
                let (a, b) = range.split_once('-').unwrap_or((range, range));
                into.extend(a.parse::<u64>().unwrap()..=b.parse::<u64>().unwrap());
            }
        };
        for line in text.lines() {
            if let Some(list) = line.strip_prefix("  Free blocks: ") {
                ranges(list, &mut blocks);
            }
            if let Some(list) = line.strip_prefix("  Free inodes: ") {
                ranges(list, &mut inodes);
            }
        }
        (blocks, inodes)
    }
}

fn blocks_of(run: Run) -> impl Iterator<Item = u64> {
    run.start.0..run.end().0
}

/// One volume per rule that matters here.
const VARIANTS: [(&str, &str); 9] = [
    ("-t ext4 -O ^has_journal -b 1024", "48M"),
    ("-t ext4 -O ^has_journal -b 4096 -g 2048", "96M"),
    ("-t ext4 -O ^has_journal,^metadata_csum,uninit_bg -b 1024", "40M"),
    ("-t ext4 -O ^has_journal,^flex_bg,^64bit -b 2048 -g 4096", "64M"),
    ("-t ext4 -O ^has_journal,^resize_inode,meta_bg -b 1024 -g 1024", "60M"),
    ("-t ext4 -O ^has_journal,^resize_inode,sparse_super2 -b 1024", "40M"),
    ("-t ext4 -O ^has_journal -b 1024 -I 128 -G 4 -N 4000", "61M"),
    ("-t ext2 -b 1024", "33M"),
    ("-t ext3 -O ^has_journal -b 4096 -g 1024", "30M"),
];
