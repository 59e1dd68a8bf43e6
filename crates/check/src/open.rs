//! Before pass 1: the superblock, the journal, the group descriptors. A volume that needs recovery
//! is recovered in memory, and the passes see the result.

use std::sync::Arc;

use extol_block::SharedDevice;
use extol_block::open::{Damaged, damaged_superblock};
use extol_jbd2::recovery;
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Geometry, GroupFlags, GroupNr, Incompat, RoCompat, Superblock};

use crate::bytes::{le16, le32};
use crate::error::{CheckError, Result};
use crate::journal::{self, Log};
use crate::report::{Finding, Findings, Kind, Replayed};
use crate::vol::Vol;
use crate::{CheckOptions, Recovery};

const SUPER_AT: u64 = 1024;

/// A volume that can be checked.
pub(crate) struct Opened {
    pub vol: Vol,
    pub replayed: Option<Replayed>,
}

/// Opens a volume. `None`: what was found makes everything else pointless.
pub(crate) fn open(
    device: SharedDevice,
    opts: &CheckOptions,
    out: &mut Findings,
) -> Result<Option<Opened>> {
    let read = match opts.superblock {
        Some(at) => Some(by_named_copy(device, at, out)?),
        None => read_volume(device, out)?,
    };
    let Some(mut vol) = read else { return Ok(None) };
    places(&mut vol, &mut Findings::new(0));
    let dirty = vol.sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY);
    // A copy of the superblock does not say whether there is something to recover.
    let may_be_dirty = vol.by_copy && (vol.sb.journal_inum != 0 || opts.journal.is_some());
    let mut replayed = None;
    if dirty && !vol.compat(Compat::HAS_JOURNAL) {
        let what = "the volume needs recovery but has no journal";
        out.push(Finding::error(Kind::JournalSuperblock, what).beyond());
    } else if (dirty || may_be_dirty) && opts.recovery == Recovery::InMemory {
        let Some((recovered, did)) = recover(&vol, opts, out)? else { return Ok(None) };
        if dirty || did.transactions > 0 {
            vol = recovered;
            replayed = Some(did);
        }
    }
    descriptors(&mut vol, out);
    superblock(&vol, out)?;
    if vol.recovered {
        crate::orphans::find(&mut vol, out)?;
    }
    Ok(Some(Opened { vol, replayed }))
}

/// Why a superblock cannot be used.
enum Unusable {
    /// It is none.
    Missing(String),
    /// It contradicts itself, or the device.
    Damaged(String),
}

/// Reads superblock and descriptors. A copy is used in place of a damaged superblock, as e2fsck
/// does.
pub(crate) fn read_volume(device: SharedDevice, out: &mut Findings) -> Result<Option<Vol>> {
    let why = match volume_at(&device, SUPER_AT)? {
        Ok(vol) => return Ok(Some(vol)),
        Err(why) => why,
    };
    let error = |what| Finding::error(Kind::SuperblockBad, what);
    if let Some(damaged) = damaged_superblock(&*device)
        && let Ok(mut vol) = volume_at(&device, damaged.at())?
    {
        let (Unusable::Missing(why) | Unusable::Damaged(why)) = why;
        let Damaged { block, .. } = damaged;
        out.push(error(format!("{why}: the copy in block {block} is used")).block(block));
        vol.by_copy = true;
        return Ok(Some(vol));
    }
    match why {
        Unusable::Missing(why) => Err(CheckError::NoFileSystem(why)),
        Unusable::Damaged(why) => {
            out.push(error(why));
            Ok(None)
        }
    }
}

/// Reads superblock and descriptors by the copy that begins in this place, in bytes.
fn by_named_copy(device: SharedDevice, at: u64, out: &mut Findings) -> Result<Vol> {
    let mut vol = match volume_at(&device, at)? {
        Ok(vol) => vol,
        Err(Unusable::Missing(why) | Unusable::Damaged(why)) => {
            let what = format!("{why}, in the superblock at byte {at}");
            return Err(CheckError::NoFileSystem(what));
        }
    };
    vol.by_copy = at != SUPER_AT;
    let block = at / vol.geo.block_len() as u64;
    let finding = match volume_at(&device, SUPER_AT) {
        Ok(Err(Unusable::Missing(why) | Unusable::Damaged(why))) => {
            let what = format!("{why}: the copy in block {block} is used");
            Finding::error(Kind::SuperblockBad, what)
        }
        _ => Finding::note(Kind::BackupSuperblock, "this copy of the superblock is used"),
    };
    if vol.by_copy {
        out.push(finding.block(block));
    }
    Ok(vol)
}

/// Reads the volume by the superblock in this place, in bytes.
fn volume_at(device: &SharedDevice, at: u64) -> Result<std::result::Result<Vol, Unusable>> {
    let mut bytes = [0; 1024];
    if at.checked_add(1024).is_none_or(|end| end > device.size()) {
        return Ok(Err(Unusable::Missing("the device is too small".into())));
    }
    device.read_at(&mut bytes, at)?;
    if le16(&bytes, 0x38) != extol_ondisk::superblock::MAGIC {
        return Ok(Err(Unusable::Missing("bad magic number".into())));
    }
    let damaged = |what: String| Ok(Err(Unusable::Damaged(what)));
    let sb = match Superblock::decode(&bytes) {
        Ok(sb) => sb,
        Err(error) => return damaged(error.to_string()),
    };
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(CheckError::NoFileSystem("this is an external journal".into()));
    }
    if sb.rev_level > 1 {
        return damaged(format!("unknown revision {}", sb.rev_level));
    }
    supported(&sb)?;
    let geo = match Geometry::new(&sb, Some(device.size())) {
        Ok(geo) => geo,
        Err(error) => return damaged(error.to_string()),
    };
    if let Some(what) = contradiction(&sb, &geo) {
        return damaged(what);
    }
    Ok(Ok(Vol::new(SharedDevice::clone(device), sb, geo)?))
}

/// What e2fsck takes for damage in a superblock that has a geometry.
fn contradiction(sb: &Superblock, geo: &Geometry) -> Option<String> {
    if sb.r_blocks_count > geo.blocks() / 2 {
        return Some(format!("{} of {} blocks are reserved", sb.r_blocks_count, geo.blocks()));
    }
    let most =
        u64::from(geo.inodes_per_block()) * u64::from(geo.blocks_per_group.saturating_sub(4));
    if !geo.ro_compat.contains(RoCompat::BIGALLOC)
        && (sb.log_cluster_size != sb.log_block_size
            || sb.clusters_per_group != sb.blocks_per_group)
    {
        Some("clusters that are no blocks, without the feature bigalloc".to_owned())
    } else if geo.incompat().contains(Incompat::CASEFOLD) && sb.encoding != 1 {
        Some(format!("unknown encoding {} of names", sb.encoding))
    } else if sb.log_groups_per_flex > 31 {
        Some(format!("2^{} groups in a flexible group", sb.log_groups_per_flex))
    } else if sb.desc_size != 0 && !(sb.desc_size.is_power_of_two() && sb.desc_size <= 1024) {
        Some(format!("descriptors of {} bytes", sb.desc_size))
    } else if u64::from(geo.inodes_per_group) > most {
        Some(format!("{} inodes per group are too many", geo.inodes_per_group))
    } else {
        None
    }
}

/// Refuses what this checker does not know.
fn supported(sb: &Superblock) -> Result<()> {
    let compat =
        sb.feature_compat & (Compat::LAZY_BG | Compat::EXCLUDE_INODE | Compat::EXCLUDE_BITMAP);
    let incompat = sb.feature_incompat & (Incompat::COMPRESSION | Incompat::DIRDATA);
    let ro = sb.feature_ro_compat & (RoCompat::BTREE_DIR | RoCompat::SNAPSHOT | RoCompat::REPLICA);
    let mut names = [compat.names(), incompat.names(), ro.names()].concat();
    let unknown = [
        sb.feature_compat.unknown(),
        sb.feature_incompat.unknown(),
        sb.feature_ro_compat.unknown(),
    ];
    if unknown != [0; 3] {
        names.push("unknown bits");
    }
    if names.is_empty() {
        return Ok(());
    }
    Err(CheckError::Unsupported(format!("the volume uses {}", names.join(", "))))
}

/// Replays the log into memory.
fn recover(vol: &Vol, opts: &CheckOptions, out: &mut Findings) -> Result<Option<(Vol, Replayed)>> {
    let log = match journal::find_log(vol, opts.journal.as_ref())? {
        Log::Found(device, map) => (device, map),
        Log::Bad(finding) => {
            out.push(finding);
            return Ok(None);
        }
    };
    let done = recovery::read_superblock(&*log.0, &log.1).and_then(|jsb| {
        let size = recovery::FsSize::of(&vol.geo, &*vol.dev);
        recovery::recover_to_memory(&*log.0, &log.1, &jsb, size)
    });
    let (done, overlay) = match done {
        Ok(done) => done,
        Err(extol_jbd2::JournalError::Unsupported(why)) => {
            return Err(CheckError::Unsupported(why));
        }
        Err(extol_jbd2::JournalError::Device(error)) => return Err(error.into()),
        Err(error) => {
            out.push(Finding::error(Kind::JournalReplay, error.to_string()));
            return Ok(None);
        }
    };
    if done.errno != 0 {
        let what = format!("the journal was aborted with error {}", done.errno);
        out.push(Finding::note(Kind::JournalDirty, what));
    }
    let device: SharedDevice = match (done.fast_commits, &opts.fast_commits) {
        (None, _) => Arc::new(overlay.over(Arc::clone(&vol.dev), vol.geo.block_size)),
        (Some(_), None) => {
            return Err(CheckError::Unsupported("the journal holds fast commits".into()));
        }
        (Some(_), Some(recoverer)) => match (recoverer.0)(&vol.dev, opts.journal.as_ref()) {
            Ok(device) => device,
            Err(why) => {
                out.push(Finding::error(Kind::JournalReplay, why));
                return Ok(None);
            }
        },
    };
    // (What was wrong before is already found.)
    let again = &mut Findings::new(0);
    let known = if vol.by_copy { again } else { out };
    let read = match opts.superblock {
        Some(at) => Some(by_named_copy(device, at, known)?),
        None => read_volume(device, known)?,
    };
    let Some(mut recovered) = read else { return Ok(None) };
    recovered.recovered = true;
    // As a mount has it: an error of before, or one that aborted the journal, outlives the replay.
    if done.errno != 0 || vol.sb.state.contains(State::ERROR) {
        recovered.sb.state |= State::ERROR;
    }
    let did = Replayed {
        transactions: done.replayed_transactions,
        blocks: done.replayed_blocks,
        revoked: done.revoke_hits,
    };
    Ok(Some((recovered, did)))
}

/// Where the groups' bitmaps and tables are; notes in the groups which of them can be read.
pub(crate) fn places(vol: &mut Vol, out: &mut Findings) {
    let geo = vol.geo.clone();
    let table = u64::from(geo.inode_table_blocks);
    let flex = geo.incompat().contains(Incompat::FLEX_BG);
    for (nr, g) in (0u32..).zip(&mut vol.groups) {
        let start = geo.group_first_block(GroupNr(nr)).0;
        let end = start + u64::from(geo.group_blocks(GroupNr(nr)));
        let mut check = |at: u64, len: u64, what: &str| {
            let exists = at >= geo.first_data_block
                && at != 0
                && at.checked_add(len).is_some_and(|behind| behind <= geo.blocks());
            let home = flex || at >= start && at.saturating_add(len) <= end;
            if !exists || !home {
                let what = format!("the {what} is at impossible block {at}");
                out.push(Finding::error(Kind::GroupPlace, what).group(nr));
            }
            exists
        };
        g.block_bitmap_ok = check(g.block_bitmap, 1, "block bitmap");
        g.inode_bitmap_ok = check(g.inode_bitmap, 1, "inode bitmap");
        g.table_ok = check(g.inode_table, table, "inode table");
    }
}

fn descriptors(vol: &mut Vol, out: &mut Findings) {
    places(vol, out);
    let geo = &vol.geo;
    let csums = geo.has_gdt_csum();
    for (nr, g) in (0u32..).zip(&vol.groups) {
        let mut error =
            |kind, what: String| out.push(Finding::error(kind, what).group(nr).beyond());
        if csums && g.csum_found != g.csum_wanted {
            let what = format!(
                "the descriptor's checksum is {:#x}, not {:#x}",
                g.csum_found, g.csum_wanted
            );
            error(Kind::GroupChecksum, what);
        }
        if csums && (g.unused > g.free_inodes || g.unused > geo.inodes_per_group) {
            let what = format!("{} never-used inodes, but {} free ones", g.unused, g.free_inodes);
            error(Kind::GroupUnused, what);
        }
        if csums && nr + 1 == geo.groups() && g.has(GroupFlags::BLOCK_UNINIT) {
            let what = "the last group's block bitmap is marked as never written";
            if geo.group_blocks(GroupNr(nr)) == 8 * geo.block_size.bytes() {
                // Linux leaves it so when it grows a volume by whole groups. Nothing depends on
                // the bitmap: it has no bits behind the end of the group.
                out.push(Finding::note(Kind::GroupFlags, what).group(nr));
            } else {
                error(Kind::GroupFlags, what.to_owned());
            }
        }
        if !csums && (g.has(GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT) || g.unused != 0) {
            let what = "flags for parts that were never written, but the feature is not set";
            out.push(Finding::note(Kind::GroupFlags, what).group(nr));
        }
    }
}

/// Other fields of the superblock.
fn superblock(vol: &Vol, out: &mut Findings) -> Result<()> {
    let (sb, geo) = (&vol.sb, &vol.geo);
    let mut field = |what: String| out.push(Finding::note(Kind::SuperblockField, what));
    if geo.inode_size > 128 {
        let room = geo.inode_size - 128;
        for (name, n) in
            [("min_extra_isize", sb.min_extra_isize), ("want_extra_isize", sb.want_extra_isize)]
        {
            if n != 0 && (n < 4 || n > room || n % 4 != 0) {
                field(format!("{name} is {n}"));
            }
        }
    }
    if vol.ro_compat(RoCompat::METADATA_CSUM) && vol.ro_compat(RoCompat::UNINIT_BG) {
        field("metadata_csum and uninit_bg are both set".to_owned());
    }
    if vol.incompat(Incompat::CSUM_SEED) && !vol.has_csum() {
        field("metadata_csum_seed is set without metadata_csum".to_owned());
    }
    if vol.incompat(Incompat::BIT64) && !vol.incompat(Incompat::EXTENTS) {
        field("64bit is set without extents".to_owned());
    }
    if sb.state.contains(State::ERROR) {
        out.push(Finding::note(Kind::State, "the volume is marked as damaged"));
    } else if !vol.recovered && !sb.state.contains(State::VALID) {
        out.push(Finding::note(Kind::State, "the volume was not closed cleanly"));
    }
    if vol.ro_compat(RoCompat::ORPHAN_PRESENT) && !vol.compat(Compat::ORPHAN_FILE) {
        let what = "orphan_present is set without orphan_file";
        out.push(Finding::error(Kind::OrphanFile, what));
    }
    backups(vol, out)
}

/// Copies of the superblock: they are read only when the primary one is lost, so what is wrong with
/// them is a note.
fn backups(vol: &Vol, out: &mut Findings) -> Result<()> {
    for group in vol.geo.backup_groups() {
        let at = vol.geo.group_first_block(group).0;
        let mut bytes = [0; 1024];
        vol.dev.read_at(&mut bytes, at * vol.geo.block_len() as u64)?;
        let what = match Superblock::decode(&bytes) {
            Err(error) => error.to_string(),
            Ok(copy) => {
                let same = copy.blocks_count == vol.sb.blocks_count
                    && copy.inodes_count == vol.sb.inodes_count
                    && copy.log_block_size == vol.sb.log_block_size
                    && copy.uuid == vol.sb.uuid;
                let number = le32(&bytes, 0x5A) & 0xFFFF;
                if same && number == group.0 & 0xFFFF {
                    continue;
                }
                "the copy of the superblock is not that of this volume".to_owned()
            }
        };
        out.push(Finding::note(Kind::BackupSuperblock, what).group(group.0).block(at));
    }
    Ok(())
}

/// The totals of the superblock against the groups. e2fsck -fn mentions a difference and does not
/// count it.
pub(crate) fn totals(vol: &Vol, free_blocks: u64, free_inodes: u64, out: &mut Findings) {
    if vol.by_copy {
        return;
    }
    let pairs = [
        (vol.sb.free_blocks_count, free_blocks, "blocks"),
        (u64::from(vol.sb.free_inodes_count), free_inodes, "inodes"),
    ];
    for (stated, found, what) in pairs {
        if stated != found {
            let what =
                format!("the superblock states {stated} free {what}, the groups have {found}");
            out.push(Finding::note(Kind::SuperblockTotals, what));
        }
    }
}
