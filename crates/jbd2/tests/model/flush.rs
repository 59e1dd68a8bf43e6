//! Merged flushes, and the latch that stops everything after a failure.

use std::sync::Arc;

use extol_block::{BlockDevice, DeviceOp, FailLatch, FlushCoalescer};
use extol_sync::thread;

use crate::explore::{below, explore};
use crate::medium::Medium;

/// A caller's flush covers all writes that returned before its call, whichever thread does it.
#[test]
fn a_flush_covers_what_came_before() {
    explore("a_flush_covers_what_came_before", 24000, || {
        let medium = Arc::new(Medium::new(4096));
        let flushes = Arc::new(FlushCoalescer::new());
        let threads: Vec<_> = (0..4u8)
            .map(|t| {
                let (medium, flushes) = (Arc::clone(&medium), Arc::clone(&flushes));
                thread::spawn(move || {
                    for round in 1..=2 {
                        medium.write_at(&[round], t.into()).unwrap();
                        flushes.run(|| medium.flush()).unwrap();
                        assert_eq!(medium.crash(|| false)[usize::from(t)], round, "not covered");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// A failed flush reaches all callers that relied on it: none is told success for a write that it
/// lost.
#[test]
fn a_failed_flush_reaches_all_of_its_batch() {
    explore("a_failed_flush_reaches_all_of_its_batch", 16000, || {
        let medium = Arc::new(Medium::new(4096));
        medium.plan_failure(DeviceOp::Flush, below(3) as u32);
        let flushes = Arc::new(FlushCoalescer::new());
        let threads: Vec<_> = (0..3u8)
            .map(|t| {
                let (medium, flushes) = (Arc::clone(&medium), Arc::clone(&flushes));
                thread::spawn(move || {
                    medium.write_at(&[1], t.into()).unwrap();
                    let result = flushes.run(|| medium.flush());
                    // Which error it lost its write to is for the latch; a shared result must not
                    // be a wrong one.
                    (result.is_err(), t)
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(results.iter().any(|(failed, _)| *failed), medium.has_failed());
    });
}

/// Behind the latch, success means durable, also if another thread's flush failed at the same time
/// and took the writes with it.
#[test]
fn behind_the_latch_success_means_durable() {
    explore("behind_the_latch_success_means_durable", 24000, || {
        let medium = Arc::new(Medium::new(4096));
        medium.plan_failure(DeviceOp::Flush, below(3) as u32);
        let device = Arc::new(FailLatch::new(Arc::clone(&medium)));
        let threads: Vec<_> = (0..3u8)
            .map(|t| {
                let (device, medium) = (Arc::clone(&device), Arc::clone(&medium));
                thread::spawn(move || {
                    for round in 1..=2 {
                        if device.write_at(&[round], t.into()).is_ok() && device.flush().is_ok() {
                            assert_eq!(
                                medium.crash(|| false)[usize::from(t)],
                                round,
                                "told success, and lost"
                            );
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(device.failure().is_some(), medium.has_failed());
    });
}
