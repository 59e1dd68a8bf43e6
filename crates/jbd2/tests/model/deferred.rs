//! Data that is left to the leader of a commit, beside threads that need it on the device at once.

use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr, DeviceOp};
use extol_jbd2::{DeferredWrite, Journal, JournalError};
use extol_ondisk::fast_commit::DataChecksum;
use extol_sync::{Mutex, thread};

use crate::explore::{below, explore};
use crate::fast::{change, durable, lab};
use crate::lab::{BS, HOME, Lab, Volume, crash};
use crate::medium::Medium;

/// A file: the block that its data fills, and what of it may not be on the device. The lock is that
/// of the inode.
#[derive(Default)]
struct File {
    deferred: Mutex<Option<DeferredWrite>>,
    /// Its data has no checksums.
    ordered: bool,
}

fn files(count: usize, ordered: bool) -> Vec<Arc<File>> {
    (0..count).map(|_| Arc::new(File { ordered, ..File::default() })).collect()
}

fn block(nr: u64) -> BlockNr {
    BlockNr(HOME / 2 + nr / 2)
}

/// Writes the file's data, its block and the block's twin again and again. `alone`: sometimes
/// without leaving the data to others. What is acknowledged is there after any crash, and whatever
/// is there has its data.
fn writer(
    journal: &Arc<Journal>,
    medium: &Medium,
    file: &File,
    nr: u64,
    alone: bool,
) -> Result<(), JournalError> {
    for round in 1..=2 {
        let (tid, deferred) = {
            let mut last = file.deferred.lock();
            if let Some(last) = last.take() {
                last.finish();
            }
            let data = vec![round; BS];
            journal.about_to_overwrite(block(nr), 1, |w| w.matches(&data))?;
            let checksum = DataChecksum::of(block(nr), &data);
            if alone && below(4) == 0 {
                medium.write_at(&data, block(nr).offset(journal.block_size())).unwrap();
                journal.note_checksummed_write(&[checksum]);
            } else if file.ordered {
                *last = Some(journal.defer_ordered(block(nr), data));
            } else {
                *last = Some(journal.defer(block(nr), data, vec![checksum]));
            }
            (change(journal, nr, round)?, last.clone())
        };
        match below(5) {
            0 => journal.commit_wait(tid)?,
            1 => journal.make_durable(tid)?,
            _ => durable(journal, tid, nr)?,
        }
        if let Some(deferred) = deferred {
            deferred.make_durable()?;
        }
        let after = crash(medium);
        assert!(after.at(nr) >= round, "acknowledged and lost");
        assert!(after.first_of(block(nr).0) >= round, "its data is lost");
        whatever_counts_has_its_data(&after);
    }
    Ok(())
}

fn whatever_counts_has_its_data(after: &Volume) {
    for nr in [0, 2, 4] {
        let data = after.first_of(block(nr).0);
        assert!(data >= after.at(nr), "{nr} counts without its data: {data}, not {}", after.at(nr));
    }
}

/// Sometimes without fast commits.
fn some_lab() -> Lab {
    if below(4) == 0 { Lab::any() } else { lab().0 }
}

/// Takes the file's lock, and finds the data on the device.
fn reader(medium: &Medium, journal: &Journal, file: &File, nr: u64) {
    for _ in 0..2 {
        let deferred = file.deferred.lock();
        if let Some(deferred) = &*deferred {
            deferred.finish();
            let mut byte = [0];
            medium.read_at(&mut byte, block(nr).offset(journal.block_size())).unwrap();
            assert!(deferred.is_written() && byte[0] > 0, "not on the device");
        }
        drop(deferred);
        thread::yield_now();
    }
}

fn with_those_that_need_it(ordered: bool) {
    let mut lab = some_lab();
    let files = files(3, ordered);
    let mut threads: Vec<_> = (0..3u64)
        .map(|i| {
            let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
            let file = Arc::clone(&files[i as usize]);
            thread::spawn(move || writer(&journal, &medium, &file, 2 * i, true).unwrap())
        })
        .collect();
    let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
    let file = Arc::clone(&files[0]);
    threads.push(match below(4) {
        0 => thread::spawn(move || reader(&medium, &journal, &file, 0)),
        1 => thread::spawn(move || journal.flush_data().unwrap()),
        2 => thread::spawn(move || {
            for _ in 0..12 {
                whatever_counts_has_its_data(&crash(&medium));
                thread::yield_now();
            }
        }),
        _ => thread::spawn(move || {
            journal.freeze().unwrap();
            journal.thaw();
        }),
    });
    threads.into_iter().for_each(|t| t.join().unwrap());
    lab.journal.freeze().unwrap();
    lab.stop_services();
    let after = lab.crash();
    for nr in [0, 2, 4] {
        assert_eq!((after.at(nr), after.first_of(block(nr).0)), (2, 2));
    }
}

#[test]
fn deferred_data_and_those_that_need_it() {
    explore("deferred_data_and_those_that_need_it", 1600, || with_those_that_need_it(false));
}

#[test]
fn ordered_data_and_those_that_need_it() {
    explore("ordered_data_and_those_that_need_it", 1600, || with_those_that_need_it(true));
}

/// An operation of the device fails: what is told "durable" is there, and no thread waits for ever.
#[test]
fn deferred_data_fails() {
    explore("deferred_data_fails", 1200, || {
        let mut lab = some_lab();
        let op = if below(3) == 0 { DeviceOp::Flush } else { DeviceOp::Write };
        let files = files(2, below(2) == 0);
        let threads: Vec<_> = (0..2u64)
            .map(|i| {
                let (journal, medium) = (Arc::clone(&lab.journal), Arc::clone(&lab.medium));
                let file = Arc::clone(&files[i as usize]);
                thread::spawn(move || writer(&journal, &medium, &file, 2 * i, false))
            })
            .collect();
        lab.medium.plan_failure(op, below(6) as u32);
        let ok = threads.into_iter().map(|t| t.join().unwrap()).filter(Result::is_ok).count();
        // The write that failed may have been a service's, which aborts before it ends.
        lab.stop_services();
        assert!(ok < 2 || !lab.medium.has_failed() || lab.journal.abort_reason().is_some());
    });
}
