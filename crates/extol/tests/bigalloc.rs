//! Volumes with clusters (bigalloc): Extol and Linux do the same on volumes of their own, take them
//! over from each other, and e2fsck finds nothing in between.
//!
//! A seed, which a failure names, determines everything. `EXTOL_SEED=n` runs one seed.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol::vfs::{Fallocate, FileSystem as _, FsError, VolumeControl as _};
use extol::{Ext4, MountOptions};
use extol_block::{FileDevice, SharedDevice};
use extol_testkit::{
    Image, KernelMount, Need, Scratch, Shutdown, e2fsck, require, run_ok, shutdown, tool,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::FallocateFlags;

const NEEDS: &[Need] = &[Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("e2fsck")];
const FILES: usize = 3;
/// No change reaches further.
const REACH: u64 = 400_000;

/// A change of a file.
#[derive(Clone, Copy, Debug)]
enum Change {
    Write { at: u64, len: usize, seed: u8 },
    Resize { size: u64 },
    Allocate { mode: Fallocate, at: u64, len: u64 },
    Sync,
}

fn data(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_add(i as u8) | 1).collect()
}

/// A random change, and what it makes of the contents.
fn change(rng: &mut SmallRng, file: &mut Vec<u8>, cluster: u64) -> Change {
    let size = file.len() as u64;
    let at = rng.random_range(0..REACH);
    let at = if rng.random_bool(0.3) { at / 1024 * 1024 } else { at };
    let len = match rng.random_range(0..3) {
        0 => rng.random_range(1..3000),
        1 => rng.random_range(1..20) * 1024,
        _ => rng.random_range(1..100_000),
    };
    let range = |file: &mut Vec<u8>, to: u64| {
        let to = to.min(file.len() as u64) as usize;
        if (at as usize) < to {
            file[at as usize..to].fill(0);
        }
    };
    let whole = |n: u64| n / cluster * cluster;
    let keep_size = rng.random_bool(0.5);
    match rng.random_range(0..12) {
        0..5 => {
            let seed = rng.random();
            let end = at as usize + len as usize;
            file.resize(file.len().max(end), 0);
            file[at as usize..end].copy_from_slice(&data(seed, len as usize));
            Change::Write { at, len: len as usize, seed }
        }
        5 => {
            file.resize(at as usize, 0);
            Change::Resize { size: at }
        }
        6 | 7 => {
            range(file, at + len);
            Change::Allocate { mode: Fallocate::PunchHole, at, len }
        }
        8 => {
            if !keep_size {
                file.resize(file.len().max((at + len) as usize), 0);
            }
            Change::Allocate { mode: Fallocate::Allocate { keep_size }, at, len }
        }
        9 => {
            range(file, at + len);
            if !keep_size {
                file.resize(file.len().max((at + len) as usize), 0);
            }
            Change::Allocate { mode: Fallocate::ZeroRange { keep_size }, at, len }
        }
        10 if size > 2 * cluster => {
            let at = whole(rng.random_range(0..size - cluster));
            let most = (size - at - 1) / cluster;
            if most == 0 {
                return Change::Sync;
            }
            let len = rng.random_range(1..=most) * cluster;
            file.drain(at as usize..(at + len) as usize);
            Change::Allocate { mode: Fallocate::CollapseRange, at, len }
        }
        11 if size > cluster && size < REACH => {
            let at = whole(rng.random_range(0..size));
            let len = rng.random_range(1..4) * cluster;
            file.splice(at as usize..at as usize, std::iter::repeat_n(0, len as usize));
            Change::Allocate { mode: Fallocate::InsertRange, at, len }
        }
        _ => Change::Sync,
    }
}

fn name(file: usize) -> String {
    format!("file{file}")
}

/// Does it with Linux.
fn by_linux(dir: &Path, file: usize, change: Change) {
    let path = dir.join(name(file));
    let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
    match change {
        Change::Write { at, len, seed } => open().write_all_at(&data(seed, len), at).unwrap(),
        Change::Resize { size } => open().set_len(size).unwrap(),
        Change::Sync => open().sync_all().unwrap(),
        Change::Allocate { mode, at, len } => {
            let flags = match mode {
                Fallocate::Allocate { keep_size: false } => FallocateFlags::empty(),
                Fallocate::Allocate { keep_size: true } => FallocateFlags::KEEP_SIZE,
                Fallocate::ZeroRange { keep_size: false } => FallocateFlags::ZERO_RANGE,
                Fallocate::ZeroRange { keep_size: true } => {
                    FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE
                }
                Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                Fallocate::CollapseRange => FallocateFlags::COLLAPSE_RANGE,
                Fallocate::InsertRange => FallocateFlags::INSERT_RANGE,
            };
            rustix::fs::fallocate(open(), flags, at, len).unwrap();
        }
    }
}

/// Does it with Extol.
fn by_extol(fs: &Arc<Ext4>, file: usize, change: Change) {
    let path = PathBuf::from("/").join(name(file));
    let file = match fs.open_file(&path, extol::OpenOptions::new().write(true).create(true)) {
        Ok(file) => file,
        Err(e) => panic!("{change:?}: {e}"),
    };
    match change {
        Change::Write { at, len, seed } => file.write_all_at(&data(seed, len), at),
        Change::Resize { size } => file.set_len(size),
        Change::Sync => file.sync_all(),
        Change::Allocate { mode, at, len } => file.allocate(mode, at, len),
    }
    .unwrap_or_else(|e| panic!("{change:?}: {e}"));
}

fn device(image: &Image) -> SharedDevice {
    let how = extol_block::OpenOptions::read_write();
    Arc::new(FileDevice::open(&image.path, &how).unwrap())
}

fn open(image: &Image, options: &str) -> Arc<Ext4> {
    Ext4::open(device(image), &MountOptions::parse(options).unwrap()).unwrap()
}

/// Contents of a file, and which of its blocks are mapped.
fn state(image: &Image, file: usize) -> (Vec<u8>, Vec<(u64, u64)>) {
    let fs = open(image, "ro");
    let path = PathBuf::from("/").join(name(file));
    let Ok(contents) = fs.read_file(&path) else { return Default::default() };
    let ino = fs.inode(&path).unwrap().ino();
    let mut mapped: Vec<(u64, u64)> = Vec::new();
    for extent in fs.fiemap(ino, 0, u64::MAX).unwrap() {
        match mapped.last_mut() {
            Some(last) if last.1 == extent.logical => last.1 += extent.len,
            _ => mapped.push((extent.logical, extent.logical + extent.len)),
        }
    }
    fs.unmount().unwrap();
    (contents, mapped)
}

/// The same changes on two volumes, by turns of Linux and Extol.
fn differ(args: &[&str], cluster: u64, options: &str, seed: u64) {
    let what = format!("{args:?} {options} seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let scratch = Scratch::in_memory();
    let images = ["a.img", "b.img"].map(|n| Image::mke2fs(scratch.path(), n, 40 << 20, args));
    let mut files = vec![Vec::new(); FILES];
    for turn in 0..4 {
        let changes: Vec<(usize, Change)> = (0..40)
            .map(|_| {
                let file = rng.random_range(0..FILES);
                (file, change(&mut rng, &mut files[file], cluster))
            })
            .collect();
        let [linux, extol] = if turn % 2 == 0 { [0, 1] } else { [1, 0] };
        let mount = KernelMount::mount(&images[linux], &scratch.dir("mnt"), &[]);
        changes.iter().for_each(|(file, change)| by_linux(mount.path(), *file, *change));
        mount.unmount();
        let fs = open(&images[extol], options);
        changes.iter().for_each(|(file, change)| by_extol(&fs, *file, *change));
        fs.sync().unwrap();
        let stats = fs.stats();
        assert_eq!((stats.reserved_blocks, stats.errors_seen), (0, 0), "{what} turn {turn}");
        fs.unmount().unwrap();
        drop(fs);
        for (image, by) in [(&images[linux], "Linux"), (&images[extol], "Extol")] {
            e2fsck(image).assert_clean(&format!("{what} turn {turn} by {by}: {changes:?}"));
        }
        for (file, contents) in files.iter().enumerate() {
            let (theirs, ours) = (state(&images[linux], file), state(&images[extol], file));
            assert!(theirs.0 == *contents, "{what} turn {turn} file {file}: the model is wrong");
            assert!(ours.0 == *contents, "{what} turn {turn} file {file}: contents {changes:?}");
            assert_eq!(ours.1, theirs.1, "{what} turn {turn} file {file}: mapped {changes:?}");
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    match std::env::var("EXTOL_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..3,
    }
}

#[test]
fn files_become_what_linux_makes_of_them() {
    if !require(NEEDS) {
        return;
    }
    for seed in seeds() {
        let blocks = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C"];
        for (cluster, options) in [("2048", ""), ("8192", "nodelalloc"), ("65536", "")] {
            let args = [&blocks[..], &[cluster]].concat();
            differ(&args, cluster.parse().unwrap(), options, seed);
        }
        let args = ["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-J", "size=4"];
        differ(&args, 16384, "", seed);
    }
}

/// Full to the last cluster: sparse single blocks take a cluster each, as many as Linux counts, and
/// the blocks beside them need none.
#[test]
fn a_full_volume_has_room_in_clusters_that_are_in_use() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::in_memory();
    let args = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"];
    let image = Image::mke2fs(scratch.path(), "full.img", 8 << 20, &args);
    let fs = open(&image, "");
    let file = fs.create_file("/f").unwrap();
    let before = fs.statfs().unwrap().blocks_free;
    let mut at = 0;
    let end = loop {
        match file.write_at(&[7; 1024], at) {
            Ok(_) => at += 16 << 10,
            Err(e) => break e,
        }
    };
    assert_eq!(end, FsError::NoSpace);
    file.sync_all().unwrap();
    let clusters = at / (16 << 10);
    let left = fs.statfs().unwrap().blocks_free;
    assert!(left <= 8, "{left} of {before} blocks left");
    assert!(clusters * 8 + 16 * 8 >= before, "{clusters} clusters of {before} blocks");
    // Beside each block there is room (without another extent, which would take a tree block), and
    // nowhere else.
    for n in 0..20 {
        file.write_all_at(&[8; 1024], n * (16 << 10) + 1024).unwrap();
    }
    assert_eq!(file.write_at(&[9; 1024], at), Err(FsError::NoSpace));
    file.sync_all().unwrap();
    drop(file);
    fs.unmount().unwrap();
    drop(fs);
    e2fsck(&image).assert_clean("full");
    let fs = open(&image, "");
    fs.remove_file("/f").unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, before, "all is free again");
    fs.unmount().unwrap();
    e2fsck(&image).assert_clean("empty");
}

/// statfs says what Linux says.
#[test]
fn free_space_is_counted_as_linux_counts_it() {
    if !require(NEEDS) {
        return;
    }
    let scratch = Scratch::in_memory();
    for args in [
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"][..],
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc,^flex_bg", "-C", "2048", "-m", "7"],
    ] {
        let image = Image::mke2fs(scratch.path(), "s.img", 60 << 20, args);
        let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
        std::fs::write(mount.path().join("x"), vec![1; 50_000]).unwrap();
        run_ok(tool("sync").arg("-f").arg(mount.path()));
        let line = run_ok(tool("stat").args(["-f", "-c", "%b %f %a"]).arg(mount.path()));
        mount.unmount();
        let theirs: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let fs = open(&image, "");
        let ours = fs.statfs().unwrap();
        let trimmed = fs.trim(0, u64::MAX, 0).unwrap();
        assert_eq!(trimmed, ours.blocks_free * u64::from(ours.block_size), "{args:?}: all is free");
        assert!(fs.read_file("/x").unwrap() == vec![1; 50_000]);
        fs.unmount().unwrap();
        drop(fs);
        assert_eq!([ours.blocks, ours.blocks_free], theirs[..2], "{args:?}");
        // Linux keeps some clusters for itself beside those of root.
        assert!(ours.blocks_available >= theirs[2], "{args:?}");
        e2fsck(&image).assert_clean("after both");
    }
}

/// Fast commits that Linux wrote are replayed: contents, and what e2fsck counts. (Linux's own
/// replay, and that of e2fsck, leave a wrong count of blocks.)
#[test]
fn fast_commits_of_linux_are_replayed_in_clusters() {
    if !require(NEEDS) {
        return;
    }
    let scratch = Scratch::in_memory();
    for seed in seeds() {
        let mut rng = SmallRng::seed_from_u64(seed);
        let args = ["-t", "ext4", "-b", "4096", "-O", "bigalloc,fast_commit", "-C", "16384"];
        let image = Image::mke2fs(scratch.path(), "fc.img", 100 << 20, &args);
        let mount = KernelMount::mount(&image, &scratch.dir("mnt"), &[]);
        let mut files = vec![Vec::new(); FILES];
        for (file, contents) in files.iter_mut().enumerate() {
            for _ in 0..3 {
                by_linux(mount.path(), file, change(&mut rng, contents, 16384));
            }
        }
        run_ok(tool("sync").arg("-f").arg(mount.path()));
        for _ in 0..12 {
            let file = rng.random_range(0..FILES);
            let change = change(&mut rng, &mut files[file], 16384);
            by_linux(mount.path(), file, change);
            by_linux(mount.path(), file, Change::Sync);
        }
        (0..FILES).for_each(|file| by_linux(mount.path(), file, Change::Sync));
        shutdown(mount.path(), Shutdown::Now);
        mount.unmount();
        for (file, contents) in files.iter().enumerate() {
            assert!(state(&image, file).0 == *contents, "seed {seed} file {file}: only read");
        }
        open(&image, "").unmount().unwrap();
        e2fsck(&image).assert_clean(&format!("seed {seed}: replayed"));
        for (file, contents) in files.iter().enumerate() {
            assert!(state(&image, file).0 == *contents, "seed {seed} file {file}");
        }
    }
}
