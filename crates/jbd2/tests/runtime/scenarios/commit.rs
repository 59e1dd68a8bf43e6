//! What a commit is, when it happens, and which flushes it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extol_block::{BlockNr, DeviceOp};
use extol_devices::CountingDevice;
use extol_jbd2::format::{BlockKind, Header};
use extol_jbd2::{Services, Tid};
use extol_task::{Clock, SystemClock};

use super::{BS, a_moment, after_crash, background, byte, fill, gated};
use crate::devices::Gate;
use crate::lab::{PLAIN, until};

/// A block changes again while its commit is under way: the log gets the old bytes, no writer
///      waits.
#[test]
fn changed_again_during_its_commit() {
    let (journal, gate, device) = gated(PLAIN);
    fill(&journal, [100], 1);
    gate.close(DeviceOp::Write);
    let j = Arc::clone(&journal);
    let (commit, _) = background(move || j.commit_all());
    gate.wait_for_a_thread();
    let second = fill(&journal, [100], 2);
    assert_eq!(journal.read(BlockNr(100)).unwrap().data()[5], 2, "readers see the newest");
    gate.open();
    commit.join().unwrap().unwrap();
    assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 1);
    journal.commit_wait(second).unwrap();
    assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 2);
}

/// Callbacks (which give freed blocks back) run when the record is durable and before any waiter
///     is told.
#[test]
fn callbacks_run_between_record_and_waiters() {
    let (journal, gate, _) = gated(PLAIN);
    let flag = Arc::new(AtomicBool::new(false));
    let f = Arc::clone(&flag);
    let mut h = journal.start(1).unwrap();
    h.on_commit(move |durable| f.store(durable, Ordering::SeqCst));
    let buf = h.create(BlockNr(3)).unwrap();
    h.modify(&buf, |b| b.fill(1)).unwrap();
    let tid = h.tid();
    h.stop().unwrap();
    gate.close(DeviceOp::Flush);
    let (j, f) = (Arc::clone(&journal), Arc::clone(&flag));
    let (commit, done) = background(move || {
        j.commit_wait(tid).unwrap();
        assert!(f.load(Ordering::SeqCst), "told before the callback");
    });
    gate.wait_for_a_thread();
    a_moment();
    assert!(!flag.load(Ordering::SeqCst) && !done.load(Ordering::SeqCst));
    gate.open();
    commit.join().unwrap();
}

/// An empty transaction runs while an older one is being committed: a waiter for "everything"
/// waits for that one. Catches: `commit_wait` returning because its own transaction holds nothing
/// (a sync that acknowledges too early, a freeze that marks the log empty under the commit).
#[test]
fn an_empty_transaction_hides_no_commit() {
    for freeze in [false, true] {
        let (journal, gate, device) = gated(PLAIN);
        let first = fill(&journal, [100], 1);
        gate.close(DeviceOp::Flush);
        let j = Arc::clone(&journal);
        let (commit, _) = background(move || j.commit_wait(first));
        gate.wait_for_a_thread();
        journal.start(1).unwrap().stop().unwrap();
        assert_eq!(journal.newest(), first.next());
        let j = Arc::clone(&journal);
        let (all, done) = background(move || if freeze { j.freeze() } else { j.commit_all() });
        a_moment();
        assert!(!done.load(Ordering::SeqCst), "returned before transaction {first} was durable");
        gate.open();
        all.join().unwrap().unwrap();
        commit.join().unwrap().unwrap();
        assert_eq!(journal.committed(), first);
        assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 1);
    }
}

/// Waiting for what holds nothing, or was never there, returns at once and writes nothing.
#[test]
fn nothing_to_commit() {
    let (journal, device) = PLAIN.in_memory();
    let before = device.to_bytes();
    journal.commit_all().unwrap();
    let h = journal.start(5).unwrap();
    let tid = h.tid();
    h.stop().unwrap();
    for tid in [tid, tid.next(), tid.previous(), Tid(tid.0.wrapping_sub(1000))] {
        journal.commit_wait(tid).unwrap();
    }
    journal.freeze().unwrap();
    journal.thaw();
    assert_eq!(journal.committed(), tid.previous());
    assert_eq!(journal.stats().transactions, 0);
    assert!(device.to_bytes() == before);
    // The number is not used up.
    assert_eq!(fill(&journal, [9], 1), tid);
}

/// The timer commits, also a transaction that began while another was being committed by
///      another thread.
/// Catches: the service not looking again after a commit that it did not lead.
#[test]
fn the_timer_commits() {
    let (fs, _) = PLAIN.media();
    let gate = Gate::new(Arc::new(fs));
    let clock = Arc::new(SystemClock::new());
    let journal = PLAIN.open_with(gate.clone(), gate.clone(), clock, Duration::from_millis(30));
    let services = Services::start(&journal).unwrap();
    let first = fill(&journal, [100], 1);
    until("commit by time", || journal.committed() == first);

    journal.set_commit_interval(Duration::from_secs(3600));
    let second = fill(&journal, [100], 2);
    gate.close(DeviceOp::Flush);
    let j = Arc::clone(&journal);
    let (commit, _) = background(move || j.commit_wait(second));
    gate.wait_for_a_thread();
    let third = fill(&journal, [100], 3);
    journal.set_commit_interval(Duration::from_millis(30));
    a_moment();
    gate.open();
    commit.join().unwrap().unwrap();
    until("commit by time after another's commit", || journal.committed() == third);

    journal.set_commit_interval(Duration::from_secs(3600));
    let fourth = fill(&journal, [100], 4);
    a_moment();
    assert_ne!(journal.committed(), fourth);
    journal.set_commit_interval(Duration::from_millis(30));
    until("a shorter interval counts at once", || journal.committed() == fourth);
    drop(services);
}

/// A clock whose wall time the test sets.
#[derive(Debug, Default)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now_ns(&self) -> u64 {
        0
    }
    fn wall(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// The clock steps back one hour; the times in the log do not.
#[test]
fn the_clock_steps_back() {
    let device = Arc::new(PLAIN.media().0);
    let clock = Arc::new(Wall::default());
    let journal =
        PLAIN.open_with(device.clone(), device.clone(), clock.clone(), Duration::from_secs(3600));
    for (i, second) in [1_700_000_000, 1_700_000_001, 1_699_996_401, 1_699_996_402, 1_700_000_003]
        .iter()
        .enumerate()
    {
        clock.0.store(*second, Ordering::SeqCst);
        fill(&journal, [100 + i as u64], 1);
        journal.commit_all().unwrap();
    }
    let mut times = Vec::new();
    for n in 1..100 {
        let mut block = vec![0; BS as usize];
        PLAIN.map().read(&*device, n, &mut block).unwrap();
        if Header::decode(&block).is_some_and(|h| h.kind == BlockKind::Commit) {
            times.push(u64::from_be_bytes(block[0x30..0x38].try_into().unwrap()));
        }
    }
    assert_eq!(times, [1_700_000_000, 1_700_000_001, 1_700_000_001, 1_700_000_001, 1_700_000_003]);
    assert_eq!(PLAIN.recover(&*device, None).unwrap().replayed_transactions, 5);
}

/// A commit's flush covers the data written before it; data written after it needs one; without
/// barriers there are none at all.
#[test]
fn flushes_are_neither_missing_nor_wasted() {
    let device = Arc::new(CountingDevice::new(PLAIN.media().0));
    let journal = PLAIN.open(device.clone(), device.clone());
    let flushes = || device.stats().flushes;
    journal.note_data_write();
    fill(&journal, [100], 1);
    journal.commit_all().unwrap();
    let n = flushes();
    assert!(n >= 1);
    journal.flush_data().unwrap();
    assert_eq!(flushes(), n, "covered by the commit");
    journal.note_data_write();
    journal.flush_data().unwrap();
    journal.flush_data().unwrap();
    assert_eq!(flushes(), n + 1);
    journal.freeze().unwrap();
    journal.thaw();
    let n = flushes();
    journal.note_data_write();
    journal.freeze().unwrap();
    assert_eq!(flushes(), n + 1, "data written in place, without a transaction");
    journal.thaw();

    journal.set_barrier(false);
    let n = flushes();
    journal.note_data_write();
    for round in 0..5 {
        fill(&journal, 100..120, round);
        journal.commit_all().unwrap();
        journal.flush_data().unwrap();
        journal.checkpoint_step().unwrap();
    }
    assert!(journal.stats().checkpoints > 1);
    assert_eq!(flushes(), n);
}
