//! Data that is left to the leader of the next commit: when it is written, with what, and crashes
//! at any write.

use super::data_checksum::{DATA, crash_anywhere};
use super::*;
use crate::DeferredWrite;

impl Rig {
    /// File data is to be written in place, with a checksum.
    fn defer(&self, block: u64, byte: u8) -> DeferredWrite {
        let data = vec![byte; BS as usize];
        let block = BlockNr(DATA + block);
        self.journal.about_to_overwrite(block, 1, |w| w.matches(&data)).unwrap();
        let checksum = DataChecksum::of(block, &data);
        self.journal.defer(block, data, vec![checksum])
    }

    fn on_device(&self, block: u64) -> u8 {
        let mut byte = [0];
        self.fs.read_at(&mut byte, (DATA + block) * BS).unwrap();
        byte[0]
    }
}

#[test]
fn goes_out_with_the_records() {
    for fua in [true, false] {
        let rig = Rig::live(Shape { fua, ..PLAIN });
        let at = rig.log.position();
        let first = rig.defer(1, 1);
        // Neighbours are one write, in whatever order they came.
        rig.defer(9, 3);
        rig.defer(2, 2);
        assert_eq!((rig.story(at), first.is_written()), (String::new(), false));
        rig.fsync(12, records(1));
        assert_eq!(rig.story(at), "data data fc0-1 flush");
        assert!(first.is_written());
        assert_eq!([rig.on_device(1), rig.on_device(2), rig.on_device(9)], [1, 2, 3]);
        first.make_durable().unwrap();
        assert_eq!(rig.story(at), "data data fc0-1 flush", "it is");
        assert_eq!(rig.stats().checksummed, 1);
        // Without a checksum it needs no order, but the flush.
        let at = rig.log.position();
        rig.journal.defer(BlockNr(DATA), vec![5; BS as usize], Vec::new());
        rig.fsync(12, records(1));
        assert_eq!(rig.story(at), "data fc2 flush");
    }
}

/// Durable writes instead of the flush, where nothing else waits for one.
#[test]
fn without_a_flush() {
    let each = Shape { each: true, ..PLAIN };
    let rig = Rig::live(each);
    rig.journal.flush_data().unwrap();
    let flushes = rig.journal.stats().flushes;
    let first = rig.defer(1, 1);
    rig.defer(9, 2);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data data fc0-1 settled");
    first.make_durable().unwrap();
    rig.journal.flush_data().unwrap();
    assert_eq!(rig.story(at), "data data fc0-1 settled", "it is, and nothing is left to flush");
    assert_eq!(
        (rig.stats().by_fua, rig.stats().checksummed, rig.journal.stats().flushes),
        (1, 1, flushes)
    );
    // Data that another thread has written since needs more than these writes.
    rig.defer(20, 1);
    rig.write_checksummed(30, 1);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data fc2 flush");
    // And once it is flushed, no more.
    rig.defer(21, 1);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data fc3 settled");
    assert_eq!(rig.stats().by_fua, 2);
    // Where durable writes are flushes, or there are no barriers, there is nothing to gain.
    for (shape, story) in [
        (Shape { fua: false, ..each }, "data fc0-1 flush"),
        (Shape { barrier: false, ..each }, "data fc0-1"),
    ] {
        let rig = Rig::live(shape);
        rig.defer(1, 1);
        let at = rig.log.position();
        rig.fsync(12, records(1));
        assert_eq!((rig.story(at), rig.stats().by_fua), (story.to_owned(), 0));
    }
}

/// Records alone go that way where a durable write by itself would be a flush.
#[test]
fn records_alone_without_a_flush() {
    let shape = Shape { each: true, batches: true, ..PLAIN };
    let rig = Rig::live(shape);
    rig.journal.flush_data().unwrap();
    let at = rig.log.position();
    rig.fsync(12, records(1));
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1 settled fc2 settled");
    assert_eq!((rig.stats().by_fua, rig.stats().checksummed), (2, 0));
    rig.write_data();
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "flush fc3 flush", "records that count on other data");
    rig.write_checksummed(30, 1);
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc4 flush", "what else waits for a flush");
    let rig = Rig::live(Shape { each: false, ..shape });
    rig.journal.flush_data().unwrap();
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "fc0-1 flush");
}

/// Other data beside it needs the flush first; records of several blocks do not, also if they are
/// the first of their transaction.
#[test]
fn before_a_flush() {
    let rig = Rig::live(PLAIN);
    rig.defer(1, 1);
    rig.write_data();
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data flush fc0-1!");
    rig.change(5);
    rig.journal.commit_all().unwrap();
    rig.defer(2, 1);
    let at = rig.log.position();
    rig.fsync(12, records(2));
    assert_eq!(rig.story(at), "data fc0-2 flush");
}

#[test]
fn a_leader_writes_all() {
    let rig = Rig::live(PLAIN);
    let (first, second) = (rig.defer(1, 1), rig.defer(5, 2));
    let at = rig.log.position();
    first.finish();
    assert_eq!((rig.story(at), second.is_written()), ("data data".to_owned(), true));
    second.finish();
    // Its checksum is left for the next fast commit.
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data data fc0-1 flush");
    assert_eq!(rig.stats().checksummed, 1);
    rig.journal.commit_all().unwrap();
    for what in [Journal::flush_data, Journal::make_all_durable] {
        rig.defer(20, 1);
        let at = rig.log.position();
        what(&rig.journal).unwrap();
        assert_eq!(rig.story(at), "data flush");
    }
    let third = rig.defer(21, 1);
    let at = rig.log.position();
    third.make_durable().unwrap();
    assert_eq!(rig.story(at), "data flush");
    // A full commit takes it along, too: its flush covers both.
    rig.defer(22, 1);
    rig.change(5);
    let at = rig.log.position();
    rig.journal.commit_all().unwrap();
    assert!(rig.story(at).starts_with("data log flush"), "{}", rig.story(at));
}

/// What was covered by a flush is not flushed again, whatever was written since.
#[test]
fn each_knows_its_own_flush() {
    let rig = Rig::live(PLAIN);
    let first = rig.defer(1, 1);
    rig.fsync(12, records(1));
    let second = rig.defer(2, 1);
    second.finish();
    let at = rig.log.position();
    first.make_durable().unwrap();
    assert_eq!(rig.story(at), "");
    second.make_durable().unwrap();
    assert_eq!(rig.story(at), "flush");
    // Forgotten ones count as written with younger ones: never as durable.
    let all: Vec<DeferredWrite> = (0..100)
        .map(|i| {
            let one = rig.defer(30 + i, 1);
            one.finish();
            one
        })
        .collect();
    let at = rig.log.position();
    all[0].make_durable().unwrap();
    assert_eq!(rig.story(at), "flush");
    all.iter().for_each(|one| one.make_durable().unwrap());
    assert_eq!(rig.story(at), "flush");
}

#[test]
fn what_waits_is_bounded() {
    let rig = Rig::live(PLAIN);
    let at = rig.log.position();
    for block in 0..1200 {
        rig.defer(block, 1);
    }
    // Half of a megabyte and more is on the device.
    assert_eq!(rig.story(at), "data");
    assert_eq!((rig.on_device(1000), rig.on_device(1199)), (1, 0));
}

/// Records that the area has no room for: a full commit, and the data is not lost on the way.
#[test]
fn no_room_for_the_records() {
    let rig = Rig::live(PLAIN);
    rig.defer(1, 1);
    let at = rig.log.position();
    rig.fsync(12, records(9));
    assert!(rig.story(at).starts_with("data log flush"), "{}", rig.story(at));
    assert_eq!(rig.on_device(1), 1);
}

/// More checksums than a fast commit may carry.
#[test]
fn too_many_checksums() {
    let rig = Rig::live(PLAIN);
    for block in 0..1000 {
        rig.write_checksummed(block, 1);
    }
    for block in 1000..1030 {
        rig.defer(block, 1);
    }
    let at = rig.log.position();
    rig.fsync(12, records(1));
    assert_eq!(rig.story(at), "data flush fc0-1!");
}

#[test]
fn an_abort_loses_it_and_says_so() {
    let rig = Rig::live(PLAIN);
    let one = rig.defer(1, 1);
    rig.journal.shut_down("test");
    assert!(one.make_durable().is_err());
    // A reader of the file finds it, all the same.
    assert_eq!((one.is_written(), rig.on_device(1)), (true, 1));
}

fn defer(rig: &Rig, block: u64, byte: u8) {
    rig.defer(block, byte);
}

#[test]
fn crashes() {
    for (fua, each, batches) in
        [(true, false, false), (false, false, false), (true, true, false), (true, true, true)]
    {
        assert_eq!(crash_anywhere(Shape { fua, each, batches, ..PLAIN }, defer).unwrap(), 24);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn data_left_behind_is_found() {
    use crate::planted::{Bug, set};
    set(Some(Bug::DataLeftBehind));
    let found = crash_anywhere(PLAIN, defer);
    set(None);
    assert!(found.is_err(), "{found:?}");
}

#[cfg(feature = "planted-bugs")]
#[test]
fn fua_writes_that_are_not_durable_are_found() {
    use crate::planted::{Bug, set};
    set(Some(Bug::FuaNotDurable));
    let found = crash_anywhere(Shape { each: true, ..PLAIN }, defer);
    set(None);
    assert!(found.as_ref().is_err_and(|why| why.contains("was acknowledged")), "{found:?}");
}
