//! What `extol info` shows, the superblocks as they are, and recovery without a mount.

use std::fmt;

use extol_block::SharedDevice;
use extol_jbd2::format::JournalSuperblock;
use extol_jbd2::{LogMap, recovery};
use extol_ondisk::mmp::Mmp;
use extol_ondisk::superblock::{State, uuid_text};
use extol_ondisk::{BlockSize, Compat, Geometry, GroupDesc, GroupNr, Incompat, Superblock};
use extol_vfs::plain;
use serde::Serialize;

use crate::error::{OpenError, OpenResult, refuse};
use crate::fast_commit_support::Obstacle;
use crate::find_journal;
use crate::mount::journal as journals;
use crate::mount::{self, Purpose, Replayed, close, dry_run, features};
use crate::options::MountOptions;
use crate::superblock::{geometry, has_orphans, read_superblock, text, write_superblock};

/// A volume's superblock in words.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Label.
    pub label: String,
    /// Uuid.
    pub uuid: String,
    /// Where it was mounted last.
    pub last_mounted: String,
    /// Bytes per block.
    pub block_size: u32,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Bytes per inode.
    pub inode_size: u16,
    /// Block groups.
    pub groups: u32,
    /// All features, as mke2fs spells them.
    pub features: Vec<String>,
    /// "clean", "not clean", "clean with errors" …
    pub state: String,
    /// The journal must be replayed.
    pub needs_recovery: bool,
    /// Errors recorded.
    pub error_count: u32,
    /// "internal", "external" or "none".
    pub journal: String,
    /// Blocks of the journal, if it could be read.
    pub journal_blocks: Option<u32>,
    /// Blocks of the fast-commit area; `None` without the feature, or if the journal could not be
    /// read.
    pub fast_commit_blocks: Option<u32>,
    /// Why a mount would have no fast commits; `None` if it would (unless `nofast_commit` says
    /// otherwise).
    pub no_fast_commits: Option<String>,
    /// How names are folded in casefolded directories, as mke2fs spells it; `None` without the
    /// feature.
    pub encoding: Option<String>,
    /// Flags of the encoding: "strict" (names are valid), "no_compat_fallback" (names have no
    /// hashes of Linux 6.12), others as numbers.
    pub encoding_flags: Vec<String>,
    /// Why Extol would refuse to mount it read-write; `None` if it would not.
    pub refused: Option<String>,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// Creation, last mount, last write, last check: seconds since 1970.
    pub created: u64,
    /// Last mount.
    pub mounted: u64,
    /// Last write.
    pub written: u64,
    /// Last check.
    pub checked: u64,
}

/// Reads a volume's superblock.
///
/// # Errors
/// If it is not an ext4 volume.
pub fn info(device: &SharedDevice) -> OpenResult<Info> {
    info_with(device, &MountOptions::default())
}

/// As [`info`], of the superblock and with the external journal that the options name. The other
/// options change nothing.
///
/// # Errors
/// As [`info`], and if the external journal cannot be opened or is not this volume's.
pub fn info_with(device: &SharedDevice, options: &MountOptions) -> OpenResult<Info> {
    let sb = read_superblock(&**device, options.access.superblock)?;
    let geo = geometry(&**device, &sb)?;
    let mut list = sb.feature_compat.names();
    list.extend(sb.feature_incompat.names());
    list.extend(sb.feature_ro_compat.names());
    let has_journal = sb.feature_compat.contains(Compat::HAS_JOURNAL);
    // What is shown is read, and nothing is written.
    let reading = options.clone().read_only();
    let names_journal = options.journal.path.is_some() || options.journal.device.is_some();
    let log = match has_journal {
        true if sb.journal_inum != 0 => find_journal::find(device, &sb, &geo, &reading).ok(),
        true if names_journal => Some(find_journal::find(device, &sb, &geo, &reading)?),
        _ => None,
    };
    let log = log.and_then(|log| recovery::read_superblock(&*log.device, &log.map).ok());
    let has_fast_commits = sb.feature_compat.contains(Compat::FAST_COMMIT);
    let data = MountOptions::default().effective(&sb).journal.data_mode.unwrap_or_default();
    let obstacle = Obstacle::of(&sb, log.as_ref(), data);
    let needs_recovery = sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY);
    let mut state = if sb.state.contains(State::VALID) { "clean" } else { "not clean" }.to_owned();
    if sb.state.contains(State::ERROR) {
        state.push_str(" with errors");
    }
    Ok(Info {
        label: text(&sb.volume_name),
        uuid: uuid_text(&sb.uuid),
        last_mounted: text(&sb.last_mounted),
        block_size: geo.block_size.bytes(),
        blocks: geo.blocks(),
        free_blocks: sb.free_blocks_count,
        reserved_blocks: sb.r_blocks_count,
        inodes: geo.inodes(),
        free_inodes: sb.free_inodes_count,
        inode_size: geo.inode_size,
        groups: geo.groups(),
        features: list.into_iter().map(str::to_owned).collect(),
        state,
        needs_recovery,
        error_count: sb.error_count,
        journal: match (has_journal, sb.journal_inum) {
            (false, _) => "none",
            (true, 0) => "external",
            (true, _) => "internal",
        }
        .to_owned(),
        journal_blocks: log.as_ref().map(|log| log.maxlen),
        fast_commit_blocks: log.filter(|_| has_fast_commits).map(|log| log.fc_blocks()),
        no_fast_commits: obstacle.map(|why| why.short()),
        encoding: sb.encoding_name().map(str::to_owned),
        encoding_flags: sb.encoding_flag_names(),
        refused: device
            .write_refusal()
            .or_else(|| dry_run::refusal(device, &with_journal_of(options))),
        mount_count: sb.mnt_count,
        created: sb.mkfs_time,
        mounted: sb.mtime,
        written: sb.wtime,
        checked: sb.lastcheck,
    })
}

/// The options of a plain mount, with the external journal of these.
fn with_journal_of(options: &MountOptions) -> MountOptions {
    let mut plain = MountOptions::default();
    plain.journal.path.clone_from(&options.journal.path);
    plain.journal.device.clone_from(&options.journal.device);
    plain
}

/// What stands in the superblocks of a volume and its journal.
#[derive(Clone, Debug)]
pub struct Header {
    /// The superblock.
    pub superblock: Superblock,
    /// Where everything is; `None` for a journal device.
    pub geometry: Option<Geometry>,
    /// The superblock of the journal, if it is internal, or is what this is, and can be read.
    pub journal: Option<JournalSuperblock>,
    /// The block of the multiple-mount protection.
    pub mmp: Option<Mmp>,
}

/// Reads the superblock, the one at `place` KiB if that is given, and what it leads to.
///
/// # Errors
/// If it is not an ext4 volume.
pub fn header(device: &SharedDevice, place: Option<u64>) -> OpenResult<Header> {
    let superblock = read_superblock(&**device, place)?;
    if superblock.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        // Its own superblock is in the block behind.
        let size = u64::from(superblock.block_bytes());
        let mut block = vec![0; 1024];
        let at = (u64::from(superblock.first_data_block) + 1) * size;
        let read = device.read_at(&mut block, at);
        let journal = read.ok().and_then(|()| JournalSuperblock::decode(&block).ok());
        return Ok(Header { superblock, geometry: None, journal, mmp: None });
    }
    let geo = geometry(&**device, &superblock)?;
    let journal = (superblock.journal_inum != 0)
        .then(|| find_journal::find(device, &superblock, &geo, &MountOptions::default()).ok())
        .flatten()
        .and_then(|found| recovery::read_superblock(&*found.device, &found.map).ok());
    let mmp = superblock.feature_incompat.contains(Incompat::MMP).then(|| {
        let mut block = vec![0; geo.block_len()];
        device
            .read_at(&mut block, superblock.mmp_block.checked_mul(geo.block_len() as u64)?)
            .ok()?;
        Mmp::decode(&block, &geo).ok()
    });
    Ok(Header { journal, mmp: mmp.flatten(), geometry: Some(geo), superblock })
}

/// The descriptors of all groups.
///
/// # Errors
/// If one of them cannot be read.
pub fn group_descriptors(device: &SharedDevice, header: &Header) -> OpenResult<Vec<GroupDesc>> {
    let Some(geo) = &header.geometry else {
        return refuse("this is an external journal, not a file system");
    };
    let mut descriptors = Vec::new();
    let mut block = vec![0; geo.block_len()];
    let mut read = None;
    for group in (0..geo.groups()).map(GroupNr) {
        let (at, offset) = geo.desc_block(group);
        if read.replace(at) != Some(at) {
            device.read_at(&mut block, at.offset(geo.block_size))?;
        }
        let bytes = &block[offset..offset + usize::from(geo.desc_size)];
        let desc = GroupDesc::decode(bytes, geo, group);
        descriptors.push(desc.map_err(|e| OpenError::new(format!("group {}: {e}", group.0)))?);
    }
    Ok(descriptors)
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let none = |s: &str| if s.is_empty() { "<none>".to_owned() } else { plain(s).into_owned() };
        let rows = [
            ("Label", none(&self.label)),
            ("UUID", self.uuid.clone()),
            ("Last mounted on", none(&self.last_mounted)),
            ("State", self.state.clone()),
            ("Needs recovery", if self.needs_recovery { "yes" } else { "no" }.to_owned()),
            ("Errors recorded", self.error_count.to_string()),
            ("Block size", format!("{} bytes", self.block_size)),
            (
                "Blocks",
                format!(
                    "{} ({} free, {} reserved)",
                    self.blocks, self.free_blocks, self.reserved_blocks
                ),
            ),
            (
                "Inodes",
                format!(
                    "{} ({} free), {} bytes each",
                    self.inodes, self.free_inodes, self.inode_size
                ),
            ),
            ("Groups", self.groups.to_string()),
            (
                "Journal",
                match self.journal_blocks {
                    Some(n) => format!("{} ({n} blocks)", self.journal),
                    None => self.journal.clone(),
                },
            ),
            (
                "Fast commits",
                match (&self.no_fast_commits, self.fast_commit_blocks) {
                    (Some(why), _) => format!("no: {why}"),
                    (None, Some(n)) => format!("yes (area of {n} blocks behind the log)"),
                    (None, None) => "yes".to_owned(),
                },
            ),
            ("Features", self.features.join(" ")),
        ];
        let encoding = self.encoding.iter().map(|encoding| {
            let words = [std::slice::from_ref(encoding), &self.encoding_flags[..]].concat();
            ("Encoding of names", words.join(" "))
        });
        let last =
            [("Read-write with Extol", self.refused.clone().unwrap_or_else(|| "yes".to_owned()))];
        for (name, value) in rows.into_iter().chain(encoding).chain(last) {
            writeln!(f, "{name:<22} {value}")?;
        }
        Ok(())
    }
}

/// Recovers a volume without mounting it. That is all that a mount does before it is used, and its
/// end: the log, its fast commits, the files that were being deleted or truncated, the counts in
/// the superblock. Only the superblock's record of mounts stays as it is.
///
/// A volume that Extol can only read gets its log home; files that were being deleted are left to
/// Linux or e2fsck.
///
/// # Errors
/// If it is not an ext4 volume, cannot be recovered, or (MMP) another host has it.
pub fn replay(device: &SharedDevice, options: &MountOptions) -> OpenResult<Replayed> {
    let sb = read_superblock(&**device, None)?;
    let geo = geometry(&**device, &sb)?;
    // Unknown features refuse, as for a mount: what is in the log may depend on them.
    features::check(&sb, &geo, true)?;
    if !sb.feature_compat.contains(Compat::HAS_JOURNAL)
        || !(sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) || has_orphans(&sb))
    {
        return Ok(Replayed::of(None));
    }
    if features::check(&sb, &geo, false).is_err() {
        return replay_log(device, &sb, &geo, options);
    }
    let mut options = options.clone().without_threads();
    options.access.read_only = false;
    options.background.init_itable = None;
    let (fs, mut threads, mut replayed) =
        mount::open(Purpose::Recovery, SharedDevice::clone(device), &options)?;
    close::close(&fs, &mut threads)?;
    replayed.was_needed = true;
    Ok(replayed)
}

/// Brings home what is in the log, and no more.
fn replay_log(
    device: &SharedDevice,
    sb: &Superblock,
    geo: &Geometry,
    options: &MountOptions,
) -> OpenResult<Replayed> {
    if !sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) {
        return Ok(Replayed { orphans_left: has_orphans(sb), ..Replayed::of(None) });
    }
    let found = find_journal::find(device, sb, geo, options)?;
    let mut jsb = recovery::read_superblock(&*found.device, &found.map)?;
    // In memory first: what is refused has written nothing.
    let (done, overlay) = journals::in_memory(device, geo, &found, &jsb)?;
    let view = overlay.over(SharedDevice::clone(device), geo.block_size);
    let after = read_superblock(&view, None)?;
    features::check(&after, &geometry(&view, &after)?, done.fast_commits.is_none())?;
    drop(view);
    let recovered = journals::run(device, geo, &found, &mut jsb, true)?;
    let mut sb = journals::after(device, sb, &found, &mut jsb, &recovered)?;
    sb.feature_incompat &= !Incompat::NEEDS_RECOVERY;
    write_superblock(&**device, &sb)?;
    Ok(Replayed { orphans_left: has_orphans(&sb), ..Replayed::of(Some(&recovered)) })
}

/// A volume as it will be after recovery, to be read, and what that does. The device is not
/// changed.
///
/// # Errors
/// As [`replay`].
pub fn recovered(
    device: &SharedDevice,
    options: &MountOptions,
) -> OpenResult<(SharedDevice, Replayed)> {
    let sb = read_superblock(&**device, None)?;
    let geo = geometry(&**device, &sb)?;
    features::check(&sb, &geo, true)?;
    if !sb.feature_compat.contains(Compat::HAS_JOURNAL)
        || !sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY)
    {
        return Ok((SharedDevice::clone(device), Replayed::of(None)));
    }
    let options = options.clone().read_only();
    let found = find_journal::find(device, &sb, &geo, &options)?;
    let jsb = recovery::read_superblock(&*found.device, &found.map)?;
    let (done, overlay) = journals::in_memory(device, &geo, &found, &jsb)?;
    let view: SharedDevice =
        std::sync::Arc::new(overlay.over(SharedDevice::clone(device), geo.block_size));
    Ok((view, Replayed::of(Some(&done))))
}

/// The journal of a volume, block by block, and what recovery would do.
///
/// # Errors
/// If it is not an ext4 volume, has no journal, or its journal cannot be read.
pub fn inspect_journal(
    device: &SharedDevice,
    options: &MountOptions,
) -> OpenResult<extol_jbd2::inspect::JournalReport> {
    let sb = read_superblock(&**device, options.access.superblock)?;
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return inspect_journal_device(device, &sb);
    }
    let geo = geometry(&**device, &sb)?;
    if !sb.feature_compat.contains(Compat::HAS_JOURNAL) {
        return refuse("the volume has no journal");
    }
    let found = find_journal::find(device, &sb, &geo, options)?;
    let size = extol_jbd2::recovery::FsSize::of(&geo, &**device);
    Ok(extol_jbd2::inspect::inspect(&*found.device, &found.map, size)?)
}

/// As [`inspect_journal`], of an external journal itself. How large its volume is it does not say.
fn inspect_journal_device(
    device: &SharedDevice,
    sb: &Superblock,
) -> OpenResult<extol_jbd2::inspect::JournalReport> {
    let block_size = BlockSize::new(sb.block_bytes())
        .ok_or_else(|| OpenError::new("damaged superblock: impossible size of blocks"))?;
    let map = LogMap::of_device(block_size, device.size());
    Ok(extol_jbd2::inspect::inspect(&**device, &map, u64::MAX)?)
}
