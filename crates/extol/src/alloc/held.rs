//! Numbers of deleted inodes by which a front end still means the deleted files.
//!
//! They are free on disk and nobody gets them, until the front end has forgotten the old file: else
//! two files would have one number there. (A number that is free but not durably so is the business
//! of `pending` in `group.rs`.)
//!
//! On a volume whose last free inodes are all held, who makes a file waits a moment for the front
//! end ([`Held::wait`]): a kernel forgets a file a little after its name is gone, and its users
//! should not see that.
//!
//! Locking: a leaf; looked at under a group's lock, and under the lock of a shard of the inodes in
//! memory.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use extol_ondisk::InodeNr;
use extol_sync::Condvar;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// See the module's story.
#[derive(Debug, Default)]
pub(super) struct Held {
    numbers: Mutex<HashSet<InodeNr, RandomState>>,
    /// How many; read without the lock, so that a creation costs none as long as there are none.
    count: AtomicUsize,
    /// A number was let go.
    fewer: Condvar,
}

impl Held {
    /// Before the inode is freed.
    pub fn hold(&self, ino: InodeNr) {
        let mut numbers = self.numbers.lock();
        numbers.insert(ino);
        self.count.store(numbers.len(), Ordering::Release);
    }

    /// Anybody may have it.
    pub fn let_go(&self, ino: InodeNr) {
        let mut numbers = self.numbers.lock();
        numbers.remove(&ino);
        if numbers.capacity() > 1024 && numbers.len() * 8 < numbers.capacity() {
            numbers.shrink_to_fit();
        }
        self.count.store(numbers.len(), Ordering::Release);
        self.fewer.notify_all();
    }

    /// Waits until fewer than `free` numbers are held, if as many are; false if there are none, or
    /// time is over.
    pub fn wait(&self, free: u64, most: Duration) -> bool {
        let mut numbers = self.numbers.lock();
        if free == 0 || (numbers.len() as u64) < free {
            return false;
        }
        let end = Instant::now() + most;
        while numbers.len() as u64 >= free {
            if self.fewer.wait_until(&mut numbers, end).timed_out() {
                return (numbers.len() as u64) < free;
            }
        }
        true
    }

    /// True if nobody may have it.
    pub fn holds(&self, ino: InodeNr) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.numbers.lock().contains(&ino)
    }
}
