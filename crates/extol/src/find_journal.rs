//! Finding the journal: the blocks of its inode, or a device of its own.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{FailLatch, FileDevice, OpenOptions, SharedDevice};
use extol_jbd2::{Journal, JournalConfig, LogMap, recovery};
use extol_ondisk::{Compat, Geometry, Incompat, InodeNr, Superblock};
use extol_task::SystemClock;
use extol_vfs::FsError;

use crate::alloc::{AllocOptions, Allocator, Run};
use crate::error::{OpenError, OpenResult, refuse};
use crate::map;
use crate::node::Node;
use crate::options::MountOptions;
use crate::superblock::read_superblock;
use crate::volume::Volume;

/// A journal that was found.
pub(crate) struct Found {
    pub device: SharedDevice,
    pub external: bool,
    pub map: LogMap,
    /// Its blocks on the volume (none if it is external).
    pub on_volume: Vec<Run>,
}

impl Found {
    /// The log uses only so many blocks. (What its inode has behind them a transaction that is
    /// still to be recovered may have freed.)
    pub fn keep(&mut self, blocks: u32) {
        let mut left = blocks;
        for run in &mut self.on_volume {
            run.len = run.len.min(left);
            left -= run.len;
        }
        self.on_volume.retain(|run| run.len > 0);
    }
}

/// Finds the journal of a volume.
pub(crate) fn find(
    dev: &SharedDevice,
    sb: &Superblock,
    geo: &Geometry,
    options: &MountOptions,
) -> OpenResult<Found> {
    if sb.journal_inum != 0 {
        return internal(dev, sb, geo);
    }
    let Some(device) = open_external(options)? else {
        return refuse(
            "the volume has an external journal: name it with -o journal_path=FILE_OR_DEVICE",
        );
    };
    if sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) {
        device.drop_page_cache();
    }
    // As the volume's own device: after the first failed write nothing more is written.
    external(Arc::new(FailLatch::new(device)), sb, geo)
}

/// The device of an external journal, as the options name it.
fn open_external(options: &MountOptions) -> OpenResult<Option<SharedDevice>> {
    Ok(match (&options.journal.device, &options.journal.path) {
        (Some(device), _) => {
            if !options.access.read_only {
                device.make_writable()?;
            }
            Some(Arc::clone(device))
        }
        (None, Some(path)) => {
            let how = if options.access.read_only {
                OpenOptions::read_only()
            } else {
                OpenOptions::read_write()
            };
            Some(Arc::new(FileDevice::open(path, &how)?))
        }
        (None, None) => None,
    })
}

/// The options with the external journal open, if the volume has one: it can be opened once only.
pub(crate) fn with_device(sb: &Superblock, options: &MountOptions) -> OpenResult<MountOptions> {
    let mut options = options.clone();
    if sb.feature_compat.contains(Compat::HAS_JOURNAL) && sb.journal_inum == 0 {
        options.journal.device = open_external(&options)?;
    }
    Ok(options)
}

/// Refuses the path of an external journal if the volume has none: what is changed would be
/// recorded elsewhere than was asked for.
pub(crate) fn refuse_unused(sb: &Superblock, options: &MountOptions) -> OpenResult<()> {
    let has = match (sb.feature_compat.contains(Compat::HAS_JOURNAL), sb.journal_inum) {
        _ if options.journal.path.is_none() => return Ok(()),
        (true, 0) => return Ok(()),
        (true, _) => "a journal of its own",
        (false, _) => "no journal",
    };
    refuse(format!("the volume has {has}: leave out journal_path="))
}

fn external(device: SharedDevice, sb: &Superblock, geo: &Geometry) -> OpenResult<Found> {
    let log_sb = read_superblock(&*device, None)
        .map_err(|_| OpenError::new("the external journal is not a journal device"))?;
    if !log_sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return refuse("the external journal is not a journal device");
    }
    if log_sb.uuid != sb.journal_uuid {
        return refuse("the external journal belongs to another volume (its uuid does not match)");
    }
    let map = LogMap::of_device(geo.block_size, device.size());
    let jsb = recovery::read_superblock(&*device, &map)?;
    if jsb.nr_users != 1 {
        return refuse(format!(
            "the external journal has {} users; only one is supported",
            jsb.nr_users
        ));
    }
    // (The second is the volume's new UUID, between two steps of a change: `tune::external`.)
    if !jsb.users.iter().take(2).any(|user| *user == sb.uuid) {
        return refuse("the external journal belongs to another volume");
    }
    Ok(Found { device, external: true, map, on_volume: Vec::new() })
}

/// The blocks of the journal's inode, read without a journal.
fn internal(dev: &SharedDevice, sb: &Superblock, geo: &Geometry) -> OpenResult<Found> {
    let ino = InodeNr(sb.journal_inum);
    if !geo.is_valid_inode(ino) {
        return refuse("corrupt superblock: impossible journal inode");
    }
    let vol = without_log(dev, sb, geo)?;
    internal_of(dev, &vol, ino)
}

/// The volume as it is in place, to be read.
pub(crate) fn without_log(
    dev: &SharedDevice,
    sb: &Superblock,
    geo: &Geometry,
) -> OpenResult<Volume> {
    let journal = Journal::open(JournalConfig {
        device: Arc::clone(dev),
        block_size: geo.block_size,
        blocks: geo.blocks(),
        log: None,
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: false,
        cache_bytes: 1 << 20,
        clock: Arc::new(SystemClock::new()),
    })?;
    let options =
        AllocOptions { trust_counters: true, before_recovery: true, ..AllocOptions::default() };
    let alloc = Allocator::open(Arc::clone(&journal), geo, sb, options)?;
    Ok(Volume::new(Arc::clone(dev), journal, geo.clone(), alloc))
}

fn internal_of(dev: &SharedDevice, vol: &Volume, ino: InodeNr) -> OpenResult<Found> {
    let geo = &vol.geo;
    let raw = vol.read_inode(ino).map_err(bad_journal)?;
    if !raw.is_regular() || raw.links == 0 {
        return refuse("corrupt journal: its inode is not a file; run e2fsck");
    }
    let blocks = raw.size >> geo.block_size.bits();
    let blocks = u32::try_from(blocks)
        .map_err(|_| OpenError::new("corrupt journal: impossible size; run e2fsck"))?;
    let node = Node { ino, raw };
    let mut extents = Vec::new();
    let mut runs = Vec::new();
    let mut at = 0;
    map::iterate(vol, &node, 0, blocks, &mut |run| {
        let follows = run.lblk == at;
        extents.push((run.lblk, run.pblk.0, run.len));
        runs.push(Run { start: run.pblk, len: run.len });
        at = run.lblk.saturating_add(run.len);
        follows
    })
    .map_err(bad_journal)?;
    if at < blocks {
        return refuse("corrupt journal: its file has a hole; run e2fsck");
    }
    for run in &runs {
        if vol.alloc.is_system(*run).map_err(bad_journal)? {
            return refuse("corrupt journal: it lies on other metadata; run e2fsck");
        }
    }
    let map = LogMap::from_extents(geo.block_size, extents)?;
    Ok(Found { device: Arc::clone(dev), external: false, map, on_volume: runs })
}

fn bad_journal(e: FsError) -> OpenError {
    OpenError::new(format!("the journal's inode cannot be read: {e}"))
}
