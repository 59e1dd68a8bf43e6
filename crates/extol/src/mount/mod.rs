//! Opening and closing a volume.
//!
//! ```text
//!   superblock ─► features ─► journal found ─► recovery ─► superblock again ─► "needs recovery" durable
//!       ─► journal and allocator open ─► orphans finished ─► threads
//!   ...
//!   write back all ─► counters ─► log empty (durable) ─► "clean" (durable)
//! ```
//!
//! Order that must hold: `needs_recovery` is durable before the first log write, and cleared only
//! after the log was marked empty.
//!
//! A mount that is refused has written nothing: before the first write all of this runs once over a
//! copy in memory ([`rehearsal`]). What comes behind that and can fail is the device, and what the
//! system does not give (threads).

pub(crate) mod fast_commit;
pub(crate) mod features;
pub(crate) mod journal;
pub(crate) mod mmp;
pub(crate) mod orphans;
pub(crate) mod rehearsal;
mod replay;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use extol_block::{BlockDevice, BlockNr, FailLatch, SharedDevice};
use extol_jbd2::{Journal, JournalConfig, Services};
use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET, State};
use extol_ondisk::{Compat, Geometry, Incompat, InodeNr, RoCompat, Superblock};
use extol_sync::rank::Mutex;
use extol_task::{Clock, Runner, SystemClock, Wakeup};
use extol_vfs::{FsError, Result};

use crate::alloc::{AllocOptions, Allocator, Report, SuperCell};
use crate::data::cache::{CachedDevice, DataCache};
use crate::data::writeback::{self, DirtyIndex, Writeback};
use crate::dir::Known;
use crate::dirs_moved::DirsMoved;
use crate::error;
use crate::ext4::Ext4;
use crate::fast_commit::Tracker;
use crate::guard::{Guard, GuardedDevice, Part};
use crate::info::Replayed;
use crate::inodes::InodeTable;
use crate::live::Live;
use crate::mounted::{Ground, Limits, MountedFs};
use crate::options::{DataMode, MountOptions};
use crate::orphan::Orphans;
use crate::pace::{Pace, PacedDevice};
use crate::services::lazy_init::LazyInit;
use crate::services::zeroed::Refill;
use crate::trouble::{Post, Trouble};
use crate::volume::Volume;
use crate::whole::{self, Whole};

/// Why a volume could not be opened: one line for the user.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub String);

impl From<FsError> for OpenError {
    fn from(e: FsError) -> Self {
        Self(e.to_string())
    }
}

impl From<extol_jbd2::JournalError> for OpenError {
    fn from(e: extol_jbd2::JournalError) -> Self {
        Self(e.to_string())
    }
}

impl From<extol_block::DeviceError> for OpenError {
    fn from(e: extol_block::DeviceError) -> Self {
        Self(e.to_string())
    }
}

/// Result of opening.
pub type OpenResult<T> = std::result::Result<T, OpenError>;

pub(crate) fn refuse<T>(why: impl Into<String>) -> OpenResult<T> {
    Err(OpenError(why.into()))
}

/// What the user should know where a disk image cannot be locked.
const UNLOCKED: &str = "the image's file system has no locks (flock): nothing keeps another process from opening the \
    image for writing";

/// What runs while a volume is open.
#[derive(Debug, Default)]
pub(crate) struct Running {
    requests: Option<whole::Stop>,
    services: Option<Services>,
    writeback: Option<Runner>,
    refill: Option<Runner>,
    pub(crate) mmp: Option<mmp::Keeper>,
}

/// Reads a superblock, the primary one or the copy at `sb` KiB.
pub(crate) fn read_superblock(dev: &dyn BlockDevice, sb: Option<u64>) -> OpenResult<Superblock> {
    let at = match sb {
        None | Some(1) => SUPERBLOCK_OFFSET,
        Some(kib) => kib.saturating_mul(1024),
    };
    if dev.size() < at.saturating_add(SUPERBLOCK_LEN as u64) {
        return refuse("not an ext4 volume: too small to hold a superblock");
    }
    let mut bytes = [0; SUPERBLOCK_LEN];
    dev.read_at(&mut bytes, at)?;
    Superblock::decode(&bytes).map_err(|e| {
        OpenError(format!(
            "not an ext4 volume, or its superblock is damaged ({e}); \"e2fsck -b 32768\" can repair from a copy"
        ))
    })
}

/// Reads and checks what does not need the journal.
pub(crate) fn geometry(dev: &dyn BlockDevice, sb: &Superblock) -> OpenResult<Geometry> {
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return refuse("this is an external journal, not a file system");
    }
    let need = u128::from(sb.blocks_count) << (10 + sb.log_block_size.min(20));
    if need > u128::from(dev.size()) {
        return refuse(format!(
            "the volume is truncated: it should have {need} bytes and has {}",
            dev.size()
        ));
    }
    Geometry::new(sb, Some(dev.size())).map_err(|e| OpenError(format!("damaged superblock: {e}")))
}

/// Writes the superblock to its place, durably, keeping what else is in the device's sector.
pub(crate) fn write_superblock(dev: &dyn BlockDevice, sb: &Superblock) -> OpenResult<()> {
    dev.write_at(&sb.encode(), SUPERBLOCK_OFFSET)?;
    dev.flush()?;
    Ok(())
}

/// What a volume is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To be used: the superblock counts the mount and says when and where it was.
    Use,
    /// To be recovered, and closed at once.
    Recovery,
}

/// Opens a volume.
pub(crate) fn open(dev: SharedDevice, options: &MountOptions) -> OpenResult<Arc<Ext4>> {
    open_for(Purpose::Use, dev, options).map(|(volume, _)| volume)
}

/// Opens a volume; with what its recovery did.
pub(crate) fn open_for(
    purpose: Purpose,
    dev: SharedDevice,
    options: &MountOptions,
) -> OpenResult<(Arc<Ext4>, Replayed)> {
    options.check().map_err(OpenError)?;
    let unlocked = !dev.is_locked();
    let dev: SharedDevice = Arc::new(FailLatch::new(dev));
    let guard = Arc::new(Guard::new(Arc::clone(&dev), Arc::new(mmp::BootTime)));
    let guarded: SharedDevice =
        Arc::new(GuardedDevice::new(Arc::clone(&dev), Arc::clone(&guard), Part::Volume));
    if options.read_only {
        // The guard is off until the volume becomes writable.
        let (fs, running, replayed) = open_on(&guarded, options, purpose, Some(&guard), unlocked)?;
        return Ok((Arc::new(Ext4::new(fs, running)), replayed));
    }
    let sb = read_superblock(&*dev, options.sb)?;
    let geo = geometry(&*dev, &sb)?;
    features::check(&sb, &geo, false)?;
    if dev.is_read_only() {
        return refuse("the device is write-protected; mount with -o ro");
    }
    let options = &journal::with_device(&sb, options)?;
    let keeper = claim(&guard, &geo, &sb, options)?;
    let use_mmp = keeper.as_ref().map(mmp::Keeper::paused);
    match open_on(&guarded, options, purpose, Some(&guard), unlocked) {
        Ok((fs, mut running, replayed)) => {
            fs.maintenance.set_mmp(use_mmp);
            running.mmp = keeper;
            Ok((Arc::new(Ext4::new(fs, running)), replayed))
        }
        Err(e) => {
            if let Some(keeper) = keeper {
                keeper.release();
            }
            Err(e)
        }
    }
}

/// Makes sure that nothing refuses the mount, and claims the volume where it has multi-mount
/// protection. A refusal has written nothing.
pub(crate) fn claim(
    guard: &Arc<Guard>,
    geo: &Geometry,
    sb: &Superblock,
    options: &MountOptions,
) -> OpenResult<Option<mmp::Keeper>> {
    let seen = mmp::Seen::look(guard.below(), geo, sb, options.waiting.as_ref())?;
    rehearsal::run(guard.below(), geo, options)?;
    seen.map(|seen| seen.take(guard, options.waiting.as_ref())).transpose()
}

/// Opens what is on a device: a volume's, or what a rehearsal puts before it. `guard` is the one
/// that stands before `dev`.
pub(crate) fn open_on(
    dev: &SharedDevice,
    options: &MountOptions,
    purpose: Purpose,
    guard: Option<&Arc<Guard>>,
    unlocked: bool,
) -> OpenResult<(Arc<MountedFs>, Running, Replayed)> {
    options.check().map_err(OpenError)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let pace = Arc::new(Pace::new(Arc::clone(&clock)));
    let dev: SharedDevice = Arc::new(PacedDevice::new(Arc::clone(dev), Arc::clone(&pace)));
    let sb = read_superblock(&*dev, options.sb)?;
    let geo = geometry(&*dev, &sb)?;
    features::check(&sb, &geo, options.read_only)?;
    let was_clean = !sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY)
        && sb.state.contains(State::VALID)
        && !sb.state.contains(State::ERROR)
        // (A log that others brought home without finishing orphans leaves old counts.)
        && !has_orphans(&sb);
    let on = guard.filter(|_| !options.read_only);
    let recovered = journal::recover(&dev, &sb, &geo, options, on)?;
    let mut replayed = Replayed::of(recovered.done.as_ref());
    let ground = Ground { device: dev, overlay: recovered.overlay };
    let dev = recovered.device;
    // Recovery may have brought a newer superblock home.
    let mut sb = recovered.superblock;
    let geo = geometry(&*dev, &sb)?;
    // From here on nobody writes past it.
    let data_cache = DataCache::new(options.data_cache_bytes(), geo.block_size).map(Arc::new);
    let dev = match &data_cache {
        Some(cache) => Arc::new(CachedDevice::new(dev, Arc::clone(cache))) as SharedDevice,
        None => dev,
    };
    features::check(&sb, &geo, options.read_only)?;
    let mut effective = options.effective(&sb);
    let fast_commits = fast_commit::decide(recovered.no_fast_commits.as_ref(), options.fast_commit)
        .map_err(OpenError)?;
    effective.fast_commit = Some(fast_commits.on);
    let limits = limits(&sb, options, &effective, recovered.log.is_some())?;

    let barrier = effective.barrier.unwrap_or(true);
    let mut defaults = MountOptions::default().effective(&sb);
    defaults.fast_commit = Some(recovered.no_fast_commits.is_none());
    let protect = recovered.log.as_ref().map(|l| l.on_volume.clone()).unwrap_or_default();
    let journal_blocks = protect.iter().map(|r| u64::from(r.len)).sum();
    if !options.read_only {
        mark_mounted(&*dev, &mut sb, options, (purpose, recovered.log.is_some()), &*clock)?;
    }
    let mut log = recovered.log;
    if let Some(log) = log.as_mut().filter(|log| !log.config.external) {
        // Its writes and flushes are to be seen as well.
        log.config.device = Arc::clone(&dev);
    }
    if let Some(guard) = on {
        guard.watch(log.as_ref().and_then(|log| log.config.map.superblock_offset()))?;
    }
    let journal = Journal::open(JournalConfig {
        device: Arc::clone(&dev),
        block_size: geo.block_size,
        blocks: geo.blocks,
        log: log.map(|l| l.config),
        barrier,
        commit_interval: options.commit,
        async_commit: options.journal_async_commit,
        cache_bytes: options.cache_bytes,
        clock: Arc::clone(&clock),
    })?;
    let tracker = Arc::new(Tracker::new(Arc::clone(&clock)));
    let source =
        (recovered.no_fast_commits.is_none() && journal.has_log()).then(|| Arc::clone(&tracker));
    if let Some(source) = &source {
        journal.set_fast_source(Arc::clone(source) as _);
    }
    journal.set_batching(options.batching);
    journal.set_fua(options.fua);
    journal.set_async_checkpoint(options.async_checkpoint.filter(|_| !options.read_only))?;
    // Where the volume can have fast commits, their source has turned them on.
    if !fast_commits.on {
        journal.set_fast_commits(false)?;
    }
    journal.io_priority().set(options.journal_ioprio);
    let post = Arc::new(Post::default());
    let bad_groups = Arc::clone(&post);
    let alloc_options = AllocOptions {
        report: Some(Report(Arc::new(move |error| bad_groups.put(error)))),
        trust_counters: was_clean,
        journal_blocks,
        discard: options.discard.then(|| Arc::clone(&dev)),
        ..AllocOptions::default()
    };
    let alloc = if geo.cluster_ratio == 1 {
        Allocator::open(Arc::clone(&journal), &geo, &sb, alloc_options)?
    } else {
        Allocator::read_only(Arc::clone(&journal), &geo, &sb, alloc_options)?
    };
    if recovered.no_fast_commits.is_none() && journal.has_log() {
        journal.set_patched_blocks(patched_blocks(&geo, &sb, &alloc)?);
    }
    for run in protect {
        alloc.protect(run);
    }
    let newest = journal.newest();
    let fs = Arc::new_cyclic(|fs| MountedFs {
        whole: Whole::new(fs, &clock, options.checkpoint_ioprio, options.threads, None),
        sb: SuperCell::new(sb, &geo).guarded(guard.cloned()),
        guard: guard.cloned(),
        vol: Volume {
            known: Known::new(options.inode_cache),
            ..Volume::new(dev, Arc::clone(&journal), geo, alloc)
        },
        table: InodeTable::new(options.inode_cache),
        orphans: Orphans::default(),
        dirty: DirtyIndex::default(),
        data_cache,
        readers: crate::data::ahead::Readers::new(options.threads),
        pace,
        limits,
        live: Live::new(&effective),
        options: parking_lot::Mutex::new(effective),
        defaults,
        no_fast_commits: parking_lot::Mutex::new(recovered.no_fast_commits),
        ground,
        notes: fast_commits.note.into_iter().chain(unlocked.then(|| UNLOCKED.to_owned())).collect(),
        rests: AtomicBool::new(false),
        clock,
        rename: Mutex::new(()),
        read_only: AtomicBool::new(options.read_only),
        operations: extol_task::Tally::default(),
        trouble: Trouble::new(post),
        lazy_init: LazyInit::default(),
        threads: options.threads,
        refill: Wakeup::new(),
        dirs_moved: DirsMoved::new(newest),
        tracker,
    });
    // The root must be there.
    {
        let root = fs.cell(InodeNr::ROOT.0)?;
        if !root.read()?.is_dir() {
            return refuse("corrupt volume: the root is not a directory");
        }
    }
    if let Some(source) = source.filter(|_| !options.read_only) {
        // Without it there are a few more full commits.
        source.set_placeholder_dir(fast_commit::placeholder_dir(&fs).unwrap_or_default());
    }
    let mut running = Running::default();
    let io = |e: std::io::Error| OpenError(format!("cannot start a thread: {e}"));
    if options.threads {
        running.services = Some(Services::start(&journal).map_err(io)?);
    } else {
        journal.work_in_callers();
    }
    replayed.orphans = orphans::finish(&fs)?;
    if options.threads && !options.read_only {
        start_writers(&fs, &mut running, options.checkpoint_merge).map_err(io)?;
    }
    fs.lazy_init.start(&fs, options);
    Ok((fs, running, replayed))
}

/// Starts the threads that only a volume has that is written to.
pub(crate) fn start_writers(
    fs: &Arc<MountedFs>,
    running: &mut Running,
    merge: bool,
) -> std::io::Result<()> {
    let service = Writeback(Arc::downgrade(fs));
    running.writeback = Some(Runner::start("extol-writeback", &fs.dirty.service, service)?);
    let refill = Refill(Arc::downgrade(fs));
    running.refill = Some(Runner::start("extol-zeroed", &fs.refill, refill)?);
    running.requests = Some(fs.maintenance.stopper());
    fs.maintenance.set_merge(merge)
}

/// What e2fsck writes back after it has replayed fast commits.
pub(crate) fn patched_blocks(
    geo: &Geometry,
    sb: &Superblock,
    alloc: &Allocator,
) -> Result<Vec<std::ops::Range<BlockNr>>> {
    if sb.journal_inum == 0 {
        return Ok(fast_commit::patched_blocks(geo, None));
    }
    let (group, index) = geo.group_of_inode(InodeNr(sb.journal_inum));
    let block = alloc.inode_table(group)?.plus(u64::from(index / geo.inodes_per_block()));
    Ok(fast_commit::patched_blocks(geo, Some(block)))
}

fn limits(
    sb: &Superblock,
    options: &MountOptions,
    effective: &MountOptions,
    has_log: bool,
) -> OpenResult<Limits> {
    if !has_log && !options.read_only {
        let without = [
            (options.journal_async_commit, "journal_async_commit"),
            (options.journal_checksum, "journal_checksum"),
            (options.data.is_some(), "data="),
            (options.async_checkpoint.is_some(), "async_checkpoint"),
        ];
        if let Some((_, name)) = without.iter().find(|(on, _)| *on) {
            return refuse(format!("can't mount with {name}, fs mounted w/o journal"));
        }
    }
    let data = effective.data.unwrap_or_default();
    if options.journal_async_commit && data == DataMode::Ordered {
        return refuse("can't mount with journal_async_commit in data=ordered mode");
    }
    Ok(Limits {
        read_only: AtomicBool::new(options.read_only),
        data,
        user_xattr: options.user_xattr,
        acl: options.acl,
        internal: internal_inodes(sb),
    })
}

/// Inodes that no name may lead to, whatever their numbers.
fn internal_inodes(sb: &Superblock) -> [u32; 5] {
    let (compat, ro) = (sb.feature_compat, sb.feature_ro_compat);
    let having = |on: bool, ino: u32| if on { ino } else { 0 };
    [
        having(compat.contains(Compat::HAS_JOURNAL), sb.journal_inum),
        having(compat.contains(Compat::ORPHAN_FILE), sb.orphan_file_inum),
        having(ro.contains(RoCompat::QUOTA), sb.usr_quota_inum),
        having(ro.contains(RoCompat::QUOTA), sb.grp_quota_inum),
        having(ro.contains(RoCompat::QUOTA | RoCompat::PROJECT), sb.prj_quota_inum),
    ]
}

/// Makes "mounted" durable, before anything else is written.
pub(crate) fn mark_mounted(
    dev: &dyn BlockDevice,
    sb: &mut Superblock,
    options: &MountOptions,
    (purpose, has_log): (Purpose, bool),
    clock: &dyn Clock,
) -> OpenResult<()> {
    #[cfg(feature = "planted-bugs")]
    if has_log && extol_jbd2::planted::has(extol_jbd2::planted::Bug::RecoveryFlagLate) {
        sb.feature_incompat |= Incompat::NEEDS_RECOVERY;
        return Ok(());
    }
    if has_log {
        sb.feature_incompat |= Incompat::NEEDS_RECOVERY;
    } else {
        sb.state &= !State::VALID;
    }
    sb.wtime = clock.wall().as_secs();
    if purpose == Purpose::Recovery {
        return write_superblock(dev, sb);
    }
    sb.mtime = sb.wtime;
    sb.mnt_count = sb.mnt_count.saturating_add(1);
    if let Some(dir) = &options.mount_point {
        let mut path = [0; 64];
        for (to, from) in path.iter_mut().take(63).zip(dir.as_os_str().as_encoded_bytes()) {
            *to = *from;
        }
        sb.last_mounted = path;
    }
    write_superblock(dev, sb)
}

/// Closes a volume: everything goes home, the log becomes empty, the superblock says "clean". Safe
/// to call twice.
pub(crate) fn close(fs: &Arc<MountedFs>, running: &mut Running) -> Result<()> {
    // Those who wait for a sync get it; later ones do it themselves, as long as there is something
    // to sync.
    running.requests.take();
    // A frozen volume ends like any other. (What fails here, fails again below.)
    let _ = whole::thaw(fs);
    fs.lazy_init.stop();
    running.writeback.take();
    running.refill.take();
    fs.table.release_all(&fs.vol);
    // (A volume that became read-only after an error was not closed.)
    let read_only = fs.writes_nothing() || fs.maintenance.is_shut();
    let result = if read_only { Ok(Ok(())) } else { write_everything(fs) };
    running.services.take();
    let result = match (read_only, result) {
        (true, _) => Ok(()),
        (false, Err(e)) => Err(e),
        (false, Ok(lost)) => {
            let sb = clean_superblock(fs);
            write_superblock(&*fs.vol.dev, &sb).map_err(|e| FsError::Io(e.0)).and(lost)
        }
    };
    fs.note_abort();
    // Nothing may be written any more, whoever still holds the volume.
    fs.read_only.store(true, std::sync::atomic::Ordering::Release);
    // The log is frozen for good: who came too late and waits for its thaw must not wait for ever.
    fs.vol.journal.shut_down("the volume was closed");
    whole::release(fs);
    if let Some(mmp) = running.mmp.take() {
        mmp.release();
    }
    result
}

/// The superblock of a volume that needs no recovery.
pub(crate) fn clean_superblock(fs: &MountedFs) -> Superblock {
    let mut sb = fs.sb.read(Superblock::clone);
    sb.feature_incompat &= !Incompat::NEEDS_RECOVERY;
    if fs.orphans.len() == 0 {
        sb.feature_ro_compat &= !RoCompat::ORPHAN_PRESENT;
    }
    if !sb.state.contains(State::ERROR) {
        sb.state |= State::VALID;
    }
    sb.wtime = fs.clock.wall().as_secs();
    sb
}

/// Brings everything home. File data that cannot be placed because its file is damaged is lost
/// (that is the inner result); all else is closed in order.
pub(crate) fn write_everything(fs: &Arc<MountedFs>) -> Result<Result<()>> {
    fs.check_writable().map_err(|_| {
        FsError::Io(
            fs.vol.journal.abort_reason().unwrap_or_else(|| "the volume is read-only".into()),
        )
    })?;
    let lost = fs.note(writeback::flush_all(fs));
    // Whoever held unlinked files is gone.
    for cell in fs.table.cells() {
        crate::ops::delete::delete_if_unused(fs, &cell);
        if let Ok(mut st) = cell.write() {
            fs.vol.alloc.release(&mut st.window);
        }
    }
    {
        let mut h = fs.start(1)?;
        fs.vol.alloc.flush_super(&mut h, &fs.sb)?;
        h.stop().map_err(error::journal)?;
    }
    fs.vol.journal.freeze().map_err(error::journal)?;
    fs.vol.journal.flush_data().map_err(error::journal)?;
    Ok(lost)
}

/// True if inodes are left to be deleted or truncated.
pub(crate) fn has_orphans(sb: &Superblock) -> bool {
    sb.last_orphan != 0 || sb.feature_ro_compat.contains(RoCompat::ORPHAN_PRESENT)
}

/// True if the volume has an orphan file.
pub(crate) fn has_orphan_file(geo: &Geometry) -> bool {
    geo.compat.contains(Compat::ORPHAN_FILE)
}
