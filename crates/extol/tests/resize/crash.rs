//! A crash at every write: the volume is sound, of the old size, the new one or one in between, and
//! nothing of what it held is lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use extol_block::{BlockDevice, MemDevice};
use extol_devices::Event;
use extol_testkit::{self as testkit};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// The image as a sparse file.
pub(super) fn write_out(device: &MemDevice, path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(device.size()).unwrap();
    let mut at = 0;
    while let Some(range) = device.data_from(at).unwrap() {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        device.read_at(&mut bytes, range.start).unwrap();
        file.write_all_at(&bytes, range.start).unwrap();
        at = range.end;
    }
}

struct Crash {
    layout: &'static str,
    kib: u64,
    to_kib: u64,
}

const CASES: &[Crash] = &[
    Crash { layout: "-t ext4 -b 1024 -g 1024 -N 64 -E resize=70000", kib: 3000, to_kib: 37_000 },
    Crash { layout: "-t ext4 -b 1024 -g 1024 -N 64 -E resize=40000", kib: 30_000, to_kib: 70_000 },
    Crash {
        layout: "-t ext4 -b 1024 -g 1024 -N 64 -O ^resize_inode,meta_bg,64bit",
        kib: 3000,
        to_kib: 37_000,
    },
    Crash {
        layout: "-t ext4 -b 1024 -g 1024 -N 64 -O fast_commit -E resize=70000",
        kib: 17_000,
        to_kib: 37_000,
    },
    Crash { layout: "-t ext3 -b 1024 -g 1024 -N 64 -E resize=70000", kib: 3000, to_kib: 37_000 },
    Crash {
        layout: "-t ext4 -b 1024 -O bigalloc -C 2048 -g 512 -N 64 -E resize=70000",
        kib: 6000,
        to_kib: 37_000,
    },
];

#[test]
fn sound_after_a_crash_at_every_write() {
    if !testkit::require(&[testkit::Need::Tool("e2fsck")]) {
        return;
    }
    std::thread::scope(|s| {
        let only = std::env::var("EXTOL_CASE").ok().and_then(|nr| nr.parse::<usize>().ok());
        for (nr, case) in CASES.iter().enumerate().filter(|(nr, _)| only.is_none_or(|o| o == *nr)) {
            s.spawn(move || crashes(case, nr as u64));
        }
    });
}

fn crashes(case: &Crash, seed: u64) {
    let args: Vec<&str> = case.layout.split(' ').collect();
    let image = Image::new(&format!("{}k", case.kib), &args);
    image.with(|fs| fill_some(fs, 8));
    let (device, fs) = image.recorded();
    let (before, after) = (device.size() / 1024, case.to_kib);
    let start = device.position();
    // Each step in a transaction of its own, or all in one.
    let mut steps = |_| {
        if seed.is_multiple_of(2) {
            fs.sync().unwrap();
        }
        true
    };
    fs.grow(Target::Blocks(after), &mut steps).unwrap();
    let grown = device.position();
    fs.unmount().unwrap();
    let log = device.log();
    if std::env::var_os("EXTOL_SHOW").is_some() {
        for (at, event) in log.iter().enumerate().skip(start) {
            let text = match event {
                Event::Write { offset, data, fua } => {
                    format!("write {} +{} {fua}", offset / 1024, data.len() / 1024)
                }
                other => format!("{other:?}"),
            };
            println!("{at}: {text}");
        }
    }
    let cuts = (start..=device.position()).filter(|cut| {
        // Behind a flush nothing is open, and between notes nothing happens.
        *cut == start || !matches!(log[cut - 1], Event::Mark(_))
    });
    let mut random = SmallRng::seed_from_u64(seed);
    let mut sizes = BTreeSet::new();
    for cut in cuts {
        // All writes since the last flush arrived; and none, or some.
        for how in [0, 1 + cut % 2] {
            let keep = |_| match how {
                0 => true,
                1 => false,
                _ => random.random(),
            };
            let what = format!("{}, cut {cut} of {grown}, {how}", case.layout);
            let crashed = device.image_at(cut, keep);
            let blocks = assert_recovers(&image, &crashed, &what);
            assert!((before..=after).contains(&blocks), "{what}: {blocks} blocks");
            assert!(cut < grown || blocks == after, "{what}: {blocks} blocks, and it had returned");
            sizes.insert(blocks);
        }
    }
    assert!(sizes.len() > if seed.is_multiple_of(2) { 2 } else { 1 }, "{}: {sizes:?}", case.layout);
}

/// Interrupted behind the cut of the superblock, an image may be longer than its volume, and copies
/// of the superblock may be old: the same command ends what there is.
#[test]
fn an_interrupted_cut_is_ended_by_the_next_resize() {
    // The last group with a copy begins at this block when the volume has become smaller.
    for (layout, kib, to, last) in [
        ("-t ext4 -b 1024 -g 1024 -N 64 -J size=1", "9000k", 5000, 3 * 1024 + 1),
        ("-t ext2 -b 1024 -N 64", "30000k", 12_000, 8193),
    ] {
        let image = Image::new(kib, &layout.split(' ').collect::<Vec<_>>());
        image.with(|fs| fill_some(fs, 8));
        let (device, fs) = image.recorded();
        let start = device.position();
        let resized = fs.resize(Target::Bytes(to << 10), &mut |_| true).unwrap();
        assert_eq!(resized.blocks, to);
        fs.unmount().unwrap();
        drop(fs);

        let (mut long, mut old_copies) = (0, 0);
        for cut in start..=device.position() {
            for keeps in [true, false] {
                let what = format!("{layout}, cut {cut}, {keeps}");
                let crashed = Arc::new(device.image_at(cut, |_| keeps));
                let options = MountOptions::default().without_threads();
                let fs = Ext4::open(Arc::clone(&crashed) as _, &options).unwrap();
                let is_cut = fs.stats().blocks == to;
                long += usize::from(is_cut && crashed.size() > to << 10);
                old_copies += usize::from(is_cut && blocks_in(&crashed, last << 10) != to);
                fs.resize(Target::Bytes(to << 10), &mut |_| true).unwrap();
                assert_some(&fs, 8, &what);
                fs.unmount().unwrap();
                drop(fs);
                assert_eq!(crashed.size(), to << 10, "{what}");
                assert_eq!(blocks_in(&crashed, last << 10), to, "{what}");
            }
        }
        assert!(long > 0, "{layout}: the image is never longer than the volume");
        assert!(old_copies > 0, "{layout}: a copy is never old");
    }
}

/// Blocks of the volume, as a superblock says that is there.
fn blocks_in(device: &MemDevice, at: u64) -> u64 {
    let mut field = [0; 4];
    device.read_at(&mut field, at + 4).unwrap();
    u32::from_le_bytes(field).into()
}

/// e2fsck and Extol recover it; gives the blocks it has then.
pub(super) fn assert_recovers(image: &Image, crashed: &MemDevice, what: &str) -> u64 {
    let path = image.path.with_file_name("crashed");
    write_out(crashed, &path);
    let file = testkit::Image::existing(&path);
    let report = testkit::e2fsck_fix(&file);
    assert_eq!(report.unexpected_repairs(), None, "{what}");
    let blocks = Image { _dir: TempDir::new().unwrap(), path: path.clone() }.blocks();

    let device = Arc::new(crashed.snapshot());
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(Arc::clone(&device) as _, &options).unwrap_or_else(|e| {
        panic!("{what}: {e}");
    });
    assert_some(&fs, 8, what);
    assert_eq!(fs.stats().blocks, blocks, "{what}");
    fs.unmount().unwrap();
    drop(fs);
    write_out(&device, &path);
    let (code, text) = run("e2fsck", &["-fn"], &path);
    assert_eq!(code, 0, "{what}: e2fsck says\n{text}");
    blocks
}
