//! Values of attributes in inodes behind the new end (feature ea_inode) get other numbers.

use std::sync::Arc;

use extol::vfs::XattrSet;
use extol_block::MemDevice;
use extol_devices::RecordingDevice;
use extol_testkit::{self as testkit, Need, require};

use super::crash::write_out;
use super::*;

const DIRS: u64 = 40;
const FILES: u64 = 5;
/// Alone in the inode, shared by all, in the attribute block, shared by two and in the block twice.
const NAMES: [&str; 5] = ["user.own", "user.all", "user.block", "user.pair", "user.again"];

fn value(name: &str, nr: u64) -> Vec<u8> {
    match name {
        "user.own" => contents(nr, 3000),
        "user.all" => contents(1_000_000, 6000),
        "user.block" => contents(1_000_001, 2500),
        _ => contents(2_000_000 + nr / 2, 2000),
    }
}

/// Calls `work` for each file, with its number.
fn each_file(fs: &Ext4, mut work: impl FnMut(u64, u32)) {
    for nr in 0..DIRS * FILES {
        let dir = fs.lookup(fs.root(), format!("d{}", nr % DIRS).as_bytes()).unwrap().id.ino;
        work(nr, fs.lookup(dir, format!("f{nr}").as_bytes()).unwrap().id.ino);
    }
}

fn volume(layout: &str) -> Image {
    let args: Vec<&str> = layout.split(' ').collect();
    let image = Image::new("48M", &args);
    image.with(|fs| {
        let dirs: Vec<_> =
            (0..DIRS).map(|nr| common::dir(fs, fs.root(), &format!("d{nr}"))).collect();
        for nr in 0..DIRS * FILES {
            let ino = common::file(fs, dirs[(nr % DIRS) as usize], &format!("f{nr}"));
            for name in NAMES {
                let set = fs.setxattr(ino, name.as_bytes(), &value(name, nr), XattrSet::Any);
                set.unwrap_or_else(|e| panic!("{layout}: {name} of {nr}: {e}"));
            }
        }
    });
    image.assert_clean("filled");
    image
}

fn assert_values(fs: &Ext4, what: &str) {
    each_file(fs, |nr, ino| {
        for name in NAMES {
            let found = fs.getxattr(ino, name.as_bytes());
            let found = found.unwrap_or_else(|e| panic!("{what}: {name} of {nr}: {e}"));
            assert_eq!(found, value(name, nr), "{what}: {name} of {nr}");
        }
    });
}

/// How many value inodes have numbers above `last`: those that are in use and have no name.
fn values_behind(image: &Image, last: u64) -> u64 {
    let per_group = image.number("Inodes per group");
    let groups = (last / per_group) as usize;
    let text = image.dumpe2fs();
    let free = text.lines().filter(|line| line.contains(" free blocks, "));
    let free: Vec<u64> = free
        .map(|line| line.split(", ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap())
        .collect();
    let used: u64 = free[groups..].iter().map(|free| per_group - free).sum();
    let mut named = 0;
    image.with(|fs| {
        each_file(fs, |_, ino| named += u64::from(u64::from(ino) > last));
        for nr in 0..DIRS {
            let dir = fs.lookup(fs.root(), format!("d{nr}").as_bytes()).unwrap().id.ino;
            named += u64::from(u64::from(dir) > last);
        }
    });
    used - named
}

const LAYOUTS: [&str; 3] = [
    "-t ext4 -b 1024 -N 4096 -O ea_inode,^flex_bg",
    "-t ext4 -b 1024 -I 128 -N 4096 -O ea_inode,^flex_bg,^metadata_csum",
    "-t ext4 -b 4096 -g 2048 -N 4096 -J size=4 -O ea_inode,^flex_bg,^metadata_csum",
];

#[test]
fn values_of_attributes_move() {
    if !require(&[Need::Tool("resize2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    for layout in LAYOUTS {
        let image = volume(layout);
        let before = image.path.with_file_name("before");
        std::fs::copy(&image.path, &before).unwrap();
        let before = Image { _dir: TempDir::new().unwrap(), path: before };
        image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).expect("the minimum");
        image.assert_clean(layout);
        let moved = values_behind(&before, image.number("Inode count"));
        assert!(moved > 10, "{layout}: {moved} values were behind the new end");
        image.with(|fs| {
            assert_values(fs, layout);
            // They are values still: counted, shared, and gone with the last user.
            each_file(fs, |nr, ino| {
                for name in NAMES {
                    fs.removexattr(ino, name.as_bytes()).unwrap();
                }
                if nr % 2 == 0 {
                    let again = value(NAMES[1], nr);
                    fs.setxattr(ino, NAMES[1].as_bytes(), &again, XattrSet::Any).unwrap();
                }
            });
        });
        image.assert_clean(layout);
    }
}

#[test]
fn a_crash_while_values_move_leaves_them_whole() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = volume(LAYOUTS[0]);
    let base = MemDevice::from_bytes(&std::fs::read(&image.path).unwrap());
    let device = Arc::new(RecordingDevice::new(base));
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(Arc::clone(&device) as _, &options).unwrap();
    let start = device.position();
    fs.resize(Target::Minimum, &mut |_| true).expect("the minimum");
    let end = device.position();
    fs.unmount().unwrap();
    let path = image.path.with_file_name("crashed");
    let cuts = if std::env::var_os("EXTOL_LONG").is_some() { 400 } else { 25 };
    for nr in 0..cuts {
        let cut = start + (end - start) * nr / cuts;
        let what = format!("cut {cut} of {start} to {end}");
        let crashed = device.image_at(cut, |write| write % 2 == nr % 2);
        let fs = Ext4::open(Arc::new(crashed.snapshot()), &MountOptions::default()).expect(&what);
        assert_values(&fs, &what);
        drop(fs);
        write_out(&crashed, &path);
        let report = testkit::e2fsck_fix(&testkit::Image::existing(&path));
        assert_eq!(report.unexpected_repairs(), None, "{what}");
    }
}
