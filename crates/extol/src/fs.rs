//! The open file system: what all operations share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extol_block::{DeviceError, SharedDevice};
use extol_jbd2::Handle;
use extol_jbd2::recovery::OverlayDevice;
use extol_ondisk::{Incompat, InodeFlags, InodeNr, RoCompat, Time};
use extol_sync::rank::{Mutex, Rank};
use extol_task::{Clock, Tally, Wakeup};
use extol_vfs::{Attr, Author, Creds, FileId, FileKind, FsError, Rdev, Result, Timestamp};

use crate::alloc::SuperCell;
use crate::data::cache::DataCache;
use crate::data::readahead::ReadaheadThreads;
use crate::data::writeback::DirtyIndex;
use crate::dirs_moved::DirsMoved;
use crate::error;
use crate::guard::Guard;
use crate::inodes::{Cell, InodeState, InodeTable};
use crate::live::Live;
use crate::mount::fast_commit::Obstacle;
use crate::options::{DataMode, MountOptions};
use crate::orphan::Orphans;
use crate::services::lazy_init::LazyInit;
use crate::throttle::Throttle;
use crate::trouble::Trouble;
use crate::volume::Volume;
use crate::whole::Whole;

/// What the mount options decided for good.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Opened without the right to write, and not got it since (`remount/rise.rs`).
    pub read_only: AtomicBool,
    pub data: DataMode,
    pub user_xattr: bool,
    pub acl: bool,
    /// Inodes above the reserved ones that hold the volume's own things (0: none).
    pub internal: [u32; 5],
}

impl Limits {
    /// Opened without the right to write, and not got it since.
    pub fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }
}

/// What lies below [`Volume::dev`].
#[derive(Debug)]
pub(crate) struct Ground {
    /// The device as it is.
    pub device: SharedDevice,
    /// What recovery in memory has put over it.
    pub overlay: Option<Arc<OverlayDevice>>,
}

/// The open file system.
pub(crate) struct MountedFs {
    pub vol: Volume,
    /// Keeps other writers apart; `None`: this mount writes nothing, or not to a device.
    pub guard: Option<Arc<Guard>>,
    pub sb: SuperCell,
    pub table: InodeTable,
    pub orphans: Orphans,
    pub dirty: DirtyIndex,
    /// None: clean file data is not kept.
    pub data_cache: Option<Arc<DataCache>>,
    pub readahead: ReadaheadThreads,
    pub throttle: Arc<Throttle>,
    pub limits: Limits,
    /// What they decided until the next remount.
    pub live: Live,
    /// All of them as text shows them, with what the superblock decides filled in.
    pub options: parking_lot::Mutex<MountOptions>,
    /// What this volume has without options.
    pub defaults: MountOptions,
    /// Why this mount can have no fast commits.
    pub no_fast_commits: parking_lot::Mutex<Option<Obstacle>>,
    /// What a volume that was opened read-only is made of.
    pub ground: Ground,
    /// What the user should know about this mount.
    pub notes: Vec<String>,
    /// Remounted read-only: everything is home, the log is empty and frozen, the superblock says
    /// "clean".
    pub rests: AtomicBool,
    pub clock: Arc<dyn Clock>,
    /// Held while a rename moves something between directories: keeps the tree's shape still.
    pub rename: Mutex<(), { Rank::Rename as u8 }>,
    pub dirs_moved: DirsMoved,
    pub read_only: AtomicBool,
    /// Operations served, for the statistics.
    pub operations: Tally,
    pub trouble: Trouble,
    pub lazy_init: LazyInit,
    /// Background threads run.
    pub threads: bool,
    /// Wakes the one that makes zeroed blocks.
    pub refill: Wakeup,
    /// The journal's source of fast commits, if there are any.
    pub tracker: Arc<crate::fast_commit::Tracker>,
    pub whole: Whole,
}

impl std::fmt::Debug for MountedFs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountedFs").field("vol", &self.vol).finish_non_exhaustive()
    }
}

impl MountedFs {
    /// Now, as inodes store it.
    pub fn now(&self) -> Time {
        let now: Duration = self.clock.wall();
        self.time(Timestamp { sec: now.as_secs().cast_signed(), nsec: now.subsec_nanos() })
    }

    /// A time as the volume's inodes can hold it: those of 128 bytes have 32 bits of seconds and
    /// nothing else.
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

    /// True if this mount writes nothing at all, not even marks: opened read-only, or remounted so.
    pub fn writes_nothing(&self) -> bool {
        self.limits.read_only() || self.rests.load(Ordering::Acquire)
    }

    /// True for inodes that belong to the volume itself: the journal, the orphan file, quotas … No
    /// name leads to them.
    pub fn is_internal(&self, ino: u32) -> bool {
        ino != InodeNr::ROOT.0
            && (ino < self.vol.geo.first_ino.0 || self.limits.internal.contains(&ino))
    }

    /// The inode's cell.
    pub fn cell(&self, ino: u32) -> Result<Arc<Cell>> {
        self.loaded(ino, None)
    }

    /// The same for those who have found it in memory, or not.
    pub fn loaded(&self, ino: u32, cached: Option<Arc<Cell>>) -> Result<Arc<Cell>> {
        if ino == 0 || ino > self.vol.geo.inodes || self.is_internal(ino) {
            return Err(FsError::Stale);
        }
        cached.map_or_else(|| self.table.get(&self.vol, ino), Ok)
    }

    /// True if the file's data goes through the log.
    pub fn journals_data(&self, st: &InodeState) -> bool {
        st.is_regular()
            && self.vol.journal.has_log()
            && (self.limits.data == DataMode::Journal
                || st.node.raw.flags.contains(InodeFlags::JOURNAL_DATA))
    }

    /// True if new files begin inside their inode.
    pub fn inline_files(&self) -> bool {
        self.vol.geo.incompat.contains(Incompat::INLINE_DATA)
            && self.limits.data != DataMode::Journal
    }

    /// True if the file's data may use the blocks kept for root: the process that writes decides
    /// ([`InodeState::reserve`]), and for data that comes out of a front end's cache, behind its
    /// writers, the owner of the file.
    pub fn uses_reserve(&self, st: &InodeState) -> bool {
        let owner = Creds { uid: st.node.raw.uid, gid: st.node.raw.gid };
        st.reserve.unwrap_or_else(|| self.may_use_reserve(owner))
    }

    /// True if a process with these ids may use the blocks kept for root (`resuid=`, `resgid=`).
    pub fn may_use_reserve(&self, who: Creds) -> bool {
        let live = &self.live;
        who.uid == 0 || who.uid == live.resuid() || (live.resgid() != 0 && who.gid == live.resgid())
    }

    /// What [`InodeState::reserve`] is to be for a change on behalf of `author`.
    pub fn reserve_right(&self, author: Author) -> Option<bool> {
        match author {
            Author::Process(who) => Some(self.may_use_reserve(who)),
            Author::Owner | Author::Cache => None,
        }
    }

    /// Err if a process that may not use reserved blocks needs one block now, and there are no
    /// others.
    pub fn check_room_for(&self, who: Creds) -> Result<()> {
        let out_of_room = || self.vol.alloc.counters().available == 0;
        if self.may_use_reserve(who) || !out_of_room() {
            return Ok(());
        }
        self.settle_space();
        if out_of_room() { Err(FsError::NoSpace) } else { Ok(()) }
    }

    /// Promises blocks to an operation; if there are none, after everything that can free some was
    /// tried.
    pub fn reserve(&self, blocks: u64) -> Result<()> {
        self.reserve_as(blocks, true)
    }

    /// Promises blocks for the data of a file.
    pub fn reserve_data(&self, st: &InodeState, blocks: u64) -> Result<()> {
        self.reserve_as(blocks, self.uses_reserve(st))
    }

    fn reserve_as(&self, blocks: u64, root: bool) -> Result<()> {
        if self.vol.alloc.reserve(blocks, root).is_ok() {
            return Ok(());
        }
        self.settle_space();
        self.vol.alloc.reserve(blocks, root)
    }

    /// Promises up to `blocks` blocks for the data of a file and exactly `beside` others; returns
    /// how many of the former.
    pub fn reserve_some(&self, st: &InodeState, blocks: u64, beside: u64) -> Result<u64> {
        let root = self.uses_reserve(st);
        if self.reserve_as(blocks + beside, root).is_ok() {
            return Ok(blocks);
        }
        let counters = self.vol.alloc.counters();
        let free = if root { counters.free } else { counters.available };
        let free = free.saturating_sub(beside).min(blocks);
        if free == 0 {
            return Err(FsError::NoSpace);
        }
        self.vol.alloc.reserve(free + beside, root).map(|()| free)
    }

    /// Space is short: turns promises of delayed writes into what they really need, and commits, so
    /// that blocks freed by transactions under way can be used. No handle may be open; inodes that
    /// somebody has locked are left out.
    pub fn settle_space(&self) {
        crate::data::writeback::flush_unlocked(self);
        if self.vol.alloc.pending_free() > 0 {
            let _ = self.vol.journal.commit_all();
        }
    }

    /// A write of file data failed: whatever it should have covered must never be acknowledged.
    pub fn data_write_failed(&self, e: DeviceError) -> FsError {
        let _ = self.vol.journal.abort(&format!("writing file data failed: {e}"));
        FsError::Io(e.to_string())
    }

    /// Starts a handle.
    pub fn start(&self, credits: u32) -> Result<Handle> {
        self.vol.journal.start(credits.min(self.vol.journal.max_credits())).map_err(error::journal)
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
        let per_block = u64::from(self.vol.geo.block_size.bytes()) / 512;
        let inline = if raw.flags.contains(InodeFlags::INLINE_DATA) && st.is_regular() {
            raw.size
        } else {
            0
        };
        Attr {
            id: FileId { ino: st.node.ino.0, generation: raw.generation },
            kind: kind_of(st.kind()),
            perm: raw.mode & 0o7777,
            size: raw.size,
            // Contents inside the inode take no block, but a file that is not empty must not look
            // like a hole.
            blocks: raw.blocks + st.pages.reserved() * per_block + inline.div_ceil(512),
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

    /// True if the volume counts more than 65000 subdirectories.
    pub fn has_dir_nlink(&self) -> bool {
        self.vol.geo.ro_compat.contains(RoCompat::DIR_NLINK)
    }
}

/// From the on-disk kind.
pub(crate) fn kind_of(kind: Option<extol_ondisk::FileType>) -> FileKind {
    use extol_ondisk::FileType as T;
    match kind {
        Some(T::Directory) => FileKind::Directory,
        Some(T::Symlink) => FileKind::Symlink,
        Some(T::CharDevice) => FileKind::CharDevice,
        Some(T::BlockDevice) => FileKind::BlockDevice,
        Some(T::Fifo) => FileKind::Fifo,
        Some(T::Socket) => FileKind::Socket,
        Some(T::Regular) | None => FileKind::Regular,
    }
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
