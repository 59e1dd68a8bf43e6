//! Replaying fast commits: records become changes of blocks, as one transaction.
//!
//! ```text
//!   log home, T free ─► claim the blocks of all ADD_RANGEs (for no other use)
//!     ─► each record, in order: inodes in memory, directories and trees in the handle
//!     ─► settle: which blocks do the files own now ─ which did they own ─► bitmaps
//!                inodes that are used now, or have no name left ─► inode bitmap, orphan list
//!                inodes into their slots
//!     ─► commit T ─► the area is void ─► the mount goes on, with orphans as after any crash
//! ```
//!
//! The base is the state of transaction T-1. A record says what is, not what to do: an INODE is an
//! image, a range is where the blocks are, a name leads somewhere. So a record whose effect is
//! there already changes nothing, and one that names what does not exist is skipped, as Linux does
//! it (it has to: it replays without a journal, and may have to do so twice). What Linux itself
//! writes but cannot replay is understood here: a new directory gets `.`, `..` and its link counts,
//! a removed one loses them, a name that comes before its inode waits for it (`O_TMPFILE`), and a
//! file without a name left is an orphan.
//!
//! | file | part |
//! | --- | --- |
//! | `mod` | the inodes that records touch |
//! | `inode` | INODE: the image and what of the old inode stays |
//! | `names` | CREAT, LINK, UNLINK |
//! | `ranges` | ADD_RANGE, DEL_RANGE |
//! | `settle` | the end: bitmaps, orphans, slots |
//! | `runs` | sets of blocks |
//!
//! Invariants
//! - RP-1: everything is in one handle, and the journal commits only after the last record: a crash
//!   finds the base and the records, or all of T. An error commits nothing ([`run`]).
//! - RP-2: blocks that the replay needs itself (for directories and trees) are none that a record
//!   gives to a file (`Replay::claim`, before the first record).
//! - RP-3: no block gets two owners, whatever the records say: the files' blocks are disjoint in
//!   the end, and what becomes used was free on disk and claimed (`settle`). A block may move from
//!   one file to another; the order of records does not matter.
//! - RP-4: only blocks are kept that the volume has and that are no metadata (`ranges`).
//! - RP-5: an inode that is not used in the base begins empty, whatever its slot holds; one that
//!   loses its last name keeps what it has until the orphan processing, unless a new image takes
//!   its number.
//! - RP-6: memory and time are bounded: by the records, by [`MAX_INODES`], and by the blocks that
//!   the log can hold.

mod inode;
mod names;
mod ranges;
mod runs;
mod settle;

use std::collections::{HashMap, HashSet};

use extol_block::BlockDevice;
use extol_jbd2::format::JournalSuperblock;
use extol_jbd2::recovery::FastLog;
use extol_jbd2::{Handle, LogMap};
use extol_ondisk::fast_commit::FcRecord;
use extol_ondisk::{Geometry, Inode, InodeNr, RoCompat, Time};
use extol_vfs::{FsError, Result};

use crate::alloc::{Run, SuperCell};
use crate::error;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr::{self, OrphanCheck, Values};

/// More inodes in one transaction are no fast commit.
const MAX_INODES: usize = 1 << 20;
/// Credits that must be left before a record: more than any needs that is not asked for by itself.
const SPARE: u32 = 200;

/// Where the records are.
pub(crate) struct Source<'a> {
    pub log: &'a dyn BlockDevice,
    pub map: &'a LogMap,
    pub sb: &'a JournalSuperblock,
    pub fast: FastLog,
}

/// What of an inode there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// No image yet, and not used in the base.
    Absent,
    /// An inode.
    Alive,
    /// Its last name is gone.
    Dead,
}

/// An inode that a record names.
#[derive(Debug)]
struct Touched {
    node: Node,
    life: Life,
    /// Marked as used in the base; and if so, a directory there.
    base: Option<bool>,
    /// Clusters of data that it had there, if it was a regular file.
    before: Vec<Run>,
    /// Names that records gave it, less those they took.
    names: i64,
    /// On the orphan list of the base: its `dtime` is a link.
    listed: bool,
    /// How many more attribute values in inodes of their own count in it than there.
    values: i64,
}

impl Touched {
    fn is_file(&self) -> bool {
        self.node.raw.is_regular() && self.node.raw.maps_blocks()
    }

    /// There is a directory, and names can be in it.
    fn is_live_dir(&self) -> bool {
        self.life == Life::Alive && self.node.raw.is_dir() && self.node.raw.links > 0
    }
}

/// A replay under way.
struct Replay<'a> {
    vol: &'a Volume,
    h: Handle,
    /// The volume's numbers without checksums of inodes.
    plain: Geometry,
    inodes: HashMap<u32, Touched>,
    /// Inodes on the orphan list of the base.
    orphans: HashSet<u32>,
    /// Inodes that no record may name.
    internal: [u32; 5],
    /// Names that wait for their inode: directory and name.
    waiting: HashMap<u32, Vec<(u32, Vec<u8>)>>,
    /// Directories and deleted files that have a name in them.
    placeholders: Vec<(u32, u32)>,
    /// Free blocks that records give to files.
    claimed: Vec<Run>,
}

/// Replays all records as one handle of `credits` credits, which is not committed yet. `sb` is the
/// superblock after the replay of the log.
pub(crate) fn run(
    vol: &Volume,
    sb: &SuperCell,
    internal: [u32; 5],
    source: &Source<'_>,
    credits: u32,
) -> Result<()> {
    let mut replay = Replay {
        vol,
        h: vol.journal.start_alone(credits).map_err(error::journal)?,
        plain: without_checksums(&vol.geo),
        inodes: HashMap::new(),
        orphans: listed_orphans(vol, sb.read(|sb| sb.last_orphan)),
        internal,
        waiting: HashMap::new(),
        placeholders: Vec::new(),
        claimed: Vec::new(),
    };
    source
        .fast
        .each(source.log, source.map, source.sb, |record| replay.claim(&record).map_err(Failed))?;
    source.fast.each(source.log, source.map, source.sb, |record| {
        replay.check_room()?;
        replay.record(record).map_err(Failed)
    })?;
    replay.remove_placeholders()?;
    replay.settle(sb)?;
    replay.h.stop().map_err(error::journal)
}

/// An error of the journal, or of the file system.
struct Failed(FsError);

impl From<extol_jbd2::JournalError> for Failed {
    fn from(e: extol_jbd2::JournalError) -> Self {
        Self(error::journal(e))
    }
}

impl From<FsError> for Failed {
    fn from(e: FsError) -> Self {
        Self(e)
    }
}

impl From<Failed> for FsError {
    fn from(e: Failed) -> Self {
        e.0
    }
}

fn without_checksums(geo: &Geometry) -> Geometry {
    let mut plain = geo.clone();
    plain.ro_compat.remove(RoCompat::METADATA_CSUM);
    plain
}

/// The inodes on the orphan list, as far as it makes sense.
fn listed_orphans(vol: &Volume, head: u32) -> HashSet<u32> {
    let mut found = HashSet::new();
    let mut at = head;
    while at >= vol.geo.first_ino.0 && at <= vol.geo.inodes() && found.insert(at) {
        let Ok(raw) = vol.read_inode(InodeNr(at)) else { break };
        at = raw.dtime;
    }
    found
}

impl Replay<'_> {
    fn record(&mut self, record: FcRecord<&[u8]>) -> Result<()> {
        match record {
            FcRecord::Inode { ino, image } => self.inode(ino, image),
            FcRecord::Creat(name) => self.creat(&name),
            FcRecord::Link(name) => self.link(&name),
            FcRecord::Unlink(name) => self.unlink(&name),
            FcRecord::AddRange { ino, block, len, start, unwritten } => {
                self.add_range(ino, block, ranges::target(start, len), unwritten)
            }
            FcRecord::DelRange { ino, block, len } => self.del_range(ino, block, len),
        }
    }

    /// An error unless the log can hold what one more record may change.
    fn check_room(&self) -> Result<()> {
        if self.h.credits() < SPARE {
            return Err(too_much());
        }
        Ok(())
    }

    /// The inode that a record names. An error if no record may name it.
    fn touch(&mut self, ino: u32) -> Result<&mut Touched> {
        let nr = InodeNr(ino);
        let reserved =
            nr != InodeNr::ROOT && (nr < self.vol.geo.first_ino || self.internal.contains(&ino));
        if !self.vol.geo.is_valid_inode(nr) || reserved {
            return Err(FsError::corrupt("a record names an impossible inode").in_inode(ino.into()));
        }
        if !self.inodes.contains_key(&ino) {
            if self.inodes.len() >= MAX_INODES {
                return Err(FsError::corrupt("they name too many inodes"));
            }
            let touched = self.load(nr)?;
            self.inodes.insert(ino, touched);
        }
        self.inodes.get_mut(&ino).ok_or_else(|| FsError::corrupt("an inode is gone"))
    }

    /// An inode as it is in the base.
    fn load(&self, ino: InodeNr) -> Result<Touched> {
        let mut touched = Touched {
            node: Node { ino, raw: Inode::new_empty(&self.vol.geo) },
            life: Life::Absent,
            base: None,
            before: Vec::new(),
            names: 0,
            listed: false,
            values: 0,
        };
        if !self.vol.alloc.is_inode_used(ino)? {
            return Ok(touched);
        }
        let raw = self.vol.read_inode(ino)?;
        touched.base = Some(raw.is_dir());
        if raw.kind().is_none() {
            return Ok(touched);
        }
        touched.node.raw = raw;
        touched.life = Life::Alive;
        touched.listed = self.orphans.contains(&ino.0);
        if touched.is_file() {
            touched.before = data_runs(self.vol, &touched.node)?;
        }
        Ok(touched)
    }

    /// Takes all that an inode has from it: data stays for [`settle`](Self::settle), the rest is
    /// freed.
    fn empty(vol: &Volume, h: &mut Handle, touched: &mut Touched) -> Result<()> {
        let node = &mut touched.node;
        if node.raw.maps_blocks() && node.raw.blocks > 0 {
            let data = if node.raw.is_regular() { map::Discard::Keep } else { map::Discard::Free };
            finished(map::remove(vol, h, node, 0, u32::MAX, data)?)?;
        }
        let mut values = Values::new(&NothingNew, Time::default());
        xattr::drop_all(vol, h, node, &mut values)?;
        touched.values += values.counted();
        match values.into_left().is_empty() {
            true => Ok(()),
            false => Err(too_much()),
        }
    }
}

/// A change of a map must end in this handle.
fn finished(progress: map::Progress) -> Result<()> {
    match progress {
        map::Progress::Done => Ok(()),
        map::Progress::Restart { .. } => Err(too_much()),
    }
}

fn too_much() -> FsError {
    FsError::corrupt("they change more blocks than the journal can hold")
}

/// Attributes are only taken away: no inode is made for a value.
struct NothingNew;

impl OrphanCheck for NothingNew {
    fn is_orphan(&self, _: InodeNr) -> bool {
        false
    }
}

/// The clusters in which the data of a file is.
fn data_runs(vol: &Volume, node: &Node) -> Result<Vec<Run>> {
    let mut runs: Vec<Run> = Vec::new();
    map::iterate(vol, node, 0, u32::MAX, &mut |run| {
        let start = vol.geo.cluster_start(run.pblk);
        let end = vol.geo.cluster_end(run.pblk.plus(u64::from(run.len)));
        match runs.last_mut() {
            // Two extents in one cluster.
            Some(last) if last.start <= start && start < last.end() => {
                last.len = last.len.max((end.0 - last.start.0) as u32);
            }
            _ => runs.push(Run { start, len: (end.0 - start.0) as u32 }),
        }
        true
    })?;
    Ok(runs)
}
