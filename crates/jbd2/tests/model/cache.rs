//! Readers of the cache beside writers, and beside a device that fails.

use std::sync::Arc;

use extol_block::{BlockNr, DeviceOp};
use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{Lab, add, byte};

/// A snapshot is one version of the block and never changes; versions only go up.
#[test]
fn snapshots_are_whole() {
    explore("snapshots_are_whole", 4800, || {
        let mut lab = Lab::any();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let journal = Arc::clone(&lab.journal);
                thread::spawn(move || {
                    for _ in 0..2 {
                        let mut h = journal.start(1).unwrap();
                        add(&mut h, 3).unwrap();
                        h.stop().unwrap();
                    }
                })
            })
            .collect();
        let journal = Arc::clone(&lab.journal);
        let committer = thread::spawn(move || journal.commit_all().unwrap());
        let journal = Arc::clone(&lab.journal);
        let reader = thread::spawn(move || {
            let mut last = 0;
            for _ in 0..4 {
                let snapshot = journal.read(BlockNr(3)).unwrap().data();
                let now = byte(&snapshot, 3);
                thread::yield_now();
                assert_eq!(byte(&snapshot, 3), now, "a snapshot changed");
                assert!(now >= last, "went back from {last} to {now}");
                last = now;
            }
        });
        writers.into_iter().for_each(|t| t.join().unwrap());
        committer.join().unwrap();
        reader.join().unwrap();
        lab.stop_services();
        assert_eq!(lab.journal.read(BlockNr(3)).unwrap().data()[0], 4, "a change was lost");
    });
}

/// Several threads want a block whose first read fails: each gets an error or the block, none waits
/// for ever, and a change made through one buffer is seen through all.
#[test]
fn the_first_read_fails() {
    explore("the_first_read_fails", 4800, || {
        let mut lab = Lab::any();
        lab.medium.plan_failure(DeviceOp::Read, below(2) as u32);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let journal = Arc::clone(&lab.journal);
                thread::spawn(move || {
                    let Ok(buf) = journal.read(BlockNr(3)) else { return 0 };
                    let mut h = journal.start(1).unwrap();
                    h.modify(&buf, |b| {
                        let value = b[0] + 1;
                        b.fill(value);
                    })
                    .unwrap();
                    h.stop().unwrap();
                    1
                })
            })
            .collect();
        let done: u8 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(
            lab.journal.read(BlockNr(3)).unwrap().data()[0],
            done,
            "a block was in memory twice"
        );
        lab.stop_services();
    });
}
