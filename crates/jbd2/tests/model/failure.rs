//! After the first failure, or an abort on purpose: errors for all waiters, success for no lost
//! transaction, and every thread ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_block::{BlockNr, DeviceOp};
use extol_jbd2::JournalError;
use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{Lab, add, crash, put};

/// Threads change and wait while one of the device's operations fails.
fn under_failure(op: DeviceOp, later: u64) {
    let mut lab = Lab::any();
    lab.medium.plan_failure(op, below(later) as u32);
    let told = Arc::new(AtomicU32::new(0));
    let asked = Arc::new(AtomicU32::new(0));
    let mut threads: Vec<_> = (0..2u64)
        .map(|t| {
            let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
            let (told, asked) = (Arc::clone(&told), Arc::clone(&asked));
            thread::spawn(move || -> Result<(), JournalError> {
                for round in 1..=3u8 {
                    let mut h = journal.start(3)?;
                    asked.fetch_add(1, Ordering::SeqCst);
                    let (told, m) = (Arc::clone(&told), Arc::clone(&medium));
                    h.on_commit(move |durable| {
                        told.fetch_add(1, Ordering::SeqCst);
                        if durable {
                            assert!(crash(&m).at(2 * t) >= round, "told of a lost transaction");
                        }
                    });
                    put(&mut h, 2 * t, round)?;
                    put(&mut h, 2 * t + 1, round)?;
                    add(&mut h, 8)?;
                    let tid = h.tid();
                    h.stop()?;
                    journal.commit_wait(tid)?;
                    let after = crash(&medium);
                    assert!(after.at(2 * t) >= round, "acknowledged and lost");
                    assert_eq!(after.at(2 * t), after.at(2 * t + 1), "half a transaction");
                }
                Ok(())
            })
        })
        .collect();
    if below(2) == 0 {
        let journal = Arc::clone(&lab.journal);
        threads.push(thread::spawn(move || {
            journal.freeze()?;
            journal.thaw();
            Ok(())
        }));
    }
    let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    // Freeze writes home, so the failure shows now if it has happened.
    let end = lab.journal.freeze();
    lab.stop_services();
    if lab.medium.has_failed() {
        assert!(end.is_err(), "success after a failure");
        for result in results.iter().filter_map(|r| r.as_ref().err()) {
            assert!(
                matches!(result, JournalError::Aborted(_) | JournalError::Device(_)),
                "{result}"
            );
        }
        assert!(lab.journal.start(1).is_err());
        assert!(lab.journal.flush_data().is_err());
    } else {
        assert!(end.is_ok() && results.iter().all(Result::is_ok));
    }
    assert_eq!(
        told.load(Ordering::SeqCst),
        asked.load(Ordering::SeqCst),
        "each callback is called once, whatever happens"
    );
}

#[test]
fn a_write_fails() {
    explore("a_write_fails", 8000, || under_failure(DeviceOp::Write, 14));
}

#[test]
fn a_flush_fails() {
    explore("a_flush_fails", 8000, || under_failure(DeviceOp::Flush, 7));
}

/// A shutdown at any moment, with one waiter of each kind.
#[test]
fn shutdown_at_any_moment() {
    explore("shutdown_at_any_moment", 8000, || {
        let mut lab = Lab::any();
        let first = lab.journal.committed().next();
        let journal = Arc::clone(&lab.journal);
        let holder = thread::spawn(move || {
            let mut h = journal.start(1)?;
            put(&mut h, 5, 1)?;
            h.stop()
        });
        let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
        let waiter = thread::spawn(move || {
            let there = journal.read(BlockNr(5))?.data()[0];
            journal.commit_wait(first)?;
            assert!(crash(&medium).at(5) >= there, "acknowledged and lost");
            Ok(())
        });
        let journal = Arc::clone(&lab.journal);
        let freezer = thread::spawn(move || {
            journal.freeze()?;
            journal.thaw();
            Ok(())
        });
        let journal = Arc::clone(&lab.journal);
        let greedy = thread::spawn(move || journal.start(journal.max_credits())?.stop());
        lab.journal.shut_down("power");
        for result in [holder, waiter, freezer, greedy].map(|t| t.join().unwrap()) {
            match result {
                Ok(()) => {}
                Err(JournalError::Aborted(why)) => assert_eq!(why, "power"),
                Err(e) => panic!("{e}"),
            }
        }
        assert!(lab.journal.commit_all().is_err(), "success after the end");
        lab.stop_services();
    });
}
