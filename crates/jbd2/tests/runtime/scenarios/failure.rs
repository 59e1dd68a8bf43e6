//! Waiters, and what a failure or a freeze means to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{BlockNr, DeviceOp};
use extol_devices::{Fault, FaultDevice};
use extol_jbd2::{Journal, JournalError, Services, Tid};

use super::{ROOMY, a_moment, after_crash, background, byte, fill, gated};
use crate::lab::{PLAIN, in_time};

/// One waiter of each kind; an abort wakes all of them with an error.
#[test]
fn an_abort_wakes_all_waiters() {
    in_time("waiters", || {
        let (journal, gate, device) = gated(ROOMY);
        let first = fill(&journal, [100], 1);
        gate.close(DeviceOp::Flush);
        let spawn = |f: fn(&Arc<Journal>, Tid) -> Result<(), JournalError>| {
            let j = Arc::clone(&journal);
            background(move || f(&j, first))
        };
        let (leader, leader_done) = spawn(|j, tid| j.commit_wait(tid));
        gate.wait_for_a_thread();
        let (follower, _) = spawn(|j, tid| j.commit_wait(tid));
        let held = journal.start(3).unwrap();
        let (next, _) = spawn(|j, tid| j.commit_wait(tid.next()));
        let (freezer, freezer_done) = spawn(|j, _| j.freeze());
        a_moment();
        let (joiner, joiner_done) = spawn(|j, _| j.start(1)?.stop());
        a_moment();
        assert!(!joiner_done.load(Ordering::SeqCst), "joined behind a freeze");

        let _ = journal.abort("test");
        for waiter in [follower, next, joiner] {
            assert!(
                matches!(waiter.join().unwrap(), Err(JournalError::Aborted(why)) if why == "test")
            );
        }
        // The freeze waits for the open handle, the leader for the device.
        assert!(!freezer_done.load(Ordering::SeqCst) && !leader_done.load(Ordering::SeqCst));
        assert!(held.stop().is_err());
        assert!(freezer.join().unwrap().is_err());
        gate.open();
        assert!(leader.join().unwrap().is_err(), "nothing is acknowledged after an abort");
        assert!(journal.commit_wait(first).is_err());
        // The record was stopped: a flush had failed somewhere.
        assert_eq!(byte(&after_crash(&ROOMY, &device), 100), 0);
    });
}

/// Waiters for log space and for a full transaction get the error as well.
#[test]
fn an_abort_wakes_those_that_wait_for_room() {
    in_time("waiters for room", || {
        for full_log in [false, true] {
            let (journal, _) = ROOMY.in_memory();
            let mut round = 0;
            while full_log && journal.stats().log_free > 290 {
                round += 1;
                fill(&journal, 100..120, round);
                journal.commit_all().unwrap();
            }
            let h =
                if full_log { None } else { Some(journal.start(journal.max_credits()).unwrap()) };
            let j = Arc::clone(&journal);
            let (waiter, done) = background(move || j.start(j.max_credits()).map(drop));
            a_moment();
            assert!(!done.load(Ordering::SeqCst));
            let _ = journal.abort("test");
            assert!(waiter.join().unwrap().is_err());
            drop(h);
        }
    });
}

/// What waits for a transaction that will never be durable is told so and dropped, so that nothing
/// keeps the journal (and its device) alive.
#[test]
fn callbacks_of_an_aborted_transaction() {
    for abort_first in [false, true] {
        let (journal, device) = PLAIN.in_memory();
        let told = Arc::new(AtomicU64::new(0));
        let (t, j) = (Arc::clone(&told), Arc::clone(&journal));
        let mut h = journal.start(2).unwrap();
        h.create(BlockNr(7)).unwrap();
        h.on_commit(move |durable| {
            assert!(!durable);
            t.fetch_add(1, Ordering::SeqCst);
            drop(j);
        });
        if abort_first {
            journal.shut_down("test");
            assert_eq!(told.load(Ordering::SeqCst), 0, "the handle may still add some");
            assert!(h.stop().is_err());
        } else {
            h.stop().unwrap();
            journal.shut_down("test");
        }
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let weak = Arc::downgrade(&journal);
        drop(journal);
        assert!(weak.upgrade().is_none());
        assert_eq!(Arc::strong_count(&device), 1);
    }
}

/// After a failed commit readers still see what the failed transaction wrote, not what was before:
/// pages of both would not fit together.
#[test]
fn reads_after_a_failed_commit() {
    let device = Arc::new(FaultDevice::new(PLAIN.media().0, []));
    let journal = PLAIN.open(device.clone(), device.clone());
    fill(&journal, [5], 9);
    device.arm(Fault::from_then_on(DeviceOp::Write, 0));
    assert!(journal.commit_all().is_err());
    // More than the cache holds.
    for nr in 600..2900 {
        journal.read(BlockNr(nr)).unwrap();
    }
    assert_eq!(journal.read(BlockNr(5)).unwrap().data()[0], 9);
}

/// Freeze keeps handles out until the thaw, twice at a time, and home is complete meanwhile.
#[test]
fn freeze_and_thaw() {
    in_time("freeze", || {
        let (journal, device) = PLAIN.in_memory();
        let _services = Services::start(&journal).unwrap();
        fill(&journal, [100], 1);
        journal.freeze().unwrap();
        journal.freeze().unwrap();
        assert_eq!(byte(&*device, 100), 1);
        let sb = PLAIN.journal_superblock(&*device);
        assert_eq!((sb.start, sb.sequence), (0, journal.committed().next()));
        let j = Arc::clone(&journal);
        let (writer, done) = background(move || fill(&j, [100], 2));
        journal.thaw();
        a_moment();
        assert!(!done.load(Ordering::SeqCst), "one freeze is left");
        assert_eq!(byte(&*device, 100), 1);
        journal.thaw();
        let tid = writer.join().unwrap();
        journal.commit_wait(tid).unwrap();
        assert_eq!(PLAIN.journal_superblock(&*device).sequence, tid, "the log is live again");
        assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 2);
    });
}
