//! Casefolded directories as callers of the library see them: every operation by any spelling.

mod common;

use std::sync::Arc;

use common::*;
use extol::Ext4;
use extol::vfs::{Creds, FileSystem, FsError, NewNode, RenameFlags, SetAttr};
use extol_block::MemDevice;

const CASEFOLD: u32 = 0x4000_0000;

fn volume(features: &str) -> (Arc<MemDevice>, Arc<Ext4>) {
    let dev = image("64M", &["-t", "ext4", "-b", "4096", "-O", features]);
    let fs = open(&dev, "");
    (dev, fs)
}

fn set_flags(fs: &Ext4, ino: u32, flags: u32) -> Result<(), FsError> {
    fs.setattr(ino, &SetAttr { flags: Some(flags), ..SetAttr::default() }).map(drop)
}

fn folding(fs: &Ext4, name: &str) -> u32 {
    let made = dir(fs, fs.root(), name);
    set_flags(fs, made, fs.getattr(made).unwrap().flags | CASEFOLD).unwrap();
    made
}

fn number(fs: &Ext4, dir: u32, name: &str) -> Option<u32> {
    match fs.lookup(dir, name.as_bytes()) {
        Ok(attr) => Some(attr.id.ino),
        Err(FsError::NotFound) => None,
        Err(error) => panic!("{name}: {error}"),
    }
}

fn names(fs: &Ext4, dir: u32) -> Vec<String> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name).unwrap());
        true
    })
    .unwrap();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

fn rename(
    fs: &Ext4,
    from: (u32, &str),
    to: (u32, &str),
    flags: RenameFlags,
) -> Result<(), FsError> {
    fs.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags)
}

#[test]
fn any_spelling_finds_links_and_removes() {
    for features in ["casefold", "casefold,inline_data", "casefold,^dir_index,^has_journal"] {
        let (dev, fs) = volume(features);
        let d = folding(&fs, "d");
        let ino = file(&fs, d, "ReadMe");
        for other in ["ReadMe", "README", "readme", "re\u{AD}adme"] {
            assert_eq!(number(&fs, d, other), Some(ino), "{features}: {other}");
            let again =
                fs.create(d, other.as_bytes(), NewNode::Regular, 0o644, 0, Creds::default());
            assert_eq!(again.unwrap_err(), FsError::Exists);
            assert_eq!(fs.link(ino, d, other.as_bytes()).unwrap_err(), FsError::Exists);
        }
        assert_eq!(number(&fs, d, "readme2"), None);
        fs.unlink(d, b"README").unwrap();
        // Whatever was remembered of the other spellings.
        for other in ["ReadMe", "README", "readme"] {
            assert_eq!(number(&fs, d, other), None, "{features}: {other}");
        }
        let new = file(&fs, d, "readme");
        assert_eq!(number(&fs, d, "ReadMe"), Some(new));
        assert_eq!(names(&fs, d), ["readme"]);
        let sub = dir(&fs, d, "Straße");
        assert_eq!(number(&fs, d, "STRASSE"), Some(sub));
        fs.rmdir(d, "strasse".as_bytes()).unwrap();
        assert_eq!(number(&fs, d, "Straße"), None);
        fs.unmount().unwrap();
        assert_clean(&dev, features);
    }
}

#[test]
fn what_was_missing_before_the_flag_is_found_after_it() {
    let (dev, fs) = volume("casefold");
    let d = dir(&fs, fs.root(), "d");
    assert_eq!(number(&fs, d, "name"), None);
    set_flags(&fs, d, fs.getattr(d).unwrap().flags | CASEFOLD).unwrap();
    let ino = file(&fs, d, "NAME");
    assert_eq!(number(&fs, d, "name"), Some(ino));
    fs.unlink(d, b"Name").unwrap();
    set_flags(&fs, d, fs.getattr(d).unwrap().flags & !CASEFOLD).unwrap();
    let upper = file(&fs, d, "NAME");
    assert_eq!(number(&fs, d, "name"), None);
    assert_ne!(file(&fs, d, "name"), upper);
    fs.unmount().unwrap();
    assert_clean(&dev, "after the flag was set and removed");
}

#[test]
fn the_flag_is_for_empty_directories_and_is_inherited() {
    let (dev, fs) = volume("casefold");
    let d = folding(&fs, "d");
    let sub = dir(&fs, d, "sub");
    let flags = fs.getattr(sub).unwrap().flags;
    assert_ne!(flags & CASEFOLD, 0);
    let ino = file(&fs, sub, "f");
    let of_file = fs.getattr(ino).unwrap().flags;
    assert_eq!(of_file & CASEFOLD, 0);
    assert!(set_flags(&fs, ino, of_file | CASEFOLD).is_err());
    assert_eq!(set_flags(&fs, sub, flags & !CASEFOLD), Err(FsError::NotEmpty));
    let plain = dir(&fs, fs.root(), "plain");
    file(&fs, plain, "f");
    let flags = fs.getattr(plain).unwrap().flags;
    assert_eq!(set_flags(&fs, plain, flags | CASEFOLD), Err(FsError::NotEmpty));
    fs.unmount().unwrap();
    assert_clean(&dev, "inherited");

    let (dev, fs) = volume("^casefold");
    let d = dir(&fs, fs.root(), "d");
    let flags = fs.getattr(d).unwrap().flags;
    assert!(matches!(set_flags(&fs, d, flags | CASEFOLD), Err(FsError::NotSupported(_))));
    fs.unmount().unwrap();
    assert_clean(&dev, "without the feature");
}

#[test]
fn a_rename_to_another_case_changes_nothing() {
    let (dev, fs) = volume("casefold");
    let d = folding(&fs, "d");
    let ino = file(&fs, d, "foo");
    rename(&fs, (d, "foo"), (d, "FOO"), RenameFlags::empty()).unwrap();
    assert_eq!(names(&fs, d), ["foo"]);
    let again = rename(&fs, (d, "Foo"), (d, "FOO"), RenameFlags::NOREPLACE);
    assert_eq!(again, Err(FsError::Exists));
    // By another name it is done.
    rename(&fs, (d, "FOO"), (d, "bar"), RenameFlags::empty()).unwrap();
    rename(&fs, (d, "BAR"), (d, "FOO"), RenameFlags::empty()).unwrap();
    assert_eq!(names(&fs, d), ["FOO"]);
    assert_eq!(number(&fs, d, "foo"), Some(ino));
    fs.unmount().unwrap();
    assert_clean(&dev, "renamed");
}

#[test]
fn a_rename_replaces_by_any_spelling() {
    let (dev, fs) = volume("casefold");
    let (d, plain) = (folding(&fs, "d"), dir(&fs, fs.root(), "plain"));
    let (old, new) = (file(&fs, d, "Target"), file(&fs, plain, "target"));
    assert_ne!(old, new);
    rename(&fs, (plain, "target"), (d, "TARGET"), RenameFlags::empty()).unwrap();
    // As with Linux the entry keeps its name.
    assert_eq!(names(&fs, d), ["Target"]);
    assert_eq!(number(&fs, d, "target"), Some(new));
    let other = file(&fs, plain, "other");
    rename(&fs, (d, "tARGET"), (plain, "other"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!((number(&fs, d, "target"), number(&fs, plain, "other")), (Some(other), Some(new)));
    rename(&fs, (d, "TARGET"), (plain, "moved"), RenameFlags::empty()).unwrap();
    assert_eq!(names(&fs, d), Vec::<String>::new());
    fs.unmount().unwrap();
    assert_clean(&dev, "replaced");
}

#[test]
fn a_strict_encoding_refuses_malformed_names() {
    let strict = &["-t", "ext4", "-O", "casefold", "-E", "encoding=utf8,encoding_flags=strict"];
    let dev = image("64M", strict);
    let fs = open(&dev, "");
    let d = folding(&fs, "d");
    let make = |dir, name: &[u8]| {
        fs.create(dir, name, NewNode::Regular, 0o644, 0, Creds::default()).map(drop)
    };
    assert!(matches!(make(d, b"a\xFF"), Err(FsError::Invalid(_))));
    assert!(matches!(fs.lookup(d, b"a\xFF"), Err(FsError::Invalid(_))));
    make(fs.root(), b"a\xFF").unwrap();
    let moved = fs.rename(fs.root(), b"a\xFF", d, b"a\xFF", RenameFlags::empty());
    assert!(matches!(moved, Err(FsError::Invalid(_))));
    fs.unmount().unwrap();
    assert_clean(&dev, "strict");
}

#[test]
fn thousands_of_names_survive_a_second_mount() {
    let (dev, fs) = volume("casefold,fast_commit");
    let d = folding(&fs, "d");
    let name = |n: u32| format!("Ünïcode Name {n} ﬁ");
    let made: Vec<u32> = (0..3000).map(|n| file(&fs, d, &name(n))).collect();
    fs.fsync(d, false).unwrap();
    fs.unmount().unwrap();
    assert_clean(&dev, "many names");
    let fs = open(&dev, "");
    for (n, ino) in (0..).zip(&made) {
        assert_eq!(number(&fs, d, &name(n).to_uppercase()), Some(*ino));
    }
    for n in (0..3000).step_by(3) {
        fs.unlink(d, name(n).to_lowercase().as_bytes()).unwrap();
    }
    assert_eq!(names(&fs, d).len(), 2000);
    fs.unmount().unwrap();
    assert_clean(&dev, "every third removed");
}
