//! The minimum of a volume, in one go and step by step, beside `resize2fs -M`.

use std::sync::Arc;

use extol_block::{FileDevice, OpenOptions};
use extol_testkit::{Need, require};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// Options of mke2fs, and the volume in MiB.
const LAYOUTS: &[(&str, u64)] = &[
    ("-t ext4 -b 1024 -J size=4", 64),
    ("-t ext4 -b 1024 -J size=2 -O ^flex_bg,^resize_inode", 64),
    ("-t ext4 -b 1024 -g 2048 -N 2048 -J size=2", 48),
    ("-t ext4 -b 1024 -J size=2 -O meta_bg,^resize_inode -G 4", 48),
    ("-t ext4 -b 4096 -J size=5", 96),
    ("-t ext3 -b 1024 -J size=2", 48),
];

/// Files whose blocks take turns, with holes between them, in all parts of the volume.
pub(super) fn fill(fs: &Ext4, mib: u64, random: &mut SmallRng) {
    let ballast = common::file(fs, fs.root(), "ballast");
    for at in 0..mib / 2 {
        fs.write(ballast, at << 20, &[1; 1 << 20]).unwrap();
    }
    fs.fsync(ballast, false).unwrap();
    let files: Vec<u32> = (0..24)
        .map(|nr| {
            let dir = common::dir(fs, fs.root(), &format!("dir{nr}"));
            common::file(fs, dir, "file")
        })
        .collect();
    for round in 0..40 {
        for (nr, ino) in files.iter().enumerate() {
            let len = random.random_range(1..9) * 1024;
            let at = fs.getattr(*ino).unwrap().size + random.random_range(0..3) * 4096;
            fs.write(*ino, at, &contents(nr as u64, len)).unwrap();
            // Blocks are taken now.
            if (round + nr).is_multiple_of(5) {
                fs.fsync(*ino, false).unwrap();
            }
        }
    }
    for nr in (0..files.len()).filter(|nr| nr % 3 == 1) {
        let dir = fs.lookup(fs.root(), format!("dir{nr}").as_bytes()).unwrap();
        fs.unlink(dir.id.ino, b"file").unwrap();
    }
    fs.unlink(fs.root(), b"ballast").unwrap();
    fs.sync().unwrap();
}

/// Every byte of every file.
pub(super) fn sums(fs: &Ext4) -> Vec<(u64, u64)> {
    let sum = |nr: u64| {
        let dir = fs.lookup(fs.root(), format!("dir{nr}").as_bytes()).unwrap();
        let Ok(attr) = fs.lookup(dir.id.ino, b"file") else { return (0, 0) };
        let mut bytes = vec![0; attr.size as usize];
        assert_eq!(fs.read(attr.id.ino, 0, &mut bytes).unwrap(), bytes.len());
        let sum = bytes.iter().fold(7, |sum: u64, byte| {
            sum.wrapping_mul(0x0100_0000_01B3).wrapping_add(u64::from(*byte))
        });
        (attr.size, sum)
    };
    (0..24).map(sum).collect()
}

pub(super) fn copy(image: &Image) -> Image {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::copy(&image.path, &path).unwrap();
    Image { _dir: dir, path }
}

/// Makes it as small as possible, and checks it. Gives its blocks.
pub(super) fn minimum(image: &Image, before: &[(u64, u64)], what: &str) -> u64 {
    let done = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true).unwrap());
    image.assert_clean(what);
    assert_eq!(image.blocks(), done.blocks, "{what}");
    assert_eq!(image.with(sums), before, "{what}");
    done.blocks
}

#[test]
fn the_way_to_the_minimum_matters_little() {
    if !require(&[Need::Tool("resize2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let rounds = if std::env::var_os("EXTOL_LONG").is_some() { 8 } else { 2 };
    let mut found = Vec::new();
    for seed in 0..rounds {
        for (layout, mib) in LAYOUTS {
            let what = format!("{layout}, seed {seed}");
            let mut random = SmallRng::seed_from_u64(seed);
            let args: Vec<&str> = layout.split(' ').collect();
            let image = Image::new(&format!("{mib}M"), &args);
            image.with(|fs| fill(fs, *mib, &mut random));
            image.assert_clean(&what);
            let before = image.with(sums);
            let theirs = copy(&image);
            let (code, text) = run("resize2fs", &["-f", "-M"], &theirs.path);
            assert_eq!(code, 0, "{what}: {text}");
            let steps = copy(&image);
            let all = image.blocks();
            for eighths in [7, 5, 4, 3, 2] {
                let wish = Target::Blocks(all * eighths / 8);
                // (What does not fit any more changes nothing, or ends the steps.)
                let done = steps.with(|fs| fs.resize(wish, &mut |_| true));
                steps.assert_clean(&what);
                if done.is_err() {
                    break;
                }
            }
            let theirs = theirs.blocks();
            let once = minimum(&image, &before, &format!("{what}, in one go"));
            let stepwise = minimum(&steps, &before, &format!("{what}, stepwise"));
            println!("{what}: {once} in one go, {stepwise} stepwise, {theirs} by resize2fs");
            found.push((what, once, stepwise, theirs));
        }
    }
    for (what, once, stepwise, theirs) in found {
        assert!(once <= theirs, "{what}: {once}, resize2fs {theirs}");
        let apart = once.abs_diff(stepwise);
        assert!(apart * 100 <= once, "{what}: {once}, stepwise {stepwise}");
    }
}

/// Each size from the minimum on can be had at once: the log becomes shorter where it must.
#[test]
fn what_is_not_below_the_minimum_is_not_refused() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = Image::new("256M", &["-t", "ext4", "-b", "4096", "-J", "size=32"]);
    image.with(|fs| fill_some(fs, 8));
    let least = copy(&image).with(|fs| fs.resize(Target::Minimum, &mut |_| true).unwrap().blocks);
    assert!(least < 8192, "the log alone was longer: {least}");
    for blocks in [least, least + 100, 4000, 7000, 8500, 20_000] {
        let image = copy(&image);
        let what = format!("{blocks} blocks, and the minimum is {least}");
        let done = image.with(|fs| fs.resize(Target::Blocks(blocks), &mut |_| true)).expect(&what);
        assert_eq!(done.blocks, blocks, "{what}");
        image.assert_clean(&what);
        image.with(|fs| assert_some(fs, 8, &what));
    }
    let refused = image.with(|fs| fs.resize(Target::Blocks(least / 2), &mut |_| true));
    assert!(refused.is_err());
}

/// The resize inode reserves so many descriptor blocks that one transaction with all of them is
/// more than a transaction has otherwise.
#[test]
fn reserved_descriptor_blocks_may_be_as_many_as_the_log_holds() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = Image::new("9G", &["-t", "ext4", "-b", "4096", "-J", "size=16"]);
    assert!(image.number("Reserved GDT blocks") > 1000);
    image.with(|fs| fill_some(fs, 8));
    let device = Arc::new(FileDevice::open(&image.path, &OpenOptions::read_only()).unwrap());
    let said = Ext4::minimum(&(device as _), &MountOptions::default(), &mut |_| true).unwrap();
    for blocks in [said.blocks - 300_000, said.blocks + 3_000_000, said.minimum] {
        let what = format!("{blocks} blocks");
        let done = image.with(|fs| fs.resize(Target::Blocks(blocks), &mut |_| true)).expect(&what);
        assert_eq!(done.blocks, blocks, "{what}");
        image.assert_clean(&what);
        image.with(|fs| assert_some(fs, 8, &what));
    }
    let smaller = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).unwrap();
    assert_eq!(smaller.blocks, said.minimum);
}
