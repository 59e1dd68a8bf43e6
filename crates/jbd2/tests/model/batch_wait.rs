//! A leader that waits for others always goes on, and takes along all requests that joined.
//!
//! Deadlines never come here, except where the scenario says so: a request that is waited for, or
//! cannot wait, must wake the leader, and the leader the requests that it serves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use extol_jbd2::Journal;
use extol_jbd2::batching::{BatchPolicy, Batching};
use extol_sync::atomic::AtomicBool;
use extol_sync::{thread, timers_fire};

use crate::explore::{below, explore};
use crate::lab::{Lab, Work, crash, put};

const SECOND: Duration = Duration::from_secs(1);
const ADAPTIVE: Batching = Batching { policy: BatchPolicy::Adaptive, min: SECOND, max: SECOND };
const STATIC: Batching = Batching { policy: BatchPolicy::Static, min: Duration::ZERO, max: SECOND };
const NONE: Batching = Batching { policy: BatchPolicy::None, min: Duration::ZERO, max: SECOND };

/// One block changes, and the commit takes a millisecond of the lab's clock.
fn change(
    lab_clock: &Arc<extol_task::TestClock>,
    journal: &Arc<Journal>,
    nr: u64,
    value: u8,
) -> extol_jbd2::Tid {
    let mut h = journal.start(1).unwrap();
    let clock = Arc::clone(lab_clock);
    h.on_commit(move |_| clock.advance(Duration::from_millis(1)));
    put(&mut h, nr, value).unwrap();
    let tid = h.tid();
    h.stop().unwrap();
    tid
}

/// Once a concurrent syncers of three is known, a leader waits for three, and the third wakes it.
#[test]
fn all_syncers_are_enough() {
    explore("all_syncers_are_enough", 2400, || {
        let mut lab = Lab::new(Work::Services);
        lab.journal.set_batching(ADAPTIVE);
        let sync_all = |rounds: u8| {
            let threads: Vec<_> = (0..3u64)
                .map(|t| {
                    let (journal, medium, clock) =
                        (Arc::clone(&lab.journal), Arc::clone(&lab.medium), Arc::clone(&lab.clock));
                    thread::spawn(move || {
                        for round in 1..=rounds {
                            let tid = change(&clock, &journal, t, round);
                            journal.make_durable(tid).unwrap();
                            assert_eq!(crash(&medium).at(t), round, "acknowledged and lost");
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
        };
        timers_fire(true);
        sync_all(2);
        // With all of the log free no other thread asks for commits.
        lab.journal.freeze().unwrap();
        lab.journal.thaw();
        timers_fire(false);
        let before = lab.journal.stats();
        if before.batching.syncers == 3 {
            sync_all(1);
            assert_eq!(
                lab.journal.stats().transactions,
                before.transactions + 1,
                "one commit for all three"
            );
        }
        lab.stop_services();
    });
}

/// A leader that would wait for ever goes on when something else needs the commit, or the rule
/// changes.
#[test]
fn a_thread_that_cannot_wait_ends_a_wait() {
    explore("a_thread_that_cannot_wait_ends_a_wait", 4800, || {
        let reason = below(7);
        let mut lab = Lab::new(Work::Services);
        lab.journal.set_batching(STATIC);
        let threads: Vec<_> = (0..2u64)
            .map(|t| {
                let (journal, medium, clock) =
                    (Arc::clone(&lab.journal), Arc::clone(&lab.medium), Arc::clone(&lab.clock));
                thread::spawn(move || {
                    let tid = change(&clock, &journal, t, 1);
                    journal.make_durable(tid).unwrap();
                    assert_eq!(crash(&medium).at(t), 1, "acknowledged and lost");
                })
            })
            .collect();
        let journal = Arc::clone(&lab.journal);
        let over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&over);
        let hasty = thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                match reason {
                    0 => return journal.set_batching(NONE),
                    1 => journal.set_batching(STATIC),
                    2 => journal.commit_all().unwrap(),
                    3 => journal.request_commit(journal.newest()),
                    4 => {
                        journal.freeze().unwrap();
                        journal.thaw();
                    }
                    // No transaction has room for two of these.
                    5 => {
                        let h = journal.start(journal.max_credits()).unwrap();
                        h.stop().unwrap();
                    }
                    _ => {
                        journal.freeze().unwrap();
                        journal.set_batching(NONE);
                        return journal.thaw();
                    }
                }
                thread::yield_now();
            }
        });
        threads.into_iter().for_each(|t| t.join().unwrap());
        over.store(true, Ordering::SeqCst);
        hasty.join().unwrap();
        lab.stop_services();
    });
}

/// An abort tells all, the leader that waits and the requests that it serves.
#[test]
fn an_abort_ends_a_wait() {
    explore("an_abort_ends_a_wait", 2400, || {
        let lab = Lab::new(Work::Askers);
        lab.journal.set_batching(STATIC);
        let threads: Vec<_> = (0..2u64)
            .map(|t| {
                let journal = Arc::clone(&lab.journal);
                thread::spawn(move || {
                    let Ok(mut h) = journal.start(1) else { return };
                    let Ok(()) = put(&mut h, t, 1) else { return };
                    let tid = h.tid();
                    let _ = h.stop();
                    assert!(journal.make_durable(tid).is_err(), "nothing is ever committed here");
                })
            })
            .collect();
        let journal = Arc::clone(&lab.journal);
        let end = thread::spawn(move || journal.shut_down("test"));
        threads.into_iter().for_each(|t| t.join().unwrap());
        end.join().unwrap();
    });
}

/// The changes that a leader and the requests that joined it wait for are all taken back.
#[test]
fn nothing_left_to_commit() {
    explore("nothing_left_to_commit", 2400, || {
        let lab = Lab::new(Work::Askers);
        lab.journal.set_batching(STATIC);
        let tid = change_once(&lab.journal);
        let askers: Vec<_> = (0..2)
            .map(|_| {
                let journal = Arc::clone(&lab.journal);
                thread::spawn(move || journal.make_durable(tid).unwrap())
            })
            .collect();
        let mut h = lab.journal.start(1).unwrap();
        if h.tid() == tid {
            h.forget(extol_block::BlockNr(3), false).unwrap();
        }
        h.stop().unwrap();
        lab.journal.set_batching(NONE);
        askers.into_iter().for_each(|t| t.join().unwrap());
    });
}

fn change_once(journal: &Arc<Journal>) -> extol_jbd2::Tid {
    let mut h = journal.start(1).unwrap();
    put(&mut h, 3, 1).unwrap();
    let tid = h.tid();
    h.stop().unwrap();
    tid
}

/// Deadlines that come at any moment lose nothing and commit nothing twice.
#[test]
fn deadlines_at_any_moment() {
    explore("deadlines_at_any_moment", 2400, || {
        timers_fire(true);
        let mut lab = Lab::new(Work::Services);
        lab.journal.set_batching(if below(2) == 0 { STATIC } else { ADAPTIVE });
        let threads: Vec<_> = (0..3u64)
            .map(|t| {
                let (journal, medium, clock) =
                    (Arc::clone(&lab.journal), Arc::clone(&lab.medium), Arc::clone(&lab.clock));
                thread::spawn(move || {
                    for round in 1..=3 {
                        let tid = change(&clock, &journal, t, round);
                        journal.make_durable(tid).unwrap();
                        assert_eq!(crash(&medium).at(t), round, "acknowledged and lost");
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(lab.journal.stats().transactions <= 9);
        lab.stop_services();
        timers_fire(false);
    });
}
