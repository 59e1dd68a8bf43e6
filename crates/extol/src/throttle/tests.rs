//! Which writes are held up, and for how long; in virtual time.

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

fn throttle() -> (Arc<TestClock>, Arc<Throttle>) {
    let clock = Arc::new(TestClock::default());
    let throttle = Arc::new(Throttle::new(Arc::clone(&clock) as Arc<dyn Clock>));
    (clock, throttle)
}

#[test]
fn only_a_large_write_beside_an_fsync_of_another_file_is_held_up() {
    let (clock, throttle) = throttle();
    throttle.wrote(100 * MIB);
    assert_eq!(throttle.room(WRITER, MIB), Room::Write, "alone");
    throttle.fsynced(WRITER);
    assert_eq!(throttle.room(WRITER, MIB), Room::Write, "its own fsync");
    throttle.fsynced(SMALL);
    assert_eq!(throttle.room(WRITER, LARGE - 1), Room::Write, "a small write");
    assert_eq!(throttle.room(SMALL, MIB), Room::FlushFirst, "the writer fsyncs as well");
    assert_eq!(throttle.room(WRITER, MIB), Room::FlushFirst);
    throttle.fsynced(WRITER);
    assert_eq!(
        throttle.room(WRITER, MIB),
        Room::FlushFirst,
        "the fsync of the other file still counts"
    );
    clock.advance(Duration::from_nanos(HOLD_NS));
    assert_eq!(throttle.room(WRITER, MIB), Room::Write, "long ago");
    assert_eq!((throttle.stats().flushes, throttle.stats().waits), (3, 0));
}

#[test]
fn writes_beside_an_fsync_cover_half_of_the_budget() {
    let (_, throttle) = throttle();
    throttle.fsynced(WRITER);
    assert_eq!(throttle.max_write(WRITER), None);
    throttle.fsynced(SMALL);
    assert_eq!(throttle.max_write(WRITER), Some(throttle.stats().budget / 2));
}

#[test]
fn bytes_written_during_a_flush_are_not_covered_by_it() {
    let (_, throttle) = throttle();
    throttle.wrote(10 * MIB);
    let flush = throttle.begin_flush();
    throttle.wrote(3 * MIB);
    flush.succeeded();
    assert_eq!(throttle.stats().unflushed, 3 * MIB);
    drop(throttle.begin_flush());
    assert_eq!(throttle.stats().unflushed, 3 * MIB, "it failed");
    // The later one ends first.
    let (first, second) = (throttle.begin_flush(), throttle.begin_flush());
    throttle.wrote(MIB);
    let third = throttle.begin_flush();
    third.succeeded();
    second.succeeded();
    first.succeeded();
    assert_eq!(throttle.stats().unflushed, 0);
}

/// A flush under way, and a write that waits for it.
fn write_behind_a_flush(throttle: &Arc<Throttle>) -> (Flush<'_>, JoinHandle<Room>) {
    throttle.fsynced(SMALL);
    throttle.wrote(100 * MIB);
    let flush = throttle.begin_flush();
    let other = Arc::clone(throttle);
    let writer = std::thread::spawn(move || other.room(WRITER, MIB));
    while throttle.stats().waits == 0 {
        std::thread::yield_now();
    }
    (flush, writer)
}

#[test]
fn a_write_waits_for_the_flush_under_way_and_no_longer() {
    let (clock, throttle) = throttle();
    let (flush, writer) = write_behind_a_flush(&throttle);
    clock.advance(Duration::from_millis(3));
    flush.succeeded();
    assert_eq!(writer.join().unwrap(), Room::Write);
    assert_eq!((throttle.stats().flushes, throttle.stats().held_ns), (0, 3_000_000));
}

#[test]
fn after_a_failed_flush_the_write_flushes_itself() {
    let (_, throttle) = throttle();
    let (flush, writer) = write_behind_a_flush(&throttle);
    drop(flush);
    assert_eq!(writer.join().unwrap(), Room::FlushFirst);
}

#[test]
fn the_device_counts_writes_and_flushes() {
    let (_, throttle) = throttle();
    let broken = FaultDevice::new(MemDevice::new(8 * MIB), [Fault::once(DeviceOp::Flush, 0)]);
    let dev: SharedDevice = Arc::new(ThrottledDevice::new(Arc::new(broken), Arc::clone(&throttle)));
    dev.write_at(&[1; 4096], 0).unwrap();
    dev.write_vectored_at(&[IoSlice::new(&[1; 100]), IoSlice::new(&[2; 28])], 0).unwrap();
    let bufs = [IoSlice::new(&[3; 64])];
    dev.write_scattered(&[ScatteredWrite { offset: 0, bufs: &bufs }]).unwrap();
    dev.write_fua(&[1; 512], 0).unwrap();
    assert_eq!(throttle.stats().unflushed, 4096 + 128 + 64);
    dev.flush().unwrap_err();
    assert_eq!(throttle.stats().unflushed, 4096 + 128 + 64);
    dev.flush().unwrap();
    assert_eq!(throttle.stats().unflushed, 0);
}

#[test]
fn the_abilities_of_the_device_pass_through() {
    for knows_fua in [true, false] {
        let inner = RecordingDevice::new(MemDevice::new(MIB));
        let inner = if knows_fua { inner } else { inner.without_fua() };
        let dev = ThrottledDevice::new(Arc::new(inner), throttle().1);
        assert_eq!((dev.fua_is_flush(), dev.size(), dev.is_read_only()), (!knows_fua, MIB, false));
    }
}
