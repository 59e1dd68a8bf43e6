//! The log moves in front of a limit: every state on the way is one that e2fsck, Linux and Extol
//! take, and a crash at any write leaves one.

use std::sync::Arc;

use extol_block::MemDevice;
use extol_devices::Event;
use extol_testkit::{self as testkit, KernelMount, Need};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::crash::{assert_recovers, write_out};
use super::*;

/// 32 MiB, with the log behind the limit.
const CASES: &[&str] = &[
    "-t ext4 -b 1024 -g 2048 -J size=2,location=20M",
    "-t ext3 -b 1024 -O ^has_journal",
    "-t ext4 -b 1024 -g 2048 -O fast_commit -J size=3,location=20M",
    "-t ext4 -b 1024 -O ^metadata_csum,^64bit -I 128 -J size=3,location=20M",
    "-t ext4 -b 4096 -I 512 -J size=5,location=20M",
    // In more pieces than the inode holds.
    "-t ext4 -b 1024 -g 1024 -O ^flex_bg,^resize_inode -J size=3,location=20M",
];

fn limit(image: &Image) -> u64 {
    // (It is not where it was asked for without extents.)
    let last = journal_blocks(&image.path).into_iter().max().unwrap();
    ((17 << 20) / image.number("Block size")).min(last - 100)
}

/// Blocks of the journal's inode, data and map.
fn journal_blocks(path: &Path) -> Vec<u64> {
    let (_, text) = run("debugfs", &["-R", "blocks <8>"], path);
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn prepared(layout: &str) -> Image {
    let args: Vec<&str> = layout.split(' ').collect();
    let image = Image::new("32M", &args);
    image.with(|fs| fill_some(fs, 8));
    if layout.ends_with("^has_journal") {
        // mke2fs puts it at the beginning; tune2fs where there is room.
        let ballast =
            |fs: &Ext4| fs.write(common::file(fs, fs.root(), "ballast"), 0, &[1; 20 << 20]);
        assert_eq!(image.with(ballast), Ok(20 << 20));
        let (code, text) = run("tune2fs", &["-O", "has_journal", "-J", "size=2"], &image.path);
        assert_eq!(code, 0, "{text}");
        image.with(|fs| fs.unlink(fs.root(), b"ballast")).unwrap();
    }
    let limit = limit(&image);
    assert!(journal_blocks(&image.path).iter().any(|nr| *nr >= limit), "{layout}");
    image
}

/// Linux mounts it, works with it, and leaves a log to be replayed.
fn linux_works(path: &Path, what: &str) {
    let image = testkit::Image::existing(path);
    let dir = tempfile::tempdir().unwrap();
    let mount = KernelMount::mount(&image, dir.path(), &[]);
    for nr in 0..30 {
        std::fs::write(dir.path().join(format!("linux{nr}")), contents(nr, 9000)).unwrap();
    }
    std::fs::File::open(dir.path().join("linux29")).unwrap().sync_all().unwrap();
    // As a crash leaves it.
    let crashed = path.with_file_name("from linux");
    std::fs::copy(path, &crashed).unwrap();
    mount.unmount();
    let (code, text) = run("e2fsck", &["-fn"], path);
    assert_eq!(code, 0, "{what}: after Linux, e2fsck says\n{text}");
    let fs = Ext4::open_path(&crashed, &MountOptions::default().without_threads()).unwrap();
    assert_some(&fs, 8, what);
    let attr = fs.lookup(fs.root(), b"linux29").unwrap();
    assert_eq!(attr.size, 9000, "{what}");
    fs.unmount().unwrap();
    let (code, text) = run("e2fsck", &["-fn"], &crashed);
    assert_eq!(code, 0, "{what}: after Linux's crash, e2fsck says\n{text}");
    std::fs::remove_file(&crashed).unwrap();
}

#[test]
fn every_state_is_sound() {
    let linux = testkit::require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]);
    for layout in CASES {
        let image = prepared(layout);
        let (limit, before) = (limit(&image), journal_blocks(&image.path));
        let base = MemDevice::from_bytes(&std::fs::read(&image.path).unwrap());
        let device = Arc::new(base);
        let options = MountOptions::default().without_threads();
        let fs = Ext4::open(Arc::clone(&device) as _, &options).unwrap();
        let mut states = vec![device.snapshot()];
        let mut keep = |done, of| {
            assert_eq!(of, 3);
            assert_eq!(done, states.len() as u64);
            states.push(device.snapshot());
            true
        };
        fs.move_journal(limit, &mut keep).unwrap();
        let mut nothing = |_, _| panic!("twice");
        fs.move_journal(limit, &mut nothing).unwrap();
        // It is used from here on.
        for round in 0..40 {
            let ino = common::file(&fs, fs.root(), &format!("later{round}"));
            fs.write(ino, 0, &contents(round, 20_000)).unwrap();
            fs.fsync(ino, false).unwrap();
        }
        let recovered = Arc::new(device.snapshot());
        let again = Ext4::open(Arc::clone(&recovered) as _, &options).unwrap();
        assert_some(&again, 8, layout);
        let attr = again.lookup(again.root(), b"later39").unwrap();
        assert_eq!(attr.size, 20_000, "{layout}");
        again.unmount().unwrap();
        states.push(recovered.snapshot());
        fs.unmount().unwrap();
        states.push(device.snapshot());
        assert_eq!(states.len(), 6);
        for (nr, state) in states.iter().enumerate() {
            let what = format!("{layout}: state {nr}");
            let path = image.path.with_file_name("state");
            write_out(state, &path);
            let (code, text) = run("e2fsck", &["-fn"], &path);
            assert_eq!(code, 0, "{what}: e2fsck says\n{text}");
            assert_recovers(&image, state, &what);
            let blocks = journal_blocks(&path);
            match nr {
                0 => assert_eq!(blocks, before, "{what}"),
                1 | 2 => assert!(blocks.len() > 3 * before.len() / 2, "{what}"),
                _ => {
                    assert!(blocks.iter().all(|nr| *nr < limit), "{what}: {blocks:?}");
                    assert!(blocks.len().abs_diff(before.len()) < 8, "{what}");
                }
            }
            if linux {
                write_out(state, &path);
                linux_works(&path, &what);
            }
        }
    }
}

#[test]
fn a_crash_while_the_log_moves() {
    if !testkit::require(&[Need::Tool("e2fsck")]) {
        return;
    }
    std::thread::scope(|s| {
        for (nr, layout) in CASES.iter().enumerate() {
            s.spawn(move || crashes(layout, nr as u64));
        }
    });
}

fn crashes(layout: &str, seed: u64) {
    let image = prepared(layout);
    let limit = limit(&image);
    let blocks = image.blocks();
    let (device, fs) = image.recorded();
    let start = device.position();
    fs.move_journal(limit, &mut |_, _| true).unwrap();
    for round in 0..3 {
        let ino = common::file(&fs, fs.root(), &format!("later{round}"));
        fs.write(ino, 0, &contents(round, 20_000)).unwrap();
        // (e2fsck counts after a fast commit.)
        fs.sync().unwrap();
    }
    fs.unmount().unwrap();
    let log = device.log();
    let cuts = (start..=device.position())
        .filter(|cut| *cut == start || !matches!(log[cut - 1], Event::Mark(_)));
    let mut random = SmallRng::seed_from_u64(seed);
    let mut count = 0;
    for cut in cuts {
        // All writes since the last flush arrived; at some cuts none, or some.
        for how in 0..if cut.is_multiple_of(3) { 3 } else { 1 } {
            let keep = |_| match how {
                0 => true,
                1 => false,
                _ => random.random(),
            };
            let what = format!("{layout}, cut {cut} of {}, {how}", device.position());
            let crashed = device.image_at(cut, keep);
            assert_eq!(assert_recovers(&image, &crashed, &what), blocks, "{what}");
            // What a crash left is no obstacle.
            if how == 0 && cut.is_multiple_of(2) {
                let again = Arc::new(crashed.snapshot());
                let options = MountOptions::default().without_threads();
                let fs = Ext4::open(Arc::clone(&again) as _, &options).unwrap();
                fs.move_journal(limit, &mut |_, _| true).unwrap();
                assert_some(&fs, 8, &what);
                fs.unmount().unwrap();
                let path = image.path.with_file_name("again");
                write_out(&again, &path);
                let (code, text) = run("e2fsck", &["-fn"], &path);
                assert_eq!(code, 0, "{what}, again: e2fsck says\n{text}");
                assert!(journal_blocks(&path).iter().all(|nr| *nr < limit), "{what}, again");
            }
            count += 1;
        }
    }
    assert!(count > 60, "{layout}: {count}");
}

/// With little room the log becomes shorter; with less it stays, and nothing has changed.
#[test]
fn little_room() {
    for (layout, left, moves) in [(CASES[0], 1400, true), (CASES[0], 700, false)] {
        let image = prepared(layout);
        let limit = limit(&image);
        let fs = image.open();
        let ino = common::file(&fs, fs.root(), "ballast");
        let mut at = 0;
        // Files that fill everything; then so many blocks in front of the limit are freed.
        while fs.write(ino, at, &[1; 1024]).is_ok() {
            at += 1024;
            if at.is_multiple_of(1 << 20) {
                fs.fsync(ino, false).unwrap();
            }
        }
        let _ = fs.fsync(ino, false);
        let runs = fs.fiemap(ino, 0, u64::MAX).unwrap();
        let mut freed = 0;
        for run in runs.iter().filter(|run| (run.physical + run.len) / 1024 < limit) {
            let len = run.len.min((left - freed) * 1024);
            if len > 0 {
                let how = extol::vfs::Fallocate::PunchHole;
                fs.fallocate(ino, how, run.logical, len).unwrap();
                freed += len / 1024;
            }
        }
        assert!(freed >= left.min(1400), "{freed}");
        fs.sync().unwrap();
        let done = fs.move_journal(limit, &mut |_, _| true);
        fs.unmount().unwrap();
        drop(fs);
        image.assert_clean(layout);
        let behind = journal_blocks(&image.path).iter().any(|nr| *nr >= limit);
        assert_eq!((done.is_ok(), behind), (moves, !moves), "{done:?}");
        if let Err(e) = done {
            let why = e.to_string();
            assert!(why.contains("the journal finds no room in front of block"), "{why}");
        }
        image.with(|fs| assert_some(fs, 8, layout));
    }
}
