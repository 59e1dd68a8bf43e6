//! Room in the log: handles that need much, a log that holds little, and the threads that make
//! room.

use std::sync::Arc;

use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{Lab, Work, add, fill, put};

/// More is written than the log holds, by handles of all sizes; all get their room, and nothing is
/// lost.
fn pressure(work: Work) {
    let mut lab = Lab::new(work);
    let threads: Vec<_> = (0..3u64)
        .map(|t| {
            let journal = Arc::clone(&lab.journal);
            thread::spawn(move || {
                let rounds = 4;
                for round in 1..=rounds {
                    let credits = if t == 0 { journal.max_credits() } else { 4 };
                    let mut h = journal.start(credits).unwrap();
                    for nr in 4 * t..4 * t + 3 {
                        put(&mut h, nr, round).unwrap();
                    }
                    add(&mut h, 15).unwrap();
                    let tid = h.tid();
                    h.stop().unwrap();
                    if t == 1 || round == rounds {
                        journal.commit_wait(tid).unwrap();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let after = lab.crash();
    assert_eq!([0, 4, 8, 15].map(|nr| after.at(nr)), [4, 4, 4, 12]);
    lab.stop_services();
    let stats = lab.journal.stats();
    assert_eq!(stats.overdrafts, 0);
}

#[test]
fn pressure_with_services() {
    explore("pressure_with_services", 4000, || pressure(Work::Services));
}

#[test]
fn pressure_with_callers() {
    explore("pressure_with_callers", 4000, || pressure(Work::Callers));
}

/// Handles that grow and restart while others fill the transaction.
#[test]
fn extend_and_restart() {
    explore("extend_and_restart", 4800, || {
        let mut lab = Lab::any();
        let threads: Vec<_> = (0..2u64)
            .map(|t| {
                let journal = Arc::clone(&lab.journal);
                thread::spawn(move || {
                    let most = journal.max_credits();
                    let mut h = journal.start(most / 2).unwrap();
                    put(&mut h, 2 * t, 1).unwrap();
                    h.ensure(most).unwrap();
                    put(&mut h, 2 * t + 1, 1).unwrap();
                    h.restart(2).unwrap();
                    put(&mut h, 2 * t, 2).unwrap();
                    let tid = h.tid();
                    h.stop().unwrap();
                    journal.commit_wait(tid).unwrap();
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let after = lab.crash();
        assert_eq!([0, 1, 2, 3].map(|nr| after.at(nr)), [2, 1, 2, 1]);
        lab.stop_services();
    });
}

/// A commit that needs far more than was reserved makes room itself, while another thread
/// checkpoints.
#[test]
fn overdrawn() {
    explore("overdrawn", 3200, || {
        let mut lab = Lab::any();
        for round in 1..=1 + below(3) as u8 {
            fill(&lab.journal, &[0, 1, 2], round).unwrap();
            lab.journal.commit_all().unwrap();
        }
        let journal = Arc::clone(&lab.journal);
        let greedy = thread::spawn(move || {
            let mut h = journal.start(1).unwrap();
            for nr in 0..14 {
                put(&mut h, nr, 9).unwrap();
            }
            let tid = h.tid();
            h.stop().unwrap();
            journal.commit_wait(tid).unwrap();
        });
        let journal = Arc::clone(&lab.journal);
        let other = thread::spawn(move || {
            let _ = journal.checkpoint_step();
            let tid = fill(&journal, &[15], 1).unwrap();
            journal.commit_wait(tid).unwrap();
        });
        greedy.join().unwrap();
        other.join().unwrap();
        let after = lab.crash();
        assert_eq!((after.at(0), after.at(13), after.at(15)), (9, 9, 1));
        lab.stop_services();
    });
}

/// A handle finds the transaction full of credits that another then gives back, and nothing is ever
/// changed: no commit will wake the waiter for room.
#[test]
fn credits_come_back_unused() {
    explore("credits_come_back_unused", 2400, || {
        let mut lab = Lab::any();
        let journal = Arc::clone(&lab.journal);
        let cautious =
            thread::spawn(move || journal.start(journal.max_credits()).unwrap().stop().unwrap());
        let journal = Arc::clone(&lab.journal);
        let modest = thread::spawn(move || {
            fill(&journal, &[1], 1).unwrap();
        });
        cautious.join().unwrap();
        modest.join().unwrap();
        lab.stop_services();
    });
}
