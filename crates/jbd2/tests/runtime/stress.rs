//! Many threads on a log of the smallest size.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{BlockDevice, BlockNr};
use extol_devices::RecordingDevice;
use extol_jbd2::{Services, Tid};

use crate::crash::record;
use crate::devices::Tape;
use crate::lab::{PLAIN, Random, VARIANTS, Variant, in_time, seeds};
use crate::world::World;

/// Threads that operate, wait for commits, ask for them, and freeze; with the services running.
#[derive(Clone, Copy, Debug)]
pub struct Storm {
    threads: u64,
    operations: usize,
    seed: u64,
    /// In a hundred operations, how many are followed by a commit or something like it.
    syncs: u64,
    interval: Duration,
    /// Threads of the journal's own; if not, callers do their work.
    services: bool,
}

impl Storm {
    /// Small transactions: much is asked for.
    pub fn eager(seed: u64) -> Self {
        Self {
            threads: 4,
            operations: 250,
            seed,
            syncs: 30,
            interval: Duration::from_millis(4),
            services: true,
        }
    }

    /// Large transactions: few requests.
    pub fn greedy(seed: u64) -> Self {
        Self { operations: 500, syncs: 1, interval: Duration::from_secs(3600), ..Self::eager(seed) }
    }

    pub fn run(self, world: &Arc<World>, tape: Option<&Tape>) {
        let journal = &world.journal;
        journal.set_commit_interval(self.interval);
        let services = self.services.then(|| Services::start(journal).unwrap());
        if services.is_none() {
            journal.work_in_callers();
        }
        std::thread::scope(|scope| {
            for thread in 0..self.threads {
                let work = move || {
                    let mut random = Random::new(self.seed * 1000 + thread);
                    for _ in 0..self.operations {
                        let tid = world.operate(&mut random).unwrap();
                        if random.chance(self.syncs) {
                            let acked = sync(world, tid, &mut random);
                            if let (Some(tape), Some(tid)) = (tape, acked) {
                                tape.ack(tid);
                            }
                        }
                    }
                };
                std::thread::Builder::new()
                    .stack_size(256 << 10)
                    .spawn_scoped(scope, work)
                    .unwrap();
            }
        });
    }
}

/// One of the ways to make things durable. Gives what is durable now.
fn sync(world: &World, tid: Tid, random: &mut Random) -> Option<Tid> {
    let journal = &world.journal;
    match random.below(30) {
        0..15 => {
            journal.commit_wait(tid).unwrap();
            Some(tid)
        }
        15..18 => {
            let newest = journal.newest();
            journal.commit_all().unwrap();
            Some(newest)
        }
        18..25 => {
            journal.request_commit(tid);
            None
        }
        25 => {
            journal.freeze().unwrap();
            let committed = journal.committed();
            journal.thaw();
            Some(committed)
        }
        _ => {
            journal.flush_data().unwrap();
            None
        }
    }
}

fn storm_and_compare(variant: Variant, storm: Storm) {
    let (tape, world) = record(variant, None);
    in_time(variant.name, move || {
        storm.run(&world, None);
        world.journal.freeze().unwrap();
        let fs = tape.fs.current();
        world.check_newest(&fs, variant.name);
        let stats = world.journal.stats();
        assert_eq!((stats.overdrafts, stats.checkpoint_blocks), (0, 0), "{}", variant.name);
        assert_eq!(stats.log_free, stats.log_blocks, "{}", variant.name);
        assert!(world.versions() as u64 >= storm.threads * storm.operations as u64);
        // The log says "empty" and there is nothing to recover.
        let log = tape.log.as_ref().map(RecordingDevice::current);
        let log = log.as_ref().map(|d| d as &dyn BlockDevice);
        let recovered = variant.recover(&fs, log).unwrap();
        assert_eq!(recovered.replayed_transactions, 0);
        assert!(recovered.next_tid.after(world.journal.committed()));
    });
}

#[test]
fn home_is_what_the_model_says() {
    for seed in seeds(0) {
        for (i, mut variant) in VARIANTS.into_iter().enumerate() {
            // Both reasons to checkpoint: memory and log space.
            variant.cache_bytes = if i % 2 == 0 { 64 * 1024 } else { 8 << 20 };
            storm_and_compare(variant, Storm::eager(seed + i as u64));
            storm_and_compare(variant, Storm::greedy(seed + i as u64));
        }
    }
}

/// Without services, a thread that finds the transaction full or the log used up does their work.
/// Catches: waiters for a commit that began before theirs not being woken to lead the next.
#[test]
fn callers_do_the_work_of_the_services() {
    for seed in seeds(40) {
        for variant in [Variant { cache_bytes: 8 << 20, ..PLAIN }, PLAIN] {
            for storm in [
                Storm::eager(seed),
                Storm::greedy(seed),
                Storm { threads: 24, ..Storm::greedy(seed) },
            ] {
                storm_and_compare(variant, Storm { services: false, ..storm });
            }
        }
    }
}

#[test]
fn a_thousand_threads() {
    let storm = Storm { threads: 1000, operations: 2, ..Storm::eager(11) };
    storm_and_compare(Variant { cache_bytes: 8 << 20, ..PLAIN }, storm);
}

/// Transactions of the largest size, each with hundreds of revokes, one after the other on the
/// smallest log.
#[test]
fn largest_transactions_with_many_revokes() {
    for variant in [VARIANTS[0], VARIANTS[1], VARIANTS[3], VARIANTS[5]] {
        let variant = Variant { cache_bytes: 8 << 20, ..variant };
        let (journal, _) = variant.in_memory();
        in_time(variant.name, move || {
            let _services = Services::start(&journal).unwrap();
            let max = journal.max_credits();
            for round in 0..12u64 {
                let mut h = journal.start(max).unwrap();
                let (mut made, mut freed) = (0, 0);
                while h.credits() > 4 {
                    let buf = h.create(BlockNr(100 + made)).unwrap();
                    h.modify(&buf, |b| b.fill(round as u8)).unwrap();
                    made += 1;
                    if round % 2 == 1 && made % 3 == 0 {
                        // Revokes of blocks far away; many fit one credit.
                        for _ in 0..20 {
                            freed += 1;
                            h.forget(BlockNr(1000 + freed % 400), true).unwrap();
                        }
                    }
                }
                assert!(!h.extend(max).unwrap());
                h.stop().unwrap();
                if round % 3 == 0 {
                    journal.commit_all().unwrap();
                }
            }
            journal.freeze().unwrap();
            let stats = journal.stats();
            assert_eq!(stats.overdrafts, 0);
            assert!(stats.revoked_blocks > 300 && stats.space_waits > 0, "{stats:?}");
        });
    }
}
