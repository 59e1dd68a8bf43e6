//! Damaged directories.

use super::lab::{Lab, Recipe};
use crate::dir;
use extol_ondisk::{FileType, InodeFlags, dirent};
use extol_vfs::FsError;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;

fn filled(mke2fs: &[&str], names: usize) -> Lab {
    let mut lab = Lab::new(&Recipe { size: 16 * MIB, mke2fs, tune: &[] });
    for _ in 0..names {
        let name = lab.new_name(100);
        lab.add(&name).unwrap();
    }
    lab
}

fn is_corrupt<T: std::fmt::Debug>(result: Result<T, FsError>) -> bool {
    matches!(result, Err(FsError::Corrupt { inode: Some(_), .. }))
}

#[test]
fn every_flipped_bit_is_noticed() {
    for lblk in [0, 1, 2] {
        let mut rng = SmallRng::seed_from_u64(5);
        for _ in 0..6 {
            let lab = filled(&["-t", "ext4", "-b", "1024"], 60);
            assert!(lab.dir.raw.flags.contains(InodeFlags::INDEX));
            // Of the root, the checksum covers only what is in use.
            let at = rng.random_range(0..if lblk == 0 { 32 } else { 1024 });
            let bit = rng.random_range(0..8);
            let lab = lab.with_block_changed(lblk, |bytes| bytes[at] ^= 1 << bit);
            assert!(
                is_corrupt(dir::iterate(&lab.vol, &lab.dir, 0, &mut |_| true)),
                "block {lblk} byte {at}"
            );
            let failures = lab
                .model
                .keys()
                .filter(|name| is_corrupt(dir::lookup(&lab.vol, &lab.dir, name)))
                .count();
            // Without the root, the names are found one leaf after the other.
            assert_eq!(failures > 0, lblk != 0);
            assert!(lblk != 0 || is_corrupt(dir::lookup(&lab.vol, &lab.dir, b"no such name")));
        }
    }
}

/// All names, read in calls of `step` entries each, and how the listing ended.
fn names_in_steps(lab: &Lab, step: usize) -> (BTreeSet<Vec<u8>>, Result<(), FsError>) {
    let (mut names, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let mut taken = 0;
        let outcome = dir::iterate(&lab.vol, &lab.dir, cookie, &mut |entry| {
            cookie = entry.cookie;
            if entry.name != b"." && entry.name != b".." {
                assert!(names.insert(entry.name), "a name is listed twice");
            }
            taken += 1;
            taken < step
        });
        if outcome.is_err() || taken < step {
            return (names, outcome);
        }
    }
}

/// The names in one block of the directory.
fn names_of_block(bytes: &[u8]) -> BTreeSet<Vec<u8>> {
    dirent::iter(bytes).flatten().filter(|e| e.is_used()).map(|e| e.name.to_vec()).collect()
}

const SHAPES: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
    &["-t", "ext4", "-b", "1024", "-O", "^dir_index"],
    &["-t", "ext2", "-b", "1024", "-O", "^dir_index"],
];

/// RD-1 of `dir/readdir.rs`.
#[test]
fn a_bad_block_hides_nothing_but_itself() {
    for shape in SHAPES {
        for lblk in [0, 1, 3] {
            let mut inside = BTreeSet::new();
            let lab = filled(shape, 60).with_block_changed(lblk, |bytes| {
                inside = names_of_block(bytes);
                bytes[4..8].fill(0xFF);
                bytes[600..].fill(0xFF);
            });
            let left: BTreeSet<Vec<u8>> =
                lab.model.keys().filter(|name| !inside.contains(*name)).cloned().collect();
            assert!(left.len() >= 40, "{shape:?}");
            for step in [usize::MAX, 1, 7] {
                let (names, outcome) = names_in_steps(&lab, step);
                assert!(is_corrupt(outcome), "{shape:?}, block {lblk}, {step} at a time");
                assert_eq!(names, left, "{shape:?}, block {lblk}, {step} at a time");
            }
            for name in &left {
                assert!(dir::lookup(&lab.vol, &lab.dir, name).unwrap().is_some(), "{shape:?}");
            }
            assert!(!matches!(dir::is_empty(&lab.vol, &lab.dir), Ok(true)));
        }
    }
}

#[test]
fn a_bad_entry_hides_nothing_but_itself() {
    for shape in SHAPES {
        let has_csum = shape[1] == "ext4" && !shape.contains(&"^metadata_csum");
        let mut bad = Vec::new();
        let lab = filled(shape, 60).with_block_changed(3, |bytes| {
            let second = dirent::iter(bytes).flatten().nth(1).map(|e| e.offset).unwrap();
            bad = dirent::entry_at(bytes, second).unwrap().name.to_vec();
            bytes[second..second + 4].fill(0xEE);
        });
        if has_csum {
            continue;
        }
        for step in [usize::MAX, 1, 7] {
            let (names, outcome) = names_in_steps(&lab, step);
            assert!(is_corrupt(outcome), "{shape:?}, {step} at a time");
            assert_eq!(names.len(), lab.model.len(), "{shape:?}, {step} at a time");
        }
        for name in lab.model.keys() {
            let found = dir::lookup(&lab.vol, &lab.dir, name);
            assert!(
                if *name == bad { is_corrupt(found) } else { found.unwrap().is_some() },
                "{shape:?}"
            );
        }
        let mut lab = lab;
        for name in lab.model.keys().filter(|name| **name != bad).cloned().collect::<Vec<_>>() {
            lab.remove(&name).unwrap();
        }
        assert!(
            is_corrupt(dir::is_empty(&lab.vol, &lab.dir))
                || !dir::is_empty(&lab.vol, &lab.dir).unwrap()
        );
    }
}

#[test]
fn unusable_index_is_read_as_a_linear_directory() {
    type Damage = fn(&mut [u8]);
    let damages: [(&str, Damage); 6] = [
        ("hash version", |b| b[28] = 77),
        ("limit", |b| b[32] ^= 1),
        ("count 0", |b| b[34..36].copy_from_slice(&[0, 0])),
        ("block outside", |b| b[36..40].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0])),
        ("points at the root", |b| b[36..40].copy_from_slice(&[0, 0, 0, 0])),
        ("too many levels", |b| b[30] = 2),
    ];
    for (what, damage) in damages {
        let mut lab = filled(&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], 300)
            .with_block_changed(0, damage);
        lab.check();
        let name = lab.some_name().unwrap();
        lab.remove(&name).unwrap();
        assert_eq!(
            lab.add(&lab.model.keys().next().unwrap().clone()),
            Err(FsError::Exists),
            "{what}"
        );
        // Where the root is good, names are added through it until one needs the bad entry. How
        // many that takes depends on the hash seed, which mke2fs draws.
        let mut added = 0;
        while added < 300 || lab.dir.raw.flags.contains(InodeFlags::INDEX) {
            assert!(added < 3000, "{what}: the index is given up");
            let name = lab.new_name(100);
            lab.add(&name).unwrap();
            added += 1;
        }
        lab.check();
        lab.fsck(what);
    }
}

#[test]
fn holes_are_read_and_filled() {
    for mke2fs in [
        &["-t", "ext2", "-b", "1024", "-O", "^dir_index"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^dir_index"],
    ] {
        let mut lab = filled(mke2fs, 40);
        let before = lab.dir.raw.size;
        lab.punch(2);
        lab.check();
        assert!(!lab.model.is_empty());
        for _ in 0..8 {
            let name = lab.new_name(100);
            lab.add(&name).unwrap();
        }
        assert_eq!(lab.dir.raw.size, before);
        lab.check();
        lab.fsck("hole filled");
    }
}

/// Whatever the bytes, every operation ends, and without a panic.
#[test]
fn random_damage() {
    for (seed, csum) in
        (0..32).map(|seed| (seed, if seed % 4 == 0 { "metadata_csum" } else { "^metadata_csum" }))
    {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut lab =
            filled(&["-t", "ext4", "-b", "1024", "-O", csum], [20, 400][seed as usize % 2]);
        for lblk in [0, 1, 2, 3, 5] {
            if u64::from(lblk) * 1024 >= lab.dir.raw.size {
                continue;
            }
            let mut changes = Vec::new();
            for _ in 0..rng.random_range(0..4) {
                changes.push((
                    rng.random_range(0..1024),
                    [0, 1, 4, 8, 0xFF, rng.random()][rng.random_range(0..6)],
                ));
            }
            for _ in 0..rng.random_range(0..3) {
                changes.push((rng.random_range(0..64), rng.random()));
            }
            lab = lab.with_block_changed(lblk, |bytes| {
                changes.iter().for_each(|(at, value)| bytes[*at] = *value)
            });
        }
        let names: Vec<_> = lab.model.keys().cloned().collect();
        let mut listed = 0;
        let _ = dir::iterate(&lab.vol, &lab.dir, 0, &mut |_| {
            listed += 1;
            true
        });
        assert!(listed < 4000);
        let _ = dir::is_empty(&lab.vol, &lab.dir);
        for name in &names {
            let _ = dir::lookup(&lab.vol, &lab.dir, name);
        }
        for name in names.iter().step_by(3) {
            let _ = lab.attempt(|vol, h, dir| dir::remove(vol, h, dir, name).map(|_| ()));
            let (new, file) = (lab.new_name(50), lab.files[0]);
            let _ = lab.attempt(|vol, h, dir| dir::add(vol, h, dir, &new, file, FileType::Regular));
            let _ =
                lab.attempt(|vol, h, dir| dir::replace(vol, h, dir, name, file, FileType::Regular));
        }
        let _ =
            lab.attempt(|vol, h, dir| dir::set_dotdot(vol, h, dir, extol_ondisk::InodeNr::ROOT));
    }
}

#[test]
fn names_are_checked() {
    let mut lab = filled(&["-t", "ext4", "-b", "4096"], 1);
    assert_eq!(lab.add(&[b'a'; 256]), Err(FsError::NameTooLong));
    lab.add(&[b'a'; 255]).unwrap();
    assert_eq!(lab.add(b"."), Err(FsError::Exists));
    assert!(matches!(lab.add(b""), Err(FsError::Invalid(_))));
    assert!(matches!(lab.remove(b".."), Err(FsError::Invalid(_))));
    assert_eq!(dir::lookup(&lab.vol, &lab.dir, &[b'a'; 256]), Err(FsError::NameTooLong));
    assert_eq!(lab.lookup(b"."), Some(lab.dir.ino));
    lab.check();
}

#[test]
fn casefold_without_its_feature_means_nothing() {
    let mut lab = filled(&["-t", "ext4", "-b", "1024"], 300);
    lab.dir.raw.flags.insert(InodeFlags::CASEFOLD);
    lab.check();
    lab.add(b"new").unwrap();
    lab.add(b"NEW").unwrap();
    lab.check();
}

#[test]
fn size_without_sense() {
    let mut lab = filled(&["-t", "ext4", "-b", "1024"], 30);
    for size in [0, 1, 1023, 1 << 40, u64::MAX] {
        lab.dir.raw.size = size;
        let mut listed = 0;
        let _ = dir::iterate(&lab.vol, &lab.dir, 0, &mut |_| {
            listed += 1;
            true
        });
        assert!(listed <= 200);
        assert!(size >= 1024 || is_corrupt(dir::is_empty(&lab.vol, &lab.dir)));
        let file = lab.files[0];
        for n in 0..40 {
            let name = format!("{n:0100}");
            let _ = lab.attempt(|vol, h, dir| {
                dir::add(vol, h, dir, name.as_bytes(), file, FileType::Regular)
            });
        }
        assert_eq!(lab.dir.raw.size, size);
    }
}
