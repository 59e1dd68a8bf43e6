//! Mount options that a remount may change. Each is an atomic of its own: an operation reads each
//! one when it needs it, and no two of them have to be consistent.

use crossbeam_utils::atomic::AtomicCell;

use crate::options::{Atime, ErrorPolicy, MountOptions};

/// Options that can change while the volume is mounted. See [`crate::remount`].
#[derive(Debug, Default)]
pub(crate) struct RuntimeOptions {
    pub errors: AtomicCell<ErrorPolicy>,
    /// When reads change the access time.
    pub atime: AtomicCell<Atime>,
    pub nodiratime: AtomicCell<bool>,
    pub sync: AtomicCell<bool>,
    dirsync: AtomicCell<bool>,
    pub lazytime: AtomicCell<bool>,
    pub grpid: AtomicCell<bool>,
    pub minixdf: AtomicCell<bool>,
    pub nodelalloc: AtomicCell<bool>,
    /// Bound on file data that waits to be written.
    pub dirty_bytes: AtomicCell<usize>,
    /// Most bytes read ahead for an open file.
    pub readahead: AtomicCell<usize>,
    /// The user beside root that may use the reserved blocks.
    pub resuid: AtomicCell<u32>,
    pub resgid: AtomicCell<u32>,
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
        self.errors.store(o.access.errors.unwrap_or_default());
        self.atime.store(o.inodes.atime);
        self.nodiratime.store(o.inodes.nodiratime);
        self.sync.store(o.data.sync);
        self.dirsync.store(o.data.dirsync);
        self.lazytime.store(o.inodes.lazytime);
        self.grpid.store(o.inodes.grpid.unwrap_or_default());
        self.minixdf.store(o.space.minixdf);
        self.nodelalloc.store(o.data.nodelalloc);
        self.dirty_bytes.store(o.data.dirty_bytes);
        self.readahead.store(o.data.readahead_bytes());
        self.resuid.store(o.space.resuid.unwrap_or_default());
        self.resgid.store(o.space.resgid.unwrap_or_default());
    }

    /// Changes of names are durable when they return. (`sync` asks for that, too.)
    pub fn dirsync(&self) -> bool {
        self.dirsync.load() || self.sync.load()
    }
}
