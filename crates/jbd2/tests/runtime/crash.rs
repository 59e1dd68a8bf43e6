//! Crashes at any write.
//!
//! A run is recorded; a crash is a place in the recording and a choice which of the writes that no
//! flush had covered reached the medium. After recovery the oracle of [`World`] must be content.
//!
//! Each of these breaks of the journal, one at a time, makes at least one test here fail: no flush
//! before the commit record; none of the file system's device with an external journal; the tail
//! moved before the flush of the home writes, or written without FUA; home writes of a checkpoint
//! that takes uncommitted bytes; revokes not written, or not cancelled when the block comes back;
//! callbacks before the record; the log not named live before the first record; the log marked
//! empty before the home writes are flushed; waiters woken before the record.

use std::sync::Arc;

use extol_block::{BlockDevice, MemDevice};
use extol_devices::RecordingDevice;
use extol_jbd2::Tid;
use extol_jbd2::recovery::{Recovered, read_superblock, recover_to_device};

use crate::devices::{Lie, Point, Tape};
use crate::lab::{FS_BLOCKS, PLAIN, Random, USABLE, VARIANTS, Variant, in_time, seeds};
use crate::stress::Storm;
use crate::world::World;

/// Which of the writes that nothing made durable are on the medium.
#[derive(Clone, Copy, Debug)]
pub enum Survivors {
    None,
    All,
    /// Each write with this chance in percent.
    Writes(u64),
    /// Each sector, or block where sectors cannot be told apart.
    Pieces(u64),
    /// All but every nth write.
    AllButSome(u64),
}

const SURVIVORS: [Survivors; 6] = [
    Survivors::None,
    Survivors::All,
    Survivors::Writes(50),
    Survivors::Pieces(50),
    Survivors::Pieces(95),
    Survivors::AllButSome(7),
];

/// Memory for the journal: so little that the checkpoint always runs, so much that only the log's
/// end makes it run.
const CACHES: [usize; 2] = [64 * 1024, 8 << 20];

/// A finished run and what a crash in it needs.
pub struct Run {
    pub variant: Variant,
    pub tape: Arc<Tape>,
    pub world: Arc<World>,
    pub points: Vec<Point>,
}

impl Run {
    pub fn new(variant: Variant, tape: Arc<Tape>, world: Arc<World>) -> Self {
        let points = tape.points();
        Self { variant, tape, world, points }
    }

    /// The media after a crash behind `point`, and what had been acknowledged.
    fn crash(
        &self,
        point: usize,
        survivors: Survivors,
        random: &mut Random,
    ) -> (MemDevice, Option<MemDevice>, Option<Tid>) {
        let seen = &self.points[..=point];
        let acks =
            seen.iter().filter_map(|p| if let Point::Ack(tid) = p { Some(*tid) } else { None });
        let acked = acks.reduce(|a, b| if b.after(a) { b } else { a });
        let io = |p: &Point| if let Point::Io { fs, log } = p { Some((*fs, *log)) } else { None };
        let (fs, log) = seen.iter().rev().find_map(io).unwrap();
        // Checksum v1 does not cover revoke blocks: without an order of writes a torn one cannot be
        // told.
        let v1_async = self.variant.is_async && self.variant.compat != 0;
        let unit = if v1_async { self.variant.block_size as usize / 512 } else { 1 };
        // A device without barriers that keeps its writes in order.
        let survivors = if self.variant.barrier { survivors } else { Survivors::All };
        let mut image = |device: &RecordingDevice, cut: usize| {
            let mut last = (usize::MAX, usize::MAX, true);
            device.torn_image_at(cut, |event, piece| {
                let piece = match survivors {
                    Survivors::Pieces(_) => piece / unit,
                    _ => 0,
                };
                if (last.0, last.1) != (event, piece) {
                    let keep = match survivors {
                        Survivors::None => false,
                        Survivors::All => true,
                        Survivors::Writes(percent) | Survivors::Pieces(percent) => {
                            random.chance(percent)
                        }
                        Survivors::AllButSome(n) => random.below(n) > 0,
                    };
                    last = (event, piece, keep);
                }
                last.2
            })
        };
        let fs = image(&self.tape.fs, fs);
        let log = self.tape.log.as_ref().map(|d| image(d, log));
        (fs, log, acked)
    }

    /// Crashes, recovers, asks the oracle.
    pub fn try_crash(
        &self,
        point: usize,
        survivors: Survivors,
        random: &mut Random,
    ) -> Result<Recovered, String> {
        let (fs, log, acked) = self.crash(point, survivors, random);
        let log = log.as_ref().map(|d| d as &dyn BlockDevice);
        let recovered = self.variant.recover(&fs, log).map_err(|e| e.to_string())?;
        self.world.check(&fs, acked)?;
        Ok(recovered)
    }

    fn must_survive(&self, point: usize, survivors: Survivors, random: &mut Random) -> Recovered {
        self.try_crash(point, survivors, random).unwrap_or_else(|why| {
            let (points, name) = (self.points.len(), self.variant.name);
            panic!("{name}: crash behind point {point} of {points}, {survivors:?}: {why}")
        })
    }

    /// Random crashes. Gives the transactions replayed and the copies revoked.
    pub fn crash_often(&self, random: &mut Random, times: usize) -> (u32, u32) {
        let (mut replayed, mut revoked) = (0, 0);
        for i in 0..times {
            let point = random.below(self.points.len() as u64) as usize;
            let recovered = self.must_survive(point, SURVIVORS[i % SURVIVORS.len()], random);
            replayed += recovered.replayed_transactions;
            revoked += recovered.revoke_hits;
        }
        assert!(replayed > 0, "{}: nothing to recover", self.variant.name);
        (replayed, revoked)
    }
}

/// A journal on a tape, and a world on the journal.
pub fn record(variant: Variant, lie: Option<Lie>) -> (Arc<Tape>, Arc<World>) {
    let (fs, log) = variant.media();
    let tape = Tape::new(fs, log, lie);
    let journal = variant.open(tape.device(false), tape.device(true));
    let world = World::new(variant, journal, tape.device(false));
    (tape, world)
}

/// How often a run makes things durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// Small transactions, checkpoints in between.
    Busy,
    /// Transactions as large as they can be; the checkpoint runs when the log is full.
    Greedy,
}

/// One thread, no services: the same run for the same seed.
pub fn drive(world: &World, tape: &Tape, random: &mut Random, steps: usize, pace: Pace) {
    let journal = &world.journal;
    journal.work_in_callers();
    let mut told = journal.committed();
    // In a thousand steps.
    let (freezes, commits, checkpoints) =
        if pace == Pace::Busy { (5, 200, 100) } else { (1, 3, 1) };
    for _ in 0..steps {
        let dice = random.below(1000);
        if dice < freezes {
            journal.freeze().unwrap();
            tape.ack(journal.committed());
            journal.thaw();
        } else if dice < freezes + commits {
            journal.commit_all().unwrap();
        } else if dice < freezes + commits + checkpoints {
            journal.checkpoint_step().unwrap();
        } else {
            world.operate(random).unwrap();
        }
        if journal.committed() != told {
            told = journal.committed();
            tape.ack(told);
        }
    }
}

/// A short run, cut behind every single change.
#[test]
fn every_write_of_a_short_run() {
    for (seed, name) in seeds(50).flat_map(|s| ["v3", "external", "v3 async"].map(|name| (s, name)))
    {
        let variant = VARIANTS.into_iter().find(|v| v.name == name).unwrap();
        let (tape, world) = record(variant, None);
        let mut random = Random::new(seed);
        drive(&world, &tape, &mut random, 60, Pace::Busy);
        world.journal.freeze().unwrap();
        tape.ack(world.journal.committed());
        let run = Run::new(variant, tape, world);
        assert!(run.points.len() > 60, "{} points", run.points.len());
        for point in 0..run.points.len() {
            for survivors in [Survivors::None, Survivors::All, Survivors::Pieces(60)] {
                run.must_survive(point, survivors, &mut random);
            }
        }
    }
}

/// Long runs over every kind of log, in which the log wraps.
#[test]
fn every_variant_survives() {
    for seed in seeds(100) {
        let mut all_revoked = 0;
        for (i, variant) in VARIANTS.into_iter().enumerate() {
            for (pace, cache_bytes) in [(Pace::Busy, CACHES[i % 2]), (Pace::Greedy, CACHES[1])] {
                let variant = Variant { cache_bytes, ..variant };
                let (tape, world) = record(variant, None);
                let mut random = Random::new(seed + i as u64);
                drive(&world, &tape, &mut random, 1500, pace);
                let stats = world.journal.stats();
                assert!(stats.logged_blocks > 1100, "{}: {stats:?} does not wrap", variant.name);
                assert!(
                    stats.checkpoints > 0 && stats.overdrafts == 0,
                    "{}: {stats:?}",
                    variant.name
                );
                let (_, revoked) = Run::new(variant, tape, world).crash_often(&mut random, 120);
                all_revoked += revoked;
            }
        }
        assert!(all_revoked > 100, "{all_revoked} revoked");
    }
}

/// The harness itself: on a device that does not keep its promises the same crashes are found to
/// lose something.
#[test]
fn lying_devices_are_found_out() {
    for lie in [Lie::FlushIsNothing, Lie::PlainFua] {
        let found = (0..40).any(|seed| {
            let (tape, world) = record(PLAIN, Some(lie));
            let mut random = Random::new(900 + seed);
            drive(&world, &tape, &mut random, 120, Pace::Busy);
            finds_a_loss(&Run::new(PLAIN, tape, world), &mut random)
        });
        assert!(found, "{lie:?} was not noticed");
    }
}

/// The log is used again before the tail that frees it is durable. That does harm where a large
///     transaction
/// follows a tail that moved by a part of the log: many in this run. The same run on an honest
/// device loses nothing.
///
/// Catches: a tail written without FUA.
#[test]
fn early_reuse_of_the_log_is_found_out() {
    let variant = Variant { cache_bytes: CACHES[1], ..PLAIN };
    let superblock = variant.map().superblock_offset().unwrap();
    for lie in [None, Some(Lie::PlainFuaAt(superblock))] {
        let (tape, world) = record(variant, lie);
        let mut random = Random::new(5);
        drive(&world, &tape, &mut random, 5000, Pace::Greedy);
        assert!(world.journal.stats().space_waits > 2);
        let run = Run::new(variant, tape, world);
        let tries = if lie.is_none() { 200 } else { 4000 };
        let lost = (0..tries).find_map(|i| {
            let point = random.below(run.points.len() as u64) as usize;
            let survivors = [Survivors::Writes(50), Survivors::AllButSome(3)][i % 2];
            run.try_crash(point, survivors, &mut random).err()
        });
        assert_eq!(lost.is_some(), lie.is_some(), "{lie:?}: {lost:?}");
    }
}

fn finds_a_loss(run: &Run, random: &mut Random) -> bool {
    (0..60).any(|i| {
        let point = random.below(run.points.len() as u64) as usize;
        run.try_crash(point, SURVIVORS[i % SURVIVORS.len()], random).is_err()
    })
}

/// Home writes done, tail not moved: the old transactions are replayed again.
#[test]
fn between_home_writes_and_tail() {
    let (tape, world) = record(PLAIN, None);
    let mut random = Random::new(4);
    for _ in 0..30 {
        world.operate(&mut random).unwrap();
    }
    world.journal.commit_all().unwrap();
    tape.ack(world.journal.committed());
    assert!(world.journal.checkpoint_step().unwrap(), "many blocks wait");
    let run = Run::new(PLAIN, tape, world);
    // The last change is the superblock; the one before the flush of the home writes.
    let end = run.points.len() - 1;
    for (back, replayed) in [(0, 0), (1, 1), (2, 1)] {
        for survivors in SURVIVORS {
            let recovered = run.must_survive(end - back, survivors, &mut random);
            assert_eq!(recovered.replayed_transactions, replayed, "{back} changes before the end");
        }
    }
}

/// A crash at any write of the recovery, then another recovery: the same volume.
#[test]
fn crash_in_recovery() {
    let variant = VARIANTS[6];
    let (tape, world) = record(variant, None);
    let mut random = Random::new(25);
    drive(&world, &tape, &mut random, 150, Pace::Busy);
    world.journal.commit_all().unwrap();
    tape.ack(world.journal.committed());
    let run = Run::new(variant, tape, world);
    let (fs, log, acked) = run.crash(run.points.len() - 1, Survivors::None, &mut random);
    let log = log.unwrap();

    let again = Tape::new(fs.snapshot(), Some(log.snapshot()), None);
    let (fs_device, log_device) = (again.device(false), again.device(true));
    let mut sb = read_superblock(&*log_device, &variant.map()).unwrap();
    let first =
        recover_to_device(&*log_device, &*fs_device, &variant.map(), &mut sb, FS_BLOCKS).unwrap();
    assert!(first.replayed_transactions > 0);
    let expected = visible(&again.fs.current());
    let run = Run { points: again.points(), tape: again, ..run };
    assert!(run.points.len() > 5, "{} points", run.points.len());
    for point in 0..run.points.len() {
        for survivors in
            [Survivors::None, Survivors::All, Survivors::Writes(50), Survivors::Pieces(50)]
        {
            let (fs, log, _) = run.crash(point, survivors, &mut random);
            variant.recover(&fs, log.as_ref().map(|d| d as &dyn BlockDevice)).unwrap();
            assert!(visible(&fs) == expected, "crash behind point {point}, {survivors:?}");
            run.world.check(&fs, acked).unwrap();
        }
    }
}

fn visible(fs: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; (USABLE * u64::from(PLAIN.block_size)) as usize];
    fs.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Several threads and the services, then crashes anywhere in what they did.
#[test]
fn threads_survive() {
    for seed in seeds(7000) {
        let mut all_revoked = 0;
        for (i, variant) in VARIANTS.into_iter().enumerate() {
            for (storm, cache_bytes) in [
                // Driven by fsync; the checkpoint by memory, or by the need for log space.
                (Storm::eager(seed + i as u64), CACHES[i % 2]),
                // Transactions as large as they can be.
                (Storm::greedy(seed + i as u64), CACHES[1]),
            ] {
                let variant = Variant { cache_bytes, ..variant };
                let (tape, world) = record(variant, None);
                let (t, w) = (Arc::clone(&tape), Arc::clone(&world));
                in_time(variant.name, move || storm.run(&w, Some(&t)));
                assert_eq!(world.journal.stats().overdrafts, 0);
                let run = Run::new(variant, tape, world);
                all_revoked += run.crash_often(&mut Random::new(seed + i as u64), 60).1;
            }
        }
        assert!(all_revoked > 100, "{all_revoked} revoked");
    }
}
