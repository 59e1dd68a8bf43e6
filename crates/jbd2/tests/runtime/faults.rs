//! Failing devices: nothing acknowledged is lost, nothing is acknowledged afterwards, no thread
//! waits for ever.

use std::sync::Arc;

use extol_block::{BlockDevice, DeviceOp, FailLatch, SharedDevice};
use extol_devices::{Fault, FaultDevice, FaultSpan, RecordingDevice};
use extol_jbd2::{JournalError, Services, Tid};

use crate::devices::Tape;
use crate::lab::{PLAIN, Random, VARIANTS, Variant, in_time, seeds};
use crate::world::World;

struct Rig {
    tape: Arc<Tape>,
    fs: Arc<FaultDevice<SharedDevice>>,
    log: Arc<FaultDevice<SharedDevice>>,
    world: Arc<World>,
}

fn rig(variant: Variant) -> Rig {
    let (fs, log) = variant.media();
    let tape = Tape::new(fs, log, None);
    let fs = Arc::new(FaultDevice::new(tape.device(false), []));
    let log = match variant.external {
        true => Arc::new(FaultDevice::new(tape.device(true), [])),
        false => Arc::clone(&fs),
    };
    // As a file system has them: after a failure nothing but a mark gets through.
    let latched: SharedDevice = Arc::new(FailLatch::new(Arc::clone(&fs)));
    let log_latched: SharedDevice = match variant.external {
        true => Arc::new(FailLatch::new(Arc::clone(&log))),
        false => Arc::clone(&latched),
    };
    let journal = variant.open(Arc::clone(&latched), log_latched);
    let world = World::new(variant, journal, latched);
    Rig { tape, fs, log, world }
}

impl Rig {
    /// Works until something fails or the work is done, then closes as an unmount does. Gives what
    /// was acknowledged, and whether the journal was aborted.
    fn work(&self, seed: u64) -> (Option<Tid>, bool) {
        let mut random = Random::new(seed);
        let journal = &self.world.journal;
        let mut acked = None;
        for step in 0..70 {
            let was_aborted = journal.check_aborted().is_err();
            let result = match step % 10 {
                4 | 9 => journal.commit_all(),
                7 => journal.checkpoint_step().map(|_| ()),
                8 => journal.flush_data(),
                _ => self.world.operate(&mut random).map(|_| ()),
            };
            assert!(!(was_aborted && result.is_ok()), "step {step} succeeds after an abort");
            if result.is_ok() && matches!(step % 10, 4 | 9) {
                acked = Some(journal.committed());
            }
            if step == 35 {
                match journal.freeze() {
                    Ok(()) => acked = Some(journal.committed()),
                    Err(_) => assert!(journal.check_aborted().is_err()),
                }
                if journal.check_aborted().is_ok() {
                    journal.thaw();
                }
            }
        }
        let committed = journal.committed();
        let aborted = journal.check_aborted().is_err();
        match journal.freeze() {
            Ok(()) => {
                assert!(!aborted);
                acked = Some(journal.committed());
            }
            Err(_) => {
                assert!(journal.check_aborted().is_err(), "only an abort may fail a freeze");
                assert_eq!(journal.committed(), committed.max_of(journal.committed()));
            }
        }
        (acked, journal.check_aborted().is_err())
    }

    /// The media with all, or only the durable writes, recover to something that holds what was
    /// acknowledged.
    fn must_hold(&self, variant: Variant, acked: Option<Tid>, what: &str) {
        for keep in [true, false] {
            let image = |d: &RecordingDevice| d.image_at(usize::MAX, |_| keep);
            let (fs, log) = (image(&self.tape.fs), self.tape.log.as_ref().map(image));
            variant
                .recover(&fs, log.as_ref().map(|d| d as &dyn BlockDevice))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            self.world
                .check(&fs, acked)
                .unwrap_or_else(|e| panic!("{what}, all writes: {keep}: {e}"));
        }
    }
}

trait Newer {
    fn max_of(self, other: Tid) -> Tid;
}

impl Newer for Tid {
    fn max_of(self, other: Tid) -> Tid {
        if self.after(other) { self } else { other }
    }
}

/// Every nth write and every nth flush fails, once or from then on.
///
/// Catches: a failed write or flush that does not abort, an acknowledgement after one, a tail that
/// moves after failed home writes, a freeze that does not return.
#[test]
fn each_write_and_flush_fails() {
    for name in ["v3", "external", "v3 async", "checkpoint at 90 %"] {
        let variant = VARIANTS.into_iter().find(|v| v.name == name).unwrap();
        for op in [DeviceOp::Write, DeviceOp::Flush] {
            for on_log in [false, true] {
                if on_log && !variant.external {
                    continue;
                }
                let mut n = 0;
                loop {
                    let span = if n % 2 == 0 { FaultSpan::Once } else { FaultSpan::FromThenOn };
                    let what = format!("{name}, {op} number {n} of the log: {on_log}, {span:?}");
                    let rig = Arc::new(rig(variant));
                    let fault = Fault { span, ..Fault::once(op, n) };
                    if on_log { &rig.log } else { &rig.fs }.arm(fault);
                    let r = Arc::clone(&rig);
                    let (acked, aborted) = in_time(&what, move || r.work(3));
                    rig.fs.disarm();
                    rig.must_hold(variant, acked, &what);
                    if !aborted {
                        // The work has fewer operations than that.
                        assert!(n > 5, "{what}: too little work");
                        break;
                    }
                    n += 1;
                }
            }
        }
    }
}

/// A failed read fails the operation that needs it and nothing else.
#[test]
fn failed_reads_do_no_harm() {
    let rig = rig(PLAIN);
    let journal = &rig.world.journal;
    let mut random = Random::new(8);
    let mut failed = 0;
    for round in 0..60 {
        rig.fs.disarm();
        rig.fs.arm(Fault::once(DeviceOp::Read, round % 7));
        for _ in 0..4 {
            match rig.world.operate(&mut random) {
                Ok(_) => {}
                Err(JournalError::Device(_)) => failed += 1,
                Err(e) => panic!("{e}"),
            }
        }
        journal.commit_all().unwrap();
        while journal.checkpoint_step().unwrap() {}
    }
    rig.fs.disarm();
    assert!(failed > 10, "{failed} reads failed");
    rig.world.journal.freeze().unwrap();
    rig.world.check_newest(&rig.tape.fs.current(), "after failed reads");
}

/// The operation that fails first, and how many of its kind succeed before.
const DEATHS: [(DeviceOp, u64); 5] = [
    (DeviceOp::Write, 40),
    (DeviceOp::Flush, 9),
    (DeviceOp::Write, 150),
    (DeviceOp::Flush, 60),
    (DeviceOp::Write, 400),
];

/// Many threads with all services; the device dies in the middle. Every caller gets an error, and
/// what was acknowledged is there.
#[test]
fn the_device_dies_under_load() {
    for (seed, (op, n)) in seeds(600).flat_map(|seed| DEATHS.map(|death| (seed, death))) {
        let rig = Arc::new(rig(Variant { cache_bytes: 8 << 20, ..PLAIN }));
        rig.fs.arm(Fault::from_then_on(op, n));
        let r = Arc::clone(&rig);
        let acked = in_time("dying device", move || {
            let journal = &r.world.journal;
            journal.set_commit_interval(std::time::Duration::from_millis(3));
            let services = Services::start(journal).unwrap();
            let acks = extol_sync::plain::Mutex::new(None::<Tid>);
            std::thread::scope(|scope| {
                for thread in 0..6 {
                    let (r, acks) = (&r, &acks);
                    scope.spawn(move || {
                        let mut random = Random::new(seed + thread);
                        loop {
                            let journal = &r.world.journal;
                            let done = r.world.operate(&mut random).and_then(|tid| {
                                match random.below(4) {
                                    0 => {
                                        journal.commit_wait(tid)?;
                                        let mut acks = acks.lock();
                                        *acks = Some(acks.map_or(tid, |old| old.max_of(tid)));
                                        Ok(())
                                    }
                                    1 if thread == 0 => {
                                        journal.freeze()?;
                                        journal.thaw();
                                        Ok(())
                                    }
                                    _ => Ok(()),
                                }
                            });
                            if done.is_err() {
                                break;
                            }
                        }
                    });
                }
            });
            drop(services);
            assert!(journal.check_aborted().is_err());
            assert!(journal.freeze().is_err());
            acks.into_inner()
        });
        rig.must_hold(PLAIN, acked, "dying device");
    }
}

/// A log block cannot be written: abort, no new handles, and the error number is in the log
///      for the next mount,
/// which sees the state before.
#[test]
fn failed_log_write_leaves_a_mark() {
    let rig = rig(PLAIN);
    let journal = &rig.world.journal;
    let mut random = Random::new(15);
    rig.world.operate(&mut random).unwrap();
    journal.commit_all().unwrap();
    let acked = journal.committed();
    rig.world.operate(&mut random).unwrap();
    rig.fs.arm(Fault::once(DeviceOp::Write, 0));
    assert!(matches!(journal.commit_all(), Err(JournalError::Aborted(_))));
    assert!(matches!(journal.start(1), Err(JournalError::Aborted(_))));
    assert!(matches!(journal.commit_wait(acked), Err(JournalError::Aborted(_))));
    assert!(matches!(journal.flush_data(), Err(JournalError::Aborted(_))));
    let fs = rig.tape.fs.current();
    assert_eq!(PLAIN.journal_superblock(&fs).errno, -5);
    let recovered = PLAIN.recover(&fs, None).unwrap();
    assert_eq!((recovered.errno, recovered.replayed_transactions), (-5, 1));
    rig.world.check(&fs, Some(acked)).unwrap();
}

/// A home block cannot be written: the tail stays, the next mount replays everything.
#[test]
fn failed_home_write_keeps_the_tail() {
    for op in [DeviceOp::Write, DeviceOp::Flush] {
        let rig = rig(PLAIN);
        let journal = &rig.world.journal;
        let mut random = Random::new(16);
        for _ in 0..25 {
            rig.world.operate(&mut random).unwrap();
            journal.commit_all().unwrap();
        }
        let acked = journal.committed();
        let before = PLAIN.journal_superblock(&rig.tape.fs.current());
        rig.fs.arm(Fault::once(op, 0));
        assert!(journal.checkpoint_step().is_err());
        assert!(journal.check_aborted().is_err());
        let fs = rig.tape.fs.current();
        let after = PLAIN.journal_superblock(&fs);
        assert_eq!((after.start, after.sequence, after.errno), (before.start, before.sequence, -5));
        // Home is whatever the failed write left of it.
        rig.world.damage(&fs);
        let recovered = PLAIN.recover(&fs, None).unwrap();
        assert_eq!(recovered.replayed_transactions, 25);
        rig.world.check(&fs, Some(acked)).unwrap();
    }
}

/// A shutdown on purpose leaves no mark, and nothing is written after it.
#[test]
fn shutdown_leaves_no_mark() {
    let rig = rig(PLAIN);
    let mut random = Random::new(1);
    rig.world.operate(&mut random).unwrap();
    rig.world.journal.commit_all().unwrap();
    let acked = rig.world.journal.committed();
    rig.world.operate(&mut random).unwrap();
    let position = rig.tape.fs.position();
    rig.world.journal.shut_down("test");
    assert!(rig.world.journal.freeze().is_err());
    assert!(rig.world.operate(&mut random).is_err());
    // Only data that the operation wrote before it asked for a handle.
    let homes = |e: &extol_devices::Event| match e {
        extol_devices::Event::Write { offset, .. } => *offset < 860 << 10,
        _ => false,
    };
    assert!(rig.tape.fs.log()[position..].iter().all(homes));
    let fs = rig.tape.fs.current();
    assert_eq!(PLAIN.journal_superblock(&fs).errno, 0);
    assert_eq!(PLAIN.recover(&fs, None).unwrap().replayed_transactions, 1);
    rig.world.check(&fs, Some(acked)).unwrap();
}
