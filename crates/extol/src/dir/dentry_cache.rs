//! The dentry cache: where names lead, and which names are missing.
//!
//! A path begins with the same few directories over and over, and on all processors. A search takes
//! the inode table, the directory's lock and blocks of the directory: half a dozen words that all
//! threads write. The cache keeps the result, and a lookup that finds it there writes only the
//! count of references of the inode. A *positive* dentry gives the inode of a name, a *negative*
//! one says that the directory has no such name.
//!
//! ```text
//!   LOOKUP n   (read lock)   searched: inode 12       ──► slot of (directory, n): seq 6, inode 12
//!   LOOKUP n   (no lock)     12, sequence 6           ──► takes a reference on 12
//!                            the sequence is still 6? ──► yes: found
//!                                                         no:  drops the reference and searches
//!   UNLINK n   (write lock)  slot emptied: sequence 8 ──► the change  ──► is 12 referenced?
//!
//!   LOOKUP m  (read lock)   searched: none          ──► slot of (directory, m): negative
//!   LOOKUP m  (read lock)   negative                ──► ENOENT, no search
//!   CREATE m  (write lock)  slot emptied            ──► searched, added ──► slot: inode 13
//! ```
//!
//! The cache is one table of slots, made when the first name is noted: at most 1 MiB. A name has
//! two slots; a new name takes a free one or replaces the name in the first.
//!
//! Invariants
//! - DC-1: a dentry says what the directory says until the directory's lock is taken for a change:
//!   [`DentryCache::insert`] and [`DentryCache::insert_negative`] are called with that lock held.
//! - DC-2: each change of a name empties its slots first, with the lock held for a change:
//!   `dir::add`, `dir::add_at`, `dir::remove`, `dir::remove_at`, `dir::replace`, `dir::renumber`.
//!   Nothing else changes where a name leads. (A directory that gets another number takes its names
//!   along: they are forgotten under both, `resize/shrink/inodes.rs`.)
//! - DC-3: a lookup takes the reference first and then reads the sequence number again
//!   (`ops::names::refer`). A reference and the question whether there is one take the lock of the
//!   inode's shard. If the reference is first, the thread that removes the name sees it; if not,
//!   the lookup sees the slot that was emptied before the question.
//! - DC-4: a lookup without a reference (`ops::names::lookup_cached`) reads the sequence numbers of
//!   all names of the path again at its end. They are the same: so there was a moment, between the
//!   last of the first readings and the first of these, at which the whole path was so. (A thread
//!   that sees a value written after a slot was emptied has taken a lock, or read a slot, that was
//!   released or written after it, and sees the empty slot.)
//! - DC-5: a negative dentry counts only under the directory's lock (`ops::names::lookup`): the
//!   number may be that of another kind of file by now, and that is looked at under the lock.
//!
//! Odd cases
//! - A slot holds the whole name, so names that share slots are never mistaken for each other. Two
//!   threads that note the same name at once may use both of its slots; removal empties both.
//! - A slot is read while it is written: its sequence number is odd or has changed, and the lookup
//!   searches. It is to be emptied while it is written: the writer is writing another name, since
//!   the directory's lock keeps this one away, so it is as good as empty.
//! - A reference on an inode to which the name led once and that is being deleted: as if the inode
//!   had been referenced for that moment.
//! - `.` and `..` are not noted: a directory's `..` changes when it is moved. Nor are names longer
//!   than [`MAX_LEN`].
//! - A casefolded directory has no dentries (`dir/known.rs`). Those of the time before it was one
//!   are negative, since it was empty, and are not asked for.
//! - A directory is deleted: its positive dentries went with its names. Negative ones may stay, and
//!   are right for the next directory with this number, which begins empty and obeys DC-2.
//! - On a damaged volume two directories may share a block. A name that is removed in one stays
//!   cached in the other, and leads to an inode that is free (an error) or another file, as the
//!   block itself would for a thread that has read it before.
//!
//! Locking: none. Readers never wait. A writer that comes to a slot that is being written notes
//! nothing.

use std::array::from_fn;
use std::hash::BuildHasher as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

/// Longest name that is cached: a slot is one cache line.
pub(crate) const MAX_LEN: usize = WORDS * 8;
const WORDS: usize = 4;
/// Most slots: 1 MiB.
const MAX_SLOTS: usize = 1 << 14;
/// The inode of a negative dentry.
const NEGATIVE: u32 = 0;

/// A positive dentry: the inode, and the slot and sequence number that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dentry {
    pub ino: u32,
    slot: usize,
    sequence: u64,
}

/// A name as words, filled up with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    dir: u32,
    len: u32,
    name: [u64; WORDS],
}

impl Key {
    fn of(dir: u32, name: &[u8]) -> Option<Self> {
        if name.is_empty() || name.len() > MAX_LEN || matches!(name, b"." | b"..") {
            return None;
        }
        let mut bytes = [0; MAX_LEN];
        bytes[..name.len()].copy_from_slice(name);
        let (words, _) = bytes.as_chunks();
        Some(Self { dir, len: name.len() as u32, name: from_fn(|i| u64::from_ne_bytes(words[i])) })
    }

    /// Directory and length in one word. Never 0.
    fn head(&self) -> u64 {
        u64::from(self.dir) << 32 | u64::from(self.len)
    }
}

/// One name. An odd sequence number: it is being written. Everything is written with `Release` and
/// read with `Acquire`, so a reader that sees a word of a later writer sees that writer's sequence
/// number, too.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    sequence: AtomicU64,
    /// Directory and length of the name; 0: empty.
    head: AtomicU64,
    name: [AtomicU64; WORDS],
    ino: AtomicU64,
}

impl Slot {
    fn is_of(&self, key: &Key) -> bool {
        self.head.load(Ordering::Acquire) == key.head()
            && self
                .name
                .iter()
                .zip(key.name)
                .all(|(word, of_key)| word.load(Ordering::Acquire) == of_key)
    }

    fn is_empty(&self) -> bool {
        self.head.load(Ordering::Relaxed) == 0
    }

    /// The inode, and the sequence number that goes with it.
    fn read(&self, key: &Key) -> Option<(u32, u64)> {
        let sequence = self.sequence.load(Ordering::Acquire);
        if !sequence.is_multiple_of(2) || !self.is_of(key) {
            return None;
        }
        let ino = u32::try_from(self.ino.load(Ordering::Acquire)).ok()?;
        self.is_at(sequence).then_some((ino, sequence))
    }

    fn is_at(&self, sequence: u64) -> bool {
        self.sequence.load(Ordering::Relaxed) == sequence
    }

    /// Runs `work` with an odd sequence number, unless another thread is writing.
    fn change(&self, work: impl FnOnce()) {
        let before = self.sequence.load(Ordering::Relaxed);
        let odd = |now| {
            self.sequence.compare_exchange(now, now + 1, Ordering::Acquire, Ordering::Relaxed)
        };
        if before.is_multiple_of(2) && odd(before).is_ok() {
            work();
            self.sequence.store(before + 2, Ordering::Release);
        }
    }

    fn write(&self, key: &Key, ino: u32) {
        self.change(|| {
            self.head.store(key.head(), Ordering::Release);
            for (word, of_key) in self.name.iter().zip(key.name) {
                word.store(of_key, Ordering::Release);
            }
            self.ino.store(ino.into(), Ordering::Release);
        });
    }

    fn empty(&self, key: &Key) {
        if self.is_of(key) {
            self.change(|| self.head.store(0, Ordering::Release));
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct DentryCache {
    /// Number of slots: a power of two.
    size: usize,
    slots: OnceLock<Box<[Slot]>>,
    hasher: RandomState,
}

impl Default for DentryCache {
    fn default() -> Self {
        Self::new(0)
    }
}

impl DentryCache {
    /// A cache of about `names` names.
    pub fn new(names: usize) -> Self {
        let size = names.clamp(64, MAX_SLOTS).next_power_of_two();
        Self { size, slots: OnceLock::new(), hasher: RandomState::default() }
    }

    /// The positive dentry of a name. It holds for a caller that takes a reference on the inode and
    /// then finds it still [valid](Self::is_valid).
    pub fn positive(&self, dir: u32, name: &[u8]) -> Option<Dentry> {
        self.find(dir, name).filter(|dentry| dentry.ino != NEGATIVE)
    }

    /// True if the directory is known not to have the name. Called with its lock held (DC-5).
    pub fn is_negative(&self, dir: u32, name: &[u8]) -> bool {
        self.find(dir, name).is_some_and(|dentry| dentry.ino == NEGATIVE)
    }

    /// True if the name has led to the inode ever since the dentry was read.
    pub fn is_valid(&self, dentry: Dentry) -> bool {
        self.slots.get().is_some_and(|slots| slots[dentry.slot].is_at(dentry.sequence))
    }

    /// Notes that a name leads to an inode. Called with the directory's lock held (DC-1).
    pub fn insert(&self, dir: u32, name: &[u8], ino: u32) {
        if let Some(key) = Key::of(dir, name) {
            let slots =
                self.slots.get_or_init(|| (0..self.size).map(|_| Slot::default()).collect());
            let places = self.places(&key);
            let its = places.into_iter().find(|at| slots[*at].is_of(&key));
            let empty = || places.into_iter().find(|at| slots[*at].is_empty());
            slots[its.or_else(empty).unwrap_or(places[0])].write(&key, ino);
        }
    }

    /// Notes that a directory has no such name. Called with its lock held (DC-1).
    pub fn insert_negative(&self, dir: u32, name: &[u8]) {
        self.insert(dir, name, NEGATIVE);
    }

    /// A name is about to change. Called with the directory's lock held for a change (DC-2).
    pub fn remove(&self, dir: u32, name: &[u8]) {
        if let (Some(slots), Some(key)) = (self.slots.get(), Key::of(dir, name)) {
            self.places(&key).into_iter().for_each(|at| slots[at].empty(&key));
        }
    }

    fn find(&self, dir: u32, name: &[u8]) -> Option<Dentry> {
        let key = Key::of(dir, name)?;
        let slots = self.slots.get()?;
        self.places(&key).into_iter().find_map(|slot| {
            let (ino, sequence) = slots[slot].read(&key)?;
            Some(Dentry { ino, slot, sequence })
        })
    }

    /// The slots in which a name may be: two, so that two names that are looked up in turn seldom
    /// replace each other.
    fn places(&self, key: &Key) -> [usize; 2] {
        let at = self.hasher.hash_one(key) as usize & (self.size - 1);
        [at, at ^ 1]
    }
}

#[cfg(test)]
mod tests;
