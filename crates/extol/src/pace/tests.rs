//! What is held up, by whom, and for how long; in virtual time.

use std::io::IoSlice;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use extol_block::{BlockDevice as _, DeviceOp, MemDevice, ScatteredWrite, SharedDevice};
use extol_devices::{Fault, FaultDevice, RecordingDevice};
use extol_task::TestClock;

use super::*;

const MIB: u64 = 1 << 20;
const WRITER: u32 = 20;
const SMALL: u32 = 30;

fn pace() -> (Arc<TestClock>, Arc<Pace>) {
    let clock = Arc::new(TestClock::default());
    let pace = Arc::new(Pace::new(Arc::clone(&clock) as Arc<dyn Clock>));
    (clock, pace)
}

#[test]
fn only_a_large_write_that_meets_somebody_elses_fsync_is_held_up() {
    let (clock, pace) = pace();
    pace.wrote(100 * MIB);
    assert_eq!(pace.room(WRITER, MIB), Room::Go, "alone");
    pace.synced(WRITER);
    assert_eq!(pace.room(WRITER, MIB), Room::Go, "its own fsync");
    pace.synced(SMALL);
    assert_eq!(pace.room(WRITER, BULK - 1), Room::Go, "a small write");
    assert_eq!(pace.room(SMALL, MIB), Room::Flush, "the writer fsyncs as well");
    assert_eq!(pace.room(WRITER, MIB), Room::Flush);
    pace.synced(WRITER);
    assert_eq!(pace.room(WRITER, MIB), Room::Flush, "the other one's fsync is not forgotten");
    clock.advance(Duration::from_nanos(HOLD_NS));
    assert_eq!(pace.room(WRITER, MIB), Room::Go, "long ago");
    assert_eq!((pace.stats().flushes, pace.stats().waits), (3, 0));
}

#[test]
fn what_is_written_during_a_flush_is_not_covered_by_it() {
    let (_, pace) = pace();
    pace.wrote(10 * MIB);
    let flush = pace.begin();
    pace.wrote(3 * MIB);
    flush.succeeded();
    assert_eq!(pace.stats().unflushed, 3 * MIB);
    drop(pace.begin());
    assert_eq!(pace.stats().unflushed, 3 * MIB, "it failed");
    // The later one ends first.
    let (first, second) = (pace.begin(), pace.begin());
    pace.wrote(MIB);
    let third = pace.begin();
    third.succeeded();
    second.succeeded();
    first.succeeded();
    assert_eq!(pace.stats().unflushed, 0);
}

/// A flush under way, and a writer who waits for it.
fn writer_behind_a_flush(pace: &Arc<Pace>) -> (Flush<'_>, JoinHandle<Room>) {
    pace.synced(SMALL);
    pace.wrote(100 * MIB);
    let flush = pace.begin();
    let theirs = Arc::clone(pace);
    let writer = std::thread::spawn(move || theirs.room(WRITER, MIB));
    while pace.stats().waits == 0 {
        std::thread::yield_now();
    }
    (flush, writer)
}

#[test]
fn a_writer_waits_for_the_flush_under_way_and_no_longer() {
    let (clock, pace) = pace();
    let (flush, writer) = writer_behind_a_flush(&pace);
    clock.advance(Duration::from_millis(3));
    flush.succeeded();
    assert_eq!(writer.join().unwrap(), Room::Go);
    assert_eq!((pace.stats().flushes, pace.stats().held_ns), (0, 3_000_000));
}

#[test]
fn a_flush_that_fails_lets_the_writer_find_out_for_itself() {
    let (_, pace) = pace();
    let (flush, writer) = writer_behind_a_flush(&pace);
    drop(flush);
    assert_eq!(writer.join().unwrap(), Room::Flush);
}

#[test]
fn the_device_counts_writes_and_flushes() {
    let (_, pace) = pace();
    let broken = FaultDevice::new(MemDevice::new(8 * MIB), [Fault::once(DeviceOp::Flush, 0)]);
    let dev: SharedDevice = Arc::new(PacedDevice::new(Arc::new(broken), Arc::clone(&pace)));
    dev.write_at(&[1; 4096], 0).unwrap();
    dev.write_vectored_at(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 28])], 0).unwrap();
    let bufs = [IoSlice::new(&[3; 64])];
    dev.write_scattered(&[ScatteredWrite { offset: 0, bufs: &bufs }]).unwrap();
    dev.write_fua(&[1; 512], 0).unwrap();
    assert_eq!(pace.stats().unflushed, 4096 + 128 + 64);
    dev.flush().unwrap_err();
    assert_eq!(pace.stats().unflushed, 4096 + 128 + 64);
    dev.flush().unwrap();
    assert_eq!(pace.stats().unflushed, 0);
}

#[test]
fn what_the_device_can_do_is_said_as_it_is() {
    for knows_fua in [true, false] {
        let inner = RecordingDevice::new(MemDevice::new(MIB));
        let inner = if knows_fua { inner } else { inner.without_fua() };
        let dev = PacedDevice::new(Arc::new(inner), pace().1);
        assert_eq!((dev.fua_is_flush(), dev.size(), dev.is_read_only()), (!knows_fua, MIB, false));
    }
}

/// A heavy writer and an fsync of another file that are at it together.
fn together(pace: &Arc<Pace>) {
    let sync = pace.synced(SMALL);
    drop(pace.turn(WRITER, 0, MIB));
    drop(sync);
}

#[test]
fn who_does_one_thing_after_the_other_needs_no_turns() {
    let (clock, pace) = pace();
    for n in 0..20 {
        drop(pace.turn(WRITER, n * 8 * MIB, MIB));
        clock.advance(Duration::from_millis(1));
        pace.synced(SMALL).succeeded();
        drop(pace.turn(SMALL, 64 * MIB, MIB));
        let own = pace.synced(WRITER);
        drop(pace.turn(WRITER, 64 * MIB, MIB));
        own.succeeded();
    }
    assert_eq!((pace.stats().turns, pace.stats().paused_ns), (0, 0));
    assert_eq!(pace.piece(WRITER), Some(pace.stats().budget / 2));
}

#[test]
fn turns_are_for_heavy_writers_that_meet_an_fsync() {
    let (clock, pace) = pace();
    together(&pace);
    assert_eq!(pace.piece(WRITER), Some(PIECE));
    drop(pace.turn(WRITER, 0, MIB));
    assert_eq!(pace.stats().turns, 0, "the first of a file");
    assert!(pace.turn(WRITER, 64 * MIB, BULK - 1).is_none(), "a small one");
    let crowd: Vec<_> = (0..48).map(|_| pace.called(MIB)).collect();
    drop(pace.turn(WRITER, 64 * MIB, MIB));
    assert_eq!(pace.stats().turns, 0, "one of many");
    drop(crowd);
    drop(pace.turn(WRITER, 64 * MIB, MIB));
    assert_eq!(pace.stats().turns, 1);
    // An fsync that comes while somebody has the turn.
    clock.advance(Duration::from_nanos(HOLD_NS - 1));
    let turn = pace.turn(WRITER, 64 * MIB, MIB);
    pace.synced(SMALL).succeeded();
    drop(turn);
    clock.advance(Duration::from_nanos(HOLD_NS - 1));
    drop(pace.turn(WRITER, 64 * MIB, MIB));
    assert_eq!(pace.stats().turns, 3);
    clock.advance(Duration::from_nanos(1));
    drop(pace.turn(WRITER, 64 * MIB, MIB));
    assert_eq!(pace.stats().turns, 3, "long ago");
}

#[test]
fn a_turn_comes_after_the_one_before_and_a_pause() {
    let (clock, pace) = pace();
    together(&pace);
    let turn = pace.turn(WRITER, 64 * MIB, MIB);
    let theirs = Arc::clone(&pace);
    let next = std::thread::spawn(move || {
        drop(theirs.turn(WRITER + 1, 64 * MIB, MIB));
        std::time::Instant::now()
    });
    while pace.turns.writing() < 2 && !next.is_finished() {
        std::thread::yield_now();
    }
    clock.advance(Duration::from_millis(3));
    let ended = std::time::Instant::now();
    drop(turn);
    // Seven times as long as the write: an eighth of the time is the writers'.
    assert!(next.join().unwrap() - ended >= Duration::from_millis(21));
    assert_eq!((pace.stats().turns, pace.stats().share), (2, 125));
}

#[test]
fn late_fsyncs_take_from_the_share() {
    let (clock, pace) = pace();
    let fsync = |ms| {
        let sync = pace.synced(SMALL);
        clock.advance(Duration::from_millis(ms));
        sync.succeeded();
    };
    fsync(1);
    together(&pace);
    let share = pace.stats().share;
    fsync(100);
    assert_eq!((pace.stats().late, pace.stats().share), (1, share * 3 / 4));
    let failed = pace.synced(SMALL);
    clock.advance(Duration::from_millis(100));
    drop(failed);
    assert_eq!(pace.stats().late, 1, "one that failed, or had much to write itself");
}
