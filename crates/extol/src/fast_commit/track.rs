//! The tracker: what every transaction that is not committed yet has changed.
//!
//! It keeps copies of its own, so that collecting waits for no inode and no handle. What was
//! recorded in a fast commit is forgotten at once: the tables hold only what differs from the base
//! and the fast commits on it. What is ineligible stays until the transaction is committed in full.
//!
//! ```text
//!   inodes       newest image, links, born, matters to fdatasync, ranges
//!   names        (directory, name): where it led, where it leads
//!   ineligible   inode: why no record says what happened to it
//!   rooms        block of a directory: room that the base is sure to have for names (see `room`)
//! ```
//!
//! Invariants
//! - TR-1: a handle's changes become visible together (`Tracker::apply`, one lock), so every
//!   collection sees whole operations.
//! - TR-2: an inode that is in `inodes` differs from what was recorded, or may.
//! - TR-3: memory is bounded (`changes::MOST`): beyond, the transaction is ineligible as a whole,
//!   and takes no more. Without fsyncs, that comes much earlier (`changes::MOST_QUIET`).
//! - TR-4: a directory is ineligible for names from the first one on that may not fit
//!   (`Changes::room`).
//!
//! Locking: one mutex, a leaf.

use std::any::Any;
use std::sync::Arc;

use extol_jbd2::Tid;
use extol_jbd2::fast::{self, FastSource, Notes, SyncKey};
use extol_ondisk::fast_commit::FcRecords;
use extol_sync::rank::{Mutex, Rank};
use extol_task::Clock;

use super::changes::Changes;
use super::closure::{self, Collected};
use super::delta::Deltas;
use super::placeholder::PlaceholderDir;
use super::{Delta, Reason, SyncTarget};

/// Without an fsync for so long, fewer changes are tracked (`changes::MOST_QUIET`).
const QUIET_NS: u64 = 30_000_000_000;

/// The file system's side of fast commits.
pub(crate) struct Tracker {
    clock: Arc<dyn Clock>,
    /// The running transaction, and perhaps the one that is being closed.
    open: Mutex<Open, { Rank::FastCommit as u8 }>,
}

impl std::fmt::Debug for Tracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracker").field("open", &self.open).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Open {
    changes: Vec<Changes>,
    /// Where deleted files go.
    placeholder_dir: Option<PlaceholderDir>,
    /// When the last fsync came.
    asked_ns: Option<u64>,
}

impl Tracker {
    /// Nothing has changed, and no fsync has come.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, open: Mutex::default() }
    }

    /// Names the place for deleted files.
    pub fn set_placeholder_dir(&self, placeholder_dir: Option<PlaceholderDir>) {
        self.open.lock().placeholder_dir = placeholder_dir;
    }

    /// A handle has ended ([`FastSource::apply`]).
    pub fn apply(&self, tid: Tid, deltas: Deltas, finished: bool) {
        let mut open = self.open.lock();
        let Open { changes: open, placeholder_dir, asked_ns, .. } = &mut *open;
        let at = open.iter().position(|c| c.tid == tid).unwrap_or_else(|| {
            open.push(Changes::new(tid));
            open.len() - 1
        });
        let Some(changes) = open.get_mut(at) else { return };
        for delta in deltas {
            if placeholder_dir.is_some_and(|place| place.is_lost_by(&delta)) {
                // The placeholders there may have taken the room.
                changes.set_ineligible(
                    placeholder_dir.map_or(0, |place| place.dir),
                    Reason::DirectoryGrew,
                );
                *placeholder_dir = None;
            }
            changes.note(delta);
        }
        if !finished {
            changes.note(Delta::AllIneligible { reason: Reason::Failed });
        }
        changes.check_size(|| {
            asked_ns.is_none_or(|asked| self.clock.now_ns().saturating_sub(asked) > QUIET_NS)
        });
    }

    /// True if the fast commits so far hold all that transaction `tid` has changed in an inode.
    /// False where none are made.
    pub fn has_recorded(&self, tid: Tid, ino: u32) -> bool {
        let target = SyncTarget { ino, data_only: false };
        let open = self.open.lock();
        open.changes.iter().find(|c| c.tid == tid).is_some_and(|c| !c.wants(&target))
    }

    /// What makes the targets durable ([`FastSource::collect`]).
    pub fn collect(&self, tid: Tid, targets: &[SyncTarget]) -> Collected {
        let mut open = self.open.lock();
        open.asked_ns = Some(self.clock.now_ns());
        let placeholder_dir = open.placeholder_dir;
        match open.changes.iter_mut().find(|c| c.tid == tid) {
            Some(changes) => closure::collect(changes, targets, placeholder_dir),
            None => Collected::Nothing,
        }
    }
}

impl FastSource for Tracker {
    fn apply(&self, tid: Tid, notes: Option<Notes>, finished: bool) {
        let deltas = notes.map(|notes| notes.downcast::<Deltas>());
        debug_assert!(!matches!(deltas, Some(Err(_))), "notes of another type");
        let deltas = deltas.and_then(Result::ok).map(|deltas| *deltas).unwrap_or_default();
        Self::apply(self, tid, deltas, finished);
    }

    fn collect(&self, tid: Tid, keys: &[SyncKey]) -> fast::Collected {
        let targets: Vec<SyncTarget> = keys.iter().copied().filter_map(SyncTarget::of).collect();
        match Self::collect(self, tid, &targets) {
            Collected::Nothing => fast::Collected::Nothing,
            Collected::Records(records) => match FcRecords::encode(&records) {
                Ok(records) => fast::Collected::Records(records),
                Err(_) => fast::Collected::Full(Reason::Failed as u8),
            },
            Collected::Full(reason) => fast::Collected::Full(reason as u8),
        }
    }

    fn reasons(&self) -> &'static [&'static str] {
        &Reason::NAMES
    }

    fn closed(&self, tid: Tid) -> Box<dyn Any + Send> {
        let mut open = self.open.lock();
        let at = open.changes.iter().position(|c| c.tid == tid);
        Box::new(at.map(|at| open.changes.swap_remove(at)))
    }
}
