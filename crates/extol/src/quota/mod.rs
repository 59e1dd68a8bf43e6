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
//! - QU-4: a fast commit holds no usage. An inode whose change was posted is made durable by a full
//!   commit until its transaction has committed (`Reason::Quota`).

mod blocks;
mod file;
pub(crate) mod usage;

use std::sync::Arc;

use extol_jbd2::Handle;
use extol_ondisk::quota::Kind;
use extol_ondisk::{InodeNr, RoCompat, Superblock};
use extol_vfs::Result;
use parking_lot::RwLock;
use smallvec::SmallVec;

use crate::fast_commit::eligibility;
use crate::fast_commit::reason::Reason;
use crate::node::Node;
use crate::volume::{Accounts, Posting, Volume};
use crate::xattr;
use file::QuotaFile;
pub(crate) use usage::Ids;
use usage::Usage;

/// Blocks of quota files that one handle changes at most: three inodes with owners of their own
/// (one that comes, a directory that grows, one that goes), or one that changes its owner.
const SIDE_CREDITS_PER_FILE: u32 = 3;

/// The quota files of a volume.
#[derive(Debug)]
pub(crate) struct Quotas {
    files: SmallVec<[QuotaFile; 3]>,
    /// Inodes of the volume itself, which no id pays for.
    exempt: RwLock<SmallVec<[InodeNr; 5]>>,
}

impl Quotas {
    /// Opens the quota files that the superblock names; none without the feature. From now on they
    /// hear of all changes of inodes.
    ///
    /// # Errors
    /// One of them is damaged.
    pub fn open(vol: &Volume, sb: &Superblock) -> Result<Option<Arc<Self>>> {
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
        let quotas = Arc::new(Self { files, exempt: RwLock::new(exempt.collect()) });
        vol.journal.set_side_credits(quotas.files.len() as u32 * SIDE_CREDITS_PER_FILE);
        let _ = vol.accounts.set(Arc::clone(&quotas) as _);
        Ok(Some(quotas))
    }

    /// True for the inode of one of the files.
    pub fn has(&self, ino: InodeNr) -> bool {
        self.files.iter().any(|file| file.ino() == ino)
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
        if before == after {
            return Ok(());
        }
        for file in &self.files {
            for (id, amount) in usage::differences(file.kind(), before, after) {
                file.add(vol, h, id, amount)?;
            }
        }
        eligibility::note_ineligible(h, ino, Reason::Quota);
        Ok(())
    }
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
