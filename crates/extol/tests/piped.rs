//! Writes out of a pipe: what they leave is what a write of the bytes leaves, and what they refuse
//! they do not touch.

mod common;

use std::os::fd::AsFd;

use common::*;
use extol::Ext4;
use extol::vfs::{Author, Fallocate, FileSystem, FsError};
use extol_testkit::pipe::holding;

const KIB: usize = 1024;

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 4096 * 7 + seed) as u8).collect()
}

/// True if it was written; else nothing was taken out of the pipe.
fn write_piped(fs: &Ext4, ino: u32, offset: u64, data: &[u8]) -> Result<bool, FsError> {
    let (reader, _writer) = holding(data).unwrap();
    let result = fs.write_piped(ino, offset, reader.as_fd(), data.len(), Author::Owner);
    let left = if result == Ok(true) { 0 } else { data.len() };
    assert_eq!(rustix::io::ioctl_fionread(&reader).unwrap(), left as u64, "{result:?}");
    result
}

fn contents(fs: &Ext4, ino: u32) -> Vec<u8> {
    let size = fs.getattr(ino).unwrap().size;
    let mut all = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut all).unwrap(), all.len());
    all
}

#[test]
fn pieces_arrive_whatever_was_there() {
    for block in ["1024", "4096"] {
        let dev = image("160M", &["-t", "ext4", "-b", block]);
        let fs = open(&dev, "");
        let home = dir(&fs, fs.root(), "d");
        let ino = file(&fs, home, "f");
        let mut expected = Vec::new();
        let mut put = |offset: usize, len: usize| {
            let data = bytes(len, offset);
            assert_eq!(
                write_piped(&fs, ino, offset as u64, &data),
                Ok(true),
                "{block}: {len} at {offset}"
            );
            let end = expected.len().max(offset + len);
            expected.resize(end, 0);
            expected[offset..offset + len].copy_from_slice(&data);
            assert!(contents(&fs, ino) == expected, "{block}: {len} at {offset}");
            if offset == 0 {
                // Small writes wait in pages: the next piece covers some, and ends in the middle of
                // one.
                for at in (300 * KIB..900 * KIB).step_by(3 * KIB) {
                    fs.write(ino, at as u64, b"small").unwrap();
                    let end = expected.len().max(at + 5);
                    expected.resize(end, 0);
                    expected[at..at + 5].copy_from_slice(b"small");
                }
            }
        };
        put(0, 512 * KIB);
        put(256 * KIB, 500 * KIB + 77);
        put(3000 * KIB, 256 * KIB); // behind a hole
        put(2800 * KIB, 300 * KIB); // a hole, and what is mapped
        fs.fallocate(ino, Fallocate::Allocate { keep_size: false }, 4 << 20, 1 << 20).unwrap();
        expected.resize(5 << 20, 0);
        let data = bytes(600 * KIB, 5);
        assert_eq!(write_piped(&fs, ino, 4 << 20, &data), Ok(true), "into unwritten blocks");
        expected[4 << 20..(4 << 20) + data.len()].copy_from_slice(&data);
        assert!(contents(&fs, ino) == expected, "{block}");
        fs.fsync(ino, false).unwrap();
        fs.unmount().unwrap();
        assert_clean(&dev, block);
        let fs = open(&dev, "");
        let home = fs.lookup(fs.root(), b"d").unwrap().id.ino;
        let ino = fs.lookup(home, b"f").unwrap().id.ino;
        assert!(contents(&fs, ino) == expected, "{block}: after a mount");
        fs.unmount().unwrap();
    }
}

/// What an fsync has acknowledged is there after a crash.
#[test]
fn an_fsync_covers_them() {
    let dev = image("160M", &["-t", "ext4", "-O", "fast_commit"]);
    let fs = open(&dev, "");
    let ino = file(&fs, fs.root(), "f");
    let (first, second) = (bytes(400 * KIB, 1), bytes(400 * KIB + 9, 2));
    assert_eq!(write_piped(&fs, ino, 0, &first), Ok(true));
    fs.fsync(ino, false).unwrap();
    assert_eq!(write_piped(&fs, ino, 400 * KIB as u64, &second), Ok(true));
    fs.fsync(ino, true).unwrap();
    let crashed = std::sync::Arc::new(extol_block::MemDevice::from_bytes(&dev.to_bytes()));
    drop(fs);
    let fs = open(&crashed, "");
    let ino = fs.lookup(fs.root(), b"f").unwrap().id.ino;
    assert!(contents(&fs, ino) == [first, second].concat());
    fs.unmount().unwrap();
    assert_clean(&crashed, "after a crash");
}

/// What waits in pages before a large piece is on the device as soon as the size is that covers it,
/// whoever synced what: zeros, where there never were any, are not to be seen after a crash.
#[test]
fn pages_before_a_large_piece_go_first() {
    for piped in [false, true] {
        let dev = image("160M", &["-t", "ext4"]);
        let fs = open(&dev, "");
        let (ino, other) = (file(&fs, fs.root(), "f"), file(&fs, fs.root(), "g"));
        let (small, large) = (bytes(5000, 1), bytes(300 * KIB, 2));
        fs.write(ino, 0, &small).unwrap();
        match piped {
            true => assert_eq!(write_piped(&fs, ino, 8192, &large), Ok(true)),
            false => assert_eq!(fs.write(ino, 8192, &large), Ok(large.len())),
        }
        fs.fsync(other, false).unwrap();
        let crashed = std::sync::Arc::new(extol_block::MemDevice::from_bytes(&dev.to_bytes()));
        drop(fs);
        let fs = open(&crashed, "");
        let ino = fs.lookup(fs.root(), b"f").unwrap().id.ino;
        let found = contents(&fs, ino);
        assert_eq!(found.len(), 8192 + large.len(), "the large piece is mapped");
        assert!(found[..5000] == small && found[8192..] == large, "piped: {piped}");
        fs.unmount().unwrap();
    }
}

#[test]
fn what_is_refused_is_still_in_the_pipe() {
    let large = bytes(300 * KIB, 3);
    let dev = image("160M", &["-t", "ext4", "-O", "inline_data"]);
    let fs = open(&dev, "");
    let ino = file(&fs, fs.root(), "f");
    assert_eq!(write_piped(&fs, ino, 0, &large[..100 * KIB]), Ok(false), "small");
    assert_eq!(write_piped(&fs, ino, 5, &large), Ok(false), "inside a block");
    assert_eq!(write_piped(&fs, ino, u64::MAX - 4095, &large), Ok(false), "no such place");
    fs.write(ino, 0, b"inline").unwrap();
    assert_eq!(write_piped(&fs, ino, 4096, &large), Ok(false), "inline");
    assert_eq!(contents(&fs, ino), b"inline");
    assert!(write_piped(&fs, fs.root(), 0, &large).is_err(), "a directory");
    let second = file(&fs, fs.root(), "g");
    fs.refuse_when_frozen();
    fs.freeze().unwrap();
    assert_eq!(write_piped(&fs, second, 0, &large), Err(FsError::Frozen));
    fs.thaw().unwrap();
    assert_eq!(write_piped(&fs, second, 0, &large), Ok(true));
    fs.unmount().unwrap();

    let fs = open(&dev, "data=journal");
    let ino = file(&fs, fs.root(), "journalled");
    assert_eq!(write_piped(&fs, ino, 0, &large), Ok(false));
    fs.unmount().unwrap();

    let dev = image("48M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let ino = file(&fs, fs.root(), "f");
    assert_eq!(write_piped(&fs, ino, 0, &large), Ok(false), "might fill up");
    fs.unmount().unwrap();
}
