//! The throttle of large writes in a whole file system: which writes it holds up, and that file
//! contents stay right.

mod common;

use std::time::{Duration, Instant};

use common::*;
use extol::Ext4;
use extol::vfs::FileSystem;

const MIB: usize = 1 << 20;
/// Length of the large file, which the writer overwrites again and again.
const LONG: u64 = 24 * MIB as u64;

/// One round of the writer: 96 MiB in pieces of `piece` bytes, each filled with its number.
fn write_much(fs: &Ext4, ino: u32, piece: usize) -> Vec<u8> {
    let mut contents = vec![0; LONG as usize];
    for n in 0..96 * MIB / piece {
        let at = (n * piece) as u64 % LONG;
        let data = vec![n as u8 | 1; piece];
        assert_eq!(fs.write(ino, at, &data).unwrap(), piece);
        contents[at as usize..][..piece].copy_from_slice(&data);
    }
    contents
}

#[test]
fn large_writes_beside_fsyncs_keep_within_the_budget() {
    let dev = image("64M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let home = dir(&fs, fs.root(), "home");
    let (small, large) = (file(&fs, home, "small"), file(&fs, fs.root(), "large"));
    // An fsync counts for half a second; a slow round may miss it.
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in 0u64.. {
        fs.write(small, n % 64 * 4096, &[7; 4096]).unwrap();
        fs.fsync(small, false).unwrap();
        let piece = if n % 2 == 0 { MIB } else { 8 * MIB };
        let contents = write_much(&fs, large, piece);
        let mut back = vec![0; contents.len()];
        assert_eq!(fs.read(large, 0, &mut back).unwrap(), back.len());
        assert!(back == contents, "what was written in pieces of {piece}");
        let throttle = fs.stats().throttle;
        if n > 0 && throttle.flushes > 0 {
            assert!(throttle.held_ns > 0, "{throttle:?}");
            break;
        }
        assert!(Instant::now() < deadline, "{throttle:?}");
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "after throttled writes");
}

#[test]
fn a_writer_without_fsyncs_of_other_files_is_never_held_up() {
    let dev = image("64M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let large = file(&fs, fs.root(), "large");
    write_much(&fs, large, MIB);
    fs.fsync(large, false).unwrap();
    write_much(&fs, large, MIB);
    let throttle = fs.stats().throttle;
    assert_eq!((throttle.flushes, throttle.waits, throttle.held_ns), (0, 0, 0));
    assert!(throttle.unflushed > 64 << 20, "{throttle:?}");
    fs.unmount().unwrap();
}
