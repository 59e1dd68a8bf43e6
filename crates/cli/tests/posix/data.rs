//! Contents: fallocate, holes, seeking, truncation, and the end of the offset range.

use crate::compare;
use crate::transcript::Transcript;
use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Size and a digest of the contents: where bytes of which value begin.
fn look(t: &mut Transcript, file: &File) {
    file.sync_all().unwrap();
    let meta = file.metadata().unwrap();
    let mut bytes = vec![0; meta.len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let mut runs = Vec::new();
    for (n, byte) in bytes.iter().enumerate() {
        if n == 0 || bytes[n - 1] != *byte {
            runs.push((n, *byte));
        }
    }
    t.value("size, runs", (meta.len(), runs));
}

/// The alternation of data and holes.
fn segments(t: &mut Transcript, file: &File) {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) {
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data)).unwrap();
        found.push((data, hole));
        at = hole;
    }
    t.value("segments", found);
}

#[test]
fn fallocate_in_the_modes_that_fuse_passes_on() {
    for args in [&["-t", "ext4", "-b", "4096"][..], &["-t", "ext4", "-b", "1024"]] {
        compare(args, |root, t| {
            let file = open(&root.join("file"));
            file.write_all_at(&[1; 20_000], 0).unwrap();
            let mut go = |mode: FallocateFlags, offset: u64, len: u64| {
                t.note(&format!("{mode:?} {offset}+{len}"), rustix::fs::fallocate(&file, mode, offset, len));
                look(t, &file);
            };
            let keep = FallocateFlags::KEEP_SIZE;
            let punch = FallocateFlags::PUNCH_HOLE | keep;
            let zero = FallocateFlags::ZERO_RANGE;
            go(FallocateFlags::empty(), 0, 10_000);
            go(FallocateFlags::empty(), 15_000, 30_000);
            go(keep, 40_000, 100_000);
            go(punch, 4096, 8192);
            go(punch, 1000, 2000);
            go(punch, 3000, 6000);
            go(punch, 40_000, 1_000_000);
            go(punch, 2_000_000, 10);
            go(FallocateFlags::PUNCH_HOLE, 0, 10);
            go(zero | keep, 0, 700);
            go(zero, 12_288, 4096);
            go(zero, 44_000, 9000);
            go(zero | keep, 50_000, 50_000);
            go(FallocateFlags::empty(), 0, 0);
            go(punch, 0, 0);
            go(FallocateFlags::empty(), 8192, 4096);
            file.write_all_at(&[9; 5000], 6000).unwrap();
            look(t, &file);
            t.note("truncate", file.set_len(7000));
            look(t, &file);
            t.note("grow", file.set_len(9000));
            look(t, &file);
            let limit = i64::MAX as u64;
            t.note("huge", rustix::fs::fallocate(&file, FallocateFlags::empty(), limit - 10, 100));
            // Linux keeps what it could get, and lets the file grow that far; so only the errno is compared.
            t.note("no space", rustix::fs::fallocate(&file, keep, 0, 1 << 32));
            t.note("punch all", rustix::fs::fallocate(&file, punch, 0, 1 << 33));
            look(t, &file);
            let read_only = File::open(root.join("file")).unwrap();
            t.note("read-only", rustix::fs::fallocate(&read_only, FallocateFlags::empty(), 0, 10));
            t.note(
                "directory",
                rustix::fs::fallocate(File::open(root).unwrap(), FallocateFlags::empty(), 0, 10),
            );
        });
    }
}

/// Blocks in use after one request each. (After several, the blocks of the map count too, and their number may
/// differ.)
#[test]
fn space_taken_by_one_request() {
    compare(&["-t", "ext4", "-b", "4096"], |root, t| {
        let keep = FallocateFlags::KEEP_SIZE;
        let punch = FallocateFlags::PUNCH_HOLE | keep;
        let zero = FallocateFlags::ZERO_RANGE;
        for (n, mode) in [FallocateFlags::empty(), keep, punch, zero, zero | keep].into_iter().enumerate() {
            for (offset, len) in
                [(0, 4096), (5000, 10), (100, 20_000), (8192, 4096), (30_000, 50_000), (0, 1 << 20)]
            {
                let path = root.join(format!("{n}-{offset}-{len}"));
                std::fs::write(&path, [1; 40_000]).unwrap();
                let file = open(&path);
                file.sync_all().unwrap();
                t.note(&format!("{mode:?} {offset}+{len}"), rustix::fs::fallocate(&file, mode, offset, len));
                file.sync_all().unwrap();
                t.value("size, space", (file.metadata().unwrap().len(), path.metadata().unwrap().blocks()));
            }
        }
    });
}

#[test]
fn block_mapped_files_do_not_preallocate_but_punch() {
    compare(&["-t", "ext3", "-b", "1024"], |root, t| {
        let file = open(&root.join("file"));
        file.write_all_at(&[1; 700_000], 0).unwrap();
        look(t, &file);
        t.note("allocate", rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1_000_000));
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for (offset, len) in [(1000, 50), (11_000, 5000), (12_288, 262_144), (300_000, 2048), (0, 1 << 30)] {
            t.note(&format!("punch {offset}+{len}"), rustix::fs::fallocate(&file, punch, offset, len));
            look(t, &file);
        }
        file.write_all_at(&[2; 10], 600_000).unwrap();
        look(t, &file);
    });
}

#[test]
fn holes_are_found() {
    compare(&["-t", "ext4", "-b", "4096"], |root, t| {
        let file = open(&root.join("file"));
        segments(t, &file);
        for (offset, len) in [(0, 1), (100_000, 5000), (1 << 20, 1 << 20), (10 << 20, 1)] {
            file.write_all_at(&vec![3; len], offset).unwrap();
        }
        file.sync_all().unwrap();
        segments(t, &file);
        file.set_len(20 << 20).unwrap();
        segments(t, &file);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 15 << 20, 1 << 20).unwrap();
        file.sync_all().unwrap();
        segments(t, &file);
        file.write_all_at(&[4; 4096], (15 << 20) + 8192).unwrap();
        file.sync_all().unwrap();
        segments(t, &file);
        for at in [0, 1, 4095, 4096, 2 << 20, 3 << 20, 16 << 20, (20 << 20) - 1, 20 << 20, (20 << 20) + 1] {
            t.note(&format!("data {at}"), rustix::fs::seek(&file, SeekFrom::Data(at)));
            t.note(&format!("hole {at}"), rustix::fs::seek(&file, SeekFrom::Hole(at)));
        }
        t.note("back to the start", rustix::fs::seek(&file, SeekFrom::Start(5)));
        t.note("end", rustix::fs::seek(&file, SeekFrom::End(-3)));
        t.note("before the start", rustix::fs::seek(&file, SeekFrom::Current(-(21 << 20))));
    });
}

/// What lies behind a cut must never come back.
#[test]
fn truncation_forgets_what_it_cuts() {
    for args in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    ] {
        compare(args, |root, t| {
            for size in [50u64, 150, 5000, 20_000, 300_000] {
                let file = open(&root.join(format!("file{size}")));
                file.write_all_at(&vec![5; size as usize], 0).unwrap();
                for cut in [size - 1, size / 2, size / 2 - 1, 40, 1, 0] {
                    file.set_len(cut).unwrap();
                    file.set_len(size + 100).unwrap();
                    look(t, &file);
                    file.write_all_at(&[6; 10], size / 3).unwrap();
                    look(t, &file);
                }
                t.note(
                    "by path",
                    rustix::fs::open(
                        root.join(format!("file{size}")),
                        rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::TRUNC,
                        rustix::fs::Mode::empty(),
                    )
                    .map(drop),
                );
                look(t, &file);
            }
        });
    }
}

#[test]
fn the_end_of_the_offset_range() {
    // With 4 KiB blocks a file mapped by extents ends below 16 TiB; one mapped by blocks at 4 TiB and a bit.
    for args in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2", "-b", "4096"],
    ] {
        compare(args, |root, t| {
            let block: u64 = if args.contains(&"1024") { 1024 } else { 4096 };
            let file = open(&root.join("file"));
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
            ] {
                t.note(&format!("truncate {size:#x}"), file.set_len(size));
                t.value("size", file.metadata().unwrap().len());
                file.set_len(0).unwrap();
                let written = file.write_at(b"abc", size);
                let written = written.and_then(|n| file.sync_all().map(|()| n));
                // With write-back caching the write itself may succeed and its fsync fails; then the cached size is
                // no longer the file's.
                if written.is_ok() {
                    t.value("size", file.metadata().unwrap().len());
                }
                t.note(&format!("write at {size:#x}"), written);
                file.set_len(0).unwrap();
            }
            // The last places of each level of a block map.
            let per = block / 4;
            for lblk in [11, 12, 12 + per - 1, 12 + per, 12 + per + per * per - 1, 12 + per + per * per] {
                let at = lblk * block;
                t.note(&format!("write block {lblk}"), file.write_at(&[8; 100], at + 7));
                let mut byte = [0];
                t.note("read back", file.read_at(&mut byte, at + 106).map(|n| (n, byte[0])));
            }
            t.note("fsync", file.sync_all());
        });
    }
}

#[test]
fn reads_and_writes_at_edges() {
    compare(&["-t", "ext4", "-b", "4096"], |root, t| {
        let file = open(&root.join("file"));
        t.note("read an empty file", file.read_at(&mut [0; 10], 0));
        t.note("write nothing", file.write_at(b"", 1000));
        t.value("size", file.metadata().unwrap().len());
        t.note("write past the end", file.write_at(b"x", 100_000));
        let mut buffer = [1; 10];
        t.note("read a hole", file.read_at(&mut buffer, 50_000));
        t.value("zeros", buffer);
        t.note("read over the end", file.read_at(&mut buffer, 99_995));
        t.value("tail", buffer);
        t.note("read at the end", file.read_at(&mut buffer, 100_001));
        t.note("read far behind", file.read_at(&mut buffer, 1 << 40));
        // Every alignment of both ends.
        for n in 0..64u64 {
            file.write_all_at(&vec![n as u8 + 1; (n * 37 % 9000) as usize + 1], n * 4099).unwrap();
        }
        look(t, &file);
    });
}
