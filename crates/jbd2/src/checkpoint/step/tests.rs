use super::*;
use crate::test_rig::{block_size, rig};
use extol_block::BlockDevice;

const IDLE: Progress = Progress::Idle(None);

/// The tail moves to the first transaction that still needs its copies, in memory and on the
/// device, and what lies before it is free.
#[test]
fn the_tail_follows() {
    let rig = rig();
    let mut starts = Vec::new();
    for round in 0..5u64 {
        starts.push(rig.journal.stats().log_head);
        rig.fill([10 + round, 20 + round, 50], round as u8);
        rig.journal.commit_all().unwrap();
    }
    let first = crate::test_rig::FIRST_TID;
    let on_disk = || {
        let map = crate::LogMap::from_extents(block_size(), vec![(0, 2500, 1024)]).unwrap();
        let sb = crate::recovery::read_superblock(&*rig.device, &map).unwrap();
        (sb.sequence, sb.start)
    };
    assert_eq!(on_disk(), (first, starts[0]));
    rig.journal.checkpoint_through(Tid(first.0 + 2), false).unwrap();
    assert_eq!(on_disk(), (Tid(first.0 + 3), starts[3]));
    let stats = rig.journal.stats();
    assert_eq!((stats.log_tail, stats.log_head), (starts[3], starts[0] + 5 * 5));
    assert_eq!(stats.log_free, stats.log_blocks - 10);
    let mut block = [0; 1024];
    rig.device.read_at(&mut block, 50 * 1024).unwrap();
    assert_eq!(block[0], 0, "block 50 is needed by the newest transaction only");
    // Nothing to write and the tail is where it should be.
    rig.journal.checkpoint_through(Tid(first.0 + 2), false).unwrap();
    // With an empty transaction running, the tail is the head.
    rig.journal.start(1).unwrap().stop().unwrap();
    rig.journal.checkpoint_through(Tid(first.0 + 4), false).unwrap();
    assert_eq!(on_disk(), (Tid(first.0 + 5), rig.journal.stats().log_head));
    assert_eq!(rig.journal.stats().log_free, rig.journal.stats().log_blocks);
    rig.fill([60], 1);
    rig.journal.commit_all().unwrap();
    assert_eq!(rig.journal.committed(), Tid(first.0 + 5));
}

/// After an abort the tail stays.
#[test]
fn an_aborted_journal_has_no_checkpoint() {
    let rig = rig();
    rig.fill(10..20, 1);
    rig.journal.commit_all().unwrap();
    rig.journal.shut_down("test");
    let before = rig.device.to_bytes();
    assert!(rig.journal.checkpoint_through(rig.journal.committed(), false).is_err());
    assert!(rig.journal.checkpoint_step().is_err());
    assert!(rig.device.to_bytes() == before);
}

/// The checkpoint service acts on need alone.
#[test]
fn checkpoint_service() {
    let rig = rig();
    let mut service = CheckpointService(Arc::clone(&rig.journal));
    rig.fill(10..200, 1);
    rig.journal.commit_all().unwrap();
    assert_eq!((service.step(), rig.journal.stats().checkpoints), (IDLE, 0));
    while rig.journal.stats().log_free >= rig.journal.space_needed() {
        rig.fill(10..200, 2);
        rig.journal.commit_all().unwrap();
    }
    rig.journal.state.lock().log.waiters = 1;
    assert_eq!(service.step(), Progress::More);
    assert_eq!(service.step(), IDLE, "enough is free");
    assert!(rig.journal.stats().log_free >= rig.journal.stats().log_blocks / 2);
    rig.journal.state.lock().log.waiters = 0;
}
