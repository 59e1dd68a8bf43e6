use super::*;
use crate::test_rig::{FIRST_TID, INTERVAL, rig};
use crate::types::Tid;
use extol_block::BlockNr;

const IDLE: Progress = Progress::Idle(None);

fn idle(d: Duration) -> Progress {
    Progress::Idle(Some(d))
}

/// In virtual time.
#[test]
fn by_age() {
    let rig = rig();
    let mut service = CommitService(Arc::clone(&rig.journal));
    assert_eq!(service.step(), IDLE, "no transaction");
    rig.fill([1], 1);
    assert_eq!(service.step(), idle(INTERVAL));
    rig.clock.advance(INTERVAL / 5);
    rig.fill([2], 1);
    assert_eq!(service.step(), idle(INTERVAL * 4 / 5), "counted from the first handle");
    rig.clock.advance(INTERVAL);
    assert_eq!(service.step(), Progress::More);
    assert_eq!(rig.journal.committed(), FIRST_TID);
    assert_eq!((service.step(), rig.journal.stats().requested), (IDLE, 0));
}

#[test]
fn on_request() {
    let rig = rig();
    let mut service = CommitService(Arc::clone(&rig.journal));
    let tid = rig.fill([1], 1);
    rig.journal.request_commit(tid);
    assert_eq!(service.step(), Progress::More);
    assert_eq!((rig.journal.committed(), rig.journal.stats().requested), (tid, 1));
    // Old requests do not commit what came later.
    rig.journal.request_commit(tid);
    rig.fill([1], 2);
    assert_eq!(service.step(), idle(INTERVAL));
}

/// A transaction that holds nothing is never written, however old or asked for; what then comes
/// into it is.
#[test]
fn empty_transactions_wait() {
    let rig = rig();
    let mut service = CommitService(Arc::clone(&rig.journal));
    rig.journal.start(3).unwrap().stop().unwrap();
    rig.journal.request_commit(FIRST_TID);
    rig.clock.advance(10 * INTERVAL);
    assert_eq!(service.step(), idle(INTERVAL));
    assert_eq!(rig.journal.stats().transactions, 0);
    rig.fill([1], 1);
    assert_eq!(service.step(), Progress::More);
    assert_eq!(rig.journal.committed(), FIRST_TID);
    // Only callbacks, only revokes: something to do.
    let mut h = rig.journal.start(1).unwrap();
    h.on_commit(|durable| assert!(durable));
    h.stop().unwrap();
    rig.journal.commit_all().unwrap();
    let mut h = rig.journal.start(1).unwrap();
    h.forget(BlockNr(9), true).unwrap();
    h.stop().unwrap();
    rig.journal.commit_all().unwrap();
    assert_eq!(rig.journal.committed(), Tid(FIRST_TID.0 + 2));
}

#[test]
fn stands_aside_for_another_committer_and_after_an_abort() {
    let rig = rig();
    let mut service = CommitService(Arc::clone(&rig.journal));
    let tid = rig.fill([1], 1);
    rig.journal.request_commit(tid);
    rig.journal.state.lock().role.taken = true;
    assert_eq!(service.step(), IDLE);
    rig.journal.state.lock().role.taken = false;
    rig.journal.shut_down("test");
    assert_eq!(service.step(), IDLE);
    assert_eq!(rig.journal.stats().transactions, 0);
}
