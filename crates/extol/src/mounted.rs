//! The state of a mounted file system, shared by all operations.
//!
//! [`MountedFs`] adds to [`Volume`] what belongs to one mount: inodes in memory, dirty pages,
//! options, background threads. Operations (`ops`), the services and a remount get a reference to
//! it. Its locks are in docs/design/lock-order.md.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extol_block::{DeviceError, SharedDevice};
use extol_jbd2::Handle;
use extol_jbd2::recovery::OverlayDevice;
use extol_ondisk::geometry::GOOD_OLD_INODE_SIZE;
use extol_ondisk::superblock::State;
use extol_ondisk::{Compat, Incompat, InodeFlags, InodeNr, RoCompat, Superblock, Time};
use extol_sync::rank::{Mutex, Rank};
use extol_task::{Clock, Tally, Wakeup};
use extol_vfs::{Attr, Author, Creds, FileId, FileKind, FsError, Rdev, Result, Timestamp};

use crate::alloc::{Run, SuperCell};
use crate::data::cache::DataCache;
use crate::data::dirty::DirtyIndex;
use crate::data::readahead::threads::ReadaheadThreads;
use crate::dir;
use crate::dirs_moved::DirsMoved;
use crate::encrypted;
use crate::error::{self, OpenError, OpenResult};
use crate::error_state::record::ErrorState;
use crate::fast_commit::eligibility::Change;
use crate::fast_commit::{self, Delta, Reason};
use crate::fast_commit_support::Obstacle;
use crate::freeze_gate::FreezeGate;
use crate::guard::Guard;
use crate::inodes::{Cell, InodeState, InodeTable};
use crate::maintenance::requests::Maintenance;
use crate::options::{DataMode, MountOptions, QuotaOptions};
use crate::orphan::Orphans;
use crate::quota::Quotas;
use crate::runtime_options::RuntimeOptions;
use crate::services::lazy_init::state::LazyInit;
use crate::throttle::Throttle;
use crate::verity::VerifiedBlocks;
use crate::volume::Volume;
use crate::xattr::Values;

/// Mount options that a remount cannot change, and values that follow from them.
#[derive(Debug)]
pub(crate) struct FixedOptions {
    /// Opened read-only, and not yet remounted read-write (`remount/ro_to_rw.rs`).
    pub read_only: AtomicBool,
    /// The superblock said "valid" when the volume was opened for writing. The close leaves it as
    /// it was: only a check makes a volume valid again.
    pub was_valid: AtomicBool,
    pub data: DataMode,
    pub user_xattr: bool,
    pub acl: bool,
    /// Inodes that belong to the volume itself ([`crate::superblock::internal_inodes`]).
    pub internal: [u32; 5],
}

impl FixedOptions {
    /// True if opened read-only, and not yet remounted read-write.
    pub fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }
}

/// The device below [`Volume::dev`]. A mount that was opened read-only needs it to become writable.
#[derive(Debug)]
pub(crate) struct BaseDevice {
    /// The device, without the overlay.
    pub device: SharedDevice,
    /// Blocks that a recovery in memory has replaced.
    pub overlay: Option<Arc<OverlayDevice>>,
}

/// The mounted file system.
pub(crate) struct MountedFs {
    pub vol: Volume,
    /// The quota files, if there are some; not before the volume is written.
    pub quotas: OnceLock<Arc<Quotas>>,
    /// Excludes other writers of the volume; `None`: this mount writes to memory.
    pub guard: Option<Arc<Guard>>,
    pub sb: SuperCell,
    pub table: InodeTable,
    pub orphans: Orphans,
    /// Attribute values on the orphan list that this mount is to delete.
    pub values_left: extol_sync::plain::Mutex<Vec<u32>>,
    pub dirty: DirtyIndex,
    /// `None`: clean file data is not cached.
    pub data_cache: Option<Arc<DataCache>>,
    pub readahead: ReadaheadThreads,
    /// Blocks of Merkle trees that are verified.
    pub verified: VerifiedBlocks,
    pub throttle: Arc<Throttle>,
    pub fixed: FixedOptions,
    /// Options in force until the next remount.
    pub runtime: RuntimeOptions,
    /// All options as they are shown, including those that come from the superblock.
    pub options: extol_sync::plain::Mutex<MountOptions>,
    /// The options of this volume if the user gives none.
    pub defaults: MountOptions,
    /// Why this mount can have no fast commits.
    pub no_fast_commits: extol_sync::plain::Mutex<Option<Obstacle>>,
    /// The source of the recovery when a volume opened read-only becomes writable.
    pub base: BaseDevice,
    /// Notes about this mount for the user, a line each.
    pub notes: Vec<String>,
    /// Remounted read-only: all blocks are in place, the log is empty and frozen, the superblock is
    /// marked clean.
    pub remounted_ro: AtomicBool,
    pub clock: Arc<dyn Clock>,
    /// Held while a rename moves a name between directories: no other one changes the tree.
    pub rename: Mutex<(), { Rank::Rename as u8 }>,
    pub dirs_moved: DirsMoved,
    /// Operations must not change the volume now: see [`check_writable`](Self::check_writable).
    pub read_only: AtomicBool,
    /// Operations served, for the statistics.
    pub operations: Tally,
    pub error_state: ErrorState,
    pub lazy_init: LazyInit,
    /// This mount may start background threads.
    pub threads: bool,
    /// Wakes the thread that zeroes free blocks in advance.
    pub refill: Wakeup,
    /// The journal's source of fast commits, if there are any.
    pub tracker: Arc<crate::fast_commit::Tracker>,
    /// Held while the volume is resized.
    pub resizing: extol_sync::plain::Mutex<()>,
    /// Data of files that moves is not copied: this is a dry run of a resize, in memory.
    pub measuring: AtomicBool,
    pub freeze_gate: FreezeGate,
    pub maintenance: Maintenance,
    /// Where data of files was written, from the first block to behind the last.
    pub data_written: extol_sync::plain::Mutex<Range<u64>>,
}

impl std::fmt::Debug for MountedFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountedFs").field("vol", &self.vol).finish_non_exhaustive()
    }
}

impl MountedFs {
    /// The time now, as inodes store it.
    pub fn now(&self) -> Time {
        let now: Duration = self.clock.wall();
        self.time(Timestamp { sec: now.as_secs().cast_signed(), nsec: now.subsec_nanos() })
    }

    /// A time as the volume's inodes can hold it: those of 128 bytes have 32 bits of seconds and no
    /// fraction.
    pub fn time(&self, t: Timestamp) -> Time {
        if self.vol.geo.inode_size <= 128 {
            return Time { sec: t.sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX)), nsec: 0 };
        }
        time(t)
    }

    /// Err unless the volume may be written.
    pub fn check_writable(&self) -> Result<()> {
        if self.read_only.load(Ordering::Acquire) || self.vol.journal.check_aborted().is_err() {
            return Err(FsError::ReadOnly);
        }
        Ok(())
    }

    /// True if an error has stopped the volume, or a shutdown on purpose; false after a remount to
    /// read-only.
    pub fn is_stopped(&self) -> bool {
        !self.writes_nothing() && self.check_writable().is_err()
    }

    /// Why the volume may not be written, in words; `None` if it may.
    pub fn read_only_reason(&self) -> Option<String> {
        self.check_writable().err()?;
        if !self.is_stopped() {
            return Some("mounted read-only".to_owned());
        }
        let lost = self.guard.as_ref().and_then(|guard| guard.lost()).map(str::to_owned);
        let why =
            lost.or_else(|| self.vol.journal.abort_reason()).or_else(|| self.error_state.first());
        Some(why.unwrap_or_else(|| "an error stopped it".to_owned()))
    }

    /// True if no remount makes it writable again: another program has written to the volume, or
    /// the device below was cut.
    pub fn needs_new_mount(&self) -> bool {
        self.is_stopped() && self.guard.as_ref().is_some_and(|guard| guard.lost().is_some())
    }

    /// Stops the volume if the guard has refused it. (A change finds that by itself.)
    pub fn heed_guard(&self) {
        let Some(why) = self.guard.as_ref().and_then(|guard| guard.lost()) else { return };
        if !self.writes_nothing() && self.vol.journal.check_aborted().is_ok() {
            self.vol.journal.abort(why);
            self.note_abort();
        }
    }

    /// True if this mount writes nothing, not even flags of the superblock: it was opened or
    /// remounted read-only.
    pub fn writes_nothing(&self) -> bool {
        self.fixed.read_only() || self.remounted_ro.load(Ordering::Acquire)
    }

    /// The superblock of a volume that needs no recovery.
    pub fn clean_superblock(&self) -> Superblock {
        let mut sb = self.sb.read(Superblock::clone);
        sb.feature_incompat &= !Incompat::NEEDS_RECOVERY;
        if self.orphans.len() == 0 {
            sb.feature_ro_compat &= !RoCompat::ORPHAN_PRESENT;
        }
        if !sb.state.contains(State::ERROR) && self.fixed.was_valid.load(Ordering::Acquire) {
            sb.state |= State::VALID;
        }
        sb.wtime = self.clock.wall().as_secs();
        sb
    }

    /// The mount options as `/proc/mounts` shows them.
    pub fn mount_options(&self) -> String {
        self.options.lock().shown(&self.defaults)
    }

    /// All mount options, one word each.
    pub fn all_options(&self) -> Vec<String> {
        self.options.lock().words().into_iter().filter(|word| !word.is_empty()).collect()
    }

    /// True for inodes that belong to the volume itself: the journal, the orphan file, quotas. No
    /// name leads to them.
    pub fn is_internal(&self, ino: u32) -> bool {
        ino != InodeNr::ROOT.0
            && (ino < self.vol.geo.first_ino.0 || self.fixed.internal.contains(&ino))
    }

    /// The inode's cell.
    pub fn cell(&self, ino: u32) -> Result<Arc<Cell>> {
        self.loaded(ino, None)
    }

    /// As [`cell`](Self::cell), after a lookup of the cell in memory.
    pub fn loaded(&self, ino: u32, cached: Option<Arc<Cell>>) -> Result<Arc<Cell>> {
        if ino == 0 || ino > self.vol.geo.inodes() || self.is_internal(ino) {
            return Err(FsError::Stale);
        }
        cached.map_or_else(|| self.table.get(&self.vol, ino), Ok)
    }

    /// True if the file's data goes through the log.
    pub fn journals_data(&self, st: &InodeState) -> bool {
        st.is_regular()
            && !encrypted::is_encrypted(&st.node)
            && self.vol.journal.has_log()
            && (self.fixed.data == DataMode::Journal
                || st.node.raw.flags.contains(InodeFlags::JOURNAL_DATA)
                || st.is_value())
    }

    /// True if new files begin inside their inode.
    pub fn inline_files(&self) -> bool {
        self.vol.geo.incompat().contains(Incompat::INLINE_DATA)
            && self.fixed.data != DataMode::Journal
    }

    /// True if the file's data may use the blocks reserved for root. The process that writes
    /// decides ([`InodeState::reserve`]). For data that a front end writes back from its cache,
    /// without its writer, the owner of the file decides.
    pub fn uses_reserve(&self, st: &InodeState) -> bool {
        let owner = Creds { uid: st.node.raw.uid, gid: st.node.raw.gid };
        st.reserve.unwrap_or_else(|| self.may_use_reserve(owner))
    }

    /// True if a process with these ids may use the blocks reserved for root (`resuid=`,
    /// `resgid=`).
    pub fn may_use_reserve(&self, creds: Creds) -> bool {
        let live = &self.runtime;
        creds.uid == 0
            || creds.uid == live.resuid.load()
            || (live.resgid.load() != 0 && creds.gid == live.resgid.load())
    }

    /// What [`InodeState::reserve`] is to be for a change on behalf of `author`.
    pub fn reserve_right(&self, author: Author) -> Option<bool> {
        match author {
            Author::Process(creds) => Some(self.may_use_reserve(creds)),
            Author::Owner | Author::Cache => None,
        }
    }

    /// Called before a file gets attributes: the volume gets the feature, as by Linux.
    pub fn need_attributes(&self) -> Result<()> {
        self.need(Compat::EXT_ATTR, RoCompat::empty())
    }

    /// Called before a file becomes so long: the volume gets the feature for 2 GiB and more.
    pub fn need_size(&self, size: u64) -> Result<()> {
        if size <= i32::MAX as u64 {
            Ok(())
        } else {
            self.need(Compat::empty(), RoCompat::LARGE_FILE)
        }
    }

    /// Switches features on that a volume lacks, in a transaction before that of their first use.
    /// One of revision 0, which has no features, gets what they need.
    fn need(&self, compat: Compat, ro_compat: RoCompat) -> Result<()> {
        let has = |sb: &Superblock| {
            sb.feature_compat.contains(compat) && sb.feature_ro_compat.contains(ro_compat)
        };
        if self.sb.read(|sb| sb.rev_level > 0 && has(sb)) {
            return Ok(());
        }
        self.transact(1, |h| {
            fast_commit::note(h, Delta::AllIneligible { reason: Reason::Attributes });
            self.sb.update(h, |sb| {
                sb.feature_compat |= compat;
                sb.feature_ro_compat |= ro_compat;
                if sb.rev_level == 0 {
                    sb.rev_level = 1;
                    sb.first_ino = InodeNr::GOOD_OLD_FIRST.0;
                    sb.inode_size = GOOD_OLD_INODE_SIZE;
                }
            })
        })
    }

    /// Called before data of files is written to free blocks.
    pub fn note_data(&self, run: Run) {
        let (start, end) = (run.start.0, run.end().0);
        let mut written = self.data_written.lock();
        *written = match written.is_empty() {
            true => start..end,
            false => written.start.min(start)..written.end.max(end),
        };
    }

    /// Called when a write of file data failed: no fsync that covers it may succeed.
    pub fn data_write_failed(&self, e: DeviceError) -> FsError {
        let text = FsError::Io(e.to_string());
        let _ = self.vol.journal.abort_by("writing file data failed", &e.into());
        text
    }

    /// Starts a handle.
    pub fn start(&self, credits: u32) -> Result<Handle> {
        self.vol.journal.start(credits.min(self.vol.journal.max_credits())).map_err(error::journal)
    }

    /// Does `work` in a handle of its own.
    pub fn transact<T>(
        &self,
        credits: u32,
        work: impl FnOnce(&mut Handle) -> Result<T>,
    ) -> Result<T> {
        let mut h = self.start(credits)?;
        let done = work(&mut h)?;
        h.stop().map_err(error::journal)?;
        Ok(done)
    }

    /// What a change of attributes needs for values in inodes of their own, in one handle.
    pub fn values(&self) -> Values<'_> {
        Values::new(&self.orphans, self.now())
    }

    /// Attributes of an inode.
    pub fn attr(&self, st: &InodeState) -> Attr {
        let raw = &st.node.raw;
        let (major, minor) = match st.kind() {
            Some(extol_ondisk::FileType::CharDevice | extol_ondisk::FileType::BlockDevice) => {
                raw.rdev()
            }
            _ => (0, 0),
        };
        let geo = &self.vol.geo;
        let per_cluster = geo.cluster_blocks(u64::from(geo.block_size.bytes()) / 512);
        let inline = if raw.flags.contains(InodeFlags::INLINE_DATA) && st.is_regular() {
            raw.size
        } else {
            0
        };
        Attr {
            id: FileId { ino: st.node.ino.0, generation: raw.generation },
            kind: kind_of(st.kind()),
            perm: raw.mode & 0o7777,
            size: encrypted::size(&self.vol, &st.node),
            // Contents inside the inode take no block, but a file that is not empty must not look
            // like a hole.
            blocks: raw.blocks + st.pages.reserved() * per_cluster + inline.div_ceil(512),
            nlink: u32::from(raw.links),
            uid: raw.uid,
            gid: raw.gid,
            rdev: Rdev { major, minor },
            atime: timestamp(raw.atime),
            mtime: timestamp(raw.mtime),
            ctime: timestamp(raw.ctime),
            crtime: timestamp(raw.crtime),
            blksize: self.vol.geo.block_size.bytes(),
            flags: (raw.flags & InodeFlags::USER_VISIBLE).bits(),
            project: raw.projid,
        }
    }

    /// Opens the quota files: from now on usage follows the inodes.
    pub fn open_quotas(&self, sb: &Superblock) -> OpenResult<()> {
        let opened = Quotas::open(&self.vol, sb);
        let opened = opened
            .map_err(|e| OpenError::new(format!("quotas cannot be kept: {e}; run e2fsck")))?;
        if let Some(quotas) = opened {
            let _ = self.quotas.set(quotas);
        }
        Ok(())
    }

    /// From now on limits of these kinds are enforced, and of no others.
    pub fn enforce(&self, limits: QuotaOptions) {
        if let Some(quotas) = self.quotas.get() {
            quotas.enforce(&self.clock, &limits.kinds());
        }
    }

    /// True if the volume counts more than 65000 subdirectories.
    pub fn has_dir_nlink(&self) -> bool {
        self.vol.geo.ro_compat.contains(RoCompat::DIR_NLINK)
    }
}

/// From the on-disk kind.
pub(crate) fn kind_of(kind: Option<extol_ondisk::FileType>) -> FileKind {
    dir::kind_of(kind).unwrap_or(FileKind::Regular)
}

/// From an inode's time.
pub(crate) fn timestamp(t: Time) -> Timestamp {
    Timestamp { sec: t.sec, nsec: t.nsec }
}

/// To an inode's time. At both ends of the range the fraction is dropped, as Linux does.
fn time(t: Timestamp) -> Time {
    if t.sec <= Time::MIN_SEC {
        Time { sec: Time::MIN_SEC, nsec: 0 }
    } else if t.sec >= Time::MAX_SEC {
        Time { sec: Time::MAX_SEC, nsec: 0 }
    } else {
        Time { sec: t.sec, nsec: t.nsec.min(999_999_999) }
    }
}

/// (Here because it needs the orphan list, which stands above the inodes.)
impl InodeState {
    /// Writes the inode into its slot: one credit. `data`: the change matters to fdatasync.
    pub fn store(&mut self, fs: &MountedFs, h: &mut Handle, data: bool) -> Result<()> {
        self.store_as(fs, h, Change { data, ..Change::default() })
    }

    /// As [`store`](Self::store), for an inode that is not in use any more.
    pub fn store_gone(&mut self, fs: &MountedFs, h: &mut Handle) -> Result<()> {
        self.store_as(fs, h, Change { data: true, gone: true, ..Change::default() })
    }

    fn store_as(&mut self, fs: &MountedFs, h: &mut Handle, mut how: Change) -> Result<()> {
        (how.born, how.values) = (self.is_new, std::mem::take(&mut self.values_counted));
        if !self.is_regular() {
            self.disk_size = self.node.raw.size;
        }
        let visible = std::mem::replace(&mut self.node.raw.size, self.disk_size);
        let links = fs.orphans.guard();
        if let Some(link) = links.as_ref().and_then(|l| l.link(self.node.ino.0)) {
            self.node.raw.dtime = link;
        }
        let result = fs.vol.write_inode(h, self.node.ino, &self.node.raw, how);
        drop(links);
        self.node.raw.size = visible;
        result?;
        if !self.is_regular() {
            // What files are promised, they hold until their pages are written.
            fs.vol.settle(&self.node, 0);
        }
        self.lazy_times = false;
        self.is_new = false;
        self.is_changed = true;
        self.sync_tid = h.tid();
        if how.data {
            self.datasync_tid = h.tid();
        }
        Ok(())
    }
}
