//! What one transaction changed: the tables of the tracker (`track`), which a closure is made from.

use std::sync::Arc;

use extol_jbd2::{Tid, planted};

use super::names::Names;
use super::ranges::{Kind, Ranges};
use super::room::Rooms;
use super::{Delta, Map, Reason, SyncTarget};

/// Most inodes, names and blocks that are remembered for one transaction.
const MOST: usize = 1 << 16;

/// The same while no fsync has come for a while: tracking costs time that nothing needs then.
/// The first fsync behind so many changes gets a full commit, the next a fast one.
const MOST_QUIET: usize = 1 << 13;

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

/// Why an inode is ineligible.
#[derive(Clone, Copy, Debug)]
struct Ineligible {
    /// Itself.
    reason: Reason,
    /// As a directory, for names in it.
    names: Option<Reason>,
}

impl Ineligible {
    fn new(reason: Reason) -> Self {
        Self { reason, names: for_names(reason) }
    }

    fn add(&mut self, reason: Reason) {
        if self.reason == Reason::Attributes {
            // The weakest: it only says that something else happened, too.
            self.reason = reason;
        }
        match for_names(reason) {
            // Making a directory gives it a block, which is not why it is ineligible.
            Some(Reason::Directory) => *self = Self { reason, names: Some(reason) },
            names => self.names = self.names.or(names),
        }
    }
}

/// What a directory's own reason means for the names in it: they do not care about its attributes.
fn for_names(reason: Reason) -> Option<Reason> {
    (!matches!(reason, Reason::Attributes | Reason::Xattr)).then_some(reason)
}

/// A name, or its folded form.
type Bytes = Arc<[u8]>;

/// What one transaction changed.
#[derive(Debug)]
pub(super) struct Changes {
    pub tid: Tid,
    /// Why no record says anything of it.
    pub all: Option<Reason>,
    /// Those that were written.
    pub inodes: Map<u32, InodeChange>,
    ineligible: Map<u32, Ineligible>,
    pub names: Names,
    /// Directory and folded name: the spelling of all that was noted of it.
    spellings: Map<(u32, Bytes), Bytes>,
    rooms: Rooms,
    /// Deleted files that got a placeholder.
    pub placeholders: u32,
}

impl Changes {
    pub fn new(tid: Tid) -> Self {
        Self {
            tid,
            all: None,
            inodes: Map::default(),
            ineligible: Map::default(),
            names: Names::default(),
            spellings: Map::default(),
            rooms: Rooms::default(),
            placeholders: 0,
        }
    }

    pub fn note(&mut self, delta: Delta) {
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
            Delta::Spelling { dir, folded, name } => self.spelling(dir, folded, name),
            Delta::Mapped { ino, lblk, len, start, unwritten } => {
                self.range(ino, lblk, len, Kind::Mapped { start, unwritten });
            }
            Delta::Unmapped { ino, lblk, len } => self.range(ino, lblk, len, Kind::Hole),
            Delta::Ineligible { ino, reason } => self.set_ineligible(ino, reason),
            Delta::AllIneligible { reason } => self.all = Some(reason),
            Delta::Room { dir, leaf, gaps, need } => self.room(dir, leaf, gaps, need),
            Delta::Divided { dir, leaf, into } => self.rooms.divide(dir, leaf, into),
        }
    }

    fn range(&mut self, ino: u32, lblk: u32, len: u32, kind: Kind) {
        if !self.inodes.entry(ino).or_default().ranges.set(lblk, len, kind) {
            self.set_ineligible(ino, Reason::Memory);
        }
    }

    pub fn set_ineligible(&mut self, ino: u32, reason: Reason) {
        self.ineligible
            .entry(ino)
            .and_modify(|ineligible| ineligible.add(reason))
            .or_insert_with(|| Ineligible::new(reason));
    }

    /// A name that goes and comes in another spelling has two names in the tables, and one in the
    /// directory: no order of records says that.
    fn spelling(&mut self, dir: u32, folded: Arc<[u8]>, name: Arc<[u8]>) {
        let first = self.spellings.entry((dir, folded)).or_insert_with(|| Arc::clone(&name));
        if *first != name && !planted::has(planted::Bug::SpellingsInFastCommit) {
            self.set_ineligible(dir, Reason::Spelling);
        }
    }

    fn room(&mut self, dir: u32, leaf: u64, gaps: Option<Box<[u16]>>, need: u32) {
        if !self.rooms.note(dir, leaf, gaps, need) {
            self.set_ineligible(dir, Reason::DirectoryGrew);
        }
    }

    pub fn check_size(&mut self, is_quiet: impl FnOnce() -> bool) {
        let size = self.inodes.len()
            + self.names.len()
            + self.spellings.len()
            + self.ineligible.len()
            + self.rooms.len();
        if self.all.is_none() && size > MOST_QUIET {
            self.all = if size > MOST {
                Some(Reason::Memory)
            } else {
                is_quiet().then_some(Reason::Quiet)
            };
        }
    }

    /// Why an inode cannot be said.
    pub fn ineligible(&self, ino: u32) -> Option<Reason> {
        self.ineligible.get(&ino).map(|ineligible| ineligible.reason)
    }

    /// Why names in a directory cannot be said.
    pub fn names_ineligible(&self, dir: u32) -> Option<Reason> {
        self.ineligible.get(&dir).and_then(|ineligible| ineligible.names)
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
        let ineligible = self.ineligible.contains_key(&target.ino);
        if target.data_only {
            return ineligible || inode.is_some_and(|inode| inode.data);
        }
        ineligible || named || inode.is_some()
    }
}
