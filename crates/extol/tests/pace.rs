//! Pacing in a whole file system: who is held up, that nothing is lost by it, and that nobody else
//! notices.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use extol::Ext4;
use extol::vfs::FileSystem;

const MIB: usize = 1 << 20;
/// The file of the heavy writer is this long; it goes over it again and again.
const LONG: u64 = 24 * MIB as u64;

/// One round of the heavy writer: 96 MiB in pieces of `piece` bytes, each filled with its number.
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
    // An fsync counts for half a second, which may pass here.
    let patience = Instant::now() + Duration::from_secs(60);
    for n in 0u64.. {
        fs.write(small, n % 64 * 4096, &[7; 4096]).unwrap();
        fs.fsync(small, false).unwrap();
        let piece = if n % 2 == 0 { MIB } else { 8 * MIB };
        let contents = write_much(&fs, large, piece);
        let mut back = vec![0; contents.len()];
        assert_eq!(fs.read(large, 0, &mut back).unwrap(), back.len());
        assert!(back == contents, "what was written in pieces of {piece}");
        let pace = fs.stats().pace;
        if n > 0 && pace.flushes > 0 {
            assert!(pace.held_ns > 0, "{pace:?}");
            break;
        }
        assert!(Instant::now() < patience, "{pace:?}");
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "after pacing");
}

#[test]
fn large_writes_take_turns_while_others_fsync() {
    let dev = image("64M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let home = dir(&fs, fs.root(), "home");
    let (small, large) = (file(&fs, home, "small"), file(&fs, fs.root(), "large"));
    let patience = Instant::now() + Duration::from_secs(60);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                fs.write(small, n % 64 * 4096, &[7; 4096]).unwrap();
                fs.fsync(small, false).unwrap();
            }
        });
        for piece in [MIB, 8 * MIB].into_iter().cycle() {
            let before = fs.stats().pace.turns;
            let contents = write_much(&fs, large, piece);
            let mut back = vec![0; contents.len()];
            assert_eq!(fs.read(large, 0, &mut back).unwrap(), back.len());
            assert!(back == contents, "what was written in turns, {piece} bytes each");
            let pace = fs.stats().pace;
            if before > 0 && pace.turns > before {
                break;
            }
            assert!(Instant::now() < patience, "{pace:?}");
        }
        end.store(true, Ordering::Relaxed);
    });
    fs.unmount().unwrap();
    assert_clean(&dev, "after turns");
}

#[test]
fn a_writer_without_others_is_never_held_up() {
    let dev = image("64M", &["-t", "ext4"]);
    let fs = open(&dev, "");
    let large = file(&fs, fs.root(), "large");
    write_much(&fs, large, MIB);
    fs.fsync(large, false).unwrap();
    write_much(&fs, large, MIB);
    let pace = fs.stats().pace;
    assert_eq!((pace.flushes, pace.waits, pace.held_ns, pace.turns), (0, 0, 0, 0));
    assert!(pace.unflushed > 64 << 20, "{pace:?}");
    fs.unmount().unwrap();
}
