use extol_block::{BlockDevice as _, BlockNr};
use extol_task::{Progress, Service as _};

use crate::commit::CommitService;
use crate::test_rig::{BLOCKS, FIRST_TID, INTERVAL, Rig, rig};
use crate::types::JournalError;

/// First and last block of the log of the rig.
const LOG: std::ops::Range<u64> = 2500..3524;

impl Rig {
    fn bytes(&self, blocks: std::ops::Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; ((blocks.end - blocks.start) * 1024) as usize];
        self.device.read_at(&mut bytes, blocks.start * 1024).unwrap();
        bytes
    }
}

#[test]
fn one_commit_for_all() {
    let rig = rig();
    let before = rig.bytes(0..BLOCKS);
    let batch = rig.journal.begin_batch().unwrap();
    for n in 0..500 {
        assert_eq!(rig.fill([n], 1), FIRST_TID, "one transaction");
    }
    assert_eq!((batch.changed(), batch.is_full()), (500, false));
    assert!(rig.bytes(0..BLOCKS) == before, "nothing is written before the commit");
    batch.commit().unwrap();
    assert_eq!(rig.journal.committed(), FIRST_TID);
    assert!(rig.bytes(LOG) != before[LOG.start as usize * 1024..LOG.end as usize * 1024]);
    // And goes on as before.
    let tid = rig.fill([1], 2);
    rig.journal.commit_wait(tid).unwrap();
    assert_eq!(tid, FIRST_TID.next());
}

/// Whatever begins a commit otherwise does not within a batch.
#[test]
fn no_commit_begins() {
    let rig = rig();
    let batch = rig.journal.begin_batch().unwrap();
    let tid = rig.fill([1], 1);
    let empty = rig.bytes(LOG);
    rig.clock.advance(10 * INTERVAL);
    assert!(matches!(CommitService(rig.journal.clone()).step(), Progress::Idle(_)), "by time");
    rig.journal.request_commit(tid);
    assert!(matches!(CommitService(rig.journal.clone()).step(), Progress::Idle(_)), "asked for");
    let refused = |result| matches!(result, Err(JournalError::InBatch));
    assert!(refused(rig.journal.commit_wait(tid)));
    assert!(refused(rig.journal.commit_all()));
    assert!(refused(rig.journal.make_all_durable()));
    assert!(refused(rig.journal.freeze()));
    assert!(refused(rig.journal.checkpoint_all(&[])));
    assert!(refused(rig.journal.begin_batch().map(drop)));
    let mut handle = rig.journal.start(1).unwrap();
    handle.restart(7).unwrap();
    assert_eq!((handle.tid(), handle.credits()), (tid, 7), "a restart stays in the batch");
    handle.stop().unwrap();
    assert!(rig.bytes(LOG) == empty);
    batch.commit().unwrap();
    assert_eq!(rig.journal.committed(), tid);
}

#[test]
fn without_room_nothing_is_durable() {
    let rig = rig();
    let batch = rig.journal.begin_batch().unwrap();
    let most = batch.most();
    assert!((700..1024).contains(&most), "{most} of a log of 1024 blocks");
    let before = rig.bytes(0..BLOCKS);
    for n in 0..u64::from(most) {
        rig.fill([n], 1);
    }
    match rig.journal.start(1) {
        Err(JournalError::BatchFull { most: said }) => assert_eq!(said, most),
        other => panic!("{other:?}"),
    }
    assert!(batch.is_full());
    assert!(matches!(rig.journal.start(1), Err(JournalError::Aborted(_))));
    assert!(matches!(batch.commit(), Err(JournalError::Aborted(_))));
    assert!(matches!(rig.journal.commit_all(), Err(JournalError::Aborted(_))));
    assert!(rig.bytes(0..BLOCKS) == before);
}

/// As many blocks as it promises, and the log can be recovered.
#[test]
fn a_full_batch_is_committed() {
    let rig = rig();
    let batch = rig.journal.begin_batch().unwrap();
    let most = u64::from(batch.most());
    for n in 0..most {
        rig.fill([n], 7);
    }
    batch.commit().unwrap();
    rig.journal.freeze().unwrap();
    rig.journal.thaw();
    assert!(rig.bytes(0..most).iter().all(|byte| *byte == 7));
}

#[test]
fn what_is_dropped_is_given_up() {
    let rig = rig();
    let before = rig.bytes(0..BLOCKS);
    let batch = rig.journal.begin_batch().unwrap();
    let mut handle = rig.journal.start(2).unwrap();
    let buf = handle.create(BlockNr(3)).unwrap();
    handle.modify(&buf, |bytes| bytes.fill(1)).unwrap();
    handle.stop().unwrap();
    drop(batch);
    assert!(matches!(rig.journal.commit_all(), Err(JournalError::Aborted(_))));
    assert!(matches!(rig.journal.start(1), Err(JournalError::Aborted(_))));
    assert!(rig.journal.failure().is_none(), "no error");
    assert!(rig.bytes(0..BLOCKS) == before);
}
