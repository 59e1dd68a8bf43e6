//! What a close leaves: also while threads still use the volume, and of the bit "valid".

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::*;
use extol::vfs::FileSystem;
use extol_block::BlockDevice;
use extol_ondisk::superblock::State;

const THREADS: u64 = 6;

/// Every writer of a closed volume gets an error in the end, wherever it was; what fsync
/// acknowledged is there, and the volume is clean. Catches: a thread that waits for ever for a log
/// that is frozen for good.
#[test]
fn no_thread_waits_for_a_closed_volume() {
    for round in 0..20 {
        let dev = image("16M", &["-t", "ext4", "-J", "size=1"]);
        let fs = open(&dev, "");
        let home = dir(&fs, fs.root(), "home");
        let acknowledged: Arc<Vec<AtomicU64>> =
            Arc::new((0..THREADS).map(|_| AtomicU64::new(0)).collect());
        let (ended, ends) = mpsc::channel();
        for t in 0..THREADS {
            let (fs, acknowledged, ended) =
                (Arc::clone(&fs), Arc::clone(&acknowledged), ended.clone());
            let ino = file(&fs, home, &format!("file-{t}"));
            // Not joined: a thread that hangs must fail the test, not hang it.
            std::thread::spawn(move || {
                for value in 1u64.. {
                    if fs.write(ino, 0, &value.to_le_bytes()).is_err()
                        || fs.fsync(ino, false).is_err()
                    {
                        break;
                    }
                    acknowledged[t as usize].store(value, Ordering::SeqCst);
                }
                drop(fs);
                let _ = ended.send(t);
            });
        }
        std::thread::sleep(Duration::from_millis(5 + round % 7 * 3));
        fs.unmount().unwrap();
        for _ in 0..THREADS {
            ends.recv_timeout(Duration::from_secs(20)).expect("a thread waits for a closed volume");
        }
        drop(fs);
        assert_clean(&dev, "closed while in use");
        let fs = open(&dev, "ro");
        for t in 0..THREADS {
            let mut value = [0; 8];
            let ino = fs.lookup(home, format!("file-{t}").as_bytes()).unwrap().id.ino;
            let len = fs.read(ino, 0, &mut value).unwrap();
            let acknowledged = acknowledged[t as usize].load(Ordering::SeqCst);
            assert!(acknowledged == 0 || len == 8, "file-{t} is empty");
            assert!(
                u64::from_le_bytes(value) >= acknowledged,
                "file-{t} lost what fsync acknowledged"
            );
        }
    }
}

/// The state field of the superblock.
const STATE_AT: u64 = 1024 + 0x3A;

fn is_valid(dev: &dyn BlockDevice) -> bool {
    let mut state = [0; 2];
    dev.read_at(&mut state, STATE_AT).expect("read");
    u16::from_le_bytes(state) & State::VALID.bits() != 0
}

/// As Linux: mount, remount and unmount leave the bit as it was, and without a journal it is off
/// while the volume is in use.
#[test]
fn only_a_check_makes_a_volume_valid_again() {
    for (kind, valid) in [("^has_journal", true), ("^has_journal", false), ("has_journal", true)] {
        let mut dev = image("16M", &["-t", "ext4", "-O", kind]);
        let what = format!("{kind}, valid before: {valid}");
        if !valid {
            // A power cut in use.
            let fs = open(&dev, "");
            dev = Arc::new(dev.snapshot());
            drop(fs);
        }
        assert_eq!(is_valid(&*dev), valid, "{what}");
        let fs = open(&dev, "");
        assert_eq!(is_valid(&*dev), kind == "has_journal", "{what}: in use");
        file(&fs, fs.root(), "a");
        fs.remount("ro").expect("remount");
        assert_eq!(is_valid(&*dev), valid, "{what}: read-only");
        fs.remount("rw").expect("remount");
        file(&fs, fs.root(), "b");
        fs.unmount().expect("unmount");
        drop(fs);
        assert_eq!(is_valid(&*dev), valid, "{what}: closed");
        let fs = open(&dev, "ro");
        fs.remount("rw").expect("remount");
        fs.unmount().expect("unmount");
        drop(fs);
        assert_eq!(is_valid(&*dev), valid, "{what}: opened read-only first");
    }
}
