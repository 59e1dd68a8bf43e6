//! One inode in memory: its lock, and what is inside. The story is that of [`super`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_jbd2::{Deferral, Handle, Tid};
use extol_ondisk::FileType;
use extol_sync::rank::{self, Rank, Ranked};
use extol_vfs::{FsError, Result};
use parking_lot::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use crate::alloc::Window;
use crate::data::delalloc::DirtyPages;
use crate::dir::{Absent, Room, Spot};
use crate::fast_commit::eligibility::Change;
use crate::mounted::MountedFs;
use crate::node::Node;

/// A decoded inode and what is known about it in memory.
#[derive(Debug)]
pub(crate) struct InodeState {
    /// `node.raw.size` is the size that users see.
    pub node: Node,
    /// The size on disk: data up to here is mapped, or was a hole when the size was set. Behind it
    /// are dirty pages.
    pub disk_size: u64,
    /// Data written and not yet on the device.
    pub pages: DirtyPages,
    /// The newest transaction that changed the inode (fsync waits for it).
    pub sync_tid: Tid,
    /// The newest that changed what reading the data needs (fdatasync waits for it).
    pub datasync_tid: Tid,
    /// Blocks taken ahead for an appending writer.
    pub window: Window,
    /// Data that is not on the device yet, and will be without this inode's doing. Whoever gets the
    /// lock finds it there.
    pub deferred: Option<Deferral>,
    /// True or false: the process whose write or fallocate this is may or may not use reserved
    /// blocks. `None`: the owner of the file decides. Set at the beginning of each, under the lock
    /// of the inode.
    pub reserve: Option<bool>,
    /// Time stamps changed in memory only (lazytime and write-behind of mtime).
    pub lazy_times: bool,
    /// Just made: its slot holds what was there before.
    pub born: bool,
    /// Deleted, and its number may be another inode's: whoever did that still has to take it out of
    /// memory, unless it is a ghost.
    pub gone: bool,
}

impl InodeState {
    /// A state around a freshly decoded inode.
    pub fn new(node: Node, tid: Tid) -> Self {
        let disk_size = node.raw.size;
        Self {
            node,
            disk_size,
            pages: DirtyPages::default(),
            sync_tid: tid,
            datasync_tid: tid,
            window: Window::default(),
            deferred: None,
            reserve: None,
            lazy_times: false,
            born: false,
            gone: false,
        }
    }

    /// What kind of file it is.
    pub fn kind(&self) -> Option<FileType> {
        FileType::from_mode(self.node.raw.mode)
    }

    /// True for directories.
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// True for regular files.
    pub fn is_regular(&self) -> bool {
        self.kind() == Some(FileType::Regular)
    }

    /// Data that was left to others is on the device when this returns.
    fn settle(&self) {
        if let Some(deferred) = &self.deferred {
            deferred.settle();
        }
    }

    /// As that, once for all.
    pub fn settle_for_good(&mut self) {
        if let Some(deferred) = self.deferred.take() {
            deferred.settle();
        }
    }

    /// Writes the inode into its slot: one credit. `data`: the change matters to fdatasync.
    pub fn store(&mut self, fs: &MountedFs, h: &mut Handle, data: bool) -> Result<()> {
        if !self.is_regular() {
            self.disk_size = self.node.raw.size;
        }
        let visible = std::mem::replace(&mut self.node.raw.size, self.disk_size);
        let links = fs.orphans.guard();
        if let Some(link) = links.as_ref().and_then(|l| l.link(self.node.ino.0)) {
            self.node.raw.dtime = link;
        }
        let result =
            fs.vol.write_inode(h, self.node.ino, &self.node.raw, Change { data, born: self.born });
        drop(links);
        self.node.raw.size = visible;
        result?;
        self.lazy_times = false;
        self.born = false;
        self.sync_tid = h.tid();
        if data {
            self.datasync_tid = h.tid();
        }
        Ok(())
    }
}

/// An inode's lock with its state inside.
#[derive(Debug)]
pub(crate) struct Cell {
    pub ino: u32,
    pub(super) recent: AtomicBool,
    /// Known once it is loaded.
    is_dir: OnceLock<bool>,
    /// Of a directory: its generation, once an entry that leads to it was found in order. It does
    /// not change while it is in memory.
    way: OnceLock<u32>,
    /// How often it was locked for a change.
    version: AtomicU64,
    /// Of a directory: the name that was looked for in vain last.
    absent: Absent,
    pub(super) state: RwLock<Option<InodeState>>,
}

pub(crate) type ReadGuard<'a> = Ranked<MappedRwLockReadGuard<'a, InodeState>>;
pub(crate) type WriteGuard<'a> = Ranked<MappedRwLockWriteGuard<'a, InodeState>>;

impl Cell {
    /// An inode that is still to be loaded, by whoever locks it now.
    pub(super) fn empty(ino: u32) -> Self {
        Self {
            ino,
            // It goes to the end of the clock: nobody looks at it for a whole round.
            recent: AtomicBool::new(false),
            is_dir: OnceLock::new(),
            way: OnceLock::new(),
            version: AtomicU64::new(0),
            absent: Absent::default(),
            state: RwLock::new(None),
        }
    }

    /// An inode that was just made.
    pub(super) fn loaded(state: InodeState) -> Self {
        let mut cell = Self::empty(state.node.ino.0);
        cell.set_kind(state.is_dir());
        *cell.state.get_mut() = Some(state);
        cell
    }

    /// Once it is known.
    pub(super) fn set_kind(&self, is_dir: bool) {
        let _ = self.is_dir.set(is_dir);
    }

    /// Somebody uses it. For those who have the lock of its shard.
    pub(super) fn used(self: &Arc<Self>) -> Arc<Self> {
        if !self.recent.load(Ordering::Relaxed) {
            self.recent.store(true, Ordering::Relaxed);
        }
        Arc::clone(self)
    }

    /// Locks for reading.
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard<'_>> {
        self.read_if(|state| !state.gone)
    }

    /// Locks for writing.
    #[track_caller]
    pub fn write(&self) -> Result<WriteGuard<'_>> {
        self.write_if(|state| !state.gone)
    }

    /// Locks for reading what is remembered, also of a file that is deleted.
    #[track_caller]
    pub fn read_ghost(&self) -> Result<ReadGuard<'_>> {
        self.read_if(|_| true)
    }

    /// Locks for writing; nothing of a file that is deleted may reach the volume.
    #[track_caller]
    pub fn write_ghost(&self) -> Result<WriteGuard<'_>> {
        self.write_if(|_| true)
    }

    #[track_caller]
    fn read_if(&self, wanted: impl FnOnce(&InodeState) -> bool) -> Result<ReadGuard<'_>> {
        let held = rank::enter(self.rank(), self.ino.into());
        let guard =
            RwLockReadGuard::try_map(self.state.read(), |s| s.as_ref().filter(|s| wanted(s)));
        let guard = guard.map_err(|_| FsError::Stale)?;
        guard.settle();
        Ok(Ranked::new(guard, held))
    }

    #[track_caller]
    fn write_if(&self, wanted: impl FnOnce(&InodeState) -> bool) -> Result<WriteGuard<'_>> {
        let held = rank::enter(self.rank(), self.ino.into());
        let guard =
            RwLockWriteGuard::try_map(self.state.write(), |s| s.as_mut().filter(|s| wanted(s)));
        let mut guard = guard.map_err(|_| FsError::Stale)?;
        self.count();
        guard.settle_for_good();
        Ok(Ranked::new(guard, held))
    }

    /// A number that is another one after each time that somebody could change the file's data or
    /// where it lies. For those who have the lock.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// A search in the directory found that there is no such name. For those who have the lock.
    pub fn note_absent(&self, name: &[u8], spot: &Spot) {
        self.absent.remember(self.version(), name, spot);
    }

    /// What such a search found out, if nobody could change the directory since. For those who have
    /// just got the lock for a change.
    pub fn absent(&self, name: &[u8]) -> Option<Room> {
        self.absent.recall(self.version(), name)
    }

    /// The lock was taken for a change. (Only its owner comes here, so no two at a time.)
    fn count(&self) {
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// True for directories; takes no lock, so it may be asked with the lock of another inode held
    /// (on a damaged volume a directory may be listed below itself). Waits while the inode is being
    /// loaded; false if that fails.
    pub fn is_dir(&self) -> bool {
        *self.is_dir.wait()
    }

    /// An entry that leads to it was found in order. For those who have the lock.
    pub fn note_way(&self, state: &InodeState) {
        if state.is_dir() {
            let _ = self.way.set(state.node.raw.generation);
        }
    }

    /// The generation of a directory that paths lead through; takes no lock. Nothing if it must be
    /// looked at first.
    pub fn way(&self) -> Option<u32> {
        self.way.get().copied()
    }

    /// Locks for writing if nobody else has the lock.
    #[track_caller]
    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        let mut guard = self.try_write_times()?;
        self.count();
        guard.settle_for_good();
        Some(guard)
    }

    /// The same, for somebody who will only change time stamps.
    #[track_caller]
    pub fn try_write_times(&self) -> Option<WriteGuard<'_>> {
        let state = self.state.try_write()?;
        let guard = RwLockWriteGuard::try_map(state, |s| s.as_mut().filter(|s| !s.gone)).ok()?;
        Some(Ranked::new(guard, rank::note(self.rank(), self.ino.into())))
    }

    /// Its place in the lock order. Only debug builds look, and may wait for it to be loaded: as
    /// its lock does.
    fn rank(&self) -> Rank {
        if cfg!(debug_assertions) && !self.is_dir() { Rank::File } else { Rank::Directory }
    }

    /// Marks the inode as deleted: the guard must be dropped before.
    pub(super) fn kill(&self) -> Option<InodeState> {
        let _held = rank::enter(self.rank(), self.ino.into());
        self.state.write().take()
    }
}
