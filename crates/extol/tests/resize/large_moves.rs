//! Inodes whose move changes more blocks than a transaction has: they get the whole log.

use std::sync::Arc;

use extol_testkit::{self as testkit, Need, require};

use super::crash::write_out;
use super::*;

const LAYOUT: &[&str] =
    &["-t", "ext4", "-b", "1024", "-N", "16000", "-J", "size=4", "-O", "^flex_bg"];

/// A volume with a directory behind the first group, of so many subdirectories.
fn volume(mib: u64, subdirs: usize) -> Image {
    let image = Image::new(&format!("{mib}M"), LAYOUT);
    let first = image.number("Inodes per group") as u32;
    image.with(|fs| {
        let behind = (0..100)
            .map(|nr| common::dir(fs, fs.root(), &format!("d{nr}")))
            .find(|ino| *ino > first)
            .expect("directories of the root lie in all groups");
        (0..subdirs).for_each(|nr| {
            common::dir(fs, behind, &format!("sub{nr}"));
        });
        fs.sync().unwrap();
    });
    image.assert_clean("filled");
    image
}

/// How many names the directories of the root have.
fn names(fs: &Ext4) -> usize {
    let dirs = (0..100).filter_map(|nr| fs.lookup(fs.root(), format!("d{nr}").as_bytes()).ok());
    dirs.map(|dir| {
        let subdir = |nr: &usize| fs.lookup(dir.id.ino, format!("sub{nr}").as_bytes()).is_ok();
        (0..10_000).take_while(subdir).count()
    })
    .sum()
}

#[test]
fn a_directory_of_many_subdirectories_moves() {
    if !require(&[Need::Tool("resize2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let image = volume(64, 2500);
    let theirs = image.path.with_file_name("theirs");
    std::fs::copy(&image.path, &theirs).unwrap();
    let theirs = Image { _dir: TempDir::new().unwrap(), path: theirs };
    assert_eq!(run("resize2fs", &["-f", "-M"], &theirs.path).0, 0);
    let done = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).expect("the minimum");
    image.assert_clean("moved");
    assert_eq!(image.with(names), 2500);
    assert!(done.blocks <= theirs.blocks(), "{} and {}", done.blocks, theirs.blocks());
}

/// The log stays as long as it was: nothing is changed by what is refused.
#[test]
fn a_directory_of_too_many_is_refused_before_anything_changes() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = volume(64, 4500);
    let before = image.dumpe2fs();
    let refused = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).expect_err("refused");
    let text = refused.to_string();
    assert!(text.contains("its subdirectories") && text.contains("extol tune -J size="), "{text}");
    image.assert_clean("refused");
    let journal = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("Total journal")).map(str::to_owned).collect()
    };
    assert_eq!(journal(&image.dumpe2fs()), journal(&before));
}

#[test]
fn a_crash_while_it_moves_leaves_it_whole() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let image = volume(32, 1200);
    let (device, fs) = image.recorded();
    let start = device.position();
    fs.resize(Target::Minimum, &mut |_| true).expect("the minimum");
    let end = device.position();
    fs.unmount().unwrap();
    let path = image.path.with_file_name("crashed");
    let cuts = 60;
    for nr in 0..cuts {
        let cut = start + (end - start) * nr / cuts;
        let what = format!("cut {cut} of {start} to {end}");
        // What no flush has made durable is there in part.
        let crashed = device.image_at(cut, |write| write % 2 == nr % 2);
        let fs = Ext4::open(Arc::new(crashed.snapshot()), &MountOptions::default()).expect(&what);
        assert_eq!(names(&fs), 1200, "{what}");
        drop(fs);
        write_out(&crashed, &path);
        let report = testkit::e2fsck_fix(&testkit::Image::existing(&path));
        assert_eq!(report.unexpected_repairs(), None, "{what}");
    }
}
