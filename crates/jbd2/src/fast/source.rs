//! What the journal and the file system's side of fast commits say to each other, and the journal's
//! state of fast commits that needs no lock.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use extol_block::BlockNr;
use extol_ondisk::fast_commit::FcRecords;
use extol_sync::Condvar;
use extol_sync::atomic::{AtomicBool, Ordering};
use extol_sync::plain::RwLock;

use super::data_checksum::DataChecksums;
use crate::stats::FastCounters;
use crate::types::Tid;

/// What a handle notes for the file system's side. The journal does not look into it.
pub type Notes = Box<dyn Any + Send>;

/// What an fsync wants to be durable: a number that means something to the file system only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SyncKey(pub u64);

impl SyncKey {
    /// Nothing of the file system's, but another fast commit behind the last one.
    pub(crate) const NONE: Self = Self(u64::MAX);
}

/// What the source has for a fast commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Nothing has changed since it was made durable, or is being.
    Nothing,
    /// These records in this order. From now on they count as durable: if they cannot become so,
    /// the transaction must be committed in full, or the journal aborted.
    Records(FcRecords),
    /// No record says it. The journal commits in full, and counts the reason of that number
    /// ([`FastSource::reasons`]).
    Full(u8),
}

/// The file system's side: knows what changed since the last full commit and the fast commits
/// since.
///
/// Called with the journal's state lock held ([`closed`](Self::closed)) or with inode locks held
/// ([`apply`](Self::apply)): the source's lock is a leaf, and it does no I/O.
pub trait FastSource: Send + Sync + Debug {
    /// A handle of transaction `tid` has ended, or moves on to another one, after these changes.
    /// They must become visible at once. `finished`: the operation ended well; otherwise it is not
    /// known what it left.
    fn apply(&self, tid: Tid, notes: Option<Notes>, finished: bool);

    /// What makes `keys` durable on top of transaction `tid - 1` and of all that was collected for
    /// `tid` before.
    /// A key that the source did not make asks for nothing.
    fn collect(&self, tid: Tid, keys: &[SyncKey]) -> Collected;

    /// Transaction `tid` takes no more handles and will be committed in full: what is known of it
    /// can be forgotten. The result is dropped later, without the lock.
    fn closed(&self, tid: Tid) -> Box<dyn Any + Send>;

    /// The names of the reasons for full commits, at most [`MOST_REASONS`](super::MOST_REASONS).
    fn reasons(&self) -> &'static [&'static str];
}

/// The journal's side of fast commits, as far as it needs no lock; the rest is [`Queue`].
#[derive(Debug, Default)]
pub(crate) struct FastCommits {
    pub(super) source: OnceLock<Arc<dyn FastSource>>,
    /// Blocks that must be home, as committed, before a fast commit counts.
    pub(super) patched: RwLock<Arc<Vec<Range<BlockNr>>>>,
    /// Handles note what they change.
    pub(super) tracks: AtomicBool,
    /// The role is free, for the thread that sleeps ready to lead the open batch.
    pub(super) lead: Condvar,
    pub checksums: DataChecksums,
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
    pub fn patched(&self) -> Arc<Vec<Range<BlockNr>>> {
        Arc::clone(&self.patched.read())
    }

    pub fn tracks(&self) -> bool {
        self.tracks.load(Ordering::Relaxed)
    }
}
