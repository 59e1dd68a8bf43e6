//! A volume is closed while threads still use it.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use common::*;
use extol::vfs::FileSystem;

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
