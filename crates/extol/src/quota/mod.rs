//! Quotas: what users, groups and projects use, kept in the hidden quota inodes.
//!
//! ```text
//!  an operation ─► Volume::write_inode ─► the slot's record before and after
//!                                              │ difference: space, inodes, ids
//!                                              ▼
//!                             Accounts::post, Quotas ─► entries of the quota files, same handle
//! ```
//!
//! Usage follows from the records of inodes: what an id uses is the sum of `i_blocks` and the
//! number of the inodes in use that belong to it. So nothing charges while it works; whatever
//! writes a record (an operation, the replay of fast commits, the processing of orphans) posts the
//! difference with it. docs/design/quota.md tells the whole story.
//!
//! Invariants
//! - QU-1: a record and the usage that follows from it change in one handle
//!   (`Volume::change_slot`, `Volume::clear_inode`).
//! - QU-2: the entry of an id is there before an operation gives an inode to it
//!   ([`Quotas::prepare`]), so that posting changes one block for each id. Where it is not there,
//!   as on a volume with wrong usage, posting inserts it.
//! - QU-3: blocks of a quota file are metadata: changed in handles only, never through the data
//!   cache.
//! - QU-5: where limits are enforced, space and inodes are promised before they are taken
//!   ([`Accounts::promise`]), and posting uses the promise up under the lock under which a check
//!   looks at both: no two operations get the same room.
//! - QU-4: a fast commit holds no usage. An inode whose change was posted is made durable by a full
//!   commit until its transaction has committed (`Reason::Quota`).

mod blocks;
mod enforce;
mod file;
pub(crate) mod limits;
mod promises;
pub(crate) mod usage;

use std::sync::{Arc, OnceLock};

use extol_jbd2::{Handle, planted};
use extol_ondisk::quota::{Entry, Kind};
use extol_ondisk::{InodeNr, RoCompat, Superblock};
use extol_sync::plain::RwLock;
use extol_task::Clock;
use extol_vfs::{FsError, Result};
use smallvec::SmallVec;

use crate::fast_commit::eligibility;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::options::QuotaOptions;
use crate::volume::{Accounts, Posting, Volume};
use crate::xattr;
use file::QuotaFile;
use limits::Grace;
pub(crate) use usage::Ids;
use usage::{Room, Usage};

/// Blocks of quota files that one handle changes at most: three inodes with owners of their own
/// (one that comes, a directory that grows, one that goes), or one that changes its owner.
const SIDE_CREDITS_PER_FILE: u32 = 3;

/// The quota files of a volume.
pub(crate) struct Quotas {
    files: SmallVec<[QuotaFile; 3]>,
    /// Inodes of the volume itself, which no id pays for.
    exempt: RwLock<SmallVec<[InodeNr; 5]>>,
    /// Tells when grace times end, once limits are enforced.
    clock: OnceLock<Arc<dyn Clock>>,
}

impl std::fmt::Debug for Quotas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quotas").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Quotas {
    /// Opens the quota files that the superblock names; none without the feature. From now on they
    /// hear of all changes of inodes.
    ///
    /// # Errors
    /// One of them is damaged.
    pub fn open(vol: &Volume, sb: &Superblock) -> Result<Option<Arc<Self>>> {
        let Some(quotas) = Self::read(vol, sb)?.map(Arc::new) else { return Ok(None) };
        vol.journal.set_side_credits(quotas.files.len() as u32 * SIDE_CREDITS_PER_FILE);
        let _ = vol.accounts.set(Arc::clone(&quotas) as _);
        Ok(Some(quotas))
    }

    /// The quota files that the superblock names, to be looked at.
    ///
    /// # Errors
    /// One of them is damaged.
    pub fn read(vol: &Volume, sb: &Superblock) -> Result<Option<Self>> {
        if !sb.feature_ro_compat.contains(RoCompat::QUOTA) {
            return Ok(None);
        }
        let named = Kind::ALL.map(|kind| (kind, inode_of(sb, kind)));
        let named = named.into_iter().filter(|(_, ino)| ino.is_some());
        let files = named
            .clone()
            .map(|(kind, ino)| QuotaFile::open(vol, kind, ino))
            .collect::<Result<SmallVec<_>>>()?;
        let orphan_file = InodeNr(sb.orphan_file_inum);
        let exempt = named.map(|(_, ino)| ino).chain([orphan_file]).filter(|ino| ino.is_some());
        let exempt = RwLock::new(exempt.collect());
        Ok(Some(Self { files, exempt, clock: OnceLock::new() }))
    }

    /// True for the inode of one of the files.
    pub fn has(&self, ino: InodeNr) -> bool {
        self.files.iter().any(|file| file.ino() == ino)
    }

    /// The inodes of the files.
    pub fn inodes(&self) -> impl Iterator<Item = InodeNr> + '_ {
        self.files.iter().map(QuotaFile::ino)
    }

    /// Blocks of the file with this inode lie at other places now. (Nothing else uses the volume.)
    ///
    /// # Errors
    /// Its map cannot be read.
    pub fn find_blocks(&self, vol: &Volume, ino: InodeNr) -> Result<()> {
        self.files
            .iter()
            .filter(|file| file.ino() == ino)
            .try_for_each(|file| file.find_blocks(vol))
    }

    /// An inode becomes one of the volume itself, before it is written.
    pub fn exempt(&self, ino: InodeNr) {
        self.exempt.write().push(ino);
    }

    /// An inode of the volume itself becomes one that its owners pay for, until it is freed.
    ///
    /// # Errors
    /// As [`Accounts::post`].
    pub fn adopt(&self, vol: &Volume, h: &mut Handle, ino: InodeNr) -> Result<()> {
        self.exempt.write().retain(|exempt| *exempt != ino);
        let raw = vol.read_inode(ino)?;
        let change = Posting { before: None, after: Usage::of(&raw), raw: &raw, values: 0 };
        self.post(vol, h, ino, &change)
    }

    /// From now on limits of these kinds are enforced, and of no others.
    pub fn enforce(&self, clock: &Arc<dyn Clock>, kinds: &[Kind]) {
        let _ = self.clock.set(Arc::clone(clock));
        self.files.iter().for_each(|file| file.enforce(kinds.contains(&file.kind())));
    }

    /// True if limits of some kind are enforced.
    pub fn is_enforced(&self) -> bool {
        self.files.iter().any(QuotaFile::is_enforced)
    }

    fn file(&self, kind: Kind) -> Result<&QuotaFile> {
        let missing = FsError::NotSupported(match kind {
            Kind::User => "the volume has no quota inode for users",
            Kind::Group => "the volume has no quota inode for groups",
            Kind::Project => "the volume has no quota inode for projects",
        });
        self.files.iter().find(|file| file.kind() == kind).ok_or(missing)
    }

    /// The kinds of owners that there are files for.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.files.iter().map(QuotaFile::kind)
    }

    /// What the file of a kind says of at most so many ids, in their order from `from` on.
    ///
    /// # Errors
    /// It is damaged; there is no such file.
    pub fn entries(
        &self,
        vol: &Volume,
        kind: Kind,
        from: u32,
        most: usize,
    ) -> Result<(Grace, Vec<Entry>)> {
        self.file(kind)?.entries(vol, from, most)
    }

    /// How long soft limits may be exceeded.
    ///
    /// # Errors
    /// There is no such file.
    pub fn grace(&self, kind: Kind) -> Result<Grace> {
        Ok(self.file(kind)?.grace())
    }

    /// What a project has, with what is promised to it, and its limits; `None` if these are not
    /// enforced.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn enforced_project(&self, vol: &Volume, id: u32) -> Result<Option<Entry>> {
        let file = self.files.iter().find(|file| file.kind() == Kind::Project);
        file.map_or(Ok(None), |file| file.seen(vol, id))
    }

    /// Makes sure that an id has an entry. Opens a handle if it has none.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare); there is no such file.
    pub fn prepare_one(&self, vol: &Volume, kind: Kind, id: u32) -> Result<()> {
        self.file(kind)?.prepare(vol, id)
    }

    /// Changes the entry of an id, which there is. One credit.
    ///
    /// # Errors
    /// A block cannot be read, or numbers are too large for the file.
    pub fn set(
        &self,
        vol: &Volume,
        h: &mut Handle,
        (kind, id): (Kind, u32),
        set: &mut dyn FnMut(&mut Entry),
    ) -> Result<()> {
        self.file(kind)?.set(vol, h, id, set)
    }

    /// Sets how long soft limits may be exceeded. One credit.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn set_grace(&self, vol: &Volume, h: &mut Handle, kind: Kind, grace: Grace) -> Result<()> {
        self.file(kind)?.set_grace(vol, h, grace)
    }

    fn now(&self) -> u64 {
        self.clock.get().map_or(0, |clock| clock.wall().as_secs())
    }

    /// An inode, to which `reserved` clusters are promised and which has so many `values` in inodes
    /// of their own, is about to get other owners: they must have room for all of it.
    ///
    /// # Errors
    /// A limit is in the way.
    pub fn promise_transfer(
        &self,
        vol: &Volume,
        node: &Node,
        (reserved, values): (u64, u64),
        to: Ids,
    ) -> Result<()> {
        let from = Ids::of_inode(&node.raw);
        if !self.counts(vol, node.ino) || is_unlimited(from.user) {
            return Ok(());
        }
        let space =
            Usage::of(&node.raw).map_or(0, Usage::space).saturating_add(vol.bytes_of(reserved));
        let changes = |file: &&QuotaFile| from.of(file.kind()) != to.of(file.kind());
        let files = self.files.iter().filter(changes);
        promise_all(vol, files, (node.ino, to), Room { space, inodes: 1 + values }, self.now())
    }

    /// Makes sure that ids have entries. Opens a handle if one of them has none.
    ///
    /// # Errors
    /// No room for the entry, or a quota file is damaged.
    pub fn prepare(&self, vol: &Volume, ids: Ids) -> Result<()> {
        self.files.iter().try_for_each(|file| file.prepare(vol, ids.of(file.kind())))
    }
}

impl Accounts for Quotas {
    fn counts(&self, vol: &Volume, ino: InodeNr) -> bool {
        (ino == InodeNr::ROOT || ino >= vol.geo.first_ino) && !self.exempt.read().contains(&ino)
    }

    fn post(&self, vol: &Volume, h: &mut Handle, ino: InodeNr, change: &Posting<'_>) -> Result<()> {
        let (before, after) = with_values(vol, ino, change);
        let (before, after) = match planted::has(planted::Bug::UsageLate) {
            true => planted::keep((before, after)).unwrap_or_default(),
            false => (before, after),
        };
        if before == after {
            return Ok(());
        }
        let now = self.now();
        for file in &self.files {
            for (id, amount) in usage::differences(file.kind(), before, after) {
                file.add(vol, h, (ino, id), amount, now)?;
            }
        }
        if !planted::has(planted::Bug::UsageInFastCommit) {
            eligibility::note_ineligible(h, ino, Reason::Quota);
        }
        Ok(())
    }

    fn promise(&self, vol: &Volume, ino: InodeNr, ids: Ids, more: Room) -> Result<()> {
        if is_unlimited(ids.user) {
            return Ok(());
        }
        promise_all(vol, self.files.iter(), (ino, ids), more, self.now())
    }

    fn space_left(&self, vol: &Volume, ids: Ids) -> Result<u64> {
        if is_unlimited(ids.user) {
            return Ok(u64::MAX);
        }
        let now = self.now();
        self.files.iter().try_fold(u64::MAX, |least, file| {
            Ok(least.min(file.space_left(vol, ids.of(file.kind()), now)?))
        })
    }

    fn settle(&self, ino: InodeNr, ids: Ids, space: u64) {
        let room = Room { space, inodes: 0 };
        self.files.iter().for_each(|file| file.settle(ino, ids.of(file.kind()), room));
    }
}

/// Root is not limited. Where the process is not known, the owner of the file decides.
fn is_unlimited(owner: u32) -> bool {
    extol_vfs::caller().map_or(owner, |caller| caller.uid) == 0
}

/// Promises more of the owners in all these files, or in none.
fn promise_all<'a>(
    vol: &Volume,
    files: impl Iterator<Item = &'a QuotaFile> + Clone,
    (ino, ids): (InodeNr, Ids),
    more: Room,
    now: u64,
) -> Result<()> {
    for (done, file) in files.clone().enumerate() {
        let promised = file.promise(vol, (ino, ids.of(file.kind())), more, now);
        if promised.is_err() {
            files.take(done).for_each(|file| file.take_back(ino, ids.of(file.kind()), more));
            return promised;
        }
    }
    Ok(())
}

/// Err if limits are to be enforced and there is no file that has them.
///
/// # Errors
/// One line with what to do.
pub(crate) fn check_enforceable(
    sb: &Superblock,
    limits: QuotaOptions,
) -> std::result::Result<(), String> {
    let lacks = |kind: &&Kind| {
        !sb.feature_ro_compat.contains(RoCompat::QUOTA) || !inode_of(sb, **kind).is_some()
    };
    let kinds = limits.kinds();
    let Some(kind) = kinds.iter().find(lacks) else { return Ok(()) };
    let is_on = sb.feature_ro_compat.contains(RoCompat::QUOTA);
    let (option, features) = match kind {
        Kind::User => ("usrquota", "quota"),
        Kind::Group => ("grpquota", "quota"),
        Kind::Project => ("prjquota", "quota,project"),
    };
    let how = if is_on { format!("-Q {option}") } else { format!("-O {features}") };
    Err(format!(
        "{option}: the volume has no quota inode for {}s; make it with extol tune {how}",
        kind.name()
    ))
}

/// What the owners pay for, with attribute values in inodes of their own. (Those are counted only
/// where all of them go from one owner to another.)
fn with_values(vol: &Volume, ino: InodeNr, change: &Posting<'_>) -> (Option<Usage>, Option<Usage>) {
    let (before, after) = (change.before, change.after);
    let stay = matches!((before, after), (Some(old), Some(new)) if old.has_owners_of(new));
    let (had, has) = match stay || before == after {
        true => (0, change.values),
        false => {
            let has = i64::from(xattr::count_values(vol, &Node { ino, raw: change.raw.clone() }));
            (has - change.values, has)
        }
    };
    (before.map(|usage| usage.and_values(had)), after.map(|usage| usage.and_values(has)))
}

/// Names the inode of a quota file.
pub(crate) fn set_inode(sb: &mut Superblock, kind: Kind, ino: InodeNr) {
    match kind {
        Kind::User => sb.usr_quota_inum = ino.0,
        Kind::Group => sb.grp_quota_inum = ino.0,
        Kind::Project => sb.prj_quota_inum = ino.0,
    }
}

/// The inode of a quota file.
pub(crate) fn inode_of(sb: &Superblock, kind: Kind) -> InodeNr {
    InodeNr(match kind {
        Kind::User => sb.usr_quota_inum,
        Kind::Group => sb.grp_quota_inum,
        Kind::Project => sb.prj_quota_inum,
    })
}
