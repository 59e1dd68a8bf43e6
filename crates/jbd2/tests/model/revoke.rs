//! Freed blocks and their next life.

use std::sync::Arc;

use extol_block::{BlockDevice as _, BlockNr};
use extol_sync::{Condvar, Mutex as StepMutex, thread};

use crate::explore::{below, explore};
use crate::lab::{BS, Lab, Work, crash, fill, home};

/// A metadata block is freed; when that is durable it is handed to a thread that writes file data
/// to it, while older versions of it are in the log or on their way home. The data stays, now and
/// after any crash.
#[test]
fn freed_and_reused_as_data() {
    explore("freed_and_reused_as_data", 12000, || {
        // Mostly with a cache of no size: then a checkpoint writes whatever is committed.
        let work = if below(2) == 0 { Work::Services } else { Work::Callers };
        let mut lab = Lab::with(work, if below(4) == 0 { 8 << 20 } else { 0 });
        fill(&lab.journal, &[1, 2, 3], 1).unwrap();
        lab.journal.commit_all().unwrap();
        let journal = Arc::clone(&lab.journal);
        let checkpoint = thread::spawn(move || {
            if below(4) == 0 {
                let _ = journal.freeze();
                journal.thaw();
            } else {
                let _ = journal.checkpoint_step();
            }
        });
        let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
        let owner = thread::spawn(move || {
            if below(2) == 0 {
                fill(&journal, &[2], 7).unwrap();
            }
            let free = Arc::new((StepMutex::new(false), Condvar::new()));
            let mut h = journal.start(3).unwrap();
            h.forget(BlockNr(2), true).unwrap();
            let f = Arc::clone(&free);
            h.on_commit(move |durable| {
                *f.0.lock() = durable;
                f.1.notify_all();
            });
            let tid = h.tid();
            h.stop().unwrap();
            // The new owner does not wait for the commit's end, only for the block.
            let j = Arc::clone(&journal);
            let waiter = thread::spawn(move || j.commit_wait(tid).unwrap());
            let mut is_free = free.0.lock();
            while !*is_free {
                free.1.wait(&mut is_free);
            }
            drop(is_free);
            medium.write_at(&[0xDD; BS], 2 * BS as u64).unwrap();
            journal.note_data_write();
            journal.flush_data().unwrap();
            waiter.join().unwrap();
            assert_eq!(crash(&medium).at(2), 0xDD, "a copy in the log came back");
        });
        let journal = Arc::clone(&lab.journal);
        let other = thread::spawn(move || {
            let tid = fill(&journal, &[3], 2).unwrap();
            journal.commit_wait(tid).unwrap();
        });
        [checkpoint, owner, other].into_iter().for_each(|t| t.join().unwrap());
        lab.journal.freeze().unwrap();
        assert_eq!(home(&lab.medium, 2), 0xDD, "an old home write hit the new owner's data");
        assert_eq!((home(&lab.medium, 1), home(&lab.medium, 3)), (1, 2));
        lab.stop_services();
    });
}

/// Freed and taken again as metadata by another thread, with commits and checkpoints in between:
/// the newest counts.
#[test]
fn freed_and_taken_again() {
    explore("freed_and_taken_again", 6400, || {
        let mut lab = Lab::any();
        fill(&lab.journal, &[1, 2], 1).unwrap();
        lab.journal.commit_all().unwrap();
        let journal = Arc::clone(&lab.journal);
        let owner = thread::spawn(move || {
            let mut h = journal.start(3).unwrap();
            h.forget(BlockNr(2), true).unwrap();
            let tid = h.tid();
            h.stop().unwrap();
            if below(2) == 0 {
                journal.commit_wait(tid).unwrap();
            }
            let mut h = journal.start(3).unwrap();
            let buf = h.create(BlockNr(2)).unwrap();
            h.modify(&buf, |b| b.fill(5)).unwrap();
            let tid = h.tid();
            h.stop().unwrap();
            journal.commit_wait(tid).unwrap();
        });
        let journal = Arc::clone(&lab.journal);
        let other = thread::spawn(move || {
            for round in 2..=3 {
                let tid = fill(&journal, &[1], round).unwrap();
                journal.commit_wait(tid).unwrap();
                let _ = journal.checkpoint_step();
            }
        });
        owner.join().unwrap();
        other.join().unwrap();
        let after = lab.crash();
        assert_eq!((after.at(1), after.at(2)), (3, 5));
        lab.journal.freeze().unwrap();
        assert_eq!((home(&lab.medium, 1), home(&lab.medium, 2)), (3, 5));
        lab.stop_services();
    });
}
