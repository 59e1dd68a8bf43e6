//! A batch among writers, requests for a commit, and the commit interval.

use std::sync::Arc;
use std::time::Duration;

use extol_jbd2::JournalError;
use extol_sync::thread;

use crate::explore::{below, explore};
use crate::lab::{Lab, add, crash, log_is_empty};

/// Writers whose handles restart, a thread that asks for commits in every way, and time that goes
/// by: no commit starts while the batch lives, and a crash finds all of it or nothing.
#[test]
fn no_commit_starts_within_a_batch() {
    explore("no_commit_starts_within_a_batch", 6400, || {
        let mut lab = Lab::any();
        let batch = lab.journal.begin_batch().unwrap();
        let asked = lab.medium.asked();
        let writers: Vec<_> = (0..2u64)
            .map(|nr| {
                let journal = Arc::clone(&lab.journal);
                thread::spawn(move || {
                    let mut handle = journal.start(2).unwrap();
                    add(&mut handle, nr).unwrap();
                    if below(2) == 0 {
                        handle.restart(2).unwrap();
                    }
                    add(&mut handle, nr + 2).unwrap();
                    let tid = handle.tid();
                    handle.stop().unwrap();
                    tid
                })
            })
            .collect();
        lab.clock.advance(Duration::from_secs(60));
        let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
        let asker = thread::spawn(move || {
            let tid = journal.newest();
            journal.request_commit(tid);
            let waited = match below(3) {
                0 => journal.commit_wait(tid),
                1 => journal.make_all_durable(),
                _ => journal.freeze().map(|()| journal.thaw()),
            };
            let all = crash(&medium);
            let found = [0, 1, 2, 3].map(|nr| all.at(nr));
            assert!(found == [0; 4] || found == [1; 4], "{found:?}");
            // (Behind the end of the batch they may succeed.)
            assert!(matches!(
                waited,
                Ok(()) | Err(JournalError::InBatch | JournalError::Aborted(_))
            ));
        });
        let tids: Vec<_> = writers.into_iter().map(|t| t.join().unwrap()).collect();
        assert_eq!(tids[0], tids[1], "one transaction");
        assert_eq!(lab.medium.asked(), asked, "something was written");
        assert!(log_is_empty(&lab.medium));
        let committed = below(2) == 0;
        if committed {
            batch.commit().unwrap();
            assert_eq!(crash(&lab.medium).at(3), 1, "the commit has returned");
        } else {
            drop(batch);
        }
        asker.join().unwrap();
        lab.stop_services();
        let after = lab.crash();
        assert_eq!([0, 1, 2, 3].map(|nr| after.at(nr)), [u8::from(committed); 4]);
    });
}
