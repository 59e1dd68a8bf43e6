//! Freeze and thaw among handles and commits, and the end of a journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_block::BlockNr;
use extol_jbd2::Journal;
use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{Lab, add, crash, home, log_is_empty};
use crate::medium::Medium;

/// Frozen: the log is empty and stays so, nothing is written, and everything is home.
fn check_frozen(journal: &Journal, medium: &Medium, open: &AtomicU32, blocks: &[u64]) {
    let asked = medium.asked();
    assert!(log_is_empty(medium), "frozen with a live log");
    for _ in 0..3 {
        thread::yield_now();
        assert_eq!(open.load(Ordering::SeqCst), 0, "a handle is open");
    }
    assert_eq!(medium.asked(), asked, "something writes");
    assert!(log_is_empty(medium), "the log came alive");
    for nr in blocks {
        let now = journal.read(BlockNr(*nr)).unwrap().data()[0];
        assert_eq!(home(medium, *nr), now, "block {nr} is not home");
        assert_eq!(crash(medium).at(*nr), now, "block {nr} is not durable at home");
    }
}

/// Adds to a block in a handle; `open` counts handles that surely exist.
fn change(journal: &Arc<Journal>, open: &AtomicU32, nr: u64) -> extol_jbd2::Tid {
    let mut h = journal.start(1).unwrap();
    open.fetch_add(1, Ordering::SeqCst);
    add(&mut h, nr).unwrap();
    let tid = h.tid();
    open.fetch_sub(1, Ordering::SeqCst);
    h.stop().unwrap();
    tid
}

/// Writers, some waiting and some not, and two that freeze and thaw.
#[test]
fn freeze_keeps_all_handles_out() {
    explore("freeze_keeps_all_handles_out", 9600, || {
        let mut lab = Lab::any();
        let open = Arc::new(AtomicU32::new(0));
        let mut threads = Vec::new();
        for t in 0..2u64 {
            let (journal, open) = (Arc::clone(&lab.journal), Arc::clone(&open));
            threads.push(thread::spawn(move || {
                for _ in 0..2 {
                    let tid = change(&journal, &open, t);
                    if below(2) == 0 {
                        journal.commit_wait(tid).unwrap();
                    }
                }
            }));
        }
        for _ in 0..1 + below(2) {
            let (journal, medium, open) =
                (Arc::clone(&lab.journal), Arc::clone(&lab.medium), Arc::clone(&open));
            threads.push(thread::spawn(move || {
                journal.freeze().unwrap();
                check_frozen(&journal, &medium, &open, &[0, 1]);
                journal.thaw();
            }));
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        lab.journal.commit_all().unwrap();
        lab.stop_services();
        let after = lab.crash();
        assert_eq!((after.at(0), after.at(1)), (2, 2));
    });
}

/// A handle that changes nothing is open while a thread waits for the commit of its transaction and
/// another freezes: the commit of a transaction that turned out to be empty must not write behind
/// the freeze.
#[test]
fn freeze_and_the_commit_of_nothing() {
    explore("freeze_and_the_commit_of_nothing", 12000, || {
        let mut lab = Lab::any();
        let open = Arc::new(AtomicU32::new(0));
        // Something to make the log live.
        change(&lab.journal, &open, 0);
        lab.journal.commit_all().unwrap();
        let h = lab.journal.start(1).unwrap();
        let tid = h.tid();
        let journal = Arc::clone(&lab.journal);
        let waiter = thread::spawn(move || journal.commit_wait(tid).unwrap());
        let (journal, medium, o) =
            (Arc::clone(&lab.journal), Arc::clone(&lab.medium), Arc::clone(&open));
        let freezer = thread::spawn(move || {
            journal.freeze().unwrap();
            check_frozen(&journal, &medium, &o, &[0]);
            journal.thaw();
        });
        h.stop().unwrap();
        waiter.join().unwrap();
        freezer.join().unwrap();
        change(&lab.journal, &open, 0);
        lab.journal.commit_all().unwrap();
        lab.stop_services();
        assert_eq!(lab.crash().at(0), 2);
    });
}

/// The end of a journal as an unmount does it: freeze, no services any more, and an end for those
/// that come too late, wherever they wait. Nothing acknowledged is lost, the log is empty, and
/// all threads return.
#[test]
fn close_while_others_wait() {
    explore("close_while_others_wait", 9600, || {
        let mut lab = Lab::any();
        let promised: Arc<[AtomicU32; 3]> = Arc::default();
        let threads: Vec<_> = (0..3u64)
            .map(|t| {
                let (journal, promised) = (Arc::clone(&lab.journal), Arc::clone(&promised));
                thread::spawn(move || {
                    for round in 1..=2 {
                        let Ok(mut h) = journal.start(1) else { return };
                        if add(&mut h, t).is_err() {
                            return;
                        }
                        let tid = h.tid();
                        if h.stop().is_err() || journal.commit_wait(tid).is_err() {
                            return;
                        }
                        promised[t as usize].store(round, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        lab.journal.freeze().unwrap();
        lab.stop_services();
        assert!(log_is_empty(&lab.medium));
        lab.journal.shut_down("closed");
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(log_is_empty(&lab.medium), "an unmount leaves an empty log");
        let after = lab.crash();
        for t in 0..3 {
            assert!(u32::from(after.at(t)) >= promised[t as usize].load(Ordering::SeqCst));
        }
    });
}
