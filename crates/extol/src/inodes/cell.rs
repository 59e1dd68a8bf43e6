//! One inode in memory: its lock, and what is inside. [`super`] tells the story.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extol_fscrypt::FileKey;
use extol_jbd2::{DeferredWrite, Tid};
use extol_ondisk::{FileType, InodeFlags, Time};
use extol_sync::plain::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use extol_sync::rank::{self, Rank, Ranked};
use extol_vfs::{FsError, Result};

use crate::alloc::Window;
use crate::data::delalloc::DirtyPages;
use crate::node::Node;
use crate::verity::FileVerity;

/// A decoded inode and its state in memory.
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
    /// Data that another thread brings to the device. A thread that gets the lock waits for it
    /// (IN-6).
    pub deferred: Option<DeferredWrite>,
    /// Whether the process that runs this write or fallocate may use reserved blocks. `None`: the
    /// owner of the file decides. Set at the beginning of each operation, under the lock of the
    /// inode.
    pub reserve: Option<bool>,
    /// How many more attribute values in inodes of their own count in it than when it was stored.
    pub values_counted: i64,
    /// Of a file of fs-verity, once it was read.
    pub verity: OnceLock<Arc<FileVerity>>,
    /// The Merkle tree is being built: the contents do not change.
    pub enables_verity: bool,
    /// Of an encrypted file, once its contents were needed.
    pub key: OnceLock<Arc<FileKey>>,
    /// Time stamps changed in memory only (lazytime, and mtime until writeback).
    pub lazy_times: bool,
    /// New: its slot in the inode table still holds the former inode.
    pub is_new: bool,
    /// A transaction has changed it since it was loaded.
    pub is_changed: bool,
    /// Deleted: the number may be that of another inode, unless it is held. The thread that deletes
    /// the inode still has to take it out of memory.
    pub is_deleted: bool,
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
            verity: OnceLock::new(),
            enables_verity: false,
            key: OnceLock::new(),
            lazy_times: false,
            is_new: false,
            is_changed: false,
            is_deleted: false,
            values_counted: 0,
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

    /// True if it holds the value of an attribute, and so has no name and no cell.
    pub fn is_value(&self) -> bool {
        self.node.raw.flags.contains(InodeFlags::EA_INODE)
    }

    /// The contents change: both times become `now`.
    pub fn touch(&mut self, now: Time) {
        (self.node.raw.mtime, self.node.raw.ctime) = (now, now);
    }

    /// Waits until data that another thread writes is on the device.
    fn finish_deferred(&self) {
        if let Some(deferred) = &self.deferred {
            deferred.finish();
        }
    }

    /// [`finish_deferred`](Self::finish_deferred), and forgets that it was deferred.
    pub fn end_deferred(&mut self) {
        if let Some(deferred) = self.deferred.take() {
            deferred.finish();
        }
    }
}

/// An inode's lock with its state inside.
#[derive(Debug)]
pub(crate) struct Cell {
    pub ino: u32,
    pub(super) recent: AtomicBool,
    /// Set once the inode is loaded.
    is_dir: OnceLock<bool>,
    /// Of a directory: its generation, once an entry that leads to it was found in order. It does
    /// not change while the inode is in memory.
    dir_generation: OnceLock<u32>,
    /// How often the lock was taken for a change.
    version: AtomicU64,
    /// Held by a flush that waits for `state`.
    turn: Mutex<()>,
    pub(super) state: RwLock<Option<InodeState>>,
}

pub(crate) type ReadGuard<'a> = Ranked<MappedRwLockReadGuard<'a, InodeState>>;
pub(crate) type WriteGuard<'a> = Ranked<MappedRwLockWriteGuard<'a, InodeState>>;

impl Cell {
    /// An inode that the caller locks and loads.
    pub(super) fn empty(ino: u32) -> Self {
        Self {
            ino,
            // It goes to the end of the clock, and so stays for a whole round.
            recent: AtomicBool::new(false),
            is_dir: OnceLock::new(),
            dir_generation: OnceLock::new(),
            version: AtomicU64::new(0),
            turn: Mutex::new(()),
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

    /// Called once the inode is loaded.
    pub(super) fn set_kind(&self, is_dir: bool) {
        let _ = self.is_dir.set(is_dir);
    }

    /// Notes a use. Called with the lock of the shard held.
    pub(super) fn used(self: &Arc<Self>) -> Arc<Self> {
        if !self.recent.load(Ordering::Relaxed) {
            self.recent.store(true, Ordering::Relaxed);
        }
        Arc::clone(self)
    }

    /// Locks for reading.
    #[track_caller]
    pub fn read(&self) -> Result<ReadGuard<'_>> {
        self.read_if(|state| !state.is_deleted)
    }

    /// Locks for writing.
    #[track_caller]
    pub fn write(&self) -> Result<WriteGuard<'_>> {
        self.write_if(|state| !state.is_deleted)
    }

    /// Locks for a flush, before writes that come meanwhile
    /// ([`write_behind_flush`](Self::write_behind_flush)). A thread that writes without pause takes
    /// the lock again before another one has woken, so a flush would wait for many writes, and then
    /// write the data of all of them.
    #[track_caller]
    pub fn write_for_flush(&self) -> Result<WriteGuard<'_>> {
        rank::check(self.rank(), self.ino.into());
        let _turn = self.turn.lock();
        self.write()
    }

    /// Locks for a write, behind a flush that waits for the lock.
    #[track_caller]
    pub fn write_behind_flush(&self) -> Result<WriteGuard<'_>> {
        if self.turn.is_locked() {
            rank::check(self.rank(), self.ino.into());
            drop(self.turn.lock());
        }
        self.write()
    }

    /// Locks for reading; the file may be deleted and its number held (IN-4).
    #[track_caller]
    pub fn read_any(&self) -> Result<ReadGuard<'_>> {
        self.read_if(|_| true)
    }

    /// Locks for writing; the file may be deleted, and then nothing of it may reach the volume.
    #[track_caller]
    pub fn write_any(&self) -> Result<WriteGuard<'_>> {
        self.write_if(|_| true)
    }

    #[track_caller]
    fn read_if(&self, wanted: impl FnOnce(&InodeState) -> bool) -> Result<ReadGuard<'_>> {
        let held = rank::enter(self.rank(), self.ino.into());
        let guard =
            RwLockReadGuard::try_map(self.state.read(), |s| s.as_ref().filter(|s| wanted(s)));
        let guard = guard.map_err(|_| FsError::Stale)?;
        guard.finish_deferred();
        Ok(Ranked::new(guard, held))
    }

    #[track_caller]
    fn write_if(&self, wanted: impl FnOnce(&InodeState) -> bool) -> Result<WriteGuard<'_>> {
        let held = rank::enter(self.rank(), self.ino.into());
        let guard =
            RwLockWriteGuard::try_map(self.state.write(), |s| s.as_mut().filter(|s| wanted(s)));
        let mut guard = guard.map_err(|_| FsError::Stale)?;
        self.count();
        guard.end_deferred();
        Ok(Ranked::new(guard, held))
    }

    /// A number that changes each time the lock is taken for a change. Called with the lock held.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts a lock for a change. (Called with that lock held, so never by two threads at a time.)
    fn count(&self) {
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// True for directories; takes no lock, so it may be asked with the lock of another inode held
    /// (on a damaged volume a directory may be listed below itself). Waits while the inode is being
    /// loaded; false if that fails.
    pub fn is_dir(&self) -> bool {
        *self.is_dir.wait()
    }

    /// Notes that an entry that leads to this inode is in order. Called with the lock held.
    pub fn note_named(&self, state: &InodeState) {
        if state.is_dir() {
            let _ = self.dir_generation.set(state.node.raw.generation);
        }
    }

    /// The generation of a directory to which an entry leads; takes no lock. `None`: the entry must
    /// be checked first.
    pub fn dir_generation(&self) -> Option<u32> {
        self.dir_generation.get().copied()
    }

    /// Locks for writing if the lock is free.
    #[track_caller]
    pub fn try_write(&self) -> Option<WriteGuard<'_>> {
        let mut guard = self.try_write_times()?;
        self.count();
        guard.end_deferred();
        Some(guard)
    }

    /// [`try_write`](Self::try_write) for a change of time stamps only.
    #[track_caller]
    pub fn try_write_times(&self) -> Option<WriteGuard<'_>> {
        let state = self.state.try_write()?;
        let guard =
            RwLockWriteGuard::try_map(state, |s| s.as_mut().filter(|s| !s.is_deleted)).ok()?;
        Some(Ranked::new(guard, rank::note(self.rank(), self.ino.into())))
    }

    /// The place in the lock order. Only debug builds look, and wait for the inode to be loaded, as
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

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// A thread that writes again and again lets a flush in that waits.
    #[test]
    fn a_flush_goes_before_later_writes() {
        // (Without state it is locked all the same, and said to be stale.)
        let cell = Cell::empty(12);
        cell.set_kind(false);
        for _ in 0..50 {
            thread::scope(|scope| {
                let held = cell.state.write();
                scope.spawn(|| assert!(cell.write_for_flush().is_err()));
                let start = Instant::now();
                while !cell.turn.is_locked() {
                    assert!(start.elapsed() < Duration::from_secs(20), "it never waits");
                    thread::yield_now();
                }
                drop(held);
                assert!(cell.write_behind_flush().is_err());
                assert!(!cell.turn.is_locked(), "the flush still waits");
            });
        }
    }
}
