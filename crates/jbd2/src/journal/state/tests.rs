use super::*;
use crate::batching::{BatchPolicy, Batching};
use crate::fast::area::Area;
use crate::fast::source::SyncKey;

fn state() -> State {
    let log = LogState {
        space: Some(LogSpace::empty(1, 101, true)),
        empty: false,
        waiters: 0,
        threshold: None,
    };
    State {
        tx: Transactions::new(Tid(5)),
        role: Role::default(),
        log,
        gate: Gate::default(),
        failure: Failure::default(),
        sync: SyncRequests::default(),
        fast: Queue::new(Area::new(&(101..110))),
        async_requests: AsyncRequests::default(),
    }
}

/// Log blocks that a transaction asks for: its own and ten more.
fn room_for(blocks: u32) -> u32 {
    blocks + 10
}

#[test]
fn which_handles_join() {
    let mut state = state();
    let admit = |state: &mut State, credits| state.admit(credits, 50, room_for);
    assert_eq!(admit(&mut state, 50), Admission::Joins, "the first one begins a transaction");
    assert!(state.tx.join(40, || 7).1);
    assert_eq!(admit(&mut state, 10), Admission::Joins);
    assert_eq!(admit(&mut state, 11), Admission::Full(Tid(5)));
    state.log.space.as_mut().unwrap().take(50).unwrap();
    assert_eq!(admit(&mut state, 1), Admission::NoSpace, "50 are free, and 40 were promised");
    state.gate.barriers = 1;
    assert_eq!(admit(&mut state, 1), Admission::Waits, "whatever there is room for");
    state.gate.barriers = 0;
    state.tx.running.as_mut().unwrap().locked = true;
    assert_eq!(admit(&mut state, 1), Admission::Waits);
}

/// Credits of revokes that were cancelled: no commit would ever give them back.
#[test]
fn a_full_transaction_that_holds_nothing_is_not_full() {
    let mut state = state();
    let (tx, _) = state.tx.join(45, || 0);
    assert_eq!(state.admit(10, 50, room_for), Admission::Full(Tid(5)), "a handle is open");
    state.tx.running.as_mut().unwrap().handles = 0;
    tx.has_fast.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(state.admit(10, 50, room_for), Admission::Full(Tid(5)), "it must be committed");
    tx.has_fast.store(false, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(state.admit(10, 50, room_for), Admission::Joins);
    assert!(!state.tx.join(10, || 0).1);
    assert_eq!(state.tx.running.as_ref().unwrap().credits, 10);
}

#[test]
fn where_a_transaction_is() {
    let mut tx = Transactions::new(Tid(5));
    assert_eq!((tx.newest(), tx.next_to_commit()), (Tid(4), Tid(5)));
    assert_eq!((tx.progress(Tid(4)), tx.progress(Tid(5))), (Progress::Over, Progress::Over));
    tx.join(1, || 0);
    assert_eq!((tx.newest(), tx.progress(Tid(5))), (Tid(5), Progress::Running));
    assert!(tx.has_handles() && !tx.nothing_to_commit());
    tx.running.as_mut().unwrap().handles = 0;
    assert!(tx.nothing_to_commit());
    assert_eq!(tx.progress(Tid(5)), Progress::Over, "it holds nothing");
    tx.committing = Some((Tid(4), 1));
    tx.committed = Tid(3);
    assert_eq!(tx.progress(Tid(5)), Progress::Empty, "but the one before is on its way (JN-4)");
    assert_eq!(tx.progress(Tid(4)), Progress::Committing);
    tx.running = None;
    assert_eq!((tx.newest(), tx.next_to_commit()), (Tid(4), Tid(6)));
}

#[test]
fn which_requests_a_fast_commit_may_serve() {
    let mut state = state();
    let (tid, _) = (Tid(5), state.tx.join(1, || 0));
    assert!(!state.can_be_fast(tid), "they are off");
    state.fast.from = Some(Tid(5));
    assert!(state.can_be_fast(tid) && state.may_join_batch(tid));
    assert!(!state.can_be_fast(Tid(6)), "of the running transaction only");
    state.log.empty = true;
    assert!(!state.can_be_fast(tid), "FC-2");
    state.log.empty = false;
    state.sync.want(tid);
    assert!(state.can_be_fast(tid) && !state.may_join_batch(tid), "a full commit is coming");
    state.sync.wanted = None;
    state.count(true, 9);
    assert!(state.full_is_coming() && !state.may_join_batch(tid));
    state.tx.running.as_mut().unwrap().locked = true;
    assert!(!state.can_be_fast(tid));
}

#[test]
fn a_leader_waits_once_and_not_if_it_is_urgent() {
    let mut state = state();
    let policy = BatchPolicy::Adaptive;
    let second = std::time::Duration::from_secs(1);
    state.fast.batcher.set(Batching { policy, min: second, max: second });
    state.tx.join(1, || 0);
    let batch = state.fast.join(SyncKey(1), 1_000).batch;
    let kind = CommitKind::Fast(batch);
    assert!(state.begin_batch_wait(kind, 2_000).is_none(), "it is alone");
    // The last commit served two.
    state.fast.batcher.ended(500, 400, 2, 0);
    let wait = state.begin_batch_wait(kind, 2_000).expect("a wait");
    assert_eq!(wait.enough, 2);
    state.log.waiters = 1;
    assert!(state.begin_batch_wait(kind, 2_000).is_none(), "a handle waits for space");
    state.log.waiters = 0;
    state.set_batch_wait(kind, wait);
    assert!(state.begin_batch_wait(kind, 2_000).is_none(), "a batch is waited for once");
    assert!(!state.batch_is_complete(batch));
    state.fast.join(SyncKey(2), 3_000);
    assert!(state.batch_is_complete(batch) && !state.batch_is_complete(batch + 1));
    assert!(state.count(true, 4_000), "a full commit serves it as well");
}

#[test]
fn a_commit_in_progress_serves_those_that_come_late() {
    let mut state = state();
    assert!(!state.count(false, 1));
    assert_eq!(state.sync.serving, 1);
    state.sync.want(Tid(7));
    state.sync.want(Tid(6));
    assert_eq!(state.sync.wanted, Some(Tid(7)), "the newest");
}

#[test]
fn an_aborted_journal_loses_callbacks_with_the_last_handle() {
    let mut state = state();
    let (tx, _) = state.tx.join(1, || 0);
    tx.callbacks.lock().push(Box::new(|durable| assert!(!durable)));
    assert!(state.failure.check().is_ok() && state.lost_callbacks().is_empty());
    state.failure.reason = Some("test".into());
    assert_eq!(state.failure.check().unwrap_err().to_string(), "the journal was aborted: test");
    assert!(state.lost_callbacks().is_empty(), "a handle is open");
    state.tx.running.as_mut().unwrap().handles = 0;
    assert_eq!(state.lost_callbacks().len(), 1);
}

#[test]
fn when_the_log_wants_a_checkpoint() {
    let mut log = state().log;
    log.space.as_mut().unwrap().take(60).unwrap();
    assert!(!log.wants_checkpoint(), "synchronous, and no handle waits");
    log.threshold = FreeThreshold::new(40);
    assert!(!log.wants_checkpoint(), "40 of 100 are free");
    log.threshold = FreeThreshold::new(41);
    assert!(log.wants_checkpoint());
    (log.threshold, log.waiters) = (None, 1);
    assert!(log.wants_checkpoint());
}
