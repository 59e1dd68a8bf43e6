//! Contents: fallocate, holes, seeking, truncation, and the end of the offset range.

use rustix::fs::{FallocateFlags, OFlags, SeekFrom};

use super::{Case, EXT4, EXT4_1K, LAYOUTS, case, put, runs, segments};
use crate::Transcript;
use crate::posix::{Fd, Posix};

pub(super) const CASES: &[Case] = &[
    case("fallocate", EXT4_1K, fallocate),
    case("fallocate on block-mapped files", &["ext3", "ext2"], fallocate_block_mapped),
    case("fallocate on inline files", &["inline"], fallocate_inline),
    case("space of one request", EXT4_1K, space_of_one_request),
    case("collapse and insert", EXT4_1K, collapse_and_insert),
    case("fallocate by handles that may not", EXT4, fallocate_refused),
    case("holes are found", LAYOUTS, holes),
    case("truncation forgets", LAYOUTS, truncation_forgets),
    case("the end of the offset range", LAYOUTS, offset_range),
    case("reads and writes at edges", LAYOUTS, edges),
    case("sparse writes", LAYOUTS, sparse),
];

const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const NONE: FallocateFlags = FallocateFlags::empty();
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(KEEP);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
const COLLAPSE: FallocateFlags = FallocateFlags::COLLAPSE_RANGE;
const INSERT: FallocateFlags = FallocateFlags::INSERT_RANGE;

fn go(t: &mut Transcript, fs: &dyn Posix, fd: Fd, mode: FallocateFlags, at: u64, len: u64) {
    t.note(&format!("{mode:?} {at}+{len}"), fs.fallocate(fd, mode, at, len));
    fs.fsync(fd).unwrap();
    runs(t, fs, fd);
}

fn fallocate(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    fs.pwrite(fd, 0, &[1; 20_000]).unwrap();
    for (mode, at, len) in [
        (NONE, 0, 10_000),
        (NONE, 15_000, 30_000),
        (KEEP, 40_000, 100_000),
        (PUNCH, 4096, 8192),
        (PUNCH, 1000, 2000),
        (PUNCH, 3000, 6000),
        (PUNCH, 40_000, 1_000_000),
        (PUNCH, 2_000_000, 10),
        (FallocateFlags::PUNCH_HOLE, 0, 10),
        (ZERO | KEEP, 0, 700),
        (ZERO, 12_288, 4096),
        (ZERO, 44_000, 9000),
        (ZERO | KEEP, 50_000, 50_000),
        (NONE, 0, 0),
        (PUNCH, 0, 0),
        (NONE, 8192, 4096),
    ] {
        go(t, fs, fd, mode, at, len);
    }
    fs.pwrite(fd, 6000, &[9; 5000]).unwrap();
    runs(t, fs, fd);
    t.note("truncate", fs.ftruncate(fd, 7000));
    t.note("grow", fs.ftruncate(fd, 9000));
    runs(t, fs, fd);
    t.note("huge", fs.fallocate(fd, NONE, i64::MAX as u64 - 10, 100));
    t.note("negative place", fs.fallocate(fd, NONE, u64::MAX, 10));
    t.note("negative length", fs.fallocate(fd, NONE, 0, u64::MAX));
    // Linux keeps what it could get, and lets the file grow that far; so only the errno is
    // compared.
    t.note("no space", fs.fallocate(fd, KEEP, 0, 1 << 32));
    t.note("punch all", fs.fallocate(fd, PUNCH, 0, 1 << 33));
    runs(t, fs, fd);
    fs.ftruncate(fd, 0).unwrap();
    fs.close(fd);
    // The space is free when the transaction is through.
    fs.sync().unwrap();
}

fn fallocate_block_mapped(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    fs.pwrite(fd, 0, &[1; 700_000]).unwrap();
    fs.fsync(fd).unwrap();
    for mode in [NONE, KEEP, ZERO, ZERO | KEEP, COLLAPSE, INSERT] {
        t.note(&format!("{mode:?}"), fs.fallocate(fd, mode, 4096, 8192));
    }
    for (at, len) in [(1000, 50), (11_000, 5000), (12_288, 262_144), (300_000, 2048), (0, 1 << 30)]
    {
        go(t, fs, fd, PUNCH, at, len);
    }
    fs.pwrite(fd, 600_000, &[2; 10]).unwrap();
    runs(t, fs, fd);
    fs.close(fd);
}

fn fallocate_inline(fs: &dyn Posix, t: &mut Transcript) {
    for (n, mode) in [NONE, KEEP, PUNCH, ZERO, ZERO | KEEP].into_iter().enumerate() {
        for (at, len) in [(0, 10), (20, 100), (10, 5000), (8192, 4096)] {
            let fd = fs.create(&format!("{n}-{at}-{len}")).unwrap();
            fs.pwrite(fd, 0, &[3; 50]).unwrap();
            fs.fsync(fd).unwrap();
            go(t, fs, fd, mode, at, len);
            fs.close(fd);
        }
    }
}

/// Blocks in use after one request each. (After several, the blocks of the map count too, and their
/// number may differ.)
fn space_of_one_request(fs: &dyn Posix, t: &mut Transcript) {
    for (n, mode) in [NONE, KEEP, PUNCH, ZERO, ZERO | KEEP].into_iter().enumerate() {
        for (at, len) in
            [(0, 4096), (5000, 10), (100, 20_000), (8192, 4096), (30_000, 50_000), (0, 1 << 20)]
        {
            let path = format!("{n}-{at}-{len}");
            put(fs, &path, &[1; 40_000]);
            let fd = fs.open(&path, OFlags::RDWR, 0).unwrap();
            fs.fsync(fd).unwrap();
            t.note(&format!("{mode:?} {at}+{len}"), fs.fallocate(fd, mode, at, len));
            fs.fsync(fd).unwrap();
            t.value("size, space", fs.fstat(fd).map(|s| (s.size, s.blocks)).unwrap());
            fs.close(fd);
        }
    }
}

fn collapse_and_insert(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    for n in 0..10u8 {
        fs.pwrite(fd, u64::from(n) * 4096, &[n + 1; 4096]).unwrap();
    }
    fs.fsync(fd).unwrap();
    for (mode, at, len) in [
        (COLLAPSE, 4096, 8192),
        (COLLAPSE, 0, 4096),
        (COLLAPSE, 100, 4096),
        (COLLAPSE, 4096, 100),
        (COLLAPSE, 4096, 0),
        (COLLAPSE, 20_480, 8192),
        (COLLAPSE, 20_480, 16_384),
        (COLLAPSE, 1 << 20, 4096),
        (COLLAPSE | KEEP, 0, 4096),
        (INSERT, 4096, 8192),
        (INSERT, 0, 4096),
        (INSERT, 100, 4096),
        (INSERT, 4096, 100),
        (INSERT, 36_864, 4096),
        (INSERT, 40_960, 4096),
        (INSERT, 1 << 20, 4096),
        (INSERT | KEEP, 0, 4096),
        (INSERT, 4096, 1 << 44),
        (INSERT, 4096, (1 << 62) + (1 << 61)),
        (COLLAPSE | PUNCH, 0, 4096),
        (COLLAPSE | INSERT, 0, 4096),
    ] {
        go(t, fs, fd, mode, at, len);
        segments(t, fs, fd);
    }
    fs.close(fd);
}

fn fallocate_refused(fs: &dyn Posix, t: &mut Transcript) {
    put(fs, "file", &[1; 9000]);
    let read_only = fs.open("file", OFlags::RDONLY, 0).unwrap();
    let dir = fs.open(".", OFlags::RDONLY, 0).unwrap();
    let append = fs.open("file", OFlags::WRONLY | OFlags::APPEND, 0).unwrap();
    for mode in [NONE, KEEP, PUNCH, ZERO, COLLAPSE, INSERT, FallocateFlags::UNSHARE_RANGE] {
        t.note(&format!("read-only {mode:?}"), fs.fallocate(read_only, mode, 0, 4096));
        t.note(&format!("directory {mode:?}"), fs.fallocate(dir, mode, 0, 4096));
        t.note(&format!("append {mode:?}"), fs.fallocate(append, mode, 0, 4096));
    }
    for fd in [read_only, dir, append] {
        fs.close(fd);
    }
}

fn holes(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    segments(t, fs, fd);
    for at in [0, 1] {
        t.note("data of an empty file", fs.lseek(fd, SeekFrom::Data(at)));
        t.note("hole of an empty file", fs.lseek(fd, SeekFrom::Hole(at)));
    }
    for (at, len) in [(0, 1), (100_000, 5000), (1 << 20, 1 << 20), (10 << 20, 1)] {
        fs.pwrite(fd, at, &vec![3; len]).unwrap();
    }
    fs.fsync(fd).unwrap();
    segments(t, fs, fd);
    fs.ftruncate(fd, 20 << 20).unwrap();
    segments(t, fs, fd);
    if fs.fallocate(fd, NONE, 15 << 20, 1 << 20).is_ok() {
        fs.fsync(fd).unwrap();
        segments(t, fs, fd);
        fs.pwrite(fd, (15 << 20) + 8192, &[4; 4096]).unwrap();
        fs.fsync(fd).unwrap();
        segments(t, fs, fd);
    }
    let end = 20 << 20;
    for at in [
        0,
        1,
        4095,
        4096,
        2 << 20,
        3 << 20,
        16 << 20,
        end - 1,
        end,
        end + 1,
        u64::MAX / 2,
        u64::MAX,
    ] {
        t.note(&format!("data {at}"), fs.lseek(fd, SeekFrom::Data(at)));
        t.note(&format!("hole {at}"), fs.lseek(fd, SeekFrom::Hole(at)));
    }
    t.note("punch", fs.fallocate(fd, PUNCH, 1 << 20, 65_536));
    segments(t, fs, fd);
    fs.close(fd);
}

/// What lies behind a cut must never come back.
fn truncation_forgets(fs: &dyn Posix, t: &mut Transcript) {
    for size in [50u64, 150, 5000, 20_000, 300_000] {
        let path = format!("file{size}");
        let fd = fs.create(&path).unwrap();
        fs.pwrite(fd, 0, &vec![5; size as usize]).unwrap();
        for cut in [size - 1, size / 2, size / 2 - 1, 40, 1, 0] {
            fs.ftruncate(fd, cut).unwrap();
            fs.ftruncate(fd, size + 100).unwrap();
            fs.fsync(fd).unwrap();
            runs(t, fs, fd);
            fs.pwrite(fd, size / 3, &[6; 10]).unwrap();
            runs(t, fs, fd);
        }
        t.note("by path", fs.try_open(&path, OFlags::WRONLY | OFlags::TRUNC, 0));
        runs(t, fs, fd);
        fs.close(fd);
    }
}

fn offset_range(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    // With 4 KiB blocks a file mapped by extents ends below 16 TiB; one mapped by blocks at 4 TiB
    // and a bit.
    let block = fs.statfs().unwrap().block_size;
    let end = (1u64 << 32) * block;
    for size in [
        end - 2 * block,
        end - block,
        end - block + 1,
        end - 1,
        end,
        end + 1,
        1 << 45,
        i64::MAX as u64,
        u64::MAX,
    ] {
        t.note(&format!("truncate {size:#x}"), fs.ftruncate(fd, size));
        t.value("size", fs.fstat(fd).unwrap().size);
        fs.ftruncate(fd, 0).unwrap();
        let written = fs.pwrite(fd, size, b"abc");
        let written = written.and_then(|n| fs.fsync(fd).map(|()| n));
        // With write-back caching the write itself may succeed and its fsync fails; then the cached
        // size is no longer the file's.
        if written.is_ok() {
            t.value("size", fs.fstat(fd).unwrap().size);
        }
        t.note(&format!("write at {size:#x}"), written);
        fs.ftruncate(fd, 0).unwrap();
        for mode in [NONE, KEEP, PUNCH, ZERO] {
            t.note(&format!("{mode:?} at {size:#x}"), fs.fallocate(fd, mode, size, 1));
            fs.ftruncate(fd, 0).unwrap();
        }
    }
    // The last places of each level of a block map.
    let per = block / 4;
    for lblk in [11, 12, 12 + per - 1, 12 + per, 12 + per + per * per - 1, 12 + per + per * per] {
        let at = lblk * block;
        t.note(&format!("write block {lblk}"), fs.pwrite(fd, at + 7, &[8; 100]));
        t.note("read back", fs.pread(fd, at + 106, 1));
    }
    t.note("fsync", fs.fsync(fd));
    t.note("data", fs.lseek(fd, SeekFrom::Data(0)));
    t.note("shrink", fs.ftruncate(fd, 12 * block));
    fs.close(fd);
    // A write that failed on its way home is told once more, to a sync of everything.
    let _ = fs.sync();
}

fn edges(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    t.note("read an empty file", fs.pread(fd, 0, 10));
    t.note("write nothing", fs.pwrite(fd, 1000, b""));
    t.value("size", fs.fstat(fd).unwrap().size);
    t.note("write past the end", fs.pwrite(fd, 100_000, b"x"));
    t.note("read a hole", fs.pread(fd, 50_000, 10));
    t.note("read over the end", fs.pread(fd, 99_995, 10));
    t.note("read at the end", fs.pread(fd, 100_001, 10));
    t.note("read far behind", fs.pread(fd, 1 << 40, 10));
    t.note("read nothing", fs.pread(fd, 0, 0));
    // Every alignment of both ends.
    for n in 0..64u64 {
        fs.pwrite(fd, n * 4099, &vec![n as u8 + 1; (n * 37 % 9000) as usize + 1]).unwrap();
    }
    runs(t, fs, fd);
    fs.fsync(fd).unwrap();
    runs(t, fs, fd);
    fs.close(fd);
}

fn sparse(fs: &dyn Posix, t: &mut Transcript) {
    let fd = fs.create("file").unwrap();
    for n in (0..40u64).rev() {
        fs.pwrite(fd, n * 65_536 + n * 100, &[n as u8 + 1; 300]).unwrap();
    }
    fs.fsync(fd).unwrap();
    runs(t, fs, fd);
    segments(t, fs, fd);
    t.note("cut", fs.ftruncate(fd, 20 * 65_536 + 2100));
    segments(t, fs, fd);
    t.note("fill one hole", fs.pwrite(fd, 65_536 * 3 + 600, &[7; 60_000]));
    fs.fsync(fd).unwrap();
    segments(t, fs, fd);
    runs(t, fs, fd);
    fs.close(fd);
}
