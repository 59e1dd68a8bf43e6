//! Held inode numbers: numbers of deleted inodes that a front end still uses.
//!
//! They are free on disk, but not handed out until the front end has forgotten the old file: two
//! files would have one number there. (A number whose freeing is not durable is *pending*, see
//! `group.rs`.)
//!
//! If all free inodes are held, a creation waits a moment for the front end ([`Held::wait`]): a
//! kernel forgets a file shortly after its last name is gone, and programs should not see an error
//! because of that.
//!
//! Locking: a leaf, taken under a group's lock and under the lock of a shard of the inode table.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use extol_ondisk::InodeNr;
use extol_sync::Condvar;
use extol_sync::plain::Mutex;
use foldhash::fast::RandomState;

/// The held numbers of one volume.
#[derive(Debug, Default)]
pub(super) struct Held {
    numbers: Mutex<HashSet<InodeNr, RandomState>>,
    /// How many. Read without the lock: creations without held numbers take no lock.
    count: AtomicUsize,
    /// A number was released.
    fewer: Condvar,
}

impl Held {
    /// Before the inode is freed.
    pub fn hold(&self, ino: InodeNr) {
        let mut numbers = self.numbers.lock();
        numbers.insert(ino);
        self.count.store(numbers.len(), Ordering::Release);
    }

    /// The number may be handed out.
    pub fn release(&self, ino: InodeNr) {
        let mut numbers = self.numbers.lock();
        numbers.remove(&ino);
        if numbers.capacity() > 1024 && numbers.len() * 8 < numbers.capacity() {
            numbers.shrink_to_fit();
        }
        self.count.store(numbers.len(), Ordering::Release);
        self.fewer.notify_all();
    }

    /// If `free` numbers are held, waits at most so long until fewer are. False if it did not wait
    /// or the time is over.
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

    /// True if the number must not be handed out.
    pub fn holds(&self, ino: InodeNr) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.numbers.lock().contains(&ino)
    }
}
