//! The asynchronous checkpoint. Time stands still where a test works the checkpoint by hand, so
//! that nothing but a commit's flush makes home writes durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use extol_block::{BlockNr, DeviceOp, MemDevice};
use extol_jbd2::{FreeThreshold, Journal, JournalConfig, JournalError, Services};
use extol_task::TestClock;

use super::{ROOMY, a_moment, after_crash, background, byte, fill, gated};
use crate::devices::Gate;
use crate::lab::{USABLE, Variant, in_time, until};

const HOME: std::ops::Range<u64> = 0..USABLE * super::BS;

/// Free log space in per cent.
fn free(journal: &Journal) -> u32 {
    let stats = journal.stats();
    stats.log_free * 100 / stats.log_blocks
}

/// Commits small transactions, each with blocks of its own, until less than this part of the log is
/// free.
fn use_up(journal: &Arc<Journal>, percent: u32) {
    let mut at = 100;
    while free(journal) >= percent {
        fill(journal, at..at + 10, 1);
        at = if at < 1200 { at + 10 } else { 100 };
        journal.commit_all().unwrap();
    }
}

/// A journal with a clock that stands still, and no services.
fn by_hand(variant: Variant) -> (Arc<Journal>, Arc<Gate>, Arc<TestClock>) {
    let (fs, log) = variant.media();
    let gate = Gate::new(Arc::new(fs));
    let log: extol_block::SharedDevice = match log {
        Some(log) => Arc::new(log),
        None => gate.clone(),
    };
    let clock = Arc::new(TestClock::default());
    let journal = variant.open_with(gate.clone(), log, clock.clone(), Duration::from_secs(3600));
    (journal, gate, clock)
}

/// Steps until the checkpoint has nothing to do, or waits.
fn work(journal: &Journal) {
    while journal.checkpoint_step().unwrap() {}
}

/// It begins before any handle waits, ends with more than the threshold free, and rests then.
#[test]
fn begins_in_time_and_rests_afterwards() {
    let variant = Variant { async_checkpoint: Some(50), ..ROOMY };
    for variant in [variant, Variant { external: true, ..variant }] {
        let (fs, log) = variant.media();
        let fs = Arc::new(fs);
        let log = log.map_or(fs.clone(), Arc::new);
        let journal = variant.open(fs, log.clone());
        in_time(variant.name, move || {
            let services = Services::start(&journal).unwrap();
            for round in 0..150 {
                let at = 100 + round % 130 * 10;
                fill(&journal, at..at + 10, 1);
                journal.commit_all().unwrap();
                // A medium that keeps up.
                until("the checkpoint follows", || free(&journal) >= 50);
            }
            let stats = journal.stats();
            assert_eq!((stats.space_waits, stats.distributions.space_wait_ns.count), (0, 0));
            let done = stats.async_checkpoint;
            assert!(done.runs > 0 && done.batches >= done.runs && done.blocks > 0, "{done:?}");
            assert_eq!(stats.distributions.checkpoint_ns.count, done.tail_moves);
            until("it rests", || {
                let before = (journal.stats().checkpointed_blocks, journal.stats().flushes);
                a_moment();
                before == (journal.stats().checkpointed_blocks, journal.stats().flushes)
            });
            drop(services);
            journal.freeze().unwrap();
        });
    }
}

/// What becomes of a full log when the load has stopped: each change takes effect at once,
/// without any handle.
#[test]
fn changes_take_effect_without_a_load() {
    let (journal, _) = ROOMY.in_memory();
    in_time("changes", move || {
        use_up(&journal, 20);
        let _services = Services::start(&journal).unwrap();
        a_moment();
        assert!(free(&journal) < 20, "it is off");
        for percent in [30, 60, 99] {
            journal.set_async_checkpoint(FreeThreshold::new(percent)).unwrap();
            assert_eq!(journal.stats().async_checkpoint.threshold, FreeThreshold::new(percent));
            until("enough is free", || u64::from(free(&journal)) >= percent);
        }
        journal.set_async_checkpoint(None).unwrap();
        use_up(&journal, 40);
        a_moment();
        assert!(free(&journal) < 40, "it is off again");
        assert_eq!(journal.stats().space_waits, 0);
    });
}

/// A volume without a log.
#[test]
fn without_a_log_it_is_refused() {
    let device = Arc::new(MemDevice::new(1 << 20));
    let config = JournalConfig {
        device,
        block_size: ROOMY.size(),
        blocks: 1000,
        log: None,
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: false,
        cache_bytes: 1 << 20,
        clock: Arc::new(TestClock::default()),
    };
    let journal = Journal::open(config).unwrap();
    let refused = journal.set_async_checkpoint(Some(FreeThreshold::default())).unwrap_err();
    assert!(refused.to_string().contains("async_checkpoint needs a journal"), "{refused}");
    assert_eq!(journal.stats().async_checkpoint.threshold, None);
    journal.set_async_checkpoint(None).unwrap();
}

/// The option's parser has the rest.
#[test]
fn thresholds() {
    let ok = |percent| FreeThreshold::new(percent).map(FreeThreshold::percent);
    assert_eq!(
        [0, 1, 30, 99, 100, 101, 306].map(ok),
        [None, Some(1), Some(30), Some(99), None, None, None]
    );
    assert_eq!(FreeThreshold::default().percent(), 50);
}

/// A flush that was under way when the home writes returned does not cover them; the next
///     commit's does, and then
/// the tail moves without a flush of its own.
///
/// Catches: the count of home writes read after the flush.
#[test]
fn the_next_commits_flush_covers_home_writes() {
    let (journal, gate, _) = by_hand(ROOMY);
    use_up(&journal, 45);
    fill(&journal, [50], 7);
    gate.close(DeviceOp::Flush);
    let j = Arc::clone(&journal);
    let (commit, _) = background(move || j.commit_all().unwrap());
    gate.wait_for_a_thread();
    journal.set_async_checkpoint(Some(FreeThreshold::default())).unwrap();
    work(&journal);
    let before = journal.stats();
    assert!(before.checkpointed_blocks > 0, "home writes returned during the commit's flush");
    gate.open();
    commit.join().unwrap();
    work(&journal);
    let between = journal.stats();
    assert_eq!(
        (between.log_tail, between.async_checkpoint.tail_moves),
        (before.log_tail, 0),
        "too early"
    );
    fill(&journal, [51], 7);
    journal.commit_all().unwrap();
    work(&journal);
    let after = journal.stats();
    assert!(after.log_tail != before.log_tail && free(&journal) >= 50);
    assert_eq!((after.async_checkpoint.shared_flushes, after.flushes), (1, between.flushes + 1));
}

/// No commit comes: it flushes itself, after a while.
#[test]
fn it_flushes_itself_when_no_commit_does() {
    let (journal, _, clock) = by_hand(Variant { async_checkpoint: Some(50), ..ROOMY });
    use_up(&journal, 48);
    work(&journal);
    let before = journal.stats();
    assert!(before.checkpointed_blocks > 0 && free(&journal) < 50);
    clock.advance(Duration::from_millis(24));
    work(&journal);
    assert_eq!(journal.stats().flushes, before.flushes);
    clock.advance(Duration::from_millis(1));
    work(&journal);
    let after = journal.stats();
    assert!(free(&journal) >= 50 && after.flushes == before.flushes + 1);
    assert_eq!(after.async_checkpoint.shared_flushes, 0);
}

/// Commits to an external log flush the volume's device only for file data: only then do they cover
/// home writes.
#[test]
fn an_external_logs_flush_covers_nothing_at_home() {
    let variant = Variant { external: true, async_checkpoint: Some(50), ..ROOMY };
    let (journal, _, _) = by_hand(variant);
    use_up(&journal, 48);
    work(&journal);
    for (data, moves) in [(false, 0), (true, 1)] {
        if data {
            journal.note_data_write();
        }
        fill(&journal, [50], 1);
        journal.commit_all().unwrap();
        work(&journal);
        assert_eq!(journal.stats().async_checkpoint.tail_moves, moves, "data: {data}");
    }
}

/// Blocks that the running transaction has changed again are left out; its commit lets the tail
/// pass.
#[test]
fn hot_blocks_stay() {
    let (journal, _, _) = by_hand(ROOMY);
    let mut cold = 200;
    while free(&journal) >= 48 {
        fill(&journal, [50, 51].into_iter().chain(cold..cold + 3), 1);
        cold += 3;
        journal.commit_all().unwrap();
    }
    fill(&journal, [50], 2);
    journal.set_async_checkpoint(FreeThreshold::new(99)).unwrap();
    // Make the oldest transactions those that hold the newest versions.
    fill(&journal, [51], 2);
    work(&journal);
    let stats = journal.stats();
    assert_eq!(stats.checkpointed_blocks, cold - 200, "everything but the two");
    journal.commit_all().unwrap();
    work(&journal);
    assert!(free(&journal) >= 98);
    assert!(stats.async_checkpoint.superseded > 100);
}

/// While a home write hangs in the device: handles start and stop, also on the block that is being
/// written, and commits end, as long as there is space.
#[test]
fn a_hanging_home_write_holds_no_commit_up() {
    let (journal, gate, device) = gated(Variant { async_checkpoint: Some(90), ..ROOMY });
    in_time("a home write that hangs", move || {
        gate.close_range(DeviceOp::Write, HOME);
        let services = Services::start(&journal).unwrap();
        use_up(&journal, 85);
        gate.wait_for_a_thread();
        for round in 2..12 {
            fill(&journal, 100..110, round);
            journal.commit_all().unwrap();
            assert_eq!(journal.read(BlockNr(100)).unwrap().data()[0], round);
        }
        assert_eq!(journal.stats().space_waits, 0);
        assert_eq!(byte(&after_crash(&ROOMY, &device), 100), 11);
        gate.open();
        until("it goes on", || free(&journal) >= 90);
        drop(services);
        journal.freeze().unwrap();
        assert_eq!(byte(&*device, 100), 11);
    });
}

/// A freeze takes over between two batches, and nothing is written once the log is marked
///     empty.
#[test]
fn a_freeze_during_a_run() {
    let (journal, gate, device) = gated(Variant { async_checkpoint: Some(90), ..ROOMY });
    in_time("freeze", move || {
        gate.close_range(DeviceOp::Write, HOME);
        let services = Services::start(&journal).unwrap();
        use_up(&journal, 40);
        gate.wait_for_a_thread();
        let j = Arc::clone(&journal);
        let (freezer, frozen) = background(move || j.freeze().unwrap());
        a_moment();
        assert!(!frozen.load(Ordering::SeqCst), "a home write is on its way");
        gate.open();
        freezer.join().unwrap();
        let image = device.to_bytes();
        assert_eq!(ROOMY.journal_superblock(&*device).start, 0);
        assert!((100..110).all(|nr| byte(&*device, nr) == 1));
        journal.set_async_checkpoint(FreeThreshold::new(99)).unwrap();
        a_moment();
        drop(services);
        assert!(device.to_bytes() == image, "written after the log was marked empty");
        journal.thaw();
    });
}

/// An abort ends a run at the batch that is on its way: no flush, no tail, and the log replays.
#[test]
fn an_abort_during_a_run() {
    let (journal, gate, device) = gated(Variant { async_checkpoint: Some(90), ..ROOMY });
    in_time("abort", move || {
        gate.close_range(DeviceOp::Write, HOME);
        let services = Services::start(&journal).unwrap();
        use_up(&journal, 40);
        gate.wait_for_a_thread();
        let before = (journal.stats().log_tail, ROOMY.journal_superblock(&*device).start);
        let _ = journal.abort("test");
        gate.open();
        // The end of the services waits for the batch.
        drop(services);
        assert_eq!(before, (journal.stats().log_tail, ROOMY.journal_superblock(&*device).start));
        assert!(matches!(journal.checkpoint_step(), Err(JournalError::Aborted(_))));
        assert!((100..110).all(|nr| byte(&after_crash(&ROOMY, &device), nr) == 1));
    });
}

/// A handle waits only for what it asks for. One that finds no room for more credits restarts, and
/// is served.
#[test]
fn a_small_handle_fits_into_a_full_log() {
    let (journal, _) = ROOMY.in_memory();
    in_time("room", move || {
        use_up(&journal, 20);
        let mut h = journal.start(10).unwrap();
        assert!(h.extend(20).unwrap());
        assert!(!h.extend(journal.max_credits() - 40).unwrap(), "the log has no room for so many");
        assert_eq!(journal.stats().space_waits, 0);
        let _services = Services::start(&journal).unwrap();
        assert!(h.ensure(journal.max_credits()).unwrap());
        let stats = journal.stats();
        assert_eq!((stats.space_waits, stats.distributions.space_wait_ns.count), (1, 1));
        assert!(stats.distributions.handle_start_ns.max >= stats.distributions.space_wait_ns.max);
        h.stop().unwrap();
    });
}
