//! Fast commits: an fsync that writes what changed as a few records, not the blocks that hold them.
//!
//! ```text
//!   ordinary log                      fast-commit area
//!   … | T-2 | T-1 |                   | HEAD(T) TAIL | records TAIL | records TAIL | zeros or old …
//!               └ base                   fast commits of the running transaction T, each on top of those before
//! ```
//!
//! The journal does not know what a record means. Operations tell their handle what they changed
//! ([`Delta`]); when the handle ends, all its deltas reach the file system's [`FastSource`] at
//! once, tagged with the handle's transaction. An fsync then asks for one inode ([`Ask`]); the
//! leader collects from the source what all waiting asks need, on top of the last full commit and
//! the fast commits since, and writes that as one chain of blocks. What cannot be said in records
//! is committed in full, and the source says why ([`Reason`]).
//!
//! The source keeps its own copies, so no inode and no handle is waited for, and operations go on
//! all the while.

mod area;
mod between;
mod fua;
mod lead;
mod pledge;
mod queue;
mod reason;
mod record;
mod stats;
#[cfg(test)]
mod tests;
mod witness;

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use extol_block::BlockNr;
use extol_sync::Condvar;
use extol_sync::atomic::{AtomicBool, Ordering};

pub(crate) use area::Area;
pub use fua::FuaPolicy;
pub use pledge::{Done, Job};
pub(crate) use queue::{Queue, Seat};
pub use reason::Reason;
pub use record::{FcEntry, FcRecord};
pub use stats::FastCommitStats;
pub(crate) use stats::FastCounters;
pub use witness::Witness;
pub(crate) use witness::{MOST as MOST_WITNESSES, Witnesses};

use crate::journal::Journal;
use crate::types::{JournalError, Result, Tid};

/// One change that an operation made. Everything is as it is behind the operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Delta {
    /// The inode was written into its slot.
    Inode {
        /// Inode.
        ino: u32,
        /// The bytes of the slot that a record carries: 128 and the extra size.
        image: Arc<[u8]>,
        /// The slot held no inode in use before.
        born: bool,
        /// fdatasync must make it durable, too.
        data: bool,
        /// Links that the image counts.
        links: u16,
    },
    /// A name came, went, or leads elsewhere.
    Name {
        /// Directory.
        dir: u32,
        /// Name.
        name: Arc<[u8]>,
        /// Inode that it led to before.
        was: Option<u32>,
        /// Inode that it leads to now.
        is: Option<u32>,
    },
    /// Blocks of a file are mapped (anew, or with another state) in one run.
    Mapped {
        /// Inode.
        ino: u32,
        /// First logical block.
        lblk: u32,
        /// Blocks.
        len: u32,
        /// First physical block.
        start: u64,
        /// They read as zeros.
        unwritten: bool,
    },
    /// Blocks of a file are a hole now.
    Unmapped {
        /// Inode.
        ino: u32,
        /// First logical block.
        lblk: u32,
        /// Blocks; `u32::MAX - lblk` means to the end.
        len: u32,
    },
    /// A directory block was touched that names share. Whether names fit into it when they are
    /// replayed is known only for the gaps that it had before the transaction.
    Room {
        /// Directory.
        dir: u32,
        /// Which of its blocks; 0 if all of them take any name.
        leaf: u64,
        /// The gaps between its names, in bytes, if the transaction has not touched it before.
        gaps: Option<Box<[u16]>>,
        /// Bytes that a new name needs; 0 if there is none.
        need: u32,
    },
    /// Names of a directory block are in another one now, too, which is new.
    Divided {
        /// Directory.
        dir: u32,
        /// Which of its blocks; 0 if all of them took any name.
        leaf: u64,
        /// The new one.
        into: u64,
    },
    /// The inode changed in a way that no record says: until its transaction is committed in full,
    /// whatever needs it is.
    Unfit {
        /// Inode.
        ino: u32,
        /// Why.
        reason: Reason,
    },
    /// The volume changed in a way that no record says: no fast commit for the rest of the
    /// transaction.
    AllUnfit {
        /// Why.
        reason: Reason,
    },
}

/// What an fsync wants to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ask {
    /// A file, with all its names; or a directory, with all names in it.
    pub ino: u32,
    /// fdatasync: times do not matter.
    pub data_only: bool,
}

impl Ask {
    /// Nothing of the file system's, but another fast commit behind the last one.
    pub(crate) const SETTLE: Self = Self { ino: 0, data_only: true };
}

/// What the source has for a fast commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Nothing has changed since it was made durable, or is being.
    Nothing,
    /// These records in this order. From now on they count as durable: if they cannot become so,
    /// the transaction must be committed in full, or the journal aborted.
    Records(Vec<FcRecord>),
    /// It cannot be said in records. The journal commits in full.
    Full(Reason),
}

/// The file system's side: knows what changed since the last full commit and the fast commits
/// since.
///
/// Called with the journal's state lock held ([`closed`](Self::closed)) or with inode locks held
/// ([`apply`](Self::apply)): the source's lock is a leaf, and it does no I/O.
pub trait FastSource: Send + Sync + Debug {
    /// A handle of transaction `tid` has ended, or moves on to another one, after these changes, in
    /// this order. They must become visible at once. `finished`: the operation ended well;
    /// otherwise nobody knows what it left.
    fn apply(&self, tid: Tid, deltas: Vec<Delta>, finished: bool);

    /// What makes `asks` durable on top of transaction `tid - 1` and of all that was collected for
    /// `tid` before.
    fn collect(&self, tid: Tid, asks: &[Ask]) -> Collected;

    /// Transaction `tid` takes no more handles and will be committed in full: what is known of it
    /// can be forgotten. The result is dropped later, without the lock.
    fn closed(&self, tid: Tid) -> Box<dyn Any + Send>;

    /// True if names in this directory were made durable by records lately, so that more of them
    /// may be.
    fn is_busy(&self, dir: u32) -> bool {
        let _ = dir;
        false
    }
}

/// The journal's side of fast commits, as far as it needs no lock; the rest is [`Queue`].
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    source: OnceLock<Arc<dyn FastSource>>,
    /// Blocks that must be home, as committed, before a fast commit counts.
    patched: OnceLock<Vec<Range<BlockNr>>>,
    /// Handles note what they change.
    tracks: AtomicBool,
    /// The role is free, for who sleeps ready to lead the open batch.
    lead: Condvar,
    pub witnesses: Witnesses,
    /// Fast commits become durable by FUA, where they can.
    pub by_fua: AtomicBool,
    pub counters: FastCounters,
}

impl FastCommits {
    /// The source, whether or not deltas are wanted.
    pub fn source(&self) -> Option<&Arc<dyn FastSource>> {
        self.source.get()
    }

    /// See [`Journal::set_patched_blocks`].
    pub fn patched(&self) -> &[Range<BlockNr>] {
        self.patched.get().map_or(&[], Vec::as_slice)
    }

    pub fn tracks(&self) -> bool {
        self.tracks.load(Ordering::Relaxed)
    }
}

impl Journal {
    /// Names the blocks that hold the file system's superblock and group descriptors, and the
    /// journal's inode. e2fsck reads them before it replays the log, and writes them back from
    /// memory when it has replayed fast commits: of the superblock only the words that it has
    /// changed itself, so that the checksum is wrong if the log held a newer one; of the
    /// descriptors all, so that what the log had brought is lost; of the block with the journal's
    /// inode all, with the inodes beside it, when it replays one of them (blocks of 4 KiB hold
    /// sixteen). So whenever the log holds a newer version of one of these blocks, it goes home
    /// before the first fast commit of a transaction counts.
    pub fn set_patched_blocks(&self, blocks: Vec<Range<BlockNr>>) {
        let _ = self.fast.patched.set(blocks);
    }

    /// Names the file system's side and turns fast commits on, if the log has an area for them.
    /// Once.
    pub fn set_fast_source(&self, source: Arc<dyn FastSource>) {
        if self.fast.source.set(source).is_ok() {
            // Without an area it stays off.
            let _ = self.set_fast_commits(true);
        }
    }

    /// True if changes are noted for fast commits.
    #[must_use]
    pub fn tracks_changes(&self) -> bool {
        self.fast.tracks()
    }

    /// True if the log has an area for fast commits.
    #[must_use]
    pub fn has_fast_area(&self) -> bool {
        self.state.lock().fast.area.is_some()
    }

    /// The block of the file system behind the fast-commit area, if that lies on the same device:
    /// what goes to the medium together with fast commits is nowhere sooner there.
    #[must_use]
    pub fn behind_fast_area(&self) -> Option<BlockNr> {
        let log = self.log.get().filter(|log| !log.is_external())?;
        log.behind_area().filter(|nr| self.in_range(*nr))
    }

    /// Turns fast commits on or off, at once. When turned on, they begin with the next transaction:
    /// of the running one the source does not know everything.
    ///
    /// # Errors
    /// If they are to be on and the log has no area for them, or there is no
    /// [source](Self::set_fast_source).
    pub fn set_fast_commits(&self, on: bool) -> Result<()> {
        let mut state = self.state.lock();
        if on && (state.fast.area.is_none() || self.fast.source.get().is_none()) {
            return Err(JournalError::Unsupported(
                "fast_commit needs an area in the journal".into(),
            ));
        }
        if on == state.fast.from.is_some() {
            return Ok(());
        }
        let next = state.next_tid;
        state.fast.from = on.then_some(next);
        // Under the lock: whoever joins the next transaction sees it.
        self.fast.tracks.store(on, Ordering::Relaxed);
        self.hurry(&mut state);
        self.wake_fast(&state);
        Ok(())
    }
}
