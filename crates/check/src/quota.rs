//! Quota files against the usage that the inodes have.

use std::collections::{BTreeMap, HashMap, HashSet};

use extol_ondisk::quota::{BLOCK_LEN, Entry, InMemory, Kind as Owner, Place, QuotaFile};
use extol_ondisk::{FileType, InodeNr, RoCompat};

use crate::bytes::{le16, le32};
use crate::error::Result;
use crate::map::Walk;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// Bytes of an inode up to the end of the project.
const PROJECT_END: u16 = 0xA0 - 128;
/// Where the first block of a quota file says where its lists of free blocks begin.
const FREE_LISTS: std::ops::Range<usize> = 24..32;
/// Where the entries of a block begin.
const ENTRIES_AT: usize = 16;
/// Owners of one kind that get a finding each.
const SHOWN: usize = 10;

/// Bytes and inodes that each owner uses.
#[derive(Debug, Default)]
pub(crate) struct Usage([HashMap<u32, (u64, u64)>; 3]);

impl Usage {
    /// Counts an inode in use, with the `values` of its attributes that are in inodes of their own:
    /// those are counted with the inodes that refer to them. Inodes of the volume itself belong to
    /// no owner.
    pub(crate) fn count(&mut self, vol: &Vol, raw: Raw<'_>, values: u64) {
        let plain = raw.ino == InodeNr::ROOT.0 || raw.ino >= vol.geo.first_ino.0;
        if !vol.ro_compat(RoCompat::QUOTA) || !plain {
            return;
        }
        let wide = |lo, hi| u32::from(le16(raw.b, lo)) | u32::from(le16(raw.b, hi)) << 16;
        let project = if raw.extra_isize() >= PROJECT_END { le32(raw.b, 0x9C) } else { 0 };
        let owners = [wide(0x02, 0x78), wide(0x18, 0x7A), project];
        let space = raw.blocks(&vol.geo).saturating_mul(512);
        for (used, owner) in self.0.iter_mut().zip(owners) {
            let (bytes, inodes) = used.entry(owner).or_default();
            *bytes = bytes.saturating_add(space);
            *inodes += 1 + values;
        }
    }

    /// Adds what another part of the volume has.
    pub(crate) fn add(&mut self, more: Self) {
        for (used, more) in self.0.iter_mut().zip(more.0) {
            for (owner, (space, count)) in more {
                let (bytes, inodes) = used.entry(owner).or_default();
                *bytes = bytes.saturating_add(space);
                *inodes += count;
            }
        }
    }
}

/// Compares the quota files with the usage.
pub(crate) fn check(vol: &Vol, usage: &Usage, out: &mut Findings) -> Result<()> {
    if !vol.ro_compat(RoCompat::QUOTA) {
        return Ok(());
    }
    let files = [
        (Owner::User, vol.sb.usr_quota_inum),
        (Owner::Group, vol.sb.grp_quota_inum),
        (Owner::Project, vol.sb.prj_quota_inum),
    ];
    for ((owner, ino), used) in files.into_iter().zip(&usage.0) {
        if ino == 0 {
            continue;
        }
        let Some(file) = read(vol, ino)? else {
            out.push(bad(ino, "the quota file is no file without holes"));
            continue;
        };
        let Some(mut file) = open(file, owner, ino, out) else { continue };
        match file.entries() {
            // (e2fsck takes what data blocks hold, whatever the tree says.)
            Err(e) => out.push(bad(ino, e.to_string()).beyond()),
            Ok(entries) => {
                let strays = strays(file, &entries);
                compare(owner, ino, used, (&entries, &strays), out);
                for (nr, stray) in &strays {
                    let what = format!(
                        "{} {} has an entry in block {nr} of the file that is not found by its \
                         tree",
                        owner.name(),
                        stray.id
                    );
                    let finding = bad(ino, what);
                    out.push(if is_true(stray, used) { finding.beyond() } else { finding });
                }
            }
        }
    }
    Ok(())
}

/// Opens a quota file. e2fsck passes over one with another magic number; it reads one whose last
/// block is cut short, or whose lists of free blocks begin outside, as if they were not.
fn open(file: Vec<u8>, owner: Owner, ino: u32, out: &mut Findings) -> Option<QuotaFile<InMemory>> {
    let mut mended = file.clone();
    let error = match QuotaFile::open(InMemory(file), owner) {
        Ok(file) => return Some(file),
        Err(error) => bad(ino, error.to_string()),
    };
    mended.resize(mended.len().next_multiple_of(BLOCK_LEN), 0);
    if let Some(lists) = mended.get_mut(FREE_LISTS) {
        lists.fill(0);
    }
    let other = le32(&mended, 0) != owner.magic();
    let mended = QuotaFile::open(InMemory(mended), owner).ok();
    out.push(if other || mended.is_some() { error.beyond() } else { error });
    mended
}

fn bad(ino: u32, what: impl Into<String>) -> Finding {
    Finding::error(Kind::QuotaFile, what).inode(ino)
}

/// True if the entry states what its owner uses.
fn is_true(entry: &Entry, used: &HashMap<u32, (u64, u64)>) -> bool {
    used.get(&entry.id).copied().unwrap_or_default() == (entry.space, entry.inodes)
}

/// What an owner's entry states against what the owner uses. e2fsck takes the statement of a stray
/// entry where the tree leads to none.
fn compare(
    owner: Owner,
    ino: u32,
    used: &HashMap<u32, (u64, u64)>,
    (entries, strays): (&[Entry], &[(u32, Entry)]),
    out: &mut Findings,
) {
    let mut stated: HashMap<u32, (u64, u64)> =
        entries.iter().map(|entry| (entry.id, (entry.space, entry.inodes))).collect();
    let accepted: HashSet<u32> = strays
        .iter()
        .filter(|(_, stray)| is_true(stray, used) && !stated.contains_key(&stray.id))
        .map(|(_, stray)| stray.id)
        .collect();
    let mut wrong = Vec::new();
    for (&id, &wanted) in used {
        let found = stated.remove(&id);
        if found != Some(wanted) {
            wrong.push((accepted.contains(&id), id, found.unwrap_or_default(), wanted));
        }
    }
    wrong.extend(
        stated
            .into_iter()
            .filter(|(_, found)| *found != (0, 0))
            .map(|(id, found)| (false, id, found, (0, 0))),
    );
    // What e2fsck objects to comes first: it must not be among those that are only counted.
    wrong.sort_unstable();
    let push = |is_accepted: bool, what: String, out: &mut Findings| {
        let finding = Finding::error(Kind::QuotaUsage, what).inode(ino);
        out.push(if is_accepted { finding.beyond() } else { finding });
    };
    for &(is_accepted, id, found, wanted) in wrong.iter().take(SHOWN) {
        let what = format!(
            "{} {id} uses {} bytes and {} inodes, not {} and {}",
            owner.name(),
            wanted.0,
            wanted.1,
            found.0,
            found.1
        );
        push(is_accepted, what, out);
    }
    if let Some(&(is_accepted, ..)) = wrong.get(SHOWN) {
        let more = wrong.len() - SHOWN;
        let what = format!("the usage of {more} more {}s is wrong", owner.name());
        push(is_accepted, what, out);
    }
}

/// Entries beside those that the tree leads to, in the blocks that it leads to, with the numbers of
/// these. e2fsck takes them for entries like the others, and passes over one that states what is
/// used.
fn strays(mut file: QuotaFile<InMemory>, entries: &[Entry]) -> Vec<(u32, Entry)> {
    let version = file.header().version;
    let mut places = BTreeMap::<u32, Vec<usize>>::new();
    for entry in entries {
        if let Ok(Some(place)) = file.find(entry.id) {
            places.entry(place.block).or_default().push(place.slot);
        }
    }
    let bytes = file.into_blocks().0;
    let mut strays = Vec::new();
    for (nr, known) in places {
        let block =
            bytes.get(nr as usize * BLOCK_LEN..).and_then(|bytes| bytes.first_chunk::<BLOCK_LEN>());
        let Some(block) = block else { continue };
        for slot in (0..version.entries_per_block()).filter(|slot| !known.contains(slot)) {
            let id = le32(block, ENTRIES_AT + slot * version.entry_len());
            let place = Place { block: nr, slot };
            strays.extend(place.entry(block, version, id).ok().map(|entry| (nr, entry)));
        }
    }
    strays
}

/// The bytes of a file; `None` if it has holes or is no file.
fn read(vol: &Vol, ino: u32) -> Result<Option<Vec<u8>>> {
    let Some(bytes) = vol.inode(ino)? else { return Ok(None) };
    let raw = Raw { b: &bytes, ino };
    if !raw.is(FileType::Regular) || !raw.maps_blocks(&vol.geo) {
        return Ok(None);
    }
    let blocks = raw.size().div_ceil(vol.geo.block_len() as u64);
    let mapped = Walk::new(vol, None, raw, true, &mut Findings::new(0)).run()?;
    let mut file = Vec::new();
    let mut next = 0;
    for run in mapped.runs {
        if run.lblk != next || run.lblk >= blocks {
            break;
        }
        for n in 0..run.len.min(blocks - run.lblk) {
            file.extend_from_slice(&vol.block(run.pblk + n)?);
            next += 1;
        }
    }
    file.truncate(usize::try_from(raw.size()).unwrap_or(usize::MAX));
    Ok((next == blocks).then_some(file))
}
