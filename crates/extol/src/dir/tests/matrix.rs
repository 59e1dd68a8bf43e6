//! Random operations on every form of directory, for every block size and feature that changes its
//! bytes.

use super::lab::{Lab, Recipe};
use crate::dir;
use extol_ondisk::{InodeFlags, InodeNr};

fn exercise(recipe: &Recipe<'_>, indexed: bool) {
    let mut lab = Lab::new(recipe);
    lab.play(150, 20, 0.8);
    lab.check();
    lab.fsck("small");
    lab.play(1200, 200, 0.75);
    assert_eq!(lab.dir.raw.flags.contains(InodeFlags::INDEX), indexed);
    lab.check();
    lab.fsck("large");
    lab.play(900, 255, 0.35);
    lab.check();
    lab.fsck("shrunk");
    lab.ask_linux();
    for name in lab.model.keys().cloned().collect::<Vec<_>>() {
        lab.remove(&name).unwrap();
    }
    lab.check();
    assert!(dir::is_empty(&lab.vol, &lab.dir).unwrap());
    let before = lab.dir.raw.size;
    lab.play(100, 100, 0.9);
    assert_eq!(lab.dir.raw.size, before, "an emptied directory has room");
    lab.check();
    lab.fsck("used again");
    // '..' is changed in whatever block holds it, with the right checksum.
    lab.set_dotdot(InodeNr(11));
    assert_eq!(lab.lookup(b".."), Some(InodeNr(11)));
    lab.set_dotdot(InodeNr::ROOT);
    lab.fsck("with '..' changed twice");
}

const MIB: u64 = 1 << 20;

#[test]
fn ext4_1k() {
    exercise(&Recipe { size: 16 * MIB, mke2fs: &["-t", "ext4", "-b", "1024"], tune: &[] }, true);
}

#[test]
fn ext4_4k_without_checksums() {
    let mke2fs = &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"];
    exercise(&Recipe { size: 32 * MIB, mke2fs, tune: &[] }, true);
}

#[test]
fn ext4_64k() {
    let mke2fs = &["-t", "ext4", "-b", "65536", "-O", "^has_journal"];
    // Few of these blocks get full: a one-block directory is listed in hash order too.
    exercise(&Recipe { size: 128 * MIB, mke2fs, tune: &[] }, true);
}

#[test]
fn ext4_2k_without_types() {
    let mke2fs = &["-t", "ext4", "-b", "2048", "-O", "^filetype"];
    exercise(&Recipe { size: 32 * MIB, mke2fs, tune: &[] }, true);
}

#[test]
fn ext2_without_index() {
    let mke2fs = &["-t", "ext2", "-b", "1024", "-O", "^dir_index"];
    exercise(&Recipe { size: 16 * MIB, mke2fs, tune: &[] }, false);
}

#[test]
fn linear_with_checksums() {
    let mke2fs = &["-t", "ext4", "-b", "1024", "-O", "^dir_index"];
    exercise(&Recipe { size: 16 * MIB, mke2fs, tune: &[] }, false);
}

#[test]
fn inside_the_inode_and_out() {
    for mke2fs in [
        &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-I", "256"][..],
        &["-t", "ext4", "-b", "4096", "-O", "inline_data,^metadata_csum", "-I", "1024"],
    ] {
        let mut lab = Lab::new(&Recipe { size: 32 * MIB, mke2fs, tune: &[] });
        assert!(lab.dir.raw.flags.contains(InodeFlags::INLINE_DATA));
        lab.check();
        for round in 0..3 {
            for name in ["a", "four", "another name", "z"] {
                lab.add(name.as_bytes()).unwrap();
            }
            lab.replace(b"four", 3).unwrap();
            assert!(lab.add(b"z").is_err());
            lab.check();
            lab.fsck("inside");
            if round < 2 {
                for name in ["another name", "z", "a", "four"] {
                    lab.remove(name.as_bytes()).unwrap();
                    lab.check();
                }
            }
        }
        lab.set_dotdot(InodeNr(11));
        assert_eq!(lab.lookup(b".."), Some(InodeNr(11)));
        lab.set_dotdot(InodeNr::ROOT);
        lab.ask_linux();
        let listed_before = lab.list(usize::MAX);
        while lab.dir.raw.flags.contains(InodeFlags::INLINE_DATA) {
            let name = lab.new_name(14);
            lab.add(&name).unwrap();
            lab.check();
            assert!(lab.model.len() < 100);
        }
        // The cookies are the same inside and out.
        let listed = lab.list(usize::MAX);
        for entry in listed_before {
            assert!(listed.iter().any(|e| e.name == entry.name && e.cookie == entry.cookie));
        }
        lab.fsck("moved out");
        lab.ask_linux();
        lab.play(800, 100, 0.8);
        assert!(lab.dir.raw.flags.contains(InodeFlags::INDEX));
        lab.check();
        lab.fsck("indexed");
    }
}

#[test]
fn ext3_1k() {
    exercise(&Recipe { size: 16 * MIB, mke2fs: &["-t", "ext3", "-b", "1024"], tune: &[] }, true);
}

#[test]
fn extol_and_linux_take_turns() {
    for mke2fs in
        [&["-t", "ext4", "-b", "1024"][..], &["-t", "ext4", "-b", "1024", "-O", "inline_data"]]
    {
        let mut lab = Lab::new(&Recipe { size: 32 * MIB, mke2fs, tune: &[] });
        for (ours, theirs) in [(3, 2), (10, 30), (600, 600), (300, 900)] {
            lab.play(ours, 60, 0.8);
            let Some(changed) = lab.changed_by_linux(theirs, theirs / 3) else { return };
            lab = changed;
            lab.check();
        }
        lab.play(300, 60, 0.5);
        lab.check();
        lab.fsck("after turns");
    }
}

#[test]
fn all_hash_versions() {
    for version in ["legacy", "half_md4", "tea"] {
        for flags in ["1", "2"] {
            let tune = [
                format!("set_super_value def_hash_version {version}"),
                format!("set_super_value flags {flags}"),
                "set_super_value hash_seed 01234567-89ab-cdef-0123-456789abcdef".to_owned(),
            ];
            let tune: Vec<&str> = tune.iter().map(String::as_str).collect();
            let recipe =
                Recipe { size: 16 * MIB, mke2fs: &["-t", "ext4", "-b", "1024"], tune: &tune };
            let mut lab = Lab::new(&recipe);
            lab.play(1500, 120, 0.8);
            lab.check();
            lab.fsck(version);
            lab.ask_linux();
        }
    }
}
