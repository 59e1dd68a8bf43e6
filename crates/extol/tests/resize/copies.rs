//! Copies of the superblock and of descriptors name what the volume has.

use std::collections::BTreeSet;
use std::sync::Arc;

use extol_block::MemDevice;
use extol_devices::Event;
use extol_testkit::{Need, require};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::crash::{assert_recovers, write_out};
use super::*;

/// Where the metadata of all groups lies, by the copy at this block, or by the primary descriptors.
/// Nothing if the copy is not one of the volume as it is.
fn places(image: &Image, copy: Option<u64>) -> Vec<String> {
    let size = image.number("Block size").to_string();
    let (copy, size) = (copy.map(|at| format!("superblock={at}")), format!("blocksize={size}"));
    let options: Vec<&str> =
        copy.iter().flat_map(|copy| ["-o", copy.as_str(), "-o", size.as_str()]).collect();
    let (code, text) = run("dumpe2fs", &options, &image.path);
    assert!(code == 0 || copy.is_some(), "{text}");
    let kept = |line: &&str| line.contains(" bitmap at ") || line.contains(" table at ");
    let place = |line: &str| line.split(", csum").next().unwrap_or_default().trim().to_owned();
    text.lines().filter(kept).map(place).collect()
}

/// The blocks where copies lie.
fn copies(image: &Image) -> Vec<u64> {
    let text = image.dumpe2fs();
    let places = text.lines().filter_map(|line| line.split("Backup superblock at ").nth(1));
    places.map(|rest| rest.split([',', ' ']).next().unwrap().parse().unwrap()).collect()
}

#[track_caller]
fn assert_copies(image: &Image, what: &str) {
    let primary = places(image, None);
    assert!(primary.len() > 8, "{what}: {primary:?}");
    let copies = copies(image);
    assert!(!copies.is_empty(), "{what}");
    for copy in copies {
        assert!(places(image, Some(copy)) == primary, "{what}: the copy at {copy} is old");
    }
}

/// What a crash left old is up to date when the growth that was begun again is done.
#[test]
fn copies_follow_a_growth_that_a_crash_interrupted() {
    if !require(&[Need::Tool("dumpe2fs")]) {
        return;
    }
    for layout in [
        "-t ext4 -b 1024 -g 1024 -N 64 -E resize=90000",
        "-t ext4 -b 1024 -g 1024 -N 64 -O ^64bit,^flex_bg -E resize=90000",
    ] {
        let args: Vec<&str> = layout.split(' ').collect();
        let image = Image::new("3000k", &args);
        image.with(|fs| fill_some(fs, 8));
        let device = Arc::new(MemDevice::from_bytes(&std::fs::read(&image.path).unwrap()));
        let options = MountOptions::default().without_threads();
        let fs = Ext4::open(Arc::clone(&device) as _, &options).unwrap();
        let mut crashed = None;
        // Behind the groups of two descriptor blocks, before the copies.
        let mut stop = |at: extol::resize::ResizeProgress| {
            if at.done > 70_000 && crashed.is_none() {
                fs.sync().unwrap();
                crashed = Some(device.snapshot());
            }
            true
        };
        fs.grow(Target::Blocks(80_000), &mut stop).unwrap();
        fs.unmount().unwrap();
        write_out(&crashed.expect("a crash"), &image.path);
        image.with(|_| ());
        let old = copies(&image);
        let primary = places(&image, None);
        assert!(
            old.iter().any(|copy| places(&image, Some(*copy)) != primary),
            "{layout}: no crash"
        );
        image.grow(90_000);
        image.assert_clean(layout);
        assert_copies(&image, layout);
        image.with(|fs| assert_some(fs, 8, layout));
    }
}

/// Volumes with two copies: the second one in the last group.
const TWO_COPIES: &[&str] = &[
    "-t ext4 -b 1024 -g 1024 -N 256 -J size=2 -O sparse_super2,^resize_inode",
    "-t ext4 -b 1024 -g 1024 -N 256 -J size=2 -O sparse_super2 -E resize=200000",
    "-t ext4 -b 1024 -g 1024 -N 256 -J size=2 -O sparse_super2,meta_bg,^resize_inode",
];

fn backup_groups(image: &Image) -> String {
    let text = image.dumpe2fs();
    let line = text.lines().find_map(|line| line.strip_prefix("Backup block groups:"));
    line.unwrap_or_default().trim().to_owned()
}

fn last_group(image: &Image) -> u64 {
    let (blocks, group) = (image.blocks(), image.number("Blocks per group"));
    (blocks - image.number("First block") - 1) / group
}

/// As resize2fs does it with a copy of the volume.
#[test]
fn the_second_copy_follows_the_end() {
    if !require(&[Need::Tool("resize2fs"), Need::Tool("dumpe2fs")]) {
        return;
    }
    for layout in TWO_COPIES {
        let args: Vec<&str> = layout.split(' ').collect();
        let image = Image::new("40M", &args);
        image.with(|fs| fill_some(fs, 8));
        let kib = image.number("Block size") / 1024;
        for mib in [90, 140, 60, 35, 50] {
            let what = format!("{layout} to {mib} MiB");
            let wish = mib * 1024 / kib;
            let theirs = image.path.with_file_name("theirs");
            std::fs::copy(&image.path, &theirs).unwrap();
            let (code, text) = run("resize2fs", &["-f", &format!("={mib}M")], &theirs);
            let theirs = Image { _dir: TempDir::new().unwrap(), path: theirs };
            image.with(|fs| fs.resize(Target::Blocks(wish), &mut |_| true).unwrap());
            image.assert_clean(&what);
            // (With meta_bg dumpe2fs looks for a copy in the group behind the last one.)
            if image.number("First meta block group") == 0 {
                assert_copies(&image, &what);
            }
            image.with(|fs| assert_some(fs, 8, &what));
            println!(
                "{what}: {}, resize2fs {code} {}",
                backup_groups(&image),
                backup_groups(&theirs)
            );
            if code == 0 && theirs.blocks() == image.blocks() {
                assert_eq!(backup_groups(&image), backup_groups(&theirs), "{what}: {text}");
            }
            let expected = format!("1 {}", last_group(&image));
            assert_eq!(backup_groups(&image), expected, "{what}");
        }
    }
}

/// A crash at any write leaves copies that are valid.
#[test]
fn a_crash_while_the_second_copy_moves() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for (layout, to) in [(TWO_COPIES[1], 50_000), (TWO_COPIES[1], 30_000), (TWO_COPIES[0], 33_000)]
    {
        let args: Vec<&str> = layout.split(' ').collect();
        let image = Image::new("40M", &args);
        image.with(|fs| fill_some(fs, 8));
        let (device, fs) = image.recorded();
        let start = device.position();
        fs.resize(Target::Blocks(to), &mut |_| true).unwrap();
        fs.unmount().unwrap();
        let log = device.log();
        let mut random = SmallRng::seed_from_u64(to);
        let mut seen = BTreeSet::new();
        for cut in start..=device.position() {
            if cut > start && matches!(log[cut - 1], Event::Mark(_)) {
                continue;
            }
            for how in 0..2 {
                let what = format!("{layout} to {to}, cut {cut}, {how}");
                let crashed = device.image_at(cut, |_| how == 0 || random.random());
                let blocks = assert_recovers(&image, &crashed, &what);
                write_out(&crashed, &image.path);
                image.with(|_| ());
                seen.insert((blocks, backup_groups(&image)));
            }
        }
        assert!(seen.len() > 1, "{layout} to {to}: {seen:?}");
    }
}
