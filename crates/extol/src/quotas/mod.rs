//! Quotas of a volume for its administrators: usage and limits of all ids, other limits, and
//! whether usage is what the inodes say.

mod project;
pub mod text;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use extol_ondisk::{Inode, InodeFlags, InodeNr, Superblock};
use extol_vfs::{FsError, Result};

pub use extol_ondisk::quota::{Entry, Kind, LIMIT_UNIT};
pub(crate) use project::within_project;

use crate::data::writeback;
use crate::error;
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::quota::limits::{self, Grace};
use crate::quota::{Ids, Quotas};
use crate::xattr;

/// What is said of a volume without the feature.
const NO_QUOTA: &str = "the volume has no quota inodes (extol tune -O quota makes them)";

/// One quota file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Whose usage it has.
    pub kind: Kind,
    /// Seconds that soft limits on space may be exceeded.
    pub space_grace: u32,
    /// Seconds that soft limits on inodes may be exceeded.
    pub inode_grace: u32,
    /// Usage and limits, in the order of the ids.
    pub entries: Vec<Entry>,
    /// The file of the root directory that has them: one of the old kind, which nothing keeps.
    pub file: Option<&'static str>,
}

/// Limits to set; `None` leaves one as it is, 0 is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limits {
    /// Space that may be exceeded for a time, in units of [`LIMIT_UNIT`] bytes.
    pub space_soft: Option<u64>,
    /// Most space, in units of [`LIMIT_UNIT`] bytes.
    pub space_hard: Option<u64>,
    /// Inodes that may be exceeded for a time.
    pub inode_soft: Option<u64>,
    /// Most inodes.
    pub inode_hard: Option<u64>,
}

/// An id whose usage in the quota file is not what the inodes say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongUsage {
    /// In which file.
    pub kind: Kind,
    /// User, group or project.
    pub id: u32,
    /// Bytes and inodes by the quota file.
    pub stated: (u64, u64),
    /// Bytes and inodes by the inodes.
    pub used: (u64, u64),
}

/// The quota files, also of a volume that is only read.
fn files(fs: &MountedFs) -> Result<Arc<Quotas>> {
    if let Some(quotas) = fs.quotas.get() {
        return Ok(Arc::clone(quotas));
    }
    let sb = fs.sb.read(Superblock::clone);
    let quotas = Quotas::read(&fs.vol, &sb)?.ok_or(FsError::NotSupported(NO_QUOTA))?;
    Ok(Arc::new(quotas))
}

/// All quota files. (Usage of dirty data counts.)
pub(crate) fn report(fs: &MountedFs) -> Result<Vec<Quota>> {
    if fs.check_writable().is_ok() {
        writeback::flush_all(fs)?;
    }
    let quotas = files(fs)?;
    quotas.kinds().map(|kind| part(fs, &quotas, kind, 0, usize::MAX)).collect()
}

/// At most so many entries of a quota file, in the order of the ids from `from` on; `None` if the
/// volume has none of this kind. (Dirty data counts in the first part.)
pub(crate) fn report_from(
    fs: &MountedFs,
    kind: Kind,
    from: u32,
    most: usize,
) -> Result<Option<Quota>> {
    if from == 0 && fs.check_writable().is_ok() {
        writeback::flush_all(fs)?;
    }
    let quotas = files(fs)?;
    let is_there = quotas.kinds().any(|there| there == kind);
    is_there.then(|| part(fs, &quotas, kind, from, most)).transpose()
}

fn part(fs: &MountedFs, quotas: &Quotas, kind: Kind, from: u32, most: usize) -> Result<Quota> {
    let (grace, entries) = quotas.entries(&fs.vol, kind, from, most)?;
    Ok(Quota { kind, space_grace: grace.space, inode_grace: grace.inodes, entries, file: None })
}

/// Sets limits of ids, durably.
pub(crate) fn set_limits(fs: &MountedFs, kind: Kind, ids: &[u32], wanted: Limits) -> Result<()> {
    fs.check_writable()?;
    let quotas = files(fs)?;
    let grace = quotas.grace(kind)?;
    let now = fs.clock.wall().as_secs();
    for &id in ids {
        quotas.prepare_one(&fs.vol, kind, id)?;
        fs.transact(1, |h| {
            quotas.set(&fs.vol, h, (kind, id), &mut |entry| {
                put(&mut entry.space_soft, wanted.space_soft);
                put(&mut entry.space_hard, wanted.space_hard);
                put(&mut entry.inode_soft, wanted.inode_soft);
                put(&mut entry.inode_hard, wanted.inode_hard);
                let space = wanted.space_soft.or(wanted.space_hard).is_some();
                let inodes = wanted.inode_soft.or(wanted.inode_hard).is_some();
                limits::begin_times(entry, (space, inodes), now, grace);
            })
        })?;
    }
    fs.vol.journal.make_all_durable().map_err(error::journal)
}

fn put(field: &mut u64, value: Option<u64>) {
    *field = value.unwrap_or(*field);
}

/// Sets how long soft limits may be exceeded, durably; `None` leaves one as it is.
pub(crate) fn set_grace(
    fs: &MountedFs,
    kind: Kind,
    space: Option<u32>,
    inodes: Option<u32>,
) -> Result<()> {
    fs.check_writable()?;
    let quotas = files(fs)?;
    let old = quotas.grace(kind)?;
    let grace = Grace { space: space.unwrap_or(old.space), inodes: inodes.unwrap_or(old.inodes) };
    fs.transact(1, |h| quotas.set_grace(&fs.vol, h, kind, grace))?;
    fs.vol.journal.make_all_durable().map_err(error::journal)
}

/// Calls `each` with every inode that belongs to an owner, and for how many its owners pay: those
/// with values of its attributes as well. No file is open that has no name.
pub(crate) fn count(fs: &MountedFs, each: &mut dyn FnMut(&Inode, u64)) -> Result<()> {
    let (vol, first) = (&fs.vol, fs.vol.geo.first_ino);
    let inodes = (first.0..=vol.geo.inodes()).map(InodeNr);
    for ino in std::iter::once(InodeNr::ROOT).chain(inodes) {
        if fs.is_internal(ino.0) || !vol.alloc.is_inode_used(ino)? {
            continue;
        }
        let raw = vol.read_inode(ino)?;
        if raw.links > 0 && !raw.flags.contains(InodeFlags::EA_INODE) {
            let node = Node { ino, raw };
            each(&node.raw, 1 + u64::from(xattr::count_values(vol, &node)));
        }
    }
    Ok(())
}

/// Compares the quota files with the inodes.
pub(crate) fn wrong_usage(fs: &MountedFs) -> Result<Vec<WrongUsage>> {
    let quotas = report(fs)?;
    let mut used: Vec<HashMap<u32, (u64, u64)>> = vec![HashMap::new(); quotas.len()];
    count(fs, &mut |raw, count| {
        let ids = Ids::of_inode(raw);
        for (quota, used) in quotas.iter().zip(&mut used) {
            let (bytes, inodes) = used.entry(ids.of(quota.kind)).or_default();
            *bytes = bytes.saturating_add(raw.blocks.saturating_mul(512));
            *inodes += count;
        }
    })?;
    let wrong = quotas.iter().zip(used).flat_map(|(quota, used)| compare(quota, used));
    Ok(wrong.collect())
}

fn compare(quota: &Quota, used: HashMap<u32, (u64, u64)>) -> Vec<WrongUsage> {
    let stated = quota.entries.iter().map(|entry| (entry.id, (entry.space, entry.inodes)));
    let mut both: BTreeMap<u32, [(u64, u64); 2]> = BTreeMap::new();
    stated.for_each(|(id, usage)| both.entry(id).or_default()[0] = usage);
    used.into_iter().for_each(|(id, usage)| both.entry(id).or_default()[1] = usage);
    let wrong = both.into_iter().filter(|(_, [stated, used])| stated != used);
    wrong.map(|(id, [stated, used])| WrongUsage { kind: quota.kind, id, stated, used }).collect()
}

/// Writes the usage that [`wrong_usage`] has found, durably. Nothing may have changed meanwhile.
pub(crate) fn correct_usage(fs: &MountedFs, wrong: &[WrongUsage]) -> Result<()> {
    fs.check_writable()?;
    let quotas = files(fs)?;
    let now = fs.clock.wall().as_secs();
    for found in wrong {
        let grace = quotas.grace(found.kind)?;
        quotas.prepare_one(&fs.vol, found.kind, found.id)?;
        fs.transact(1, |h| {
            quotas.set(&fs.vol, h, (found.kind, found.id), &mut |entry| {
                (entry.space, entry.inodes) = found.used;
                limits::correct_times(entry, now, grace);
            })
        })?;
    }
    fs.vol.journal.make_all_durable().map_err(error::journal)
}
