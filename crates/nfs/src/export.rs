//! What the procedures share: the file system, handles, locks, the write verifier.
//!
//! *Locking.* A change holds the server's lock of each inode whose attributes it tells before and
//! after, so that nothing else changes it in between: all changes come through here. The locks are
//! a few for all inodes, taken in ascending order, and before all locks of the file system.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_sync::plain::{Mutex, MutexGuard};
use extol_vfs::{Attr, FileId, FileKind, FsError, Mountable};

use crate::ahead::Readers;
use crate::attrs::{Before, Change};
use crate::config::Config;
use crate::counters::Calls;
use crate::handle::{Handle, Handles, Secret};
use crate::status::{Result, Status};

/// Locks for all inodes.
const LOCKS: usize = 1024;

/// A directory of a file system, for peers.
pub struct Export {
    pub(crate) fs: Arc<dyn Mountable>,
    pub(crate) config: Config,
    pub(crate) handles: Handles,
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) readers: Readers,
    pub(crate) calls: Calls,
    /// The root of the export. Held, so that its number is not given to another inode.
    pub(crate) root: Held,
    locks: Box<[Mutex<()>]>,
}

impl std::fmt::Debug for Export {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Export").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why a directory cannot be exported.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportError {
    /// The subtree cannot be had.
    Subtree(FsError),
    /// The system has no random bytes for a secret.
    Secret(std::io::Error),
}

impl std::fmt::Display for ExportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Subtree(error) => write!(f, "cannot export the subtree: {error}"),
            Self::Secret(error) => write!(f, "no random bytes for file handles: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

impl Export {
    /// Exports a file system as `config` says.
    ///
    /// # Errors
    /// If the subtree is not there, or no directory; if a secret is needed and cannot be made.
    pub fn new(
        fs: Arc<dyn Mountable>,
        mut config: Config,
    ) -> std::result::Result<Arc<Self>, ExportError> {
        // (A file system without a UUID has handles all the same.)
        let uuid = fs.identity().map(|identity| identity.uuid).unwrap_or_default();
        let root = subtree(&fs, &config.subtree).map_err(ExportError::Subtree)?;
        let secret = config.secret.take().map_or_else(Secret::random, Ok);
        let secret = secret.map_err(ExportError::Secret)?;
        Ok(Arc::new(Self {
            handles: Handles::new(&secret, uuid, root.attr.id),
            verifier: Arc::default(),
            readers: Readers::default(),
            calls: Calls::default(),
            locks: (0..LOCKS).map(|_| Mutex::new(())).collect(),
            fs,
            config,
            root,
        }))
    }

    /// The inode that a handle names, held, with its attributes.
    pub(crate) fn hold(&self, handle: &[u8]) -> Result<Held> {
        let id = self.handles.decode(handle)?;
        let held = Held::taken(&self.fs, self.fs.open_by_number(id.ino)?);
        // Without a name it is gone for peers, even if a request still works on it.
        if held.attr.id != id || held.attr.nlink == 0 {
            return Err(Status::STALE);
        }
        Ok(held)
    }

    pub(crate) fn handle(&self, id: FileId) -> Handle {
        self.handles.encode(id)
    }

    pub(crate) fn lock(&self, ino: u32) -> MutexGuard<'_, ()> {
        self.locks[ino as usize % LOCKS].lock()
    }

    /// The locks of two inodes.
    pub(crate) fn lock_both(
        &self,
        one: u32,
        other: u32,
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (one, other) = (one as usize % LOCKS, other as usize % LOCKS);
        let first = self.locks[one.min(other)].lock();
        let second = (one != other).then(|| self.locks[one.max(other)].lock());
        (first, second)
    }

    /// Does `work` on the inode of a handle, and notes its attributes before and after.
    pub(crate) fn change<T>(
        &self,
        handle: &[u8],
        change: &mut Change,
        work: impl FnOnce(&Held) -> Result<T>,
    ) -> Result<T> {
        let mut held = self.hold(handle)?;
        let ino = held.attr.id.ino;
        let _lock = self.lock(ino);
        held.attr = self.fs.getattr(ino)?;
        change.before = Some(Before::of(&held.attr));
        let done = self.check_writable().and_then(|()| work(&held));
        change.after = self.fs.getattr(ino).ok();
        done
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.config.read_only { Err(Status::READ_ONLY) } else { Ok(()) }
    }

    /// A name in a directory, held. No name leads out of the export.
    pub(crate) fn find(&self, dir: &Attr, name: &[u8]) -> Result<Held> {
        if dir.kind != FileKind::Directory {
            return Err(Status::NOT_A_DIRECTORY);
        }
        if name == b".." && dir.id == self.root.attr.id {
            return self.hold(&self.handle(dir.id));
        }
        Ok(Held::taken(&self.fs, self.fs.lookup(dir.id.ino, name)?))
    }
}

/// The directory at a path of the volume, held.
fn subtree(fs: &Arc<dyn Mountable>, path: &[u8]) -> extol_vfs::Result<Held> {
    let mut held = Held::taken(fs, fs.lookup(fs.root(), b".")?);
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        held = Held::taken(fs, fs.lookup(held.attr.id.ino, name)?);
    }
    if held.attr.kind != FileKind::Directory {
        return Err(FsError::NotADirectory);
    }
    Ok(held)
}

/// An inode with a reference on it.
pub(crate) struct Held {
    fs: Arc<dyn Mountable>,
    /// Its attributes when it was taken.
    pub(crate) attr: Attr,
}

impl Held {
    /// Takes over the reference that came with these attributes.
    pub(crate) fn taken(fs: &Arc<dyn Mountable>, attr: Attr) -> Self {
        Self { fs: Arc::clone(fs), attr }
    }

    pub(crate) fn ino(&self) -> u32 {
        self.attr.id.ino
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.fs.forget(self.attr.id.ino, 1);
    }
}

/// The write verifier: a client that sees another one than before writes again what it had not
/// committed (NF-2).
#[derive(Debug)]
pub(crate) struct Verifier(AtomicU64);

impl Default for Verifier {
    fn default() -> Self {
        Self(AtomicU64::new(random()))
    }
}

impl Verifier {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Bytes that were acknowledged may be lost.
    pub(crate) fn change(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A number that no other start of the server has.
fn random() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    hasher.write_u128(now.map_or(0, |now| now.as_nanos()));
    hasher.finish()
}
