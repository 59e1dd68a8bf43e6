//! Mount options that a remount may change. Each is an atomic of its own: an operation reads each
//! one when it needs it, and no two of them have to be consistent.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};

use crate::options::{Atime, ErrorPolicy, MountOptions};

/// Options that can change while the volume is mounted. See [`crate::remount`].
#[derive(Debug, Default)]
pub(crate) struct RuntimeOptions {
    errors: AtomicU8,
    atime: AtomicU8,
    nodiratime: AtomicBool,
    sync: AtomicBool,
    dirsync: AtomicBool,
    lazytime: AtomicBool,
    grpid: AtomicBool,
    minixdf: AtomicBool,
    nodelalloc: AtomicBool,
    dirty_bytes: AtomicUsize,
    readahead: AtomicUsize,
    resuid: AtomicU32,
    resgid: AtomicU32,
}

impl RuntimeOptions {
    /// From effective options: those that the superblock decides are set (see
    /// [`MountOptions::effective`]).
    pub fn new(options: &MountOptions) -> Self {
        let live = Self::default();
        live.set(options);
        live
    }

    /// Takes over all values.
    pub fn set(&self, o: &MountOptions) {
        self.errors.store(o.access.errors.unwrap_or(ErrorPolicy::Continue) as u8, Relaxed);
        self.atime.store(o.inodes.atime as u8, Relaxed);
        self.nodiratime.store(o.inodes.nodiratime, Relaxed);
        self.sync.store(o.data.sync, Relaxed);
        self.dirsync.store(o.data.dirsync, Relaxed);
        self.lazytime.store(o.inodes.lazytime, Relaxed);
        self.grpid.store(o.inodes.grpid.unwrap_or(false), Relaxed);
        self.minixdf.store(o.space.minixdf, Relaxed);
        self.nodelalloc.store(o.data.nodelalloc, Relaxed);
        self.dirty_bytes.store(o.data.dirty_bytes, Relaxed);
        self.readahead.store(o.data.readahead, Relaxed);
        self.resuid.store(o.space.resuid.unwrap_or(0), Relaxed);
        self.resgid.store(o.space.resgid.unwrap_or(0), Relaxed);
    }

    /// `errors=`.
    pub fn errors(&self) -> ErrorPolicy {
        match self.errors.load(Relaxed) {
            n if n == ErrorPolicy::RemountRo as u8 => ErrorPolicy::RemountRo,
            n if n == ErrorPolicy::Panic as u8 => ErrorPolicy::Panic,
            _ => ErrorPolicy::Continue,
        }
    }

    /// When reads change the access time.
    pub fn atime(&self) -> Atime {
        match self.atime.load(Relaxed) {
            n if n == Atime::Strict as u8 => Atime::Strict,
            n if n == Atime::Never as u8 => Atime::Never,
            _ => Atime::Relative,
        }
    }

    pub fn nodiratime(&self) -> bool {
        self.nodiratime.load(Relaxed)
    }

    pub fn sync(&self) -> bool {
        self.sync.load(Relaxed)
    }

    /// Changes of names are durable when they return. (`sync` asks for that, too.)
    pub fn dirsync(&self) -> bool {
        self.dirsync.load(Relaxed) || self.sync()
    }

    pub fn lazytime(&self) -> bool {
        self.lazytime.load(Relaxed)
    }

    pub fn grpid(&self) -> bool {
        self.grpid.load(Relaxed)
    }

    pub fn minixdf(&self) -> bool {
        self.minixdf.load(Relaxed)
    }

    pub fn nodelalloc(&self) -> bool {
        self.nodelalloc.load(Relaxed)
    }

    /// Bound on file data that waits to be written.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Relaxed)
    }

    /// Most bytes read ahead for an open file.
    pub fn readahead(&self) -> usize {
        self.readahead.load(Relaxed)
    }

    /// The user beside root that may use the reserved blocks.
    pub fn resuid(&self) -> u32 {
        self.resuid.load(Relaxed)
    }

    pub fn resgid(&self) -> u32 {
        self.resgid.load(Relaxed)
    }
}
