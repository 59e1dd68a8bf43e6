//! Writeback: when dirty pages go to the device.
//!
//! | trigger | what is written |
//! |---|---|
//! | fsync | the file |
//! | sync, unmount | all files |
//! | more than `dirty_bytes` dirty | the file that is being written, by its writer |
//! | the service, every second | files dirty for longer than 5 s |
//! | the service, above one half of the limit | the oldest files, down to three eighths |
//!
//! The limit is `dirty_bytes`, or as many dirty inodes as the inode table holds. Above three
//! quarters of `dirty_bytes`, in many files, the service runs at once.
//!
//! The oldest files go first, and only as many as make room: new data is often changed again or
//! deleted before it must go to the device. Small new files go in batches
//! ([`batch`](super::batch)).
//!
//! The service also makes the looks at the device that requests want ([`crate::look`]).
//!
//! Locking: a flush holds the lock of its inode.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use extol_task::{Progress, Service};
use extol_vfs::Result;

use super::batch::{MAX_FILES, flush_files};
use super::dirty::sort;
use super::flush::flush;
use crate::mounted::MountedFs;

/// How long data may stay in memory only. Linux waits 30 s, but its pages take part in the system's
/// memory reclaim; those of a process do not.
const MAX_AGE_NS: u64 = 5_000_000_000;
const PERIOD: Duration = Duration::from_secs(1);
/// From so many dirty files on, memory pressure wakes the service: writers of few files write back
/// themselves, in large writes.
const MANY: usize = 64;

/// More than `eighths` of the limit on dirty bytes or inodes is reached.
fn exceeds(fs: &MountedFs, eighths: usize) -> bool {
    fs.dirty.bytes() > fs.runtime.dirty_bytes.load() / 8 * eighths
        || fs.dirty.len() > fs.table.capacity() / 8 * eighths
}

/// After a write: wakes the service if many files make much dirty.
pub(crate) fn wake_if_needed(fs: &MountedFs) {
    let dirty = &fs.dirty;
    let much = dirty.bytes() > fs.runtime.dirty_bytes.load() / 8 * 6;
    if much && fs.threads && !dirty.woken.load(Ordering::Relaxed) && dirty.len() >= MANY {
        dirty.woken.store(true, Ordering::Relaxed);
        dirty.service.wake();
    }
}

/// Writes back all files. Returns the first error after trying all.
pub(crate) fn flush_all(fs: &MountedFs) -> Result<()> {
    let mut result = Ok(());
    flush_files(fs, &fs.dirty.all(), &mut |flushed| {
        if result.is_ok() {
            result = flushed;
        }
    });
    result
}

/// Writes back every inode whose lock is free; for callers that hold inode locks.
pub(crate) fn flush_unlocked(fs: &MountedFs) {
    for cell in fs.dirty.all() {
        if let Some(mut st) = cell.try_write() {
            // On an error the pages stay (WB-3).
            let _ = flush(fs, &mut st);
        }
    }
}

/// The writeback service.
#[derive(Debug)]
pub(crate) struct Writeback(pub Weak<MountedFs>);

impl Service for Writeback {
    fn step(&mut self) -> Progress {
        let Some(fs) = self.0.upgrade() else { return Progress::Idle(None) };
        fs.look_if_wanted();
        if fs.check_writable().is_err() {
            return Progress::Idle(Some(PERIOD));
        }
        fs.dirty.woken.store(false, Ordering::Relaxed);
        let due = fs.clock.now_ns().saturating_sub(MAX_AGE_NS);
        let above_half = exceeds(&fs, 4);
        for oldest in
            fs.dirty.dirty_since(if above_half { u64::MAX } else { due }).chunks(MAX_FILES)
        {
            let make_room = above_half && exceeds(&fs, 3);
            let wanted = oldest.iter().filter(|(since, _)| make_room || *since <= due);
            let mut cells: Vec<_> = wanted.map(|(_, cell)| Arc::clone(cell)).collect();
            if cells.is_empty() {
                break;
            }
            sort(&mut cells);
            flush_files(&fs, &cells, &mut |flushed| {
                // The inode's pages and the journal keep the error; fsync reports it.
                let _ = fs.note(flushed);
            });
        }
        Progress::Idle(Some(PERIOD))
    }
}
