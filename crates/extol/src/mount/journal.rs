//! Finding the journal, recovering it, and choosing the features it is written with.

use std::sync::Arc;
use std::time::Duration;

use extol_block::{FailLatch, FileDevice, OpenOptions, SharedDevice};
use extol_jbd2::format::{Features, JournalSuperblock};
use extol_jbd2::recovery::{self, Overlay, OverlayDevice, Recovered as LogRecovered};
use extol_jbd2::{Journal, JournalConfig, LogConfig, LogMap};
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Geometry, Incompat, InodeNr, Superblock};
use extol_task::SystemClock;
use extol_vfs::FsError;

use super::replay;
use crate::alloc::{AllocOptions, Allocator, Run};
use crate::error::{OpenError, OpenResult, refuse};
use crate::fast_commit_support::Obstacle;
use crate::guard::Guard;
use crate::map;
use crate::node::Node;
use crate::options::MountOptions;
use crate::superblock::{read_superblock, write_superblock};
use crate::volume::Volume;

/// A journal that was found.
pub(crate) struct Found {
    pub device: SharedDevice,
    pub external: bool,
    pub map: LogMap,
    /// Its blocks on the volume (none if it is external).
    pub on_volume: Vec<Run>,
}

/// A recovered log, ready to be opened.
pub(crate) struct Log {
    pub config: LogConfig,
    pub on_volume: Vec<Run>,
}

/// What recovery left.
pub(crate) struct Recovered {
    /// The volume as it is to be seen (recovered in memory if it cannot be written).
    pub device: SharedDevice,
    pub superblock: Superblock,
    pub log: Option<Log>,
    /// What recovery in memory has put over the device.
    pub overlay: Option<Arc<OverlayDevice>>,
    /// What recovery did; none if the volume needed none.
    pub done: Option<LogRecovered>,
    /// Why there can be no fast commits.
    pub no_fast_commits: Option<Obstacle>,
}

/// Finds the journal, recovers it if that is needed and allowed.
pub(crate) fn recover(
    dev: &SharedDevice,
    sb: &Superblock,
    geo: &Geometry,
    options: &MountOptions,
    guard: Option<&Arc<Guard>>,
) -> OpenResult<Recovered> {
    let has = |sb: &Superblock| sb.feature_compat.contains(Compat::FAST_COMMIT);
    // (What is only read is not asked for room.)
    let unlogged = |sb: &Superblock| match (has(sb), options.access.read_only) {
        (true, true) => None,
        (false, true) => Some(Obstacle::NoFeature),
        (_, false) => Some(Obstacle::NoLog),
    };
    let plain = || Recovered {
        device: Arc::clone(dev),
        superblock: sb.clone(),
        log: None,
        overlay: None,
        done: None,
        no_fast_commits: unlogged(sb),
    };
    if !sb.feature_compat.contains(Compat::HAS_JOURNAL) {
        if sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) {
            return refuse(
                "corrupt superblock: the volume needs recovery but has no journal; run e2fsck",
            );
        }
        return Ok(plain());
    }
    let dirty = sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY);
    if options.access.norecovery {
        if options.access.read_only {
            return Ok(plain());
        }
        if dirty {
            return refuse(
                "norecovery: the volume needs recovery; mount with -o ro,norecovery or without \
                 norecovery",
            );
        }
        return refuse("norecovery works only together with ro");
    }
    if options.access.read_only && !dirty {
        return Ok(plain());
    }
    let mut found = find(dev, sb, geo, options)?;
    if let Some(guard) = guard.filter(|_| found.external) {
        found.device = guard.stand_before_log(found.device);
    }
    let mut jsb = recovery::read_superblock(&*found.device, &found.map)?;
    if options.access.read_only {
        // The mount writes nothing: the recovered blocks are kept in memory and shown over the
        // device.
        let (done, overlay) = in_memory(dev, geo, &found, &jsb)?;
        let overlay = Arc::new(overlay.over(Arc::clone(dev), geo.block_size));
        let device: SharedDevice = Arc::<OverlayDevice>::clone(&overlay);
        let superblock = read_superblock(&*device, None)?;
        let no_fast_commits = unlogged(&superblock);
        let (overlay, done) = (Some(overlay), Some(done));
        return Ok(Recovered { device, superblock, log: None, overlay, done, no_fast_commits });
    }
    if found.device.is_read_only() {
        return refuse("the external journal is write-protected; mount with -o ro");
    }
    let recovered = run(dev, geo, &found, &mut jsb, dirty)?;
    let superblock = after(dev, sb, &found, &mut jsb, &recovered)?;
    let data = options.effective(&superblock).journal.data_mode.unwrap_or_default();
    let no_fast_commits = Obstacle::find(has(&superblock), Some(&jsb), data);
    features(&mut jsb, geo, options);
    if no_fast_commits.is_none() {
        // Whether the mount writes any can change at any time; their area stays.
        jsb.features.incompat |= Features::INCOMPAT_FAST_COMMIT;
    }
    let config = LogConfig {
        device: found.device,
        external: found.external,
        map: found.map,
        superblock: jsb,
        next_tid: recovered.next_tid,
    };
    Ok(Recovered {
        device: Arc::clone(dev),
        superblock,
        log: Some(Log { config, on_volume: found.on_volume }),
        overlay: None,
        done: dirty.then_some(recovered),
        no_fast_commits,
    })
}

/// Recovers, or empties a log that the superblock says is not needed.
pub(crate) fn run(
    dev: &SharedDevice,
    geo: &Geometry,
    found: &Found,
    jsb: &mut JournalSuperblock,
    dirty: bool,
) -> OpenResult<LogRecovered> {
    if dirty {
        let mut done =
            recovery::recover_to_device(&*found.device, &**dev, &found.map, jsb, geo.blocks)?;
        if let Some(fast) = done.fast_commits {
            replay::replay_home(dev, found, jsb, fast)?;
            done.next_tid = jsb.sequence.next();
        }
        Ok(done)
    } else {
        Ok(recovery::wipe(&*found.device, &found.map, jsb)?)
    }
}

/// Recovers into memory; the device stays as it is.
pub(crate) fn in_memory(
    dev: &SharedDevice,
    geo: &Geometry,
    found: &Found,
    jsb: &JournalSuperblock,
) -> OpenResult<(LogRecovered, Overlay)> {
    let (done, mut overlay) =
        recovery::recover_to_memory(&*found.device, &found.map, jsb, geo.blocks)?;
    if let Some(fast) = done.fast_commits {
        overlay = replay::replay_in_memory(dev, found, jsb, fast, overlay, geo.block_size)?;
    }
    Ok((done, overlay))
}

/// The superblock after recovery: the newer of the error records survives, and an abort's errno
/// becomes the error state.
pub(crate) fn after(
    dev: &SharedDevice,
    before: &Superblock,
    found: &Found,
    jsb: &mut JournalSuperblock,
    recovered: &LogRecovered,
) -> OpenResult<Superblock> {
    let mut sb = read_superblock(&**dev, None)?;
    let mut changed = false;
    if before.error_count > sb.error_count {
        sb.copy_error_record(before);
        changed = true;
    }
    if before.state.contains(State::ERROR) && !sb.state.contains(State::ERROR) {
        sb.state |= State::ERROR;
        changed = true;
    }
    if recovered.errno != 0 {
        sb.state |= State::ERROR;
        write_superblock(&**dev, &sb)?;
        changed = false;
        jsb.errno = 0;
        let at = found.map.superblock_offset().unwrap_or(0);
        found.device.write_fua(&jsb.encode(), at)?;
    }
    if changed {
        write_superblock(&**dev, &sb)?;
    }
    Ok(sb)
}

/// The features that this mount writes the log with.
fn features(jsb: &mut JournalSuperblock, geo: &Geometry, options: &MountOptions) {
    let f = &mut jsb.features;
    f.compat &= !Features::COMPAT_CHECKSUM;
    f.incompat &= !(Features::INCOMPAT_CSUM_V2
        | Features::INCOMPAT_CSUM_V3
        | Features::INCOMPAT_ASYNC_COMMIT
        | Features::INCOMPAT_FAST_COMMIT);
    if geo.has_metadata_csum() {
        let v2 = options.journal.checksum_v2;
        f.incompat |= if v2 { Features::INCOMPAT_CSUM_V2 } else { Features::INCOMPAT_CSUM_V3 };
        jsb.checksum_type = extol_jbd2::format::CHECKSUM_CRC32C;
    } else if options.journal.checksum || options.journal.async_commit {
        f.compat |= Features::COMPAT_CHECKSUM;
    }
    let f = &mut jsb.features;
    if geo.incompat.contains(Incompat::BIT64) {
        f.incompat |= Features::INCOMPAT_64BIT;
    }
    if options.journal.async_commit {
        f.incompat |= Features::INCOMPAT_ASYNC_COMMIT;
    }
    f.incompat |= Features::INCOMPAT_REVOKE;
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

fn external(device: SharedDevice, sb: &Superblock, geo: &Geometry) -> OpenResult<Found> {
    let log_sb = read_superblock(&*device, None)
        .map_err(|_| OpenError("the external journal is not a journal device".into()))?;
    if !log_sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return refuse("the external journal is not a journal device");
    }
    if log_sb.uuid != sb.journal_uuid {
        return refuse("the external journal belongs to another volume (its uuid does not match)");
    }
    let len = u32::try_from(device.size() >> geo.block_size.bits()).unwrap_or(u32::MAX);
    let map = LogMap::identity(geo.block_size, len);
    let jsb = recovery::read_superblock(&*device, &map)?;
    if jsb.nr_users != 1 {
        return refuse(format!(
            "the external journal has {} users; only one is supported",
            jsb.nr_users
        ));
    }
    if jsb.users.first() != Some(&sb.uuid) {
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
    let journal = Journal::open(JournalConfig {
        device: Arc::clone(dev),
        block_size: geo.block_size,
        blocks: geo.blocks,
        log: None,
        barrier: true,
        commit_interval: Duration::from_secs(5),
        async_commit: false,
        cache_bytes: 1 << 20,
        clock: Arc::new(SystemClock::new()),
    })?;
    let options = AllocOptions { trust_counters: true, ..AllocOptions::default() };
    let alloc = Allocator::open(Arc::clone(&journal), geo, sb, options)?;
    let vol = Volume::new(Arc::clone(dev), journal, geo.clone(), alloc);
    let raw = vol.read_inode(ino).map_err(bad_journal)?;
    if !raw.is_regular() || raw.links == 0 {
        return refuse("corrupt journal: its inode is not a file; run e2fsck");
    }
    let blocks = raw.size >> geo.block_size.bits();
    let blocks = u32::try_from(blocks)
        .map_err(|_| OpenError("corrupt journal: impossible size; run e2fsck".into()))?;
    let node = Node { ino, raw };
    let mut extents = Vec::new();
    let mut runs = Vec::new();
    let mut at = 0;
    map::iterate(&vol, &node, 0, blocks, &mut |run| {
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
    OpenError(format!("the journal's inode cannot be read: {e}"))
}
