//! Casefolded directories: e2fsck and the checker say the same of hashes and of the coding of
//! names. Names that differ only in case are found by the checker alone.

use std::sync::Arc;

use extol::mkfs::{Encoding, MkfsOptions, mkfs};
use extol::vfs::{FileSystem as _, SetAttr};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_check::{CheckOptions, Kind, Report, check};
use extol_testkit::{
    Image, KernelMount, Need, Scratch, add_encryption_key, e2fsck, require, run_ok,
    set_encryption_policy, text, tool,
};

const CASEFOLD: u32 = 0x4000_0000;

/// A volume without checksums, with a directory of one block and one with an index.
fn volume(strict: bool) -> Vec<u8> {
    let device = Arc::new(MemDevice::new(4 << 20));
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push("^metadata_csum,uninit_bg,^has_journal,^orphan_file".to_owned());
    options.extended.encoding = Some(Encoding::Utf8);
    options.extended.strict_encoding = strict;
    options.extended.hash_seed = Some(*b"seeds of hashes.");
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    let fs = Ext4::open(Arc::clone(&device) as _, &MountOptions::default()).expect("open");
    for dir in ["/small", "/large"] {
        fs.create_dir(dir).expect("mkdir");
        let ino = fs.inode(dir).expect("the directory").ino();
        let flags = fs.getattr(ino).expect("getattr").flags | CASEFOLD;
        fs.setattr(ino, &SetAttr { flags: Some(flags), ..SetAttr::default() }).expect("+F");
    }
    for name in ["Straße", "σίγμα", "other", "novel"] {
        fs.write_file(format!("/small/{name}"), b"").expect("write");
    }
    for n in 0..400 {
        fs.write_file(format!("/large/Name-{n:03}-é"), b"").expect("write");
    }
    fs.unmount().expect("unmount");
    device.to_bytes()
}

/// Changes a name where the directory has it.
fn renamed(volume: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = volume.to_vec();
    let places = bytes.windows(from.len()).enumerate().filter(|(_, part)| *part == from);
    let places: Vec<_> = places.map(|(place, _)| place).collect();
    let [place] = places[..] else { panic!("{from:?} is at {places:?}") };
    bytes[place..place + to.len()].copy_from_slice(to);
    bytes
}

fn report(bytes: &[u8]) -> Report {
    check(Arc::new(MemDevice::from_bytes(bytes)), &CheckOptions::default(), &mut |_| {})
        .expect("a report")
}

/// The report, when e2fsck says the same of soundness.
#[track_caller]
fn agreed(bytes: &[u8]) -> Report {
    let report = report(bytes);
    if require(&[Need::Tool("e2fsck")]) {
        let scratch = Scratch::in_memory();
        let image = Image::existing(scratch.join("image"));
        std::fs::write(&image.path, bytes).expect("write");
        let theirs = e2fsck(&image);
        let sound = report.errors_of_e2fsck == 0;
        assert_eq!(theirs.code == 0, sound, "{report}\n{}", theirs.output);
    }
    report
}

fn kinds(report: &Report) -> Vec<Kind> {
    report.findings.iter().map(|finding| finding.kind).collect()
}

#[test]
fn a_name_is_sound_where_the_hash_of_its_folded_form_belongs() {
    let volume = volume(false);
    let sound = agreed(&volume);
    assert!(sound.is_clean() && sound.notes == 0, "{sound}");
    let other_case = renamed(&volume, "Name-217-é".as_bytes(), "nAME-217-É".as_bytes());
    assert!(agreed(&other_case).is_clean());
    let mut misplaced = 0;
    for n in (0..400).step_by(20) {
        let (from, to) = (format!("Name-{n:03}-é"), format!("Game-{n:03}-é"));
        let found = agreed(&renamed(&volume, from.as_bytes(), to.as_bytes()));
        misplaced += u32::from(kinds(&found).contains(&Kind::HtreeHash));
    }
    assert!(misplaced >= 15, "{misplaced} of 20 names have the hash of another block");
    // Linux looks for the hash of the bytes of a name that cannot be folded. (What e2fsck says of
    // such a name depends on the one before it.)
    let mut misplaced = 0;
    for n in (0..400).step_by(20) {
        let name = format!("Name-{n:03}-é");
        let malformed = [&name.as_bytes()[..5], b"\xFF\xFF", &name.as_bytes()[7..]].concat();
        let found = report(&renamed(&volume, name.as_bytes(), &malformed));
        assert_eq!(found.errors_of_e2fsck, 0, "{found}");
        misplaced += u32::from(kinds(&found) == [Kind::HtreeHash]);
    }
    assert!(misplaced >= 15, "{misplaced} of 20 names have the hash of another block");
}

#[test]
fn names_that_are_no_utf8_are_damage_of_strict_volumes() {
    for strict in [false, true] {
        let volume = volume(strict);
        assert!(agreed(&volume).is_clean());
        let found = agreed(&renamed(&volume, "Straße".as_bytes(), b"Stra\xFF\x9Fe"));
        let wanted: &[Kind] = if strict { &[Kind::DirName] } else { &[] };
        assert_eq!(kinds(&found), wanted, "strict: {strict}: {found}");
    }
}

#[test]
fn two_spellings_of_a_name_in_one_directory_are_damage() {
    let volume = volume(false);
    assert!(agreed(&renamed(&volume, b"novel", b"OTTER")).is_clean());
    for spelling in ["OTHER", "oTher"] {
        let found = agreed(&renamed(&volume, b"novel", spelling.as_bytes()));
        assert_eq!(kinds(&found), [Kind::DirDuplicate], "{found}");
        let twice = &found.findings[0];
        assert!(twice.beyond_e2fsck && twice.what.contains("another spelling"), "{found}");
    }
    let found = agreed(&renamed(&volume, b"novel", b"other"));
    assert_eq!(kinds(&found), [Kind::DirDuplicate], "the same spelling is one error: {found}");
}

/// A volume without checksums and log, and a directory of it with many names, encrypted and
/// casefolded. The policy is made by Linux, the rest by Extol.
fn encrypted_volume() -> Vec<u8> {
    let scratch = Scratch::new();
    let options = ["-t", "ext4", "-b", "1024", "-O", "encrypt,^metadata_csum,^has_journal"];
    let image = Image::mke2fs(scratch.path(), "encrypted.img", 16 << 20, &options);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    let identifier = add_encryption_key(&at, None, &[7; 64]);
    std::fs::create_dir(at.join("dir")).expect("mkdir");
    let policy = [&[2, 1, 4, 0, 0, 0, 0, 0][..], &identifier].concat();
    set_encryption_policy(&at.join("dir"), &policy).expect("a policy");
    mount.unmount();
    run_ok(tool("tune2fs").args(["-O", "casefold", text(&image.path)]));
    let mut options = MountOptions::default();
    options.keys.add(&[7; 64]).expect("a key");
    let fs = Ext4::open_path(&image.path, &options).expect("open");
    let attr = fs.metadata("/dir").expect("the directory");
    let flags = Some(attr.flags | CASEFOLD);
    fs.setattr(attr.id.ino, &SetAttr { flags, ..SetAttr::default() }).expect("+F");
    for n in 0..200 {
        fs.write_file(format!("/dir/Name-{n:03}"), b"").expect("write");
    }
    fs.unmount().expect("unmount");
    std::fs::read(&image.path).expect("the image")
}

/// Where the first entry with a long name begins in a leaf of the directory: (place, length of the
/// record, bytes up to its hash).
fn first_entry(volume: &[u8]) -> (usize, usize, usize) {
    let mut blocks = volume.chunks(1024).enumerate().filter_map(|(block, bytes)| {
        // Names are padded to 16 bytes, and take up records of 32.
        let is_leaf = bytes[4..6] == [32, 0] && bytes[6] == 16 && bytes[38] == 16;
        is_leaf.then_some((block * 1024, 32, 24))
    });
    blocks.next_back().expect("a leaf")
}

#[test]
fn hashes_behind_encrypted_names_are_looked_at() {
    let needs =
        [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs"), Need::Tool("tune2fs")];
    if !require(&needs) {
        return;
    }
    let volume = encrypted_volume();
    assert!(agreed(&volume).is_clean());
    let (at, len, hash) = first_entry(&volume);
    let mut outside = 0;
    for value in [0_u32, 0xFFFF_FFF0] {
        let mut bytes = volume.clone();
        bytes[at + hash..at + hash + 4].copy_from_slice(&value.to_le_bytes());
        outside += u32::from(kinds(&agreed(&bytes)).contains(&Kind::HtreeHash));
    }
    assert!(outside > 0, "no range has both ends of all hashes");
    // The record ends where its hash should be, and the next one begins there.
    let mut bytes = volume.clone();
    bytes[at + 4..at + 6].copy_from_slice(&(hash as u16).to_le_bytes());
    bytes[at + hash..at + hash + 8].copy_from_slice(&[0, 0, 0, 0, 40, 0, 0, 0]);
    assert_eq!(len - hash, 8);
    assert!(kinds(&agreed(&bytes)).contains(&Kind::DirCorrupt));
}
