//! The asynchronous checkpoint beside all other work.
//!
//! The lab's clock stands still, so nothing but a commit's flush, a freeze or want of space makes
//! home writes durable: a tail that moves on a flush that began too early is seen by the crash that
//! follows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_jbd2::{FreeThreshold, Journal, JournalError, Tid};
use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{Lab, Work, crash, home, log_is_empty, put};

/// Blocks that every transaction changes. A few transactions bring the log under the threshold, and
/// a few more fill it.
const SHARED: u64 = 3;

fn lab() -> Lab {
    let lab = Lab::new(if below(3) == 0 { Work::Callers } else { Work::Services });
    lab.journal.set_async_checkpoint(FreeThreshold::new(90)).unwrap();
    lab
}

/// One transaction's worth: two blocks of its own, and all the shared ones.
fn change(journal: &Arc<Journal>, own: u64, value: u8) -> Result<Tid, JournalError> {
    let mut h = journal.start(SHARED as u32 + 2)?;
    put(&mut h, own, value)?;
    put(&mut h, own + 1, value)?;
    for nr in 0..SHARED {
        put(&mut h, nr, 10 * value + own as u8 - SHARED as u8)?;
    }
    let tid = h.tid();
    h.stop()?;
    Ok(tid)
}

/// Writers wait for their commits while blocks go home, the threshold changes, and a thread steps
/// in by hand. A crash at any acknowledgement leaves what was acknowledged, whole.
///
/// Catches: home writes taken for durable that returned after the flush had begun.
#[test]
fn acknowledged_stays_while_blocks_go_home() {
    explore("acknowledged_stays_while_blocks_go_home", 6400, || {
        let mut lab = lab();
        let mut threads: Vec<_> = (0..2u64)
            .map(|t| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || {
                    for round in 1..=4 {
                        let tid = change(&journal, SHARED + 2 * t, round).unwrap();
                        journal.commit_wait(tid).unwrap();
                        let after = crash(&medium);
                        assert!(after.at(SHARED + 2 * t) >= round, "acknowledged and lost");
                        for own in [SHARED, SHARED + 2] {
                            assert_eq!(after.at(own), after.at(own + 1), "half a transaction");
                        }
                    }
                })
            })
            .collect();
        let journal = Arc::clone(&lab.journal);
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                if below(2) == 0 {
                    journal.set_async_checkpoint(FreeThreshold::new(below(100))).unwrap();
                } else {
                    let _ = journal.checkpoint_step();
                }
            }
        }));
        threads.into_iter().for_each(|t| t.join().unwrap());
        lab.stop_services();
        let after = lab.crash();
        assert_eq!((after.at(SHARED), after.at(SHARED + 2)), (4, 4));
    });
}

/// A freeze takes over, wherever the checkpoint is: the log is empty, everything is home, and
/// nothing is written until the thaw.
#[test]
fn freeze_takes_over() {
    explore("freeze_takes_over", 4800, || {
        let mut lab = lab();
        let journal = Arc::clone(&lab.journal);
        let writer = thread::spawn(move || {
            for round in 1..=3 {
                let tid = change(&journal, SHARED, round).unwrap();
                if below(2) == 0 {
                    journal.commit_wait(tid).unwrap();
                } else {
                    journal.request_commit(tid);
                }
            }
        });
        let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
        let freezer = thread::spawn(move || {
            for _ in 0..2 {
                journal.freeze().unwrap();
                assert!(log_is_empty(&medium));
                let asked = medium.asked();
                let after = crash(&medium);
                assert!((0..SHARED + 2).all(|nr| home(&medium, nr) == after.at(nr)), "not home");
                journal.set_async_checkpoint(FreeThreshold::new(1 + below(99))).unwrap();
                thread::yield_now();
                assert_eq!(medium.asked(), asked, "written while frozen");
                journal.thaw();
            }
        });
        writer.join().unwrap();
        freezer.join().unwrap();
        lab.journal.freeze().unwrap();
        lab.stop_services();
        assert_eq!(home(&lab.medium, SHARED), 3);
    });
}

/// An abort at any moment: all threads return, what was acknowledged is in the log or at home, and
/// the tail stays.
#[test]
fn abort_ends_it() {
    explore("abort_ends_it", 4800, || {
        let mut lab = lab();
        let promised = Arc::new(AtomicU32::new(0));
        let (journal, told) = (Arc::clone(&lab.journal), Arc::clone(&promised));
        let writer = thread::spawn(move || {
            for round in 1..=4 {
                let Ok(tid) = change(&journal, SHARED, round) else { return };
                if journal.commit_wait(tid).is_err() {
                    return;
                }
                told.store(u32::from(round), Ordering::SeqCst);
            }
        });
        let journal = Arc::clone(&lab.journal);
        let aborter = thread::spawn(move || {
            for _ in 0..below(6) {
                thread::yield_now();
            }
            journal.shut_down("power");
        });
        aborter.join().unwrap();
        writer.join().unwrap();
        lab.stop_services();
        let tail = lab.journal.stats().log_tail;
        assert!(lab.journal.checkpoint_step().is_err());
        assert_eq!(lab.journal.stats().log_tail, tail);
        assert!(u32::from(lab.crash().at(SHARED)) >= promised.load(Ordering::SeqCst));
    });
}
