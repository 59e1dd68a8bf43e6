//! The tracker: what every transaction that is not committed yet has changed.
//!
//! It keeps copies of its own, so that collecting waits for no inode and no handle. What was
//! recorded in a fast commit is forgotten at once: the tables hold only what differs from the base
//! and the fast commits on it. What is unfit stays until the transaction is committed in full.
//!
//! ```text
//!   inodes   newest image, links, born, matters to fdatasync, ranges
//!   names    (directory, name): where it led, where it leads
//!   unfit    inode: why no record says what happened to it
//!   rooms    block of a directory: room that the base is sure to have for names (see `room`)
//! ```
//!
//! Invariants
//! - TR-1: a handle's changes become visible together (`Tracker::apply`, one lock), so every
//!   collection sees whole operations.
//! - TR-2: an inode that is in `inodes` differs from what was recorded, or may.
//! - TR-3: memory is bounded ([`MOST`]): beyond, the transaction is unfit as a whole, and takes no
//!   more. Without fsyncs, that comes much earlier ([`MOST_QUIET`]).
//! - TR-4: a directory is unfit for names from the first one on that may not fit (`Changes::room`).
//!
//! Locking: one mutex, a leaf.

use std::any::Any;
use std::sync::Arc;

use extol_jbd2::Tid;
use extol_jbd2::fast::{self, FastSource, Notes, SyncKey};
use extol_ondisk::fast_commit::FcRecords;
use extol_sync::rank::{Mutex, Rank};
use extol_task::Clock;

use super::closure::{self, Collected};
use super::delta::Deltas;
use super::names::Names;
use super::placeholder::PlaceholderDir;
use super::ranges::{Kind, Ranges};
use super::room::Rooms;
use super::{Delta, Map, Reason, SyncTarget};

/// Most inodes, names and blocks that are remembered for one transaction.
const MOST: usize = 1 << 16;

/// The same while no fsync has come for [`QUIET_NS`]: tracking costs time that nothing needs then.
/// The first fsync behind so many changes gets a full commit, the next a fast one.
const MOST_QUIET: usize = 1 << 13;
const QUIET_NS: u64 = 30_000_000_000;

/// An inode that was written and not recorded since.
#[derive(Debug, Default)]
pub(super) struct InodeChange {
    /// Newest.
    pub image: Arc<[u8]>,
    pub links: u16,
    /// The base does not have it.
    pub born: bool,
    /// It matters to fdatasync.
    data: bool,
    pub ranges: Ranges,
}

/// Why an inode is unfit.
#[derive(Clone, Copy, Debug)]
struct Unfit {
    /// Itself.
    reason: Reason,
    /// As a directory, for names in it.
    names: Option<Reason>,
}

impl Unfit {
    fn new(reason: Reason) -> Self {
        Self { reason, names: for_names(reason) }
    }

    fn add(&mut self, reason: Reason) {
        if self.reason == Reason::Attributes {
            // The weakest: it only says that something else happened, too.
            self.reason = reason;
        }
        match for_names(reason) {
            // Making a directory gives it a block, which is not why it is unfit.
            Some(Reason::Directory) => *self = Self { reason, names: Some(reason) },
            names => self.names = self.names.or(names),
        }
    }
}

/// What a directory's own reason means for the names in it: they do not care about its attributes.
fn for_names(reason: Reason) -> Option<Reason> {
    (!matches!(reason, Reason::Attributes | Reason::Xattr)).then_some(reason)
}

/// What one transaction changed.
#[derive(Debug)]
pub(super) struct Changes {
    tid: Tid,
    /// Why no record says anything of it.
    pub all: Option<Reason>,
    /// Those that were written.
    pub inodes: Map<u32, InodeChange>,
    unfit: Map<u32, Unfit>,
    pub names: Names,
    rooms: Rooms,
    /// Deleted files that got a placeholder.
    pub placeholders: u32,
}

impl Changes {
    fn new(tid: Tid) -> Self {
        Self {
            tid,
            all: None,
            inodes: Map::default(),
            unfit: Map::default(),
            names: Names::default(),
            rooms: Rooms::default(),
            placeholders: 0,
        }
    }

    fn note(&mut self, delta: Delta) {
        if self.all.is_some() {
            return;
        }
        match delta {
            Delta::Inode { ino, image, born, data, links } => {
                let inode = self.inodes.entry(ino).or_default();
                inode.image = image;
                inode.links = links;
                inode.born |= born;
                inode.data |= data;
            }
            Delta::Name { dir, name, was, is } => self.names.change(dir, name, was, is),
            Delta::Mapped { ino, lblk, len, start, unwritten } => {
                self.range(ino, lblk, len, Kind::Mapped { start, unwritten });
            }
            Delta::Unmapped { ino, lblk, len } => self.range(ino, lblk, len, Kind::Hole),
            Delta::Unfit { ino, reason } => self.set_unfit(ino, reason),
            Delta::AllUnfit { reason } => self.all = Some(reason),
            Delta::Room { dir, leaf, gaps, need } => self.room(dir, leaf, gaps, need),
            Delta::Divided { dir, leaf, into } => self.rooms.divide(dir, leaf, into),
        }
    }

    fn range(&mut self, ino: u32, lblk: u32, len: u32, kind: Kind) {
        if !self.inodes.entry(ino).or_default().ranges.set(lblk, len, kind) {
            self.set_unfit(ino, Reason::Memory);
        }
    }

    fn set_unfit(&mut self, ino: u32, reason: Reason) {
        self.unfit
            .entry(ino)
            .and_modify(|unfit| unfit.add(reason))
            .or_insert_with(|| Unfit::new(reason));
    }

    fn room(&mut self, dir: u32, leaf: u64, gaps: Option<Box<[u16]>>, need: u32) {
        if !self.rooms.note(dir, leaf, gaps, need) {
            self.set_unfit(dir, Reason::DirectoryGrew);
        }
    }

    fn check_size(&mut self, is_quiet: impl FnOnce() -> bool) {
        let size = self.inodes.len() + self.names.len() + self.unfit.len() + self.rooms.len();
        if self.all.is_none() && size > MOST_QUIET {
            self.all = if size > MOST {
                Some(Reason::Memory)
            } else {
                is_quiet().then_some(Reason::Quiet)
            };
        }
    }

    /// Why an inode cannot be said.
    pub fn unfit(&self, ino: u32) -> Option<Reason> {
        self.unfit.get(&ino).map(|unfit| unfit.reason)
    }

    /// Why names in a directory cannot be said.
    pub fn names_unfit(&self, dir: u32) -> Option<Reason> {
        self.unfit.get(&dir).and_then(|unfit| unfit.names)
    }

    /// True if the inode or its names changed.
    pub fn is_changed(&self, ino: u32) -> bool {
        self.inodes.contains_key(&ino) || self.names.has_end(ino)
    }

    /// True if there may be something to record for a target.
    pub fn wants(&self, target: &SyncTarget) -> bool {
        let inode = self.inodes.get(&target.ino);
        let named = self.names.has_end(target.ino);
        let inside = self.names.has_inside(target.ino);
        if inside {
            return true;
        }
        if inode.is_some_and(|inode| inode.links == 0 && !inode.image.is_empty()) && !named {
            // It could not be found after a crash, neither by the base nor by what comes now.
            return false;
        }
        let unfit = self.unfit.contains_key(&target.ino);
        if target.data_only {
            return unfit || inode.is_some_and(|inode| inode.data);
        }
        unfit || named || inode.is_some()
    }
}

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
                changes
                    .set_unfit(placeholder_dir.map_or(0, |place| place.dir), Reason::DirectoryGrew);
                *placeholder_dir = None;
            }
            changes.note(delta);
        }
        if !finished {
            changes.note(Delta::AllUnfit { reason: Reason::Failed });
        }
        changes.check_size(|| {
            asked_ns.is_none_or(|asked| self.clock.now_ns().saturating_sub(asked) > QUIET_NS)
        });
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
