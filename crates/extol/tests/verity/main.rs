//! Files of fs-verity: enabled, measured, read and protected, on volumes that mke2fs made, against
//! e2fsck, fsverity(1) and Linux.

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod crash;
mod damage;
mod guest;

use std::sync::Arc;

use common::*;
use extol::vfs::{
    EnableVerity, Fallocate, FileSystem, FsError, RenameFlags, SetAttr, VerityPart, VolumeControl,
    XattrSet,
};
use extol::{Ext4, OpenOptions};
use extol_block::MemDevice;
use extol_testkit::{Need, require, tool};

const SHA256: u8 = 1;
const SHA512: u8 = 2;
const VERITY: u32 = 0x10_0000;

/// Bytes that repeat nowhere near.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .collect()
}

fn how(algorithm: u8, block_size: u32, salt: &[u8]) -> EnableVerity {
    EnableVerity { algorithm, block_size, salt: salt.to_vec(), signature: Vec::new() }
}

fn make(fs: &Ext4, name: &str, contents: &[u8]) -> u32 {
    let ino = file(fs, fs.root(), name);
    let mut done = 0;
    while done < contents.len() {
        done += fs.write(ino, done as u64, &contents[done..]).unwrap();
    }
    ino
}

fn read_all(fs: &Ext4, ino: u32) -> Result<Vec<u8>, FsError> {
    let mut all = vec![0; fs.getattr(ino).unwrap().size as usize];
    let n = fs.read(ino, 0, &mut all)?;
    assert_eq!(n, all.len());
    Ok(all)
}

/// The digest in the text form of fsverity(1).
fn measured(fs: &Ext4, ino: u32) -> String {
    let digest = fs.measure_verity(ino).unwrap();
    let name = if digest.algorithm == SHA256 { "sha256:" } else { "sha512:" };
    digest.bytes.iter().fold(name.to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// What fsverity(1) says of these contents.
fn expected(contents: &[u8], how: &EnableVerity) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, contents).unwrap();
    let name = if how.algorithm == SHA256 { "sha256" } else { "sha512" };
    let mut command = tool("fsverity");
    command.args(["digest", "--compact"]).arg(&path).arg(format!("--hash-alg={name}"));
    command.arg(format!("--block-size={}", how.block_size));
    if !how.salt.is_empty() {
        let salt = how.salt.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        command.arg(format!("--salt={salt}"));
    }
    let out = command.output().unwrap();
    assert!(out.status.success());
    format!("{name}:{}", String::from_utf8(out.stdout).unwrap().trim())
}

const KINDS: [&[&str]; 8] = [
    &["-O", "verity", "-b", "4096"],
    &["-O", "verity", "-b", "1024"],
    &["-O", "verity,orphan_file,fast_commit", "-b", "4096"],
    &["-O", "verity,inline_data", "-b", "4096"],
    &["-O", "verity,^has_journal", "-b", "4096"],
    &["-O", "verity,^metadata_csum,^64bit", "-I", "128"],
    &["-O", "verity,^orphan_file", "-b", "2048"],
    &["-O", "verity,bigalloc,quota", "-b", "1024", "-C", "16384"],
];

fn volume(kind: &[&str]) -> Arc<MemDevice> {
    image("48M", &[&["-t", "ext4"], kind].concat())
}

#[test]
fn digests_are_those_of_fsverity_and_contents_stay() {
    if !require(&[Need::Tool("fsverity")]) {
        return;
    }
    for kind in KINDS {
        let dev = volume(kind);
        let fs = open(&dev, "");
        let free = fs.statfs().unwrap().blocks_free;
        let mut made = Vec::new();
        for (n, len) in [0, 1, 60, 1024, 4096, 4097, 70_000, 3_000_001].into_iter().enumerate() {
            let salt = bytes(n as u64, n * 32 / 7);
            let how =
                how([SHA256, SHA512][n % 2], [1024, 4096][n / 2 % 2], &salt[..salt.len().min(32)]);
            let block = fs.statfs().unwrap().block_size;
            let how = EnableVerity { block_size: how.block_size.min(block), ..how };
            let contents = bytes(len as u64, len);
            let name = format!("file {n}");
            let ino = make(&fs, &name, &contents);
            if n % 3 == 0 {
                fs.fsync(ino, false).unwrap();
            }
            assert_eq!(fs.measure_verity(ino), Err(FsError::NoAttribute));
            fs.enable_verity(ino, &how).unwrap_or_else(|e| panic!("{kind:?}, {len} bytes: {e}"));
            assert_eq!(fs.getattr(ino).unwrap().flags & VERITY, VERITY);
            assert_eq!(fs.getattr(ino).unwrap().size, len as u64);
            made.push((name, contents, how));
        }
        let check = |fs: &Ext4| {
            for (name, contents, how) in &made {
                let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap().id.ino;
                assert_eq!(measured(fs, ino), expected(contents, how), "{kind:?}: {name}");
                assert!(read_all(fs, ino).unwrap() == *contents, "{kind:?}: {name}");
                assert_eq!(fs.enable_verity(ino, how), Err(FsError::Exists));
                fs.forget(ino, 1);
            }
        };
        check(&fs);
        fs.unmount().unwrap();
        assert_clean(&dev, &format!("{kind:?}"));
        let fs = open(&dev, "");
        check(&fs);
        for (name, ..) in &made {
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, free, "{kind:?}: trees go with their files");
        fs.unmount().unwrap();
        assert_clean(&dev, &format!("{kind:?}, files removed"));
    }
}

#[test]
fn parts_of_a_file_are_read_at_any_place() {
    let dev = volume(&["-O", "verity", "-b", "1024"]);
    let fs = open(&dev, "");
    let contents = bytes(1, 300_003);
    let ino = make(&fs, "file", &contents);
    fs.enable_verity(ino, &how(SHA256, 1024, b"s")).unwrap();
    for at in (0..contents.len()).step_by(997) {
        for len in [1, 1023, 1024, 5000] {
            let mut buf = vec![0xEE; len];
            let n = fs.read(ino, at as u64, &mut buf).unwrap();
            let wanted = &contents[at..contents.len().min(at + len)];
            assert!(buf[..n] == *wanted, "{len} bytes at {at}");
        }
    }
    let mut file = fs.open_file("/file", OpenOptions::new().read(true)).unwrap();
    let mut all = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut all).unwrap();
    assert!(all == contents, "with readahead");
}

#[test]
fn what_is_behind_the_contents_is_given_out() {
    let dev = volume(KINDS[0]);
    let fs = open(&dev, "");
    let ino = make(&fs, "file", &bytes(1, 1 << 20));
    let signature = bytes(2, 5000);
    let with = EnableVerity { signature: signature.clone(), ..how(SHA256, 4096, b"") };
    fs.enable_verity(ino, &with).unwrap();
    let part = |part, at, len| {
        let mut buf = vec![0; len];
        let n = fs.read_verity(ino, part, at, &mut buf).unwrap();
        buf.truncate(n);
        buf
    };
    assert!(part(VerityPart::Signature, 0, 9000) == signature);
    assert!(part(VerityPart::Signature, 4990, 9000) == signature[4990..]);
    let tree = part(VerityPart::Tree, 0, 1 << 20);
    assert_eq!(tree.len(), 3 * 4096, "a root and two leaves");
    assert!(part(VerityPart::Tree, 4096, 100) == tree[4096..4196]);
    assert!(part(VerityPart::Tree, 1 << 40, 100).is_empty());
    let descriptor = part(VerityPart::Descriptor, 0, 9000);
    assert_eq!((descriptor.len(), descriptor[4]), (256, 0), "as it is hashed");
    let parsed = extol_verity::Descriptor::parse(&descriptor, 1 << 20).unwrap();
    assert_eq!(parsed.digest().to_string(), measured(&fs, ino));
    let plain = make(&fs, "plain", b"x");
    let read = |ino, part| fs.read_verity(ino, part, 0, &mut [0; 9]);
    assert_eq!(read(plain, VerityPart::Tree), Err(FsError::NoAttribute));
    fs.enable_verity(plain, &how(SHA256, 1024, b"")).unwrap();
    assert_eq!(read(plain, VerityPart::Signature), Err(FsError::NoAttribute));
    fs.unmount().unwrap();
    assert_clean(&dev, "with a signature");
}

#[test]
fn the_contents_cannot_change_and_all_else_can() {
    let dev = volume(KINDS[2]);
    let fs = open(&dev, "");
    let contents = bytes(1, 10_000);
    let ino = make(&fs, "file", &contents);
    fs.enable_verity(ino, &how(SHA256, 4096, b"")).unwrap();
    let denied = Err(FsError::NotPermitted);
    assert_eq!(fs.write(ino, 0, b"x"), Err(FsError::NotPermitted));
    assert_eq!(fs.write(ino, 10_000, b"x"), Err(FsError::NotPermitted));
    for size in [0, 10_000, 20_000] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        assert_eq!(fs.setattr(ino, &set).map(drop), denied, "{size}");
    }
    for mode in [
        Fallocate::Allocate { keep_size: true },
        Fallocate::PunchHole,
        Fallocate::ZeroRange { keep_size: true },
        Fallocate::CollapseRange,
        Fallocate::InsertRange,
    ] {
        assert_eq!(fs.fallocate(ino, mode, 0, 4096), denied, "{mode:?}");
    }
    let opened = fs.open_file("/file", OpenOptions::new().write(true)).map(drop);
    assert_eq!(opened, denied);
    fs.setattr(ino, &SetAttr { perm: Some(0o600), uid: Some(7), ..SetAttr::default() }).unwrap();
    fs.fsync(ino, false).unwrap();
    fs.setxattr(ino, b"user.a", b"value", XattrSet::Any).unwrap();
    fs.link(ino, fs.root(), b"hard").unwrap();
    fs.rename(fs.root(), b"file", fs.root(), b"moved", RenameFlags::empty()).unwrap();
    fs.defragment(ino).unwrap();
    assert!(read_all(&fs, ino).unwrap() == contents);
    fs.unmount().unwrap();
    assert_clean(&dev, "after changes beside the contents");
}

#[test]
fn what_cannot_be_enabled_is_refused_and_stays() {
    let dev = volume(KINDS[3]);
    let fs = open(&dev, "");
    let d = dir(&fs, fs.root(), "dir");
    let good = how(SHA256, 4096, b"");
    assert_eq!(fs.enable_verity(d, &good), Err(FsError::IsADirectory));
    let ino = make(&fs, "file", &bytes(1, 9000));
    for bad in [
        how(3, 4096, b""),
        how(0, 4096, b""),
        how(SHA256, 512, b""),
        how(SHA256, 3000, b""),
        how(SHA256, 8192, b""),
        how(SHA256, 0, b""),
        how(SHA256, 4096, &[1; 33]),
        EnableVerity { signature: vec![0; 16_129], ..good.clone() },
    ] {
        let refused = matches!(fs.enable_verity(ino, &bad), Err(FsError::Invalid(_)));
        assert!(refused, "{bad:?}");
    }
    for (flag, error) in [(0x10, FsError::NotPermitted), (0x20, FsError::NotPermitted)] {
        let flags = |flags| SetAttr { flags: Some(flags), ..SetAttr::default() };
        let old = fs.getattr(ino).unwrap().flags;
        fs.setattr(ino, &flags(old | flag)).unwrap();
        assert_eq!(fs.enable_verity(ino, &good), Err(error));
        fs.setattr(ino, &flags(old)).unwrap();
    }
    assert!(read_all(&fs, ino).unwrap() == bytes(1, 9000));
    fs.unmount().unwrap();
    let fs = open(&dev, "ro");
    let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
    assert_eq!(fs.enable_verity(ino, &good), Err(FsError::ReadOnly));
    drop(fs);
    for (kind, name) in [
        (&["-O", "^verity", "-b", "4096"][..], "no feature"),
        (&["-O", "verity,^extents,^64bit", "-b", "4096"], "block maps"),
    ] {
        let dev = volume(kind);
        let fs = open(&dev, "");
        let ino = make(&fs, "file", &bytes(1, 9000));
        let refused = matches!(fs.enable_verity(ino, &good), Err(FsError::NotSupported(_)));
        assert!(refused, "{name}");
        fs.unmount().unwrap();
        assert_clean(&dev, name);
    }
}

/// A tree of more blocks than may be dirty, beside data that was written just before, and blocks
/// that were allocated behind the end.
#[test]
fn a_large_file_is_built_in_little_memory() {
    let dev = image("300M", &["-t", "ext4", "-O", "verity", "-b", "1024"]);
    let fs = open(&dev, "dirty_mb=1");
    let contents = bytes(1, 64 << 20);
    let ino = make(&fs, "file", &contents);
    fs.fallocate(ino, Fallocate::Allocate { keep_size: true }, 64 << 20, 8 << 20).unwrap();
    fs.enable_verity(ino, &how(SHA512, 1024, b"salt")).unwrap();
    assert!(read_all(&fs, ino).unwrap() == contents);
    fs.unmount().unwrap();
    assert_clean(&dev, "a large tree");
    let fs = open(&dev, "");
    let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
    assert!(read_all(&fs, ino).unwrap() == contents);
}

/// A volume that is too full for the tree: the file stays as it was.
#[test]
fn without_room_for_the_tree_nothing_is_left() {
    let dev = image("8M", &["-t", "ext4", "-O", "verity", "-b", "1024", "-m", "0"]);
    let fs = open(&dev, "");
    let contents = bytes(1, 2 << 20);
    let ino = make(&fs, "file", &contents);
    fs.sync().unwrap();
    let filler = file(&fs, fs.root(), "filler");
    let mut at = 0;
    while let Ok(n @ 1..) = fs.write(filler, at, &[7; 10_240]) {
        at += n as u64;
    }
    fs.sync().unwrap();
    for _ in 0..2 {
        assert_eq!(fs.enable_verity(ino, &how(SHA512, 1024, b"")), Err(FsError::NoSpace));
        assert!(read_all(&fs, ino).unwrap() == contents);
        assert_eq!(fs.measure_verity(ino), Err(FsError::NoAttribute));
    }
    fs.write(ino, 5, b"still writable").unwrap();
    fs.unlink(fs.root(), b"filler").unwrap();
    fs.forget(filler, 1);
    fs.enable_verity(ino, &how(SHA512, 1024, b"")).unwrap();
    fs.unmount().unwrap();
    assert_clean(&dev, "after a full volume");
}

/// A deleted file that is still referenced.
#[test]
fn a_file_without_a_name_is_enabled_and_deleted() {
    for kind in [KINDS[2], KINDS[6]] {
        let dev = volume(kind);
        let fs = open(&dev, "");
        let free = fs.statfs().unwrap().blocks_free;
        let ino = make(&fs, "file", &bytes(1, 100_000));
        fs.unlink(fs.root(), b"file").unwrap();
        fs.enable_verity(ino, &how(SHA256, 1024, b"")).unwrap();
        assert!(read_all(&fs, ino).unwrap() == bytes(1, 100_000));
        fs.forget(ino, 1);
        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, free);
        fs.unmount().unwrap();
        assert_clean(&dev, "deleted");
    }
}

/// While the contents are hashed other threads go on, but for what would change them; and a caller
/// that stops leaves the file as it was, wherever it stops.
#[test]
fn hashing_keeps_no_thread_waiting_and_can_be_stopped() {
    // With one megabyte of dirty data the tree of 1.6 MB is not kept in memory.
    for options in ["", "dirty_mb=1"] {
        let dev = image("96M", &["-t", "ext4", "-O", "verity", "-b", "1024"]);
        let fs = open(&dev, options);
        let contents = bytes(1, 24 << 20);
        let ino = make(&fs, "file", &contents);
        let how = how(SHA512, 1024, b"salt");
        fs.sync().unwrap();
        let free = fs.statfs().unwrap().blocks_free;
        let calls = std::cell::Cell::new(0);
        let is_locked = |call| !options.is_empty() && call > 0;
        // 96 pieces are hashed; a tree in memory is written in further ones.
        let all: &[u32] = if options.is_empty() { &[0, 1, 40, 95, 97, 100] } else { &[0, 1, 95] };
        for &last in all {
            calls.set(0);
            let stop = || {
                calls.set(calls.get() + 1);
                calls.get() > last
            };
            let done = fs.enable_verity_unless(ino, &how, &stop);
            assert_eq!(done, Err(FsError::Interrupted), "{options}, call {last}");
            assert_eq!(fs.measure_verity(ino), Err(FsError::NoAttribute));
            fs.sync().unwrap();
            assert_eq!(fs.statfs().unwrap().blocks_free, free, "{options}, call {last}");
            fs.write(ino, 5, &contents[5..9]).unwrap();
        }
        let beside = || {
            calls.set(calls.get() + 1);
            if is_locked(calls.get()) || calls.get() > 20 {
                return false;
            }
            assert_eq!(fs.getattr(ino).unwrap().size, contents.len() as u64);
            let mut some = [0; 100];
            assert_eq!(fs.read(ino, 1000, &mut some), Ok(100));
            assert_eq!(fs.write(ino, 1000, &some), Err(FsError::TextBusy));
            let size = |bytes| SetAttr { size: Some(bytes), ..SetAttr::default() };
            assert_eq!(fs.setattr(ino, &size(7)).unwrap_err(), FsError::TextBusy);
            let punched = fs.fallocate(ino, Fallocate::PunchHole, 0, 4096);
            assert_eq!(punched, Err(FsError::TextBusy));
            assert_eq!(fs.enable_verity(ino, &how), Err(FsError::Busy));
            fs.freeze().and_then(|()| fs.thaw()).unwrap();
            fs.sync().unwrap();
            false
        };
        calls.set(0);
        fs.enable_verity_unless(ino, &how, &beside).unwrap();
        assert!(calls.get() > 90, "{} calls", calls.get());
        assert_eq!(fs.write(ino, 1000, b"x"), Err(FsError::NotPermitted));
        assert!(read_all(&fs, ino).unwrap() == contents);
        fs.unmount().unwrap();
        assert_clean(&dev, options);
    }
}

/// The last name goes, and the last reference, while the contents are hashed.
#[test]
fn a_file_that_is_deleted_meanwhile_is_gone() {
    let dev = image("32M", &["-t", "ext4", "-O", "verity", "-b", "1024"]);
    let fs = open(&dev, "");
    let free = fs.statfs().unwrap().blocks_free;
    let ino = make(&fs, "file", &bytes(1, 4 << 20));
    let calls = std::cell::Cell::new(0);
    let delete = || {
        calls.set(calls.get() + 1);
        if calls.get() == 3 {
            fs.unlink(fs.root(), b"file").unwrap();
            fs.forget(ino, 1);
        }
        false
    };
    assert_eq!(fs.enable_verity_unless(ino, &how(SHA256, 1024, b""), &delete), Err(FsError::Stale));
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, free);
    fs.unmount().unwrap();
    assert_clean(&dev, "deleted meanwhile");
}
