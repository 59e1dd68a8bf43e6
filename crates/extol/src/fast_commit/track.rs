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
//!   busy     directories whose names were recorded in this transaction, or in the one before
//! ```
//!
//! Invariants
//! - T1: a handle's changes become visible together (`Tracker::apply`, one lock), so every
//!   collection sees whole operations.
//! - T2: an inode that is in `inodes` differs from what was recorded, or may.
//! - T3: memory is bounded ([`MOST`]): beyond, the transaction is unfit as a whole, and takes no
//!   more. While nobody asks, that comes much earlier ([`MOST_QUIET`]).
//! - T4: a directory is unfit for names from the first one on that may not fit (`Changes::room`).
//!
//! Locking: one mutex, a leaf.

use std::any::Any;
use std::sync::Arc;

use extol_jbd2::Tid;
use extol_jbd2::fast::{Ask, Collected, Delta, FastSource, Reason};
use extol_sync::rank::{Mutex, Rank};
use extol_task::Clock;

use super::closure;
use super::names::{Name, Names};
use super::park::Park;
use super::ranges::{Kind, Ranges};
use super::room::Rooms;
use super::{Map, Set};

/// Most inodes, names and blocks that are remembered for one transaction.
const MOST: usize = 1 << 16;

/// The same while nobody has asked for [`QUIET_NS`]: to remember is a quarter of what making a name
/// takes, and nobody wants to know. Who asks then, behind so many changes, gets a full commit, the
/// next a fast one.
const MOST_QUIET: usize = 1 << 13;
const QUIET_NS: u64 = 30_000_000_000;

/// Most directories that count as busy.
const MOST_BUSY: usize = 4096;

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
    all: Option<Reason>,
    inodes: Map<u32, InodeChange>,
    unfit: Map<u32, Unfit>,
    pub names: Names,
    rooms: Rooms,
    /// Deleted files that records left a name.
    pub parked: u32,
    /// Directories of names that were recorded.
    busy: Set<u32>,
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
            parked: 0,
            busy: Set::default(),
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

    /// Why nothing of the transaction can be said.
    pub fn all_unfit(&self) -> Option<Reason> {
        self.all
    }

    /// Why an inode cannot be said.
    pub fn unfit(&self, ino: u32) -> Option<Reason> {
        self.unfit.get(&ino).map(|unfit| unfit.reason)
    }

    /// Why names in a directory cannot be said.
    pub fn names_unfit(&self, dir: u32) -> Option<Reason> {
        self.unfit.get(&dir).and_then(|unfit| unfit.names)
    }

    /// An inode that was written.
    pub fn inode(&self, ino: u32) -> Option<&InodeChange> {
        self.inodes.get(&ino)
    }

    /// True if the inode or its names changed.
    pub fn is_changed(&self, ino: u32) -> bool {
        self.inodes.contains_key(&ino) || self.names.has_end(ino)
    }

    /// True if there may be something to record for an ask.
    pub fn wants(&self, ask: &Ask) -> bool {
        let inode = self.inode(ask.ino);
        let named = self.names.has_end(ask.ino);
        let inside = self.names.has_inside(ask.ino);
        if inside {
            return true;
        }
        if inode.is_some_and(|inode| inode.links == 0 && !inode.image.is_empty()) && !named {
            // Nobody would find it after a crash, neither by the base nor by what comes now.
            return false;
        }
        let unfit = self.unfit.contains_key(&ask.ino);
        if ask.data_only {
            return unfit || inode.is_some_and(|inode| inode.data);
        }
        unfit || named || inode.is_some()
    }

    /// A name is recorded as it is now.
    pub fn forget_name(&mut self, name: &Name) {
        self.names.forget(name);
        if self.busy.len() < MOST_BUSY {
            self.busy.insert(name.dir);
        }
    }

    /// The inode is recorded as it is now.
    pub fn forget(&mut self, ino: u32) {
        self.inodes.remove(&ino);
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
    park: Option<Park>,
    /// Directories that were busy in the transaction that was closed last.
    busy: Set<u32>,
    /// When somebody asked last.
    asked_ns: Option<u64>,
}

impl Tracker {
    /// Nothing has changed, and nobody has asked.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, open: Mutex::default() }
    }

    /// Names the place for deleted files.
    pub fn set_park(&self, park: Option<Park>) {
        self.open.lock().park = park;
    }
}

impl FastSource for Tracker {
    fn apply(&self, tid: Tid, deltas: Vec<Delta>, finished: bool) {
        let mut open = self.open.lock();
        let Open { changes: open, park, asked_ns, .. } = &mut *open;
        let at = open.iter().position(|c| c.tid == tid).unwrap_or_else(|| {
            open.push(Changes::new(tid));
            open.len() - 1
        });
        let Some(changes) = open.get_mut(at) else { return };
        for delta in deltas {
            if park.is_some_and(|park| park.is_lost_by(&delta)) {
                // What is parked there already may have taken the room.
                changes.set_unfit(park.map_or(0, |park| park.dir), Reason::DirectoryGrew);
                *park = None;
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

    fn collect(&self, tid: Tid, asks: &[Ask]) -> Collected {
        let mut open = self.open.lock();
        open.asked_ns = Some(self.clock.now_ns());
        let park = open.park;
        match open.changes.iter_mut().find(|c| c.tid == tid) {
            Some(changes) => closure::collect(changes, asks, park),
            None => Collected::Nothing,
        }
    }

    fn closed(&self, tid: Tid) -> Box<dyn Any + Send> {
        let mut open = self.open.lock();
        let at = open.changes.iter().position(|c| c.tid == tid);
        let mut closed = at.map(|at| open.changes.swap_remove(at));
        let busy =
            closed.as_mut().map(|changes| std::mem::take(&mut changes.busy)).unwrap_or_default();
        let before = std::mem::replace(&mut open.busy, busy);
        Box::new((closed, before))
    }

    fn is_busy(&self, dir: u32) -> bool {
        let open = self.open.lock();
        open.busy.contains(&dir) || open.changes.iter().any(|c| c.busy.contains(&dir))
    }
}
