//! Names that were found or made, for who looks for them again.
//!
//! A path begins with the same few directories over and over, and on all processors. To look a name
//! up takes the table of inodes, the directory's lock and a search in its blocks: half a dozen
//! words that all threads write, and the search. Where a name leads is therefore noted, and who
//! asks again writes nothing but the count of references on what he finds.
//!
//! ```text
//!   LOOKUP n   (read lock)   searched: inode 12       ──► slot of (directory, n): sequence 6, inode 12
//!   LOOKUP n   (no lock)     12, sequence 6           ──► takes a reference on 12
//!                            the sequence is still 6? ──► yes: 12 it is.  no: gives it back and searches
//!   UNLINK n   (write lock)  slot erased: sequence 8  ──► the change  ──► does anybody refer to 12?
//! ```
//!
//! Invariants
//! - K1: what is noted is so, and stays so until the directory's lock is taken for a change: who
//!   [remembers](Known::remember) has the lock.
//! - K2: who takes a name away or has it lead elsewhere has the lock for a change and erases the
//!   slot first (`dir::remove`, `dir::remove_at`, `dir::replace`; nothing else changes where a name
//!   leads).
//! - K3: first the reference is taken, then the sequence number is read again
//!   (`ops::names::refer`). A reference and the question whether there is one take the lock of the
//!   inode's shard. If the reference was first, whoever takes the name away sees it, and if not,
//!   whoever takes the reference sees the slot that was erased before the question.
//! - K4: who takes no reference (`ops::names::glance`) reads the sequence numbers of all names on
//!   his way again when he is done. They are the same: so there was a moment, between the last of
//!   the first readings and the first of these, at which the whole way was so. (Who sees something
//!   that was written behind an erasure has taken a lock, or read a slot, that was given back or
//!   written behind it, and sees the erasure.)
//!
//! Odd cases
//! - Names share slots, two each, and one replaces the other. A slot has the whole name, so nothing
//!   is found that is not there. Two who note the same name at the same time may do so in both of
//!   its slots; who erases it looks into both.
//! - A slot is read while it is written: its sequence number is odd or has changed, and the name is
//!   searched for. It is to be erased while it is written: what is written is another name, for
//!   nobody else comes to this one, so it is as good as erased.
//! - A reference on an inode that the name led to once, and somebody deletes: as if it were known
//!   for that moment.
//! - `.` and `..` are not noted: a directory's `..` changes when it is moved. Nor are names of more
//!   than [`LONGEST`] bytes.
//! - On a damaged volume two directories may share a block. A name that is taken away in one stays
//!   known in the other, and leads to an inode that is free (an error) or somebody else's, as the
//!   block would for who has read it before.
//!
//! Locking: none. Readers wait for nobody, and who comes to a slot that is just being written notes
//! nothing.

use std::array::from_fn;
use std::hash::BuildHasher as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;

/// Longest name that is noted: a slot is one line of the processor's cache.
pub(crate) const LONGEST: usize = WORDS * 8;
const WORDS: usize = 4;
/// Most names, 1 MiB.
const MOST: usize = 1 << 14;

/// Where a name led, the slot that said so, and what its sequence number was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sighting {
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
        if name.is_empty() || name.len() > LONGEST || matches!(name, b"." | b"..") {
            return None;
        }
        let mut bytes = [0; LONGEST];
        bytes[..name.len()].copy_from_slice(name);
        let (words, _) = bytes.as_chunks();
        Some(Self { dir, len: name.len() as u32, name: from_fn(|i| u64::from_ne_bytes(words[i])) })
    }

    /// Directory and length in one word. Never 0.
    fn head(&self) -> u64 {
        u64::from(self.dir) << 32 | u64::from(self.len)
    }
}

/// One name. Odd sequence number: it is being written. Everything is written with `Release` and
/// read with `Acquire`, so who sees a word of a later writer sees that writer's sequence number,
/// too.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    sequence: AtomicU64,
    /// Directory and length of the name; 0: no name.
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

    fn is_free(&self) -> bool {
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

    /// Does `work` with an odd sequence number, unless somebody else is at it.
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

    fn erase(&self, key: &Key) {
        if self.is_of(key) {
            self.change(|| self.head.store(0, Ordering::Release));
        }
    }
}

/// See the module's story.
#[derive(Debug)]
pub(crate) struct Known {
    /// How many slots: a power of two.
    size: usize,
    /// Made when the first name is noted.
    slots: OnceLock<Box<[Slot]>>,
    hasher: RandomState,
}

impl Default for Known {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Known {
    /// Room for about so many names.
    pub fn new(names: usize) -> Self {
        let size = names.clamp(64, MOST).next_power_of_two();
        Self { size, slots: OnceLock::new(), hasher: RandomState::default() }
    }

    /// Where the name leads, as far as is known. That is so for who refers to the inode and then
    /// finds that it still [holds](Self::holds).
    pub fn recall(&self, dir: u32, name: &[u8]) -> Option<Sighting> {
        let key = Key::of(dir, name)?;
        let slots = self.slots.get()?;
        self.places(&key).into_iter().find_map(|slot| {
            let (ino, sequence) = slots[slot].read(&key)?;
            Some(Sighting { ino, slot, sequence })
        })
    }

    /// True if nobody took the name away since.
    pub fn holds(&self, sighting: Sighting) -> bool {
        self.slots.get().is_some_and(|slots| slots[sighting.slot].is_at(sighting.sequence))
    }

    /// A name leads there; for those who have the directory's lock.
    pub fn remember(&self, dir: u32, name: &[u8], ino: u32) {
        if let Some(key) = Key::of(dir, name) {
            let slots =
                self.slots.get_or_init(|| (0..self.size).map(|_| Slot::default()).collect());
            let places = self.places(&key);
            let its = places.into_iter().find(|at| slots[*at].is_of(&key));
            let free = || places.into_iter().find(|at| slots[*at].is_free());
            slots[its.or_else(free).unwrap_or(places[0])].write(&key, ino);
        }
    }

    /// The name will lead elsewhere or nowhere; for those who have the directory's lock for a
    /// change.
    pub fn erase(&self, dir: u32, name: &[u8]) {
        if let (Some(slots), Some(key)) = (self.slots.get(), Key::of(dir, name)) {
            self.places(&key).into_iter().for_each(|at| slots[at].erase(&key));
        }
    }

    /// The slots in which this name may be: two, so that two names that are looked for in turn
    /// seldom drive each other out.
    fn places(&self, key: &Key) -> [usize; 2] {
        let at = self.hasher.hash_one(key) as usize & (self.size - 1);
        [at, at ^ 1]
    }
}

#[cfg(test)]
mod tests;
