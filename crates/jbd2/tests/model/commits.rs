//! What is acknowledged is durable, whole, and never lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{BS, Lab, add, crash, fill, put};

/// A block that all threads add to.
const SHARED: u64 = 8;

/// Threads change their own two blocks and a shared one, and wait; at the moment of each
/// acknowledgement a crash leaves at least that, the two blocks alike, and nothing that was never
/// written.
#[test]
fn acknowledged_is_durable() {
    explore("acknowledged_is_durable", 9600, || {
        let mut lab = Lab::any();
        let threads: Vec<_> = (0..3)
            .map(|t| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || {
                    for round in 1..=2u8 {
                        let mut h = journal.start(3).unwrap();
                        put(&mut h, 2 * t, round).unwrap();
                        let sum = add(&mut h, SHARED).unwrap();
                        put(&mut h, 2 * t + 1, round).unwrap();
                        let tid = h.tid();
                        h.stop().unwrap();
                        journal.commit_wait(tid).unwrap();
                        let after = crash(&medium);
                        assert_eq!(after.at(2 * t), round, "acknowledged and lost");
                        assert!(after.at(SHARED) >= sum, "acknowledged and lost");
                        for other in [0, 2, 4] {
                            assert_eq!(after.at(other), after.at(other + 1), "half a transaction");
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        lab.stop_services();
        assert_eq!(lab.crash().at(SHARED), 6, "a change was lost");
        assert_eq!(lab.journal.stats().overdrafts, 0);
    });
}

/// The log needs no wait to be whole: a crash at any moment leaves whole transactions, in their
/// order.
#[test]
fn crashes_at_any_moment() {
    explore("crashes_at_any_moment", 4800, || {
        let mut lab = Lab::any();
        let journal = Arc::clone(&lab.journal);
        let writer = thread::spawn(move || {
            for round in 1..=4 {
                fill(&journal, &[1, 2], round).unwrap();
                let tid = fill(&journal, &[3], round).unwrap();
                if round % 2 == 0 {
                    journal.request_commit(tid);
                } else {
                    journal.commit_wait(tid).unwrap();
                }
            }
        });
        let medium = Arc::clone(&lab.medium);
        let checksum = thread::spawn(move || {
            let mut least = 0;
            for _ in 0..6 {
                let after = crash(&medium);
                let (one, two, three) = (after.at(1), after.at(2), after.at(3));
                assert_eq!(one, two, "half a transaction");
                assert!(three <= one && one <= three + 1, "out of order: {one} before {three}");
                // Unacknowledged ones may vanish, with all that follow them.
                assert!(one + 2 >= least, "went back from {least} to {one}");
                least = least.max(one);
                thread::yield_now();
            }
        });
        writer.join().unwrap();
        checksum.join().unwrap();
        lab.stop_services();
    });
}

/// Callbacks run once, when the transaction is durable and before any waiter for it is told.
#[test]
fn callbacks_before_waiters() {
    explore("callbacks_before_waiters", 4800, || {
        let mut lab = Lab::any();
        let threads: Vec<_> = (0..2u64)
            .map(|t| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || {
                    let calls = Arc::new(AtomicU32::new(0));
                    let mut h = journal.start(1).unwrap();
                    let c = Arc::clone(&calls);
                    h.on_commit(move |durable| {
                        assert!(durable);
                        c.fetch_add(1, Ordering::SeqCst);
                        assert_eq!(crash(&medium).at(t), 1, "called before the record was durable");
                    });
                    put(&mut h, t, 1).unwrap();
                    let tid = h.tid();
                    h.stop().unwrap();
                    journal.commit_wait(tid).unwrap();
                    assert_eq!(calls.load(Ordering::SeqCst), 1);
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        lab.stop_services();
    });
}

/// Waiting for "everything" while others commit, with transactions in between that hold nothing.
#[test]
fn waiting_for_everything() {
    explore("waiting_for_everything", 6400, || {
        let mut lab = Lab::any();
        let journal = Arc::clone(&lab.journal);
        let writer = thread::spawn(move || {
            let tid = fill(&journal, &[1], 1).unwrap();
            if below(2) == 0 {
                journal.commit_wait(tid).unwrap();
            }
        });
        let journal = Arc::clone(&lab.journal);
        let idle = thread::spawn(move || journal.start(1).unwrap().stop().unwrap());
        let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
        let syncer = thread::spawn(move || {
            let there = journal.read(extol_block::BlockNr(1)).unwrap().data()[0];
            let h = (below(2) == 0).then(|| journal.start(1).unwrap());
            drop(h);
            journal.commit_all().unwrap();
            assert!(
                crash(&medium).at(1) >= there,
                "a sync returned before what it had seen was durable"
            );
        });
        [writer, idle, syncer].into_iter().for_each(|t| t.join().unwrap());
        lab.stop_services();
    });
}

/// File data is durable when a flush or a commit that began after it says so.
#[test]
fn data_is_flushed() {
    explore("data_is_flushed", 4800, || {
        let mut lab = Lab::any();
        let threads: Vec<_> = (0..3u64)
            .map(|t| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || {
                    use extol_block::BlockDevice as _;
                    for round in 1..=3 {
                        medium.write_at(&[round; BS], t * BS as u64).unwrap();
                        journal.note_data_write();
                        if t == 2 && round == 2 {
                            let tid = fill(&journal, &[9], 1).unwrap();
                            journal.commit_wait(tid).unwrap();
                        } else {
                            journal.flush_data().unwrap();
                        }
                        assert_eq!(crash(&medium).at(t), round, "flushed data is lost");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        lab.stop_services();
    });
}
