//! Single rules, one test each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use extol_device::{
    BlockDevice, BlockNr, BlockSize, CountingDevice, DeviceOp, Fault, FaultDevice, MemDevice,
};
use extol_journal::format::{BlockKind, Header};
use extol_journal::{Journal, JournalConfig, JournalError, LogConfig, Services, Tid};
use extol_service::{Clock, SystemClock};

use crate::devices::{Gate, Tape};
use crate::lab::{FS_BLOCKS, PLAIN, VARIANTS, Variant, in_time, until};

const BS: u64 = 1024;
/// Enough memory that only log space makes a checkpoint run.
const ROOMY: Variant = Variant { cache_bytes: 8 << 20, ..PLAIN };

/// Fills blocks in one transaction.
fn fill(journal: &Arc<Journal>, blocks: impl IntoIterator<Item = u64>, byte: u8) -> Tid {
    let blocks: Vec<u64> = blocks.into_iter().collect();
    let mut h = journal.start(blocks.len() as u32).unwrap();
    for nr in blocks {
        let buf = h.create(BlockNr(nr)).unwrap();
        h.modify(&buf, |b| b.fill(byte)).unwrap();
    }
    let tid = h.tid();
    h.stop().unwrap();
    tid
}

fn free(journal: &Arc<Journal>, nr: u64, revoke: bool) -> Tid {
    let mut h = journal.start(2).unwrap();
    h.forget(BlockNr(nr), revoke).unwrap();
    let tid = h.tid();
    h.stop().unwrap();
    tid
}

fn byte(device: &dyn BlockDevice, nr: u64) -> u8 {
    let mut block = vec![0; BS as usize];
    device.read_at(&mut block, nr * BS).unwrap();
    assert!(block.iter().all(|b| *b == block[0]), "block {nr} is a mixture");
    block[0]
}

/// What the volume holds if the machine stops now.
fn after_crash(variant: &Variant, device: &MemDevice) -> MemDevice {
    let image = device.snapshot();
    variant.recover(&image, None).unwrap();
    image
}

/// Runs `f` on a thread; tells when it is done.
fn background<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> (JoinHandle<T>, Arc<AtomicBool>) {
    let done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&done);
    let thread = std::thread::spawn(move || {
        let result = f();
        flag.store(true, Ordering::SeqCst);
        result
    });
    (thread, done)
}

/// Long enough for a thread to do what it must not do.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(40));
}

fn gated(variant: Variant) -> (Arc<Journal>, Arc<Gate>, Arc<MemDevice>) {
    let device = Arc::new(variant.media().0);
    let gate = Gate::new(device.clone());
    (variant.open(gate.clone(), gate.clone()), gate, device)
}

// ---- revoke and reuse ---------------------------------------------------------------------------------------

/// R6. Catches: revokes not written; a revoked block still in the checkpoint list.
#[test]
fn freed_metadata_reused_as_data() {
    for variant in VARIANTS.into_iter().filter(|v| !v.external && v.block_size == 1024) {
        let (journal, device) = variant.in_memory();
        fill(&journal, [100], 0xAA);
        journal.commit_all().unwrap();
        free(&journal, 100, true);
        journal.commit_all().unwrap();
        device.write_at(&[0xDD; BS as usize], 100 * BS).unwrap();
        journal.note_data_write();
        fill(&journal, [50], 1);
        journal.commit_all().unwrap();
        let image = after_crash(&variant, &device);
        assert_eq!((byte(&image, 100), byte(&image, 50)), (0xDD, 1), "{}", variant.name);
        journal.freeze().unwrap();
        assert_eq!((byte(&*device, 100), byte(&*device, 50)), (0xDD, 1), "{}: late home write", variant.name);
    }
}

/// R7, and the block coming back in a later transaction.
#[test]
fn revoked_and_taken_again() {
    let (journal, device) = ROOMY.in_memory();
    fill(&journal, [100, 101], 1);
    journal.commit_all().unwrap();
    let mut h = journal.start(4).unwrap();
    h.forget(BlockNr(100), true).unwrap();
    let buf = h.create(BlockNr(100)).unwrap();
    assert!(buf.data().iter().all(|b| *b == 0) && buf.is_verified());
    h.modify(&buf, |b| b.fill(2)).unwrap();
    h.forget(BlockNr(101), true).unwrap();
    h.stop().unwrap();
    journal.commit_all().unwrap();
    let image = after_crash(&ROOMY, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (2, 0), "100 is replayed, 101 is not");
    fill(&journal, [101], 3);
    journal.commit_all().unwrap();
    let image = after_crash(&ROOMY, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (2, 3), "the newer copy counts");
    journal.freeze().unwrap();
    assert_eq!((byte(&*device, 100), byte(&*device, 101)), (2, 3));
}

/// R8: journalled and freed in one transaction, fresh and with an older copy in the log.
#[test]
fn journalled_and_freed_in_one_transaction() {
    let (journal, device) = ROOMY.in_memory();
    for nr in [100, 101] {
        device.write_at(&[0x11; BS as usize], nr * BS).unwrap();
    }
    fill(&journal, [101], 0xAA);
    journal.commit_all().unwrap();
    let mut h = journal.start(4).unwrap();
    for nr in [100, 101] {
        let buf = h.create(BlockNr(nr)).unwrap();
        h.modify(&buf, |b| b.fill(0xBB)).unwrap();
        h.forget(BlockNr(nr), true).unwrap();
    }
    assert_eq!(h.credits(), 3, "forgetting gives the credits back; the revoke block costs one");
    h.stop().unwrap();
    journal.commit_all().unwrap();
    let image = after_crash(&ROOMY, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (0x11, 0x11));
    journal.freeze().unwrap();
    assert_eq!((byte(&*device, 100), byte(&*device, 101)), (0x11, 0x11));
    assert_eq!(journal.stats().overdrafts, 0);
}

/// A home write of a block under way while the block is freed: the block is not given back before it ended (K2).
/// Catches: `CheckpointList::committed` not waiting for the write.
#[test]
fn freed_blocks_wait_for_late_home_writes() {
    let (journal, gate, device) = gated(PLAIN);
    fill(&journal, 100..130, 0xAA);
    journal.commit_all().unwrap();
    gate.close_range(DeviceOp::Write, 0..1000 * BS);
    let j = Arc::clone(&journal);
    let (checkpoint, _) = background(move || j.checkpoint_step());
    gate.wait_for_somebody();

    let given_back = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&given_back);
    let mut h = journal.start(2).unwrap();
    h.forget(BlockNr(110), true).unwrap();
    h.on_commit(move |durable| flag.store(durable, Ordering::SeqCst));
    let tid = h.tid();
    h.stop().unwrap();
    let j = Arc::clone(&journal);
    let (commit, _) = background(move || j.commit_wait(tid));
    // The record itself does not wait.
    until("the record is written", || after_crash_tid(&device) == Some(tid));
    a_moment();
    assert!(!given_back.load(Ordering::SeqCst), "the old home write would hit the new owner's data");
    gate.open();
    commit.join().unwrap().unwrap();
    assert!(given_back.load(Ordering::SeqCst));
    assert!(checkpoint.join().unwrap().unwrap());
    device.write_at(&[0xDD; BS as usize], 110 * BS).unwrap();
    journal.freeze().unwrap();
    assert_eq!((byte(&*device, 109), byte(&*device, 110)), (0xAA, 0xDD));
}

fn after_crash_tid(device: &MemDevice) -> Option<Tid> {
    PLAIN.recover(&device.snapshot(), None).ok().map(|r| r.end_tid.previous())
}

// ---- what a commit is ------------------------------------------------------------------------------------------

/// R14: a block changes again while its commit is under way: the log gets the old bytes, nobody waits.
#[test]
fn changed_again_during_its_commit() {
    let (journal, gate, device) = gated(PLAIN);
    fill(&journal, [100], 1);
    gate.close(DeviceOp::Write);
    let j = Arc::clone(&journal);
    let (commit, _) = background(move || j.commit_all());
    gate.wait_for_somebody();
    let second = fill(&journal, [100], 2);
    assert_eq!(journal.read(BlockNr(100)).unwrap().data()[5], 2, "readers see the newest");
    gate.open();
    commit.join().unwrap().unwrap();
    assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 1);
    journal.commit_wait(second).unwrap();
    assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 2);
}

/// R9: callbacks (which give freed blocks back) run when the record is durable and before anybody is told.
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
    gate.wait_for_somebody();
    a_moment();
    assert!(!flag.load(Ordering::SeqCst) && !done.load(Ordering::SeqCst));
    gate.open();
    commit.join().unwrap();
}

/// An empty transaction runs while an older one is being committed: who waits for "everything" waits for that one.
/// Catches: `commit_wait` returning because its own transaction holds nothing (a sync that acknowledges too early, a
/// freeze that marks the log empty under the commit).
#[test]
fn an_empty_transaction_hides_no_commit() {
    for freeze in [false, true] {
        let (journal, gate, device) = gated(PLAIN);
        let first = fill(&journal, [100], 1);
        gate.close(DeviceOp::Flush);
        let j = Arc::clone(&journal);
        let (commit, _) = background(move || j.commit_wait(first));
        gate.wait_for_somebody();
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

/// R21: the timer commits, also a transaction that began while another was being committed by somebody else.
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
    gate.wait_for_somebody();
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
#[derive(Default)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now_ns(&self) -> u64 {
        0
    }
    fn wall(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// R22: the clock steps back one hour; the times in the log do not.
#[test]
fn the_clock_steps_back() {
    let device = Arc::new(PLAIN.media().0);
    let clock = Arc::new(Wall::default());
    let journal = PLAIN.open_with(device.clone(), device.clone(), clock.clone(), Duration::from_secs(3600));
    for (i, second) in
        [1_700_000_000, 1_700_000_001, 1_699_996_401, 1_699_996_402, 1_700_000_003].iter().enumerate()
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

// ---- credits and space -----------------------------------------------------------------------------------------

/// R10: too many credits are refused, the most possible work, again and again on the smallest log.
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

/// R12: no more room in the transaction: restart, and the first part is durable alone.
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

/// A budget that was far too small: the commit makes room itself. Catches: an abort where the log only needs a
/// checkpoint.
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

/// Credits charged for revokes that were cancelled stay with a transaction that holds nothing; a handle that needs
/// them all must not wait for a commit that nobody will make.
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

// ---- waiters and failure ---------------------------------------------------------------------------------------

/// One waiter of each kind; an abort wakes all of them with an error.
#[test]
fn an_abort_wakes_everybody() {
    in_time("waiters", || {
        let (journal, gate, device) = gated(ROOMY);
        let first = fill(&journal, [100], 1);
        gate.close(DeviceOp::Flush);
        let spawn = |f: fn(&Arc<Journal>, Tid) -> Result<(), JournalError>| {
            let j = Arc::clone(&journal);
            background(move || f(&j, first))
        };
        let (leader, leader_done) = spawn(|j, tid| j.commit_wait(tid));
        gate.wait_for_somebody();
        let (follower, _) = spawn(|j, tid| j.commit_wait(tid));
        let held = journal.start(3).unwrap();
        let (next, _) = spawn(|j, tid| j.commit_wait(tid.next()));
        let (freezer, freezer_done) = spawn(|j, _| j.freeze());
        a_moment();
        let (joiner, joiner_done) = spawn(|j, _| j.start(1)?.stop());
        a_moment();
        assert!(!joiner_done.load(Ordering::SeqCst), "joined behind a freeze");

        let _ = journal.abort("test");
        for waiter in [follower, next, joiner] {
            assert!(matches!(waiter.join().unwrap(), Err(JournalError::Aborted(why)) if why == "test"));
        }
        // The freeze waits for the open handle, the leader for the device.
        assert!(!freezer_done.load(Ordering::SeqCst) && !leader_done.load(Ordering::SeqCst));
        assert!(held.stop().is_err());
        assert!(freezer.join().unwrap().is_err());
        gate.open();
        assert!(leader.join().unwrap().is_err(), "nothing is acknowledged after an abort");
        assert!(journal.commit_wait(first).is_err());
        // The record was stopped: a flush had failed somewhere.
        assert_eq!(byte(&after_crash(&ROOMY, &device), 100), 0);
    });
}

/// Waiters for log space and for a full transaction get the error as well.
#[test]
fn an_abort_wakes_those_who_wait_for_room() {
    in_time("waiters for room", || {
        for full_log in [false, true] {
            let (journal, _) = ROOMY.in_memory();
            let mut round = 0;
            while full_log && journal.stats().log_free > 290 {
                round += 1;
                fill(&journal, 100..120, round);
                journal.commit_all().unwrap();
            }
            let h = if full_log { None } else { Some(journal.start(journal.max_credits()).unwrap()) };
            let j = Arc::clone(&journal);
            let (waiter, done) = background(move || j.start(1).map(drop));
            a_moment();
            assert!(!done.load(Ordering::SeqCst));
            let _ = journal.abort("test");
            assert!(waiter.join().unwrap().is_err());
            drop(h);
        }
    });
}

/// What waits for a transaction that will never be durable is told so and dropped, so that nobody keeps the journal
/// (and its device) alive.
#[test]
fn callbacks_of_an_aborted_transaction() {
    for abort_first in [false, true] {
        let (journal, device) = PLAIN.in_memory();
        let told = Arc::new(AtomicU64::new(0));
        let (t, j) = (Arc::clone(&told), Arc::clone(&journal));
        let mut h = journal.start(2).unwrap();
        h.create(BlockNr(7)).unwrap();
        h.on_commit(move |durable| {
            assert!(!durable);
            t.fetch_add(1, Ordering::SeqCst);
            drop(j);
        });
        if abort_first {
            journal.shut_down("test");
            assert_eq!(told.load(Ordering::SeqCst), 0, "the handle may still add some");
            assert!(h.stop().is_err());
        } else {
            h.stop().unwrap();
            journal.shut_down("test");
        }
        assert_eq!(told.load(Ordering::SeqCst), 1);
        let weak = Arc::downgrade(&journal);
        drop(journal);
        assert!(weak.upgrade().is_none());
        assert_eq!(Arc::strong_count(&device), 1);
    }
}

/// After a failed commit readers still see what the failed transaction wrote, not what was before: pages of both
/// would not fit together.
#[test]
fn reads_after_a_failed_commit() {
    let device = Arc::new(FaultDevice::new(PLAIN.media().0, []));
    let journal = PLAIN.open(device.clone(), device.clone());
    fill(&journal, [5], 9);
    device.arm(Fault::from_then_on(DeviceOp::Write, 0));
    assert!(journal.commit_all().is_err());
    // More than the cache holds.
    for nr in 600..2900 {
        journal.read(BlockNr(nr)).unwrap();
    }
    assert_eq!(journal.read(BlockNr(5)).unwrap().data()[0], 9);
}

/// Freeze keeps handles out until the thaw, twice at a time, and home is complete meanwhile.
#[test]
fn freeze_and_thaw() {
    in_time("freeze", || {
        let (journal, device) = PLAIN.in_memory();
        let _services = Services::start(&journal).unwrap();
        fill(&journal, [100], 1);
        journal.freeze().unwrap();
        journal.freeze().unwrap();
        assert_eq!(byte(&*device, 100), 1);
        let sb = PLAIN.journal_superblock(&*device);
        assert_eq!((sb.start, sb.sequence), (0, journal.committed().next()));
        let j = Arc::clone(&journal);
        let (writer, done) = background(move || fill(&j, [100], 2));
        journal.thaw();
        a_moment();
        assert!(!done.load(Ordering::SeqCst), "one freeze is left");
        assert_eq!(byte(&*device, 100), 1);
        journal.thaw();
        let tid = writer.join().unwrap();
        journal.commit_wait(tid).unwrap();
        assert_eq!(PLAIN.journal_superblock(&*device).sequence, tid, "the log is live again");
        assert_eq!(byte(&after_crash(&PLAIN, &device), 100), 2);
    });
}

// ---- flushes ----------------------------------------------------------------------------------------------------

/// A commit's flush covers the data written before it; data written after it needs one; without barriers there are
/// none at all.
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

// ---- opening ----------------------------------------------------------------------------------------------------

fn config(variant: &Variant, device: &Arc<MemDevice>) -> JournalConfig {
    let log = LogConfig {
        device: device.clone(),
        external: false,
        map: variant.map(),
        superblock: variant.superblock(),
        next_tid: Tid(variant.first_tid),
    };
    JournalConfig {
        device: device.clone(),
        block_size: variant.size(),
        blocks: FS_BLOCKS,
        log: Some(log),
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: variant.is_async,
        cache_bytes: 1 << 20,
        clock: Arc::new(SystemClock::new()),
    }
}

#[test]
fn unsafe_configurations_are_refused() {
    let device = Arc::new(PLAIN.media().0);
    let mut dirty = config(&PLAIN, &device);
    dirty.log.as_mut().unwrap().superblock.start = 1;
    assert!(matches!(Journal::open(dirty), Err(JournalError::Unsupported(_))), "not recovered");
    let sumless = Variant { is_async: true, ..VARIANTS[1] };
    assert!(matches!(Journal::open(config(&sumless, &device)), Err(JournalError::Unsupported(_))));
    Journal::open(config(&PLAIN, &device)).unwrap();
}

/// A version-1 superblock has no room for the features that the log is written with: it becomes version 2.
#[test]
fn version_1_superblocks_become_version_2() {
    let device = Arc::new(PLAIN.media().0);
    let at = PLAIN.map().superblock_offset().unwrap();
    let mut raw = PLAIN.superblock().encode();
    raw[7] = 3;
    // What lies behind a version-1 superblock means nothing.
    raw[0x24..].fill(0xEE);
    device.write_at(&raw, at).unwrap();
    let mut config = config(&PLAIN, &device);
    let log = config.log.as_mut().unwrap();
    log.superblock = PLAIN.journal_superblock(&*device);
    assert!(!log.superblock.v2);
    log.superblock.features = PLAIN.superblock().features;
    let journal = Journal::open(config).unwrap();
    fill(&journal, [100, 101], 1);
    journal.commit_all().unwrap();
    free(&journal, 101, true);
    journal.commit_all().unwrap();
    let sb = PLAIN.journal_superblock(&*device);
    assert!(sb.v2 && sb.features.has_csum_v3() && sb.features.has_revoke());
    let image = after_crash(&PLAIN, &device);
    assert_eq!((byte(&image, 100), byte(&image, 101)), (1, 0));
}

// ---- without a log ---------------------------------------------------------------------------------------------

fn without_log(device: Arc<dyn BlockDevice>) -> Arc<Journal> {
    Journal::open(JournalConfig {
        device,
        block_size: BlockSize::new(BS as u32).unwrap(),
        blocks: FS_BLOCKS,
        log: None,
        barrier: true,
        commit_interval: Duration::from_secs(3600),
        async_commit: false,
        cache_bytes: 64 * 1024,
        clock: Arc::new(SystemClock::new()),
    })
    .unwrap()
}

#[test]
fn without_a_log_commits_write_home() {
    let tape = Tape::new(MemDevice::new(FS_BLOCKS * BS), None, None);
    let journal = without_log(tape.device(false));
    assert!(!journal.has_log() && !journal.checkpoint_step().unwrap());
    let given_back = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&given_back);
    fill(&journal, [100, 101, 300], 1);
    let mut h = journal.start(3).unwrap();
    let buf = h.create(BlockNr(200)).unwrap();
    h.modify(&buf, |b| b.fill(2)).unwrap();
    h.forget(BlockNr(101), true).unwrap();
    h.on_commit(move |durable| flag.store(durable, Ordering::SeqCst));
    h.stop().unwrap();
    assert_eq!(tape.fs.position(), 0, "nothing is written before the commit");
    journal.commit_all().unwrap();
    assert!(given_back.load(Ordering::SeqCst));
    let durable = tape.fs.image_at(tape.fs.position(), |_| false);
    let bytes = [100, 101, 200, 300].map(|nr| byte(&durable, nr));
    assert_eq!(bytes, [1, 0, 2, 1]);
    // The buffers are idle: they can leave the cache and come back.
    for nr in 1000..2900 {
        journal.read(BlockNr(nr)).unwrap();
    }
    assert!(journal.stats().cached_blocks < 1000);
    assert_eq!(journal.read(BlockNr(100)).unwrap().data()[0], 1);
    journal.note_data_write();
    let flushes = journal.stats().flushes;
    journal.freeze().unwrap();
    assert_eq!(journal.stats().flushes, flushes + 1);
    journal.thaw();

    // Largest transactions, with the services.
    in_time("without a log", move || {
        let _services = Services::start(&journal).unwrap();
        let max = journal.max_credits();
        for round in 0..4 {
            fill(&journal, (0..u64::from(max)).map(|i| 100 + i), round);
        }
        journal.commit_all().unwrap();
        assert_eq!(byte(&tape.fs.current(), 101), 3);
    });
}

#[test]
fn without_a_log_errors_abort() {
    for op in [DeviceOp::Write, DeviceOp::Flush] {
        let device = Arc::new(FaultDevice::new(MemDevice::new(FS_BLOCKS * BS), []));
        let journal = without_log(device.clone());
        fill(&journal, [100], 1);
        device.arm(Fault::once(op, 0));
        assert!(journal.commit_all().is_err());
        assert!(journal.start(1).is_err() && journal.freeze().is_err());
    }
}
