//! Fast commits beside full ones, freezes, failures, and the switch.
//!
//! A record here says what byte fills a home block; so a crash is assessed as ever, once the
//! records that count were laid over the recovered blocks ([`crash`]).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_block::{BlockDevice, DeviceOp};
use extol_jbd2::fast::{Collected, FastSource, Notes, SyncKey};
use extol_jbd2::{Handle, Journal, JournalError, Tid};
use extol_ondisk::fast_commit::{FcRecord, FcRecords};
use extol_sync::{Condvar, Mutex, thread};

use crate::explore::{below, explore};
use crate::lab::{HOME, Lab, Volume, Work, add, crash, put};
use crate::medium::Medium;

/// Knows the newest byte of each block that changed since it was recorded.
#[derive(Debug, Default)]
pub(crate) struct Board {
    changed: Mutex<BTreeMap<u32, u32>>,
    collects: AtomicU32,
}

impl FastSource for Board {
    fn apply(&self, _: Tid, notes: Option<Notes>, finished: bool) {
        if !finished {
            // Only after an abort.
            return;
        }
        let mut changed = self.changed.lock();
        let notes = notes.and_then(|notes| notes.downcast::<Changes>().ok()).unwrap_or_default();
        changed.extend(*notes);
    }

    fn collect(&self, _: Tid, keys: &[SyncKey]) -> Collected {
        self.collects.fetch_add(1, Ordering::SeqCst);
        if below(8) == 0 {
            return Collected::Full(0);
        }
        let mut changed = self.changed.lock();
        // The twin of an even block changes with it, always.
        let known = keys.iter().filter_map(|key| u32::try_from(key.0).ok());
        let mut wanted: Vec<u32> = known.flat_map(|nr| [nr, nr + 1]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let records: Vec<FcRecord> = wanted
            .into_iter()
            .filter_map(|ino| {
                changed.remove(&ino).map(|byte| FcRecord::DelRange { ino, block: byte, len: 1 })
            })
            .collect();
        drop(changed);
        if records.is_empty() {
            return Collected::Nothing;
        }
        // Sometimes several blocks.
        let filler = FcRecord::Inode { ino: 99, image: vec![1; 800].into() };
        let fillers = if below(3) == 0 { below(3) as usize } else { 0 };
        let records: Vec<_> = records.into_iter().chain(vec![filler; fillers]).collect();
        Collected::Records(FcRecords::encode(&records).unwrap())
    }

    fn closed(&self, _: Tid) -> Box<dyn Any + Send> {
        Box::new(std::mem::take(&mut *self.changed.lock()))
    }

    fn reasons(&self) -> &'static [&'static str] {
        &[]
    }
}

pub(crate) fn lab() -> (Lab, Arc<Board>) {
    let work = if below(2) == 0 { Work::Services } else { Work::Callers };
    let lab = Lab::fast(work);
    let board = Arc::new(Board::default());
    lab.journal.set_fast_source(board.clone());
    if below(4) > 0 {
        // The log is live.
        let mut h = lab.journal.start(1).unwrap();
        put(&mut h, HOME - 1, 1).unwrap();
        h.stop().unwrap();
        lab.journal.commit_all().unwrap();
    }
    (lab, board)
}

pub(crate) fn ask(nr: u64) -> SyncKey {
    SyncKey(nr)
}

/// Blocks that a handle changed, and the newest byte of each.
type Changes = Vec<(u32, u32)>;

fn note(h: &mut Handle, nr: u64, value: u8) {
    if let Some(changes) = h.notes::<Changes>() {
        changes.push((nr as u32, u32::from(value)));
    }
}

/// Fills a block and its twin, and says so.
pub(crate) fn change(journal: &Arc<Journal>, nr: u64, value: u8) -> Result<Tid, JournalError> {
    let mut h = journal.start(2)?;
    for nr in [nr, nr + 1] {
        put(&mut h, nr, value)?;
        note(&mut h, nr, value);
    }
    let tid = h.tid();
    h.stop()?;
    Ok(tid)
}

/// Asks for a fast commit in either form, and waits.
pub(crate) fn durable(journal: &Arc<Journal>, tid: Tid, nr: u64) -> Result<(), JournalError> {
    if below(2) == 0 {
        return journal.make_durable_for(tid, ask(nr));
    }
    let told = Arc::new((Mutex::new(None), Condvar::new()));
    let tells = Arc::clone(&told);
    let done = Box::new(move |result| {
        assert!(tells.0.lock().replace(result).is_none(), "told twice");
        tells.1.notify_all();
    });
    journal.make_durable_for_then(tid, ask(nr), None, done, &mut |job| job());
    let mut result = told.0.lock();
    loop {
        match result.take() {
            Some(result) => return result,
            None => told.1.wait(&mut result),
        }
    }
}

/// Whether file data is written for this version of a block, before the block.
fn has_data(nr: u64, round: u8) -> bool {
    (nr / 2 + u64::from(round)).is_multiple_of(2)
}

/// Makes this version of a block.
fn version(
    journal: &Arc<Journal>,
    medium: &Medium,
    nr: u64,
    round: u8,
) -> Result<Tid, JournalError> {
    if has_data(nr, round) {
        medium.write_at(&[round; 512], (HOME / 2 + nr / 2) * crate::lab::BS as u64).unwrap();
        journal.note_data_write();
    }
    change(journal, nr, round)
}

/// Whatever version of a block there is, its data is there as well, acknowledged or not.
fn data_is_there(after: &Volume) {
    for nr in [0, 2, 4] {
        let newest = (1..=after.at(nr)).rev().find(|round| has_data(nr, *round)).unwrap_or(0);
        assert!(
            after.first_of(HOME / 2 + nr / 2) >= newest,
            "{nr} refers to data that is not there"
        );
    }
}

/// Changes its block again and again, asks for durability one way or the other, and looks what a
/// crash leaves.
fn writer(
    journal: &Arc<Journal>,
    medium: &Medium,
    nr: u64,
    rounds: u8,
) -> Result<(), JournalError> {
    for round in 1..=rounds {
        let tid = version(journal, medium, nr, round)?;
        match below(6) {
            0 => journal.commit_wait(tid)?,
            1 => journal.make_durable(tid)?,
            _ => durable(journal, tid, nr)?,
        }
        let after = crash(medium);
        assert!(after.at(nr) >= round, "acknowledged and lost");
        data_is_there(&after);
        assert_eq!(after.at(nr), after.at(nr + 1), "half a record, or half a transaction");
        if has_data(nr, round) {
            assert!(after.first_of(HOME / 2 + nr / 2) >= round, "its data is lost");
        }
    }
    Ok(())
}

/// Several requests, by fast and by full commits: all are served, what was promised survives.
#[test]
fn fast_and_full() {
    explore("fast_and_full", 1600, || {
        let (mut lab, board) = lab();
        let threads: Vec<_> = [0, 2, 4]
            .map(|nr| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || writer(&journal, &medium, nr, 3).unwrap())
            })
            .into();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let stats = lab.journal.stats().fast_commit;
        assert!(u64::from(board.collects.load(Ordering::SeqCst)) >= stats.commits);
        lab.journal.freeze().unwrap();
        lab.stop_services();
        let after = lab.crash();
        for nr in [0, 2, 4] {
            assert_eq!((after.at(nr), after.at(nr + 1)), (3, 3));
        }
    });
}

/// The same while a thread freezes, turns fast commits off and on, or shuts the journal down.
#[test]
fn fast_commits_disturbed() {
    explore("fast_commits_disturbed", 1600, || {
        let (mut lab, _) = lab();
        let threads: Vec<_> = [0, 2]
            .map(|nr| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || writer(&journal, &medium, nr, 3))
            })
            .into();
        let what = below(4);
        for _ in 0..2 {
            match what {
                0 => {
                    lab.journal.freeze().unwrap();
                    lab.journal.thaw();
                }
                1 => {
                    lab.journal.set_fast_commits(false).unwrap();
                    thread::yield_now();
                    lab.journal.set_fast_commits(true).unwrap();
                }
                2 => {
                    // A handle that asks for much of the log, and one that stays open.
                    let mut h = lab.journal.start(lab.journal.max_credits()).unwrap();
                    add(&mut h, HOME - 2).unwrap();
                    h.stop().unwrap();
                }
                _ => lab.journal.shut_down("by the test"),
            }
        }
        let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        assert!(what == 3 || results.iter().all(Result::is_ok), "{results:?}");
        lab.stop_services();
    });
}

/// Threads that go on before what they asked for is durable: each is told once, by the batch
/// leader, and not before. Beside one that waits, and a thread that freezes, turns fast commits off
/// and on, or shuts the journal down.
#[test]
fn those_that_do_not_wait() {
    const ROUNDS: u8 = 3;
    explore("those_that_do_not_wait", 1600, || {
        let (mut lab, _) = lab();
        let told = Arc::new(AtomicU32::new(0));
        let what = below(5);
        let leaving = [0, 2].map(|nr| {
            let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
            let told = Arc::clone(&told);
            thread::spawn(move || {
                for round in 1..=ROUNDS {
                    let Ok(tid) = version(&journal, &medium, nr, round) else {
                        told.fetch_add(1, Ordering::SeqCst);
                        continue;
                    };
                    let (told, medium) = (Arc::clone(&told), Arc::clone(&medium));
                    let done = Box::new(move |result: Result<(), JournalError>| {
                        told.fetch_add(1, Ordering::SeqCst);
                        assert!(what == 3 || result.is_ok(), "{result:?}");
                        assert!(
                            result.is_err() || crash(&medium).at(nr) >= round,
                            "acknowledged and lost"
                        );
                    });
                    journal.make_durable_for_then(tid, ask(nr), None, done, &mut |job| job());
                }
            })
        });
        let waiting = {
            let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
            thread::spawn(move || writer(&journal, &medium, 4, 2))
        };
        match what {
            0 => {
                lab.journal.freeze().unwrap();
                lab.journal.thaw();
            }
            1 => {
                lab.journal.set_fast_commits(false).unwrap();
                thread::yield_now();
                lab.journal.set_fast_commits(true).unwrap();
            }
            2 => lab.journal.commit_all().unwrap(),
            3 => lab.journal.shut_down("by the test"),
            _ => {}
        }
        assert!(waiting.join().unwrap().is_ok() || what == 3);
        leaving.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(told.load(Ordering::SeqCst), 2 * u32::from(ROUNDS));
        lab.stop_services();
    });
}

/// An operation of the device fails: what is told "durable" is there.
#[test]
fn fast_commits_fail() {
    explore("fast_commits_fail", 1200, || {
        let (mut lab, _) = lab();
        let op = if below(3) == 0 { DeviceOp::Flush } else { DeviceOp::Write };
        let threads: Vec<_> = [0, 2]
            .map(|nr| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                thread::spawn(move || {
                    for round in 1..=3 {
                        let tid = change(&journal, nr, round)?;
                        durable(&journal, tid, nr)?;
                        let after = crash(&medium);
                        assert!(after.at(nr) >= round, "acknowledged and lost");
                        assert_eq!(after.at(nr), after.at(nr + 1));
                    }
                    Ok::<(), JournalError>(())
                })
            })
            .into();
        lab.medium.plan_failure(op, below(6) as u32);
        let ok = threads.into_iter().map(|t| t.join().unwrap()).filter(Result::is_ok).count();
        assert!(ok < 2 || !lab.medium.has_failed() || lab.journal.abort_reason().is_some());
        lab.stop_services();
    });
}

/// The log does not wrap: it begins anew, between commits of both kinds and with handles that wait
/// for room.
#[test]
fn the_log_begins_anew() {
    explore("the_log_begins_anew", 1200, || {
        let (mut lab, _) = lab();
        if below(2) == 0 {
            lab.journal.set_async_checkpoint(extol_jbd2::FreeThreshold::new(99)).unwrap();
        }
        let mut threads = Vec::new();
        for t in 0..2u64 {
            let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
            threads.push(thread::spawn(move || {
                for round in 1..=4u8 {
                    let credits = if t == 0 { journal.max_credits() } else { 2 };
                    let mut h = journal.start(credits).unwrap();
                    for nr in [2 * t, 2 * t + 1] {
                        put(&mut h, nr, round).unwrap();
                        note(&mut h, nr, round);
                    }
                    let tid = h.tid();
                    h.stop().unwrap();
                    if below(3) == 0 {
                        journal.commit_wait(tid).unwrap();
                    } else {
                        durable(&journal, tid, 2 * t).unwrap();
                    }
                    assert!(crash(&medium).at(2 * t) >= round, "acknowledged and lost");
                }
            }));
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        lab.stop_services();
        let after = lab.crash();
        assert_eq!((after.at(0), after.at(2)), (4, 4));
    });
}
