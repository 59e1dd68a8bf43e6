//! Lock order, checked in debug builds. Every lock of docs/design/lock-order.md has a [`Rank`]; the
//! ranks are listed there and in the enum, outer first. A thread may wait for a lock only if all
//! locks that it holds come before it ([`check`] panics otherwise). So one run in which two threads
//! do *not* meet is enough to show that they could deadlock.
//!
//! Within one rank (`may_follow`): groups ascend, files ascend, and a second directory needs the
//! rename lock, so only one thread at a time holds two. Of every other rank a thread holds one
//! lock.
//!
//! A `try_lock` cannot deadlock and needs no order; it is noted only where the lock stays held
//! ([`note`]). In release builds nothing is checked and [`Held`] is empty.
//!
//! The checks are also the places where a shaken debug build delays a thread (`shake.rs`).

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
#[cfg(debug_assertions)]
use std::panic::Location;

#[cfg(debug_assertions)]
use crate::shake::{Moment, pause};
use crate::{Mutex as Lock, MutexGuard};

macro_rules! ranks {
    ($($(#[$doc:meta])* $rank:ident,)*) => {
        /// A place in the order, outer first.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Rank {
            $($(#[$doc])* $rank,)*
        }

        const RANKS: &[Rank] = &[$(Rank::$rank,)*];
    };
}

ranks! {
    /// Running changes of the volume: a freeze waits for them.
    Gate,
    /// Moves and removals of directories.
    Rename,
    /// A directory.
    Directory,
    /// An inode that is no directory.
    File,
    /// An open journal handle: not a lock, but a commit waits for it.
    Handle,
    /// How many attributes use a value.
    Values,
    /// The list of orphans.
    Orphans,
    /// A shard of the inodes in memory.
    InodeShard,
    /// A quota file: where its entries are.
    Quota,
    /// What limits of a quota file have promised.
    Promises,
    /// A discard of free blocks, or an allocation that is about to fail.
    Trim,
    /// A block group.
    Group,
    /// Reading of group descriptors.
    Descriptors,
    /// The decoded superblock.
    Superblock,
    /// The index of dirty inodes.
    DirtyFiles,
    /// One checkpoint at a time.
    Checkpointing,
    /// The journal's state.
    JournalState,
    /// Committed blocks that are not yet in place.
    CheckpointList,
    /// A shard of the block cache.
    CacheShard,
    /// A cached block.
    Buffer,
    /// Blocks, revokes and callbacks of a transaction.
    TransactionList,
    /// Changes since the last full commit.
    FastCommit,
    /// File data that a batch leader will write.
    Deferred,
    /// Data checksums of the last fast commit.
    DataChecksums,
    /// The superblock of the log.
    LogSuperblock,
    /// A shard of the cache of clean file data. Innermost: every write takes it.
    DataCache,
}

crate::thread_local! {
    static HELD: RefCell<Vec<(Rank, u64)>> = const { RefCell::new(Vec::new()) };
}

/// The note that a thread holds a lock of a rank. Dropping it removes the note.
#[derive(Debug)]
#[must_use]
pub struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
    #[cfg(debug_assertions)]
    place: u64,
    #[cfg(debug_assertions)]
    since: &'static Location<'static>,
}

impl Drop for Held {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        left_since(self.rank, self.place, self.since);
    }
}

/// Called before a wait for a lock: checks the order and notes the lock as held. `place` tells
/// locks of one rank apart.
///
/// # Panics
/// In debug builds, if this thread holds a lock that must be taken later, or this very lock.
#[track_caller]
pub fn enter(rank: Rank, place: u64) -> Held {
    check(rank, place);
    note(rank, place)
}

/// Notes a lock that was taken without waiting.
#[track_caller]
pub fn note(rank: Rank, place: u64) -> Held {
    entered(rank, place);
    Held {
        #[cfg(debug_assertions)]
        rank,
        #[cfg(debug_assertions)]
        place,
        #[cfg(debug_assertions)]
        since: Location::caller(),
    }
}

/// Notes that the thread holds a lock, until [`left`].
pub fn entered(rank: Rank, place: u64) {
    if cfg!(debug_assertions) {
        HELD.with(|held| held.borrow_mut().push((rank, place)));
    }
}

/// Removes that note. Does nothing if another thread made it.
#[track_caller]
pub fn left(rank: Rank, place: u64) {
    #[cfg(debug_assertions)]
    left_since(rank, place, Location::caller());
    #[cfg(not(debug_assertions))]
    let _ = (rank, place);
}

/// As [`left`]; the lock was taken at `since`.
#[cfg(debug_assertions)]
fn left_since(rank: Rank, place: u64, since: &'static Location<'static>) {
    HELD.with(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = held.iter().rposition(|h| *h == (rank, place)) {
            held.remove(at);
        }
    });
    pause(since, Moment::Behind);
}

/// Checks that a thread that holds the locks that this one holds may wait for this lock.
///
/// # Panics
/// In debug builds, if it may not.
#[track_caller]
pub fn check(rank: Rank, place: u64) {
    if cfg!(debug_assertions) {
        let wrong = HELD.with(|held| {
            let held = held.borrow();
            let renaming = held.iter().any(|(r, _)| *r == Rank::Rename);
            held.iter().copied().find(|(r, p)| !may_follow((*r, *p), (rank, place), renaming))
        });
        if let Some((r, p)) = wrong {
            panic!("lock order: {rank:?} {place} wanted while {r:?} {p} is held");
        }
        #[cfg(debug_assertions)]
        pause(Location::caller(), Moment::Before);
    }
}

fn may_follow(held: (Rank, u64), wanted: (Rank, u64), renaming: bool) -> bool {
    match (held.0, wanted.0) {
        (Rank::Directory, Rank::Directory) => renaming && held.1 != wanted.1,
        (Rank::File, Rank::File) | (Rank::Group, Rank::Group) => held.1 < wanted.1,
        (held, wanted) => held < wanted,
    }
}

/// True if this thread holds a lock of that rank. Always false in release builds.
#[must_use]
pub fn holds(rank: Rank) -> bool {
    cfg!(debug_assertions) && HELD.with(|held| held.borrow().iter().any(|(r, _)| *r == rank))
}

/// A guard together with its rank.
#[derive(Debug)]
pub struct Ranked<G> {
    guard: G,
    _held: Held,
}

impl<G> Ranked<G> {
    /// A guard that was taken after [`enter`] gave `held`.
    pub fn new(guard: G, held: Held) -> Self {
        Self { guard, _held: held }
    }

    /// The bare guard, for a condition variable. It keeps its rank during the wait: the thread does
    /// nothing else.
    pub fn bare(&mut self) -> &mut G {
        &mut self.guard
    }
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A mutex of a rank (`{ Rank::… as u8 }`), of which a thread holds one at a time.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8>(Lock<T>);

/// A held [`Mutex`].
pub type Guard<'a, T> = Ranked<MutexGuard<'a, T>>;

impl<T, const RANK: u8> Mutex<T, RANK> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(Lock::new(value))
    }

    /// Waits for the lock and takes it.
    #[track_caller]
    pub fn lock(&self) -> Guard<'_, T> {
        // (A rank that is missing in the list does not compile.)
        let held = enter(const { rank_of(RANK) }, 0);
        Ranked::new(self.0.lock(), held)
    }
}

const fn rank_of(number: u8) -> Rank {
    RANKS[number as usize]
}

#[cfg(all(test, debug_assertions, not(feature = "model")))]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    fn refused(held: &[(Rank, u64)], wanted: (Rank, u64)) -> bool {
        let _held: Vec<_> = held.iter().map(|(r, p)| note(*r, *p)).collect();
        catch_unwind(|| enter(wanted.0, wanted.1)).is_err()
    }

    #[test]
    fn numbers_are_ranks() {
        for &rank in RANKS {
            assert_eq!(rank_of(rank as u8), rank);
        }
    }

    #[test]
    fn outer_before_inner_and_never_twice() {
        for (i, &outer) in RANKS.iter().enumerate() {
            for &inner in RANKS.iter().skip(i + 1) {
                assert!(!refused(&[(outer, 1)], (inner, 0)), "{inner:?} in {outer:?}");
                assert!(refused(&[(inner, 0)], (outer, 1)), "{outer:?} in {inner:?}");
            }
            assert!(refused(&[(outer, 1)], (outer, 1)), "{outer:?} twice");
        }
        assert!(HELD.with(|held| held.borrow().is_empty()), "everything was given back");
    }

    #[test]
    fn order_within_a_rank() {
        for rank in [Rank::File, Rank::Group] {
            assert!(!refused(&[(rank, 3)], (rank, 4)));
            assert!(refused(&[(rank, 4)], (rank, 3)), "{rank:?} must ascend");
        }
        let two = [(Rank::Directory, 2)];
        assert!(refused(&two, (Rank::Directory, 9)), "two directories without the rename lock");
        assert!(!refused(&[(Rank::Rename, 0), two[0]], (Rank::Directory, 9)));
        assert!(
            !refused(&[(Rank::Rename, 0), two[0]], (Rank::Directory, 1)),
            "a child has any number"
        );
        assert!(
            refused(&[(Rank::Rename, 0), (Rank::File, 5)], (Rank::Directory, 9)),
            "directories come first"
        );
    }

    #[test]
    fn guards_hold_their_rank() {
        let outer: Mutex<u8, { Rank::Trim as u8 }> = Mutex::new(1);
        let inner: Mutex<u8, { Rank::Superblock as u8 }> = Mutex::default();
        {
            let a = outer.lock();
            let mut b = inner.lock();
            *b += *a;
            drop(a);
            assert!(holds(Rank::Superblock) && !holds(Rank::Trim), "given back in any order");
            assert!(catch_unwind(std::panic::AssertUnwindSafe(|| drop(outer.lock()))).is_err());
        }
        assert_eq!(*inner.lock(), 1);
        drop(outer.lock());
    }
}
