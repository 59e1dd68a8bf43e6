//! Recovering the journal, and choosing the features it is written with.

use std::sync::Arc;

use extol_block::SharedDevice;
use extol_jbd2::LogConfig;
use extol_jbd2::format::{Features, JournalSuperblock};
use extol_jbd2::recovery::{self, FsSize, Overlay, OverlayDevice, Recovered as LogRecovered};
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Geometry, Incompat, Superblock};

use super::replay;
use crate::alloc::Run;
use crate::error::{OpenResult, refuse};
use crate::fast_commit_support::{Obstacle, has_clusters};
use crate::find_journal::{self, Found};
use crate::guard::Guard;
use crate::options::MountOptions;
use crate::superblock::{read_superblock, write_superblock};

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
    if !uses_log(sb, options)? {
        return Ok(Recovered {
            device: Arc::clone(dev),
            superblock: sb.clone(),
            log: None,
            overlay: None,
            done: None,
            no_fast_commits: obstacle_without_log(sb, options),
        });
    }
    let mut found = find_journal::find(dev, sb, geo, options)?;
    if let Some(guard) = guard.filter(|_| found.external) {
        found.device = guard.stand_before_log(found.device);
    }
    let jsb = recovery::read_superblock(&*found.device, &found.map)?;
    found.keep(jsb.maxlen);
    if options.access.read_only {
        recover_for_reading(dev, geo, options, &found, &jsb)
    } else {
        recover_for_writing(dev, sb, geo, options, found, jsb)
    }
}

/// True if this mount has to read or write the log. An error if the mount must not go on.
fn uses_log(sb: &Superblock, options: &MountOptions) -> OpenResult<bool> {
    let dirty = sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY);
    if !sb.feature_compat.contains(Compat::HAS_JOURNAL) {
        if dirty {
            return refuse(
                "corrupt superblock: the volume needs recovery but has no journal; run e2fsck",
            );
        }
        return Ok(false);
    }
    let access = &options.access;
    match (access.norecovery, access.read_only) {
        (true, true) => Ok(false),
        (true, false) if dirty => refuse(
            "norecovery: the volume needs recovery; mount with -o ro,norecovery or without \
             norecovery",
        ),
        (true, false) => refuse("norecovery works only together with ro"),
        (false, read_only) => Ok(dirty || !read_only),
    }
}

fn has_fast_commits(sb: &Superblock) -> bool {
    sb.feature_compat.contains(Compat::FAST_COMMIT)
}

/// Why a mount that does not write a log has no fast commits. (A read-only mount writes no log yet,
/// so its log is not asked for room.)
fn obstacle_without_log(sb: &Superblock, options: &MountOptions) -> Option<Obstacle> {
    match (has_fast_commits(sb), options.access.read_only) {
        (true, true) => has_clusters(sb).then_some(Obstacle::Clusters),
        (false, true) => Some(Obstacle::NoFeature),
        (_, false) => Some(Obstacle::NoLog),
    }
}

/// The mount writes nothing: the recovered blocks are kept in memory and shown over the device.
fn recover_for_reading(
    dev: &SharedDevice,
    geo: &Geometry,
    options: &MountOptions,
    found: &Found,
    jsb: &JournalSuperblock,
) -> OpenResult<Recovered> {
    let (done, overlay) = in_memory(dev, geo, found, jsb)?;
    let overlay = Arc::new(overlay.over(Arc::clone(dev), geo.block_size));
    let device: SharedDevice = Arc::<OverlayDevice>::clone(&overlay);
    let superblock = read_superblock(&*device, None)?;
    Ok(Recovered {
        no_fast_commits: obstacle_without_log(&superblock, options),
        device,
        superblock,
        log: None,
        overlay: Some(overlay),
        done: Some(done),
    })
}

/// Recovers on the device; the log is written from here on.
fn recover_for_writing(
    dev: &SharedDevice,
    sb: &Superblock,
    geo: &Geometry,
    options: &MountOptions,
    found: Found,
    mut jsb: JournalSuperblock,
) -> OpenResult<Recovered> {
    if found.device.is_read_only() {
        return refuse("the external journal is write-protected; mount with -o ro");
    }
    let dirty = sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY);
    let recovered = run(dev, geo, &found, &mut jsb, dirty)?;
    let superblock = after(dev, sb, &found, &mut jsb, &recovered)?;
    let data = options.effective(&superblock).journal.data_mode.unwrap_or_default();
    let no_fast_commits = Obstacle::of(&superblock, Some(&jsb), data);
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
        let mut done = recovery::recover_to_device(
            &*found.device,
            &**dev,
            &found.map,
            jsb,
            FsSize::of(geo, &**dev),
        )?;
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
        recovery::recover_to_memory(&*found.device, &found.map, jsb, FsSize::of(geo, &**dev))?;
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
pub(crate) fn features(jsb: &mut JournalSuperblock, geo: &Geometry, options: &MountOptions) {
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
    if geo.incompat().contains(Incompat::BIT64) {
        f.incompat |= Features::INCOMPAT_64BIT;
    }
    if options.journal.async_commit {
        f.incompat |= Features::INCOMPAT_ASYNC_COMMIT;
    }
    f.incompat |= Features::INCOMPAT_REVOKE;
}
