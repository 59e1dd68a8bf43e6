//! Makes the mounted state out of a device: recovery, journal, allocator, inodes, threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use extol_block::SharedDevice;
use extol_jbd2::{Journal, JournalConfig, LogConfig};
use extol_ondisk::superblock::State;
use extol_ondisk::{Geometry, Incompat, InodeNr, Superblock};
use extol_sync::rank::Mutex;
use extol_task::{Clock, SystemClock, Tally, Wakeup};

use super::journal::{Log, Recovered};
use super::mark::{self, Purpose};
use super::replayed::Replayed;
use super::threads::{Threads, start_journal, start_writers};
use super::{fast_commit, features, journal, orphans};
use crate::alloc::{AllocOptions, Allocator, Report, Run, SuperCell};
use crate::data::cache::{CachedDevice, DataCache};
use crate::data::dirty::DirtyIndex;
use crate::data::readahead::ReadaheadThreads;
use crate::dir::DentryCache;
use crate::dirs_moved::DirsMoved;
use crate::error::{OpenError, OpenResult, refuse};
use crate::error_state::record::{ErrorState, PendingErrors};
use crate::fast_commit::Tracker;
use crate::fast_commit_support::{self, FastCommits, Obstacle};
use crate::freeze_gate::FreezeGate;
use crate::guard::Guard;
use crate::inodes::InodeTable;
use crate::keys::KeyRing;
use crate::maintenance;
use crate::maintenance::requests::Maintenance;
use crate::mounted::{BaseDevice, FixedOptions, MountedFs};
use crate::options::{DataMode, MountOptions};
use crate::orphan::Orphans;
use crate::quota;
use crate::runtime_options::RuntimeOptions;
use crate::services::lazy_init::{self, LazyInit};
use crate::superblock::{geometry, has_orphans, internal_inodes, read_superblock};
use crate::throttle::{Throttle, ThrottledDevice};
use crate::verity::VerifiedBlocks;
use crate::volume::Volume;

/// An open volume: its state, its threads, and what its recovery did.
pub(crate) type Opened = (Arc<MountedFs>, Threads, Replayed);

/// What the user should know where a disk image cannot be locked.
const UNLOCKED: &str = "nothing keeps another process or host from opening the volume for writing: \
    its file system has no locks (flock), or it is on another host (tune -O mmp protects it)";

/// What the user should know where `nommp` leaves out the protection that the volume has.
const UNCLAIMED: &str = "nothing keeps another host from opening the volume for writing: nommp";

/// What the user should know of a volume that is not valid, which Linux says, too.
const UNCHECKED: &str = "the volume was not closed in order, and nothing recovers it: run e2fsck, \
    or look with extol check";

/// Opens what is on a device: the volume's, or a scratch device of a dry run. `guard` is the one
/// before `dev`; `unlocked` says that the device has no lock.
pub(super) fn open_on(
    dev: &SharedDevice,
    options: &MountOptions,
    purpose: Purpose,
    guard: Option<&Arc<Guard>>,
    unlocked: bool,
) -> OpenResult<Opened> {
    options.check().map_err(OpenError::new)?;
    let given = options.background.clock.clone();
    let clock: Arc<dyn Clock> = given.unwrap_or_else(|| Arc::new(SystemClock::new()));
    let throttle = Arc::new(Throttle::new(Arc::clone(&clock)));
    let dev: SharedDevice = Arc::new(ThrottledDevice::new(Arc::clone(dev), Arc::clone(&throttle)));
    let active_guard = guard.filter(|_| !options.access.read_only);
    let (recovered, was_clean) = recover(&dev, options, active_guard)?;
    let mut replayed = Replayed::of(recovered.done.as_ref());
    let base = BaseDevice { device: dev, overlay: recovered.overlay };
    let (mut sb, log, obstacle) = (recovered.superblock, recovered.log, recovered.no_fast_commits);
    let geo = geometry(&*recovered.device, &sb)?;
    let (dev, data_cache) = cached(recovered.device, &geo, options);
    features::check(&sb, &geo, options.access.read_only)?;
    let has_mmp = sb.feature_incompat.contains(Incompat::MMP);
    let fast = fast_commit_support::decide(obstacle.as_ref(), options.journal.fast_commit)
        .map_err(OpenError::new)?;
    let (effective, defaults) = options_in_force(&sb, options, &fast, obstacle.is_none());
    let fixed = fixed_options(&sb, options, &effective, log.is_some())?;
    if !options.access.read_only {
        quota::check_enforceable(&sb, options.quota).map_err(OpenError::new)?;
        mark::mark_mounted(&*dev, &mut sb, options, (purpose, log.is_some()), &*clock)?;
    }
    let (log, on_volume) = guarded_log(log, &dev, active_guard)?;
    let unchecked = !options.access.read_only && !fixed.was_valid.load(Ordering::Acquire);
    let unlocked = unlocked && !options.access.read_only && !has_mmp;
    let unclaimed = has_mmp && options.access.nommp && !options.access.read_only;
    let told = [(unlocked, UNLOCKED), (unclaimed, UNCLAIMED), (unchecked, UNCHECKED)];
    let told = told.into_iter().filter(|(is_so, _)| *is_so).map(|(_, text)| text.to_owned());
    let notes = fast.note.clone().into_iter().chain(told).collect();
    let pending = Arc::new(PendingErrors::default());
    let config = JournalConfig { log, ..journal_config(&dev, &geo, options, &effective, &clock) };
    let (journal, tracker) = open_journal(config, options, (obstacle.is_none(), &fast))?;
    let alloc =
        open_allocator(&journal, (&geo, &sb), on_volume, options, &pending, was_clean, &dev)?;
    if obstacle.is_none() && journal.has_log() {
        journal.set_patched_blocks(fast_commit::patched_blocks(&geo, &sb, &alloc)?);
    }
    let parts = Parts {
        sb: SuperCell::new(sb, &geo).guarded(guard.cloned()),
        guard: guard.cloned(),
        vol: Volume {
            dentries: DentryCache::new(options.cache.inodes),
            keys: KeyRing::new(options.keys.clone()),
            ..Volume::new(dev, journal, geo, alloc)
        },
        data_cache,
        throttle,
        fixed,
        effective,
        defaults,
        obstacle,
        base,
        notes,
        clock,
        pending,
        tracker,
    };
    let fs = parts.assemble(options);
    if !options.access.read_only {
        let sb = fs.sb.read(Superblock::clone);
        fs.open_quotas(&sb)?;
        fs.enforce(options.quota);
    }
    // A device that fails aborts the journal, and what comes next finds the volume read-only.
    let threads = begin(&fs, options, &mut replayed)
        .map_err(|e| fs.vol.journal.failure().map_or(e, OpenError::new))?;
    Ok((fs, threads, replayed))
}

/// What the mounted state is made of, beside what begins empty.
struct Parts {
    sb: SuperCell,
    guard: Option<Arc<Guard>>,
    vol: Volume,
    data_cache: Option<Arc<DataCache>>,
    throttle: Arc<Throttle>,
    fixed: FixedOptions,
    effective: MountOptions,
    defaults: MountOptions,
    obstacle: Option<Obstacle>,
    base: BaseDevice,
    notes: Vec<String>,
    clock: Arc<dyn Clock>,
    pending: Arc<PendingErrors>,
    tracker: Arc<Tracker>,
}

impl Parts {
    fn assemble(self, options: &MountOptions) -> Arc<MountedFs> {
        let newest = self.vol.journal.newest();
        let perform = maintenance::performer;
        Arc::new_cyclic(|fs| MountedFs {
            resizing: extol_sync::plain::Mutex::default(),
            measuring: AtomicBool::new(false),
            freeze_gate: FreezeGate::default(),
            maintenance: Maintenance::new(
                perform(fs),
                &self.clock,
                options.checkpoint.ioprio,
                options.background.threads,
            ),
            sb: self.sb,
            guard: self.guard,
            vol: self.vol,
            quotas: OnceLock::new(),
            table: InodeTable::new(options.cache.inodes),
            orphans: Orphans::default(),
            values_left: extol_sync::plain::Mutex::default(),
            dirty: DirtyIndex::default(),
            data_cache: self.data_cache,
            readahead: ReadaheadThreads::new(options.background.threads),
            verified: VerifiedBlocks::default(),
            throttle: self.throttle,
            fixed: self.fixed,
            runtime: RuntimeOptions::new(&self.effective),
            options: extol_sync::plain::Mutex::new(self.effective),
            defaults: self.defaults,
            no_fast_commits: extol_sync::plain::Mutex::new(self.obstacle),
            base: self.base,
            notes: self.notes,
            remounted_ro: AtomicBool::new(false),
            clock: self.clock,
            rename: Mutex::new(()),
            read_only: AtomicBool::new(options.access.read_only),
            operations: Tally::default(),
            error_state: ErrorState::new(self.pending),
            lazy_init: LazyInit::default(),
            threads: options.background.threads,
            refill: Wakeup::new(),
            dirs_moved: DirsMoved::new(newest),
            tracker: self.tracker,
            data_written: extol_sync::plain::Mutex::new(0..0),
        })
    }
}

/// The device behind the data cache, if there is one. All writes of the volume pass it.
fn cached(
    dev: SharedDevice,
    geo: &Geometry,
    options: &MountOptions,
) -> (SharedDevice, Option<Arc<DataCache>>) {
    match DataCache::new(options.cache.data_bytes(), geo.block_size).map(Arc::new) {
        Some(cache) => (Arc::new(CachedDevice::new(dev, Arc::clone(&cache))), Some(cache)),
        None => (dev, None),
    }
}

/// The options of this mount, and those that it would have if the user gave none. `can`: the volume
/// can have fast commits.
fn options_in_force(
    sb: &Superblock,
    options: &MountOptions,
    fast: &FastCommits,
    can: bool,
) -> (MountOptions, MountOptions) {
    let mut effective = options.effective(sb);
    effective.journal.fast_commit = Some(fast.on);
    let mut defaults = MountOptions::default().effective(sb);
    defaults.journal.fast_commit = Some(can);
    (effective, defaults)
}

/// The log behind cache and guard, and its blocks on the volume.
fn guarded_log(
    log: Option<Log>,
    dev: &SharedDevice,
    guard: Option<&Arc<Guard>>,
) -> OpenResult<(Option<LogConfig>, Vec<Run>)> {
    let (mut log, on_volume) = log.map(|log| (log.config, log.on_volume)).unzip();
    if let Some(log) = log.as_mut().filter(|log| !log.external) {
        // Its writes and flushes must be seen by the cache and the guard as well.
        log.device = Arc::clone(dev);
    }
    if let Some(guard) = guard {
        guard.watch(log.as_ref().and_then(|log| log.map.superblock_offset()))?;
    }
    Ok((log, on_volume.unwrap_or_default()))
}

/// Recovers; also says whether the superblock's counters may serve in place of the descriptors'.
/// Not for writing: reservations of delayed allocation are taken from them, and tools leave wrong
/// ones on volumes that are clean (`e2fsck -E journal_only`). Linux sums up, too.
fn recover(
    dev: &SharedDevice,
    options: &MountOptions,
    guard: Option<&Arc<Guard>>,
) -> OpenResult<(Recovered, bool)> {
    let sb = read_superblock(&**dev, options.access.superblock)?;
    let geo = geometry(&**dev, &sb)?;
    features::check(&sb, &geo, options.access.read_only)?;
    let is_trusted = options.access.read_only
        && !sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY)
        && sb.state.contains(State::VALID)
        && !sb.state.contains(State::ERROR)
        // (A log recovered without finishing orphans leaves old counts.)
        && !has_orphans(&sb);
    Ok((journal::recover(dev, &sb, &geo, options, guard)?, is_trusted))
}

fn fixed_options(
    sb: &Superblock,
    options: &MountOptions,
    effective: &MountOptions,
    has_log: bool,
) -> OpenResult<FixedOptions> {
    if !has_log && !options.access.read_only {
        let without = [
            (options.journal.async_commit, "journal_async_commit"),
            (options.journal.checksum, "journal_checksum"),
            (options.journal.data_mode.is_some(), "data="),
            (options.journal.async_checkpoint.is_some(), "async_checkpoint"),
        ];
        if let Some((_, name)) = without.iter().find(|(on, _)| *on) {
            return refuse(format!("can't mount with {name}, fs mounted w/o journal"));
        }
    }
    let data = effective.journal.data_mode.unwrap_or_default();
    if options.journal.async_commit && data == DataMode::Ordered {
        return refuse("can't mount with journal_async_commit in data=ordered mode");
    }
    Ok(FixedOptions {
        read_only: AtomicBool::new(options.access.read_only),
        was_valid: AtomicBool::new(sb.state.contains(State::VALID)),
        data,
        user_xattr: options.inodes.user_xattr,
        acl: options.inodes.acl,
        internal: internal_inodes(sb),
    })
}

fn journal_config(
    dev: &SharedDevice,
    geo: &Geometry,
    options: &MountOptions,
    effective: &MountOptions,
    clock: &Arc<dyn Clock>,
) -> JournalConfig {
    JournalConfig {
        device: Arc::clone(dev),
        block_size: geo.block_size,
        blocks: geo.blocks(),
        log: None,
        barrier: effective.journal.barrier.unwrap_or(true),
        commit_interval: options.journal.commit,
        async_commit: options.journal.async_commit,
        cache_bytes: options.cache.metadata_bytes,
        clock: Arc::clone(clock),
    }
}

/// Opens the journal. `can`: the volume can have fast commits; `fast`: whether this mount has them.
fn open_journal(
    config: JournalConfig,
    options: &MountOptions,
    (can, fast): (bool, &FastCommits),
) -> OpenResult<(Arc<Journal>, Arc<Tracker>)> {
    let clock = Arc::clone(&config.clock);
    let journal = Journal::open(config)?;
    let tracker = Arc::new(Tracker::new(clock));
    if can && journal.has_log() {
        journal.set_fast_source(Arc::clone(&tracker) as _);
    }
    journal.set_batching(options.journal.batching);
    journal.set_fua(options.journal.fua);
    if options.access.unmarked_when_full {
        journal.leave_no_mark_when_full();
    }
    journal.set_async_checkpoint(
        options.journal.async_checkpoint.filter(|_| !options.access.read_only),
    )?;
    // Where the volume can have fast commits, their source has turned them on.
    if !fast.on {
        journal.set_fast_commits(false)?;
    }
    journal.io_priority().set(options.journal.ioprio);
    Ok((journal, tracker))
}

fn open_allocator(
    journal: &Arc<Journal>,
    (geo, sb): (&Geometry, &Superblock),
    protect: Vec<Run>,
    options: &MountOptions,
    pending: &Arc<PendingErrors>,
    trust_counters: bool,
    dev: &SharedDevice,
) -> OpenResult<Arc<Allocator>> {
    let bad_groups = Arc::clone(pending);
    let alloc_options = AllocOptions {
        report: Some(Report(Arc::new(move |error| bad_groups.put(error)))),
        trust_counters,
        journal_blocks: protect.iter().map(|r| u64::from(r.len)).sum(),
        discard: options.space.discard.then(|| Arc::clone(dev)),
        ..AllocOptions::default()
    };
    let alloc = Allocator::open(Arc::clone(journal), geo, sb, alloc_options)?;
    protect.into_iter().for_each(|run| alloc.protect(run));
    Ok(alloc)
}

/// What needs the whole state: the root is checked, orphans are finished, threads start.
fn begin(
    fs: &Arc<MountedFs>,
    options: &MountOptions,
    replayed: &mut Replayed,
) -> OpenResult<Threads> {
    if !fs.cell(InodeNr::ROOT.0)?.read()?.is_dir() {
        return refuse("corrupt volume: the root is not a directory");
    }
    let journal = &fs.vol.journal;
    if fs.no_fast_commits.lock().is_none() && journal.has_log() && !options.access.read_only {
        // Without it there are a few more full commits.
        fs.tracker.set_placeholder_dir(fast_commit::placeholder_dir(fs).unwrap_or_default());
    }
    let mut threads = Threads::default();
    let io = |e: std::io::Error| OpenError::new(format!("cannot start a thread: {e}"));
    if !options.background.threads {
        journal.work_in_callers();
    }
    if !options.access.read_only {
        start_journal(fs, &mut threads).map_err(io)?;
    }
    replayed.orphans = orphans::finish(fs)?;
    if options.background.threads && !options.access.read_only {
        start_writers(fs, &mut threads, options.checkpoint.merge).map_err(io)?;
    }
    lazy_init::start(fs, options);
    Ok(threads)
}
