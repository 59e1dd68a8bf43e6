//! Space: st_blocks, statfs.

use rustix::fs::{FallocateFlags, OFlags};

use super::{Case, EXT4, EXT4_1K, LAYOUTS, case, mkdir, put};
use crate::Transcript;
use crate::posix::Posix;

pub(super) const CASES: &[Case] = &[
    case("blocks of a file", LAYOUTS, blocks),
    case("blocks of a file that is being written", EXT4, unsynced_blocks),
    case("holes at the end of a file", &["ext4", "1k"], holes_at_the_end),
    case("a full volume fails the write", EXT4_1K, full),
    case("space of small files", LAYOUTS, small),
    Case { name: "statfs", volumes: STATFS, run: super::Run::Remounting(statfs) },
];

/// Kinds of volumes whose metadata lie in different places.
const STATFS: &[&str] =
    &["ext4", "1k", "inline", "ext3", "ext2", "small", "plain", "meta_bg", "sparse2"];

fn blocks(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    let mut look = |what: &str| {
        fs.fsync(fd).unwrap();
        t.note(what, fs.fstat(fd).map(|s| (s.size, s.blocks, s.blksize)));
    };
    look("empty");
    for len in [1usize, 100, 1000, 1024, 1025, 4096, 4097, 50_000, 400_000] {
        fs.ftruncate(fd, 0).unwrap();
        fs.pwrite(fd, 0, &vec![1; len]).unwrap();
        look(&format!("{len} bytes"));
    }
    fs.ftruncate(fd, 100_000).unwrap();
    look("cut");
    fs.ftruncate(fd, 10 << 20).unwrap();
    look("grown");
    fs.ftruncate(fd, 0).unwrap();
    look("empty again");
    fs.pwrite(fd, 1 << 20, b"x").unwrap();
    look("one byte far away");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    t.note("punch", fs.fallocate(fd, punch, 0, 4 << 20));
    fs.fsync(fd).unwrap();
    t.note("punched", fs.fstat(fd).map(|s| (s.size, s.blocks)));
    fs.close(fd);
}

/// A hole that ends with the file leaves the last block; one that goes on behind it takes the rest
/// of the page, and no block behind that.
fn holes_at_the_end(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    for (size, len) in [(10_000, 10_000), (10_000, 10_001), (10_240, 10_240), (8192, 20_000)] {
        let what = format!("{len} bytes of {size}");
        fs.ftruncate(fd, 0).unwrap();
        fs.pwrite(fd, 0, &vec![1; size]).unwrap();
        fs.fsync(fd).unwrap();
        t.note(&what, fs.fallocate(fd, FallocateFlags::KEEP_SIZE, 0, 30_000));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        t.note(&what, fs.fallocate(fd, punch, 0, len));
        fs.fsync(fd).unwrap();
        t.note(&what, fs.fstat(fd).map(|s| (s.size, s.blocks)));
    }
    fs.close(fd);
}

/// Delayed allocation shows: what is promised counts before it has a place.
fn unsynced_blocks(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    for (at, len) in [(0, 1), (0, 4096), (4096, 40_000), (1 << 20, 100_000), (1 << 20, 300_000)] {
        fs.pwrite(fd, at, &vec![1; len]).unwrap();
        t.note(&format!("{len} bytes at {at}"), fs.fstat(fd).map(|s| (s.size, s.blocks)));
    }
    fs.fsync(fd).unwrap();
    t.note("synced", fs.fstat(fd).map(|s| (s.size, s.blocks)));
    fs.close(fd);
}

/// The write that finds no space says so, not the close, which programs do not look at.
fn full(fs: &dyn Posix, t: &mut Transcript) {
    for (file, len) in [("large", 1 << 20), ("small", 1000)] {
        let fd = fs.create(file).unwrap();
        let piece = vec![7; len];
        let mut at = 0;
        let error = loop {
            match fs.pwrite(fd, at, &piece) {
                Ok(0) => break Ok(()),
                Ok(more) if at < 1 << 30 => at += more as u64,
                Ok(_) => break Ok(()),
                Err(e) => break Err(e),
            }
        };
        t.note(file, error);
        t.note("its fsync", fs.fsync(fd));
        t.value("all of it is there", fs.fstat(fd).map(|s| s.size == at));
        fs.close(fd);
    }
    for file in ["large", "small"] {
        fs.unlink(file).unwrap();
    }
    fs.sync().unwrap();
    t.note("with space again", fs.put("after", &[1; 100_000]));
}

fn small(fs: &dyn Posix, t: &mut Transcript) {
    for len in [0usize, 1, 50, 59, 60, 61, 100, 128, 150, 160, 161, 200, 1000] {
        let path = format!("file{len}");
        put(fs, &path, &vec![1; len]);
        let fd = fs.open(&path, OFlags::RDONLY, 0).unwrap();
        fs.fsync(fd).unwrap();
        t.note(&path, fs.fstat(fd).map(|s| (s.size, s.blocks)));
        fs.close(fd);
    }
    mkdir(fs, "dir");
    t.note("directory", fs.stat("dir").map(|s| s.blocks));
}

fn statfs(fs: &dyn Posix, t: &mut Transcript) {
    fs.sync().unwrap();
    let first = fs.statfs().unwrap();
    t.value("the volume", (first.block_size, first.blocks, first.files, first.name_max));
    t.value("reserved", first.free - first.available);
    let mut look = |what: &str| {
        fs.sync().unwrap();
        let s = fs.statfs().unwrap();
        t.value(
            what,
            (first.free as i64 - s.free as i64, first.files_free as i64 - s.files_free as i64),
        );
    };
    let fd = fs.create("space").unwrap();
    fs.pwrite(fd, 0, &[1; 100_000]).unwrap();
    fs.fsync(fd).unwrap();
    look("one file");
    fs.close(fd);
    mkdir(fs, "space-dir");
    look("a directory");
    fs.symlink(&"t".repeat(200), "space-link").unwrap();
    look("a long link");
    for name in ["space", "space-link"] {
        fs.unlink(name).unwrap();
    }
    fs.rmdir("space-dir").unwrap();
    look("all gone");
}
