//! Casefolded directories, in all forms and sizes. e2fsck folds names by tables of its own: it
//! finds an entry in the wrong leaf.

use extol_ondisk::InodeFlags;
use extol_vfs::FsError;

use super::lab::{Lab, Recipe};
use crate::dir;

fn lab(more: &[&str]) -> Lab {
    let mke2fs = [&["-t", "ext4", "-b", "1024"][..], more].concat();
    let mut lab = Lab::new(&Recipe { size: 16 << 20, mke2fs: &mke2fs, tune: &[] });
    lab.dir.raw.flags.insert(InodeFlags::CASEFOLD);
    lab
}

const CASEFOLD: &[&str] = &["-O", "casefold"];

/// Other spellings of one name.
fn spellings(name: &str) -> Vec<Vec<u8>> {
    let ignored = format!("{name}\u{200D}");
    [name.to_uppercase(), name.to_lowercase(), ignored].map(String::into_bytes).to_vec()
}

/// Names that differ when they are folded.
fn name(n: usize) -> String {
    let words = ["Straße", "ÉTÉ", "ﬃx", "Ωmega", "가각", "\u{1E9B}\u{323}", "ASCII only", "İ"];
    format!("{} {n} {}", words[n % words.len()], "Long".repeat(n % 7))
}

fn every_spelling_is_one_name(more: &[&str], names: usize) {
    let mut lab = lab(more);
    for n in 0..names {
        lab.add(name(n).as_bytes()).unwrap();
    }
    lab.check();
    for n in 0..names {
        let ino = lab.lookup(name(n).as_bytes());
        for other in spellings(&name(n)) {
            assert_eq!(lab.lookup(&other), ino, "{}", other.escape_ascii());
            assert_eq!(lab.add(&other), Err(FsError::Exists));
        }
    }
    lab.fsck("names added");
    for n in (0..names).step_by(2) {
        let stored = name(n).into_bytes();
        let other = spellings(&name(n)).swap_remove(n / 2 % 3);
        let file = lab.files[1];
        lab.attempt(|vol, h, dir| {
            dir::replace(vol, h, dir, &other, file, extol_ondisk::FileType::Regular)
        })
        .unwrap();
        lab.model.insert(stored.clone(), file);
        assert_eq!(lab.lookup(&stored), Some(file));
        if n % 4 == 0 {
            lab.attempt(|vol, h, dir| dir::remove(vol, h, dir, &other).map(drop)).unwrap();
            lab.model.remove(&stored);
            assert_eq!(lab.lookup(&stored), None);
            // The new name is stored as it is spelled now.
            lab.add(&other).unwrap();
        }
    }
    lab.check();
    lab.fsck("names changed");
}

#[test]
fn every_spelling_is_one_name_in_an_indexed_directory() {
    every_spelling_is_one_name(CASEFOLD, 600);
}

#[test]
fn every_spelling_is_one_name_in_one_block() {
    every_spelling_is_one_name(CASEFOLD, 12);
}

#[test]
fn every_spelling_is_one_name_without_an_index() {
    every_spelling_is_one_name(&["-O", "casefold,^dir_index"], 200);
}

#[test]
fn every_spelling_is_one_name_with_checksums_and_fast_commits() {
    every_spelling_is_one_name(&["-O", "casefold,metadata_csum,fast_commit"], 400);
}

/// A directory in which a name, with a code point that is ignored, is where it has no hash.
fn with_misplaced_name() -> (Lab, &'static [u8]) {
    let name = "❤\u{FE0F}".as_bytes();
    // (With another seed its hash may lead to the very leaf.)
    let seed = "hash_seed=9c5a6b8e-7d1f-4222-8333-444455556666";
    let mut lab = lab(&["-O", "casefold,^metadata_csum", "-E", seed]);
    for n in 0..400 {
        lab.add(format!("{n:06}").as_bytes()).unwrap();
    }
    let area = |bytes: &[u8]| bytes.windows(6).position(|six| six == b"000123");
    let blocks = (lab.dir.raw.size / 1024) as u32;
    for lblk in 1..blocks {
        lab = lab.with_block_changed(lblk, |bytes| {
            if let Some(at) = area(bytes) {
                bytes[at..at + 6].copy_from_slice(name);
            }
        });
    }
    let its = lab.model.remove(&b"000123"[..]).unwrap();
    lab.model.insert(name.to_vec(), its);
    lab.save();
    assert!(!extol_testkit::e2fsck(&lab.image).is_clean(), "the name is where it belongs");
    (lab, name)
}

#[test]
fn names_hashed_with_what_is_ignored_are_found() {
    let (mut lab, name) = with_misplaced_name();
    lab.check();
    for other in ["❤", "❤\u{200D}", "\u{AD}❤"] {
        assert_eq!(lab.lookup(other.as_bytes()), lab.lookup(name), "{other}");
        assert_eq!(lab.add(other.as_bytes()), Err(FsError::Exists));
    }
    assert_eq!(lab.lookup("❤❤".as_bytes()), None);
    lab.add(b"a new one").unwrap();
    lab.replace(name, 2).unwrap();
    lab.remove(name).unwrap();
    lab.check();
    // The name that is added is where it belongs.
    lab.add(name).unwrap();
    assert_eq!(lab.lookup("❤".as_bytes()), lab.lookup(name));
    lab.check();
    lab.fsck("the misplaced name is gone");
}

#[test]
fn a_superblock_can_say_that_no_name_is_misplaced() {
    let (mut lab, name) = with_misplaced_name();
    lab.vol.geo.has_other_folding = false;
    assert_eq!(lab.lookup(name), None);
    assert!(lab.lookup(b"000124").is_some());
}

#[test]
fn malformed_names_are_their_bytes() {
    let mut lab = lab(CASEFOLD);
    // Linux hashes the bytes of the first ones, which are cut short; e2fsck knows no hash of them,
    // and finds what was in front of them in the block.
    let cut_short = [&b"\xC9T\xC9"[..], b"\xC9t\xC9", b"A\xFF", b"a\xFF"];
    for name in cut_short.into_iter().chain([&b"\x80A"[..], b"\x80a"]) {
        assert_eq!(lab.lookup(name), None);
        lab.add(name).unwrap();
    }
    // A stray byte behind a character is no obstacle to folding.
    lab.add(b"50\xB0C").unwrap();
    assert_eq!(lab.add(b"50\xB0c"), Err(FsError::Exists));
    lab.fsck("malformed names in one block");
    cut_short.iter().for_each(|name| lab.remove(name).unwrap());
    for n in 0..300 {
        for start in [&b"\x80N"[..], b"\x80n", b"N\xCC\x82\xCC\xA3\x80"] {
            lab.add(&[start, format!("{n}").as_bytes()].concat()).unwrap();
        }
    }
    lab.check();
    lab.fsck("malformed names");
    for n in 0..300 {
        lab.add(&[b"N\xFF", format!("{n}").as_bytes()].concat()).unwrap();
        lab.add(&[b"n\xFF", format!("{n}").as_bytes()].concat()).unwrap();
    }
    lab.check();
}

#[test]
fn a_strict_encoding_takes_only_valid_names() {
    let mut lab = lab(&["-O", "casefold", "-E", "encoding=utf8,encoding_flags=strict"]);
    for name in [&b"A\xFF"[..], b"50\xB0C", b"\xED\xA0\x80"] {
        assert!(matches!(lab.add(name), Err(FsError::Invalid(_))));
        let found = dir::lookup(&lab.vol, &lab.dir, name);
        assert!(matches!(found, Err(FsError::Invalid(_))));
    }
    lab.add("ÄÖÜ\u{378}".as_bytes()).unwrap();
    lab.check();
    lab.fsck("strict");
}

#[test]
fn no_name_is_taken_for_the_dots() {
    let mut lab = lab(CASEFOLD);
    for name in [".\u{200D}", "\u{AD}.", "..\u{200D}", ".\u{34F}."] {
        assert!(matches!(lab.add(name.as_bytes()), Err(FsError::Invalid(_))), "{name:?}");
        let found = dir::lookup(&lab.vol, &lab.dir, name.as_bytes());
        assert!(matches!(found, Err(FsError::Invalid(_))), "{name:?}");
    }
    assert_eq!(lab.lookup(b"."), Some(lab.dir.ino));
    lab.add("\u{200D}".as_bytes()).unwrap();
    assert_eq!(lab.add("\u{AD}".as_bytes()), Err(FsError::Exists));
    lab.check();
    lab.fsck("ignored characters");
}
