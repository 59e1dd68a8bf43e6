//! Credits and log space.

use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr};
use extol_jbd2::{JournalError, Services};

use super::{ROOMY, after_crash, byte, fill};
use crate::lab::{PLAIN, VARIANTS, Variant, in_time, until};

/// Too many credits are refused, the most possible work, again and again on the smallest log.
#[test]
fn largest_handles() {
    for variant in [ROOMY, VARIANTS[3], VARIANTS[5]] {
        let variant = Variant { cache_bytes: 8 << 20, ..variant };
        let (journal, device) = variant.in_memory();
        let max = journal.max_credits();
        assert!(matches!(journal.start(max + 1), Err(JournalError::TooManyCredits { .. })));
        assert!(matches!(journal.start(u32::MAX), Err(JournalError::TooManyCredits { .. })));
        in_time(variant.name, move || {
            let _services = Services::start(&journal).unwrap();
            for round in 1..=10 {
                let tid = fill(&journal, 100..100 + u64::from(max), round);
                if round % 4 == 0 {
                    journal.commit_wait(tid).unwrap();
                }
            }
            journal.commit_all().unwrap();
            let stats = journal.stats();
            assert_eq!((stats.overdrafts, stats.transactions), (0, 10));
            let image = device.snapshot();
            variant.recover(&image, None).unwrap();
            let size = u64::from(variant.block_size);
            let mut at = [0];
            image.read_at(&mut at, (100 + u64::from(max) - 1) * size).unwrap();
            assert_eq!(at, [10]);
        });
    }
}

/// No more room in the transaction: restart, and the first part is durable alone.
#[test]
fn extend_fails_and_restart_goes_on() {
    let (journal, device) = ROOMY.in_memory();
    let services = Services::start(&journal).unwrap();
    let max = journal.max_credits();
    let mut h = journal.start(max - 10).unwrap();
    assert!(h.extend(10).unwrap());
    assert!(!h.extend(1).unwrap() && !h.extend(u32::MAX).unwrap());
    assert_eq!(h.credits(), max);
    let first = h.tid();
    for nr in 100..100 + u64::from(max) {
        h.create(BlockNr(nr)).unwrap();
    }
    assert_eq!(h.credits(), 0);
    assert!(h.ensure(20).unwrap(), "restarted");
    assert_eq!((h.tid(), h.credits()), (first.next(), 20));
    until("the first part is durable", || journal.committed() == first);
    let buf = h.create(BlockNr(50)).unwrap();
    h.modify(&buf, |b| b.fill(7)).unwrap();
    assert_eq!(byte(&after_crash(&ROOMY, &device), 50), 0, "the second part is not");
    let tid = h.tid();
    h.stop().unwrap();
    journal.commit_wait(tid).unwrap();
    assert_eq!(byte(&after_crash(&ROOMY, &device), 50), 7);
    drop(services);
    // A restart that can never fit ends the handle.
    let mut h = journal.start(1).unwrap();
    assert!(h.restart(max + 1).is_err());
    let buf = journal.read(BlockNr(50)).unwrap();
    assert!(h.modify(&buf, |_| ()).is_err());
    h.stop().unwrap();
    journal.freeze().unwrap();
}

/// A budget that was far too small: the commit makes room itself. Catches: an abort where the log
/// only needs a checkpoint.
#[test]
fn overdrawn_transactions_are_written() {
    let (journal, device) = ROOMY.in_memory();
    in_time("overdraft", move || {
        let mut round = 0;
        while journal.stats().log_free > 330 {
            round += 1;
            fill(&journal, 100..140, round);
            journal.commit_all().unwrap();
        }
        let mut h = journal.start(1).unwrap();
        for nr in 100..500 {
            let buf = h.create(BlockNr(nr)).unwrap();
            h.modify(&buf, |b| b.fill(200)).unwrap();
        }
        h.stop().unwrap();
        journal.commit_all().unwrap();
        assert_eq!(journal.stats().overdrafts, 399);
        let image = after_crash(&ROOMY, &device);
        assert!((100..500).all(|nr| byte(&image, nr) == 200));
        // No log holds this one.
        let mut h = journal.start(1).unwrap();
        for nr in 100..1300 {
            h.create(BlockNr(nr)).unwrap();
        }
        h.stop().unwrap();
        assert!(matches!(journal.commit_all(), Err(JournalError::Aborted(_))));
        assert_eq!(byte(&after_crash(&ROOMY, &device), 100), 200);
    });
}

/// Credits charged for revokes that were cancelled stay with a transaction that holds nothing; a
/// handle that needs them all must not wait for a commit that will never be made.
#[test]
fn an_empty_transaction_is_not_full() {
    let (journal, _) = ROOMY.in_memory();
    let mut h = journal.start(5).unwrap();
    h.forget(BlockNr(100), true).unwrap();
    h.create(BlockNr(100)).unwrap();
    h.forget(BlockNr(100), false).unwrap();
    h.stop().unwrap();
    in_time("a full empty transaction", move || {
        journal.start(journal.max_credits()).unwrap().stop().unwrap()
    });
}

/// The last transaction in the log is checkpointed while its commit is still ending (here in a
/// callback): the tail that is named then is this transaction's, and must move on when a handle
/// needs the space. Catches: a handle that waits for ever for space that nothing uses.
#[test]
fn the_tail_follows_a_commit_that_was_checkpointed_while_it_ended() {
    let (journal, _) = PLAIN.in_memory();
    journal.work_in_callers();
    let j = Arc::clone(&journal);
    let mut h = journal.start(1).unwrap();
    h.on_commit(move |_| {
        assert!(j.checkpoint_step().unwrap());
    });
    // So much overdrawn that what is left is too little for the next.
    for nr in 100..850 {
        h.create(BlockNr(nr)).unwrap();
    }
    h.stop().unwrap();
    journal.commit_all().unwrap();
    assert_eq!(journal.stats().checkpoint_blocks, 0, "all is home");
    in_time("space that nothing uses", move || journal.start(1).unwrap().stop().unwrap());
}
