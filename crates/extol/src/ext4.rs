//! [`Ext4`], the handle of an open volume: it implements the traits of `extol_vfs`, and each method
//! calls one operation of `ops`, `maintenance` or `remount`.

mod current;
mod handle;
mod reopen;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use extol_block::SharedDevice;
use extol_vfs::{
    Attr, Author, CheckpointFlags, Creds, DirEntry, Done, Fallocate, FileExtent, FileId,
    FileSystem, FsError, Identity, Job, Mountable, NewNode, Reader, RemountError, RenameFlags,
    Result, Seek, SetAttr, Shutdown, StatFs, Tunables, Tune, VolumeControl, XattrSet,
};
use parking_lot::Mutex;

use crate::data::readahead::FileReadahead;
use crate::error;
use crate::maintenance;
use crate::mount::threads::Threads;
use crate::mounted::MountedFs;
use crate::ops::{attrs, create, files, names, references, rename, xattrs};
use current::{Current, Held};

/// An open ext2, ext3 or ext4 volume.
///
/// Everything that a mount can do works on it from any thread: see [`FileSystem`] for inodes and
/// [`Ext4::root_dir`](crate::Ext4) … for paths. [`unmount`](Self::unmount) closes it cleanly;
/// dropping it without that does the same but cannot report errors.
pub struct Ext4 {
    current: Current,
    /// What the volume lies on, below everything that belongs to one mount of it.
    device: SharedDevice,
    threads: Mutex<Option<Threads>>,
    /// See [`Ext4::outdated`].
    outdated: Mutex<Vec<u32>>,
    /// The front end keeps sizes of files ([`Mountable::caches_sizes`]).
    sizes_cached: AtomicBool,
    /// The state as it was opened.
    #[cfg(test)]
    first: Arc<MountedFs>,
    /// The result of closing.
    closed: OnceLock<Result<()>>,
    /// Number and generation of the root, set by the first request for them.
    root: OnceLock<FileId>,
}

/// A reader with readahead.
struct InodeReader<'f> {
    fs: &'f Ext4,
    ino: u32,
    ahead: FileReadahead,
}

impl Reader for InodeReader<'_> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read_on(self.ino, offset, buf, &self.ahead)
    }
}

impl std::fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ext4").field("fs", &self.current).finish_non_exhaustive()
    }
}

impl Ext4 {
    pub(crate) fn new(device: SharedDevice, fs: &Arc<MountedFs>, threads: Threads) -> Self {
        Self {
            current: Current::new(fs),
            device,
            threads: Mutex::new(Some(threads)),
            outdated: Mutex::default(),
            sizes_cached: AtomicBool::new(false),
            #[cfg(test)]
            first: Arc::clone(fs),
            closed: OnceLock::new(),
            root: OnceLock::new(),
        }
    }

    /// The state, for one operation.
    fn fs(&self) -> Held<'_> {
        self.current.get()
    }

    /// Number and generation of the root.
    pub(crate) fn root_id(&self) -> Result<FileId> {
        match self.root.get() {
            Some(id) => Ok(*id),
            None => self.getattr(self.root()).map(|attr| *self.root.get_or_init(|| attr.id)),
        }
    }

    /// What is inside.
    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Arc<MountedFs> {
        &self.first
    }

    /// An operation that changes the volume: it passes the gate that a freeze closes.
    fn change<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = self.fs().freeze_gate.enter().and_then(|_open| work());
        self.op(result)
    }

    /// Reads an open file, with what was read ahead for it.
    pub(crate) fn read_on(
        &self,
        ino: u32,
        offset: u64,
        buf: &mut [u8],
        ahead: &FileReadahead,
    ) -> Result<usize> {
        self.op(files::read(&self.fs(), ino, offset, buf, Some(ahead)))
    }

    /// Takes a reference on a directory on the way of a path, if its name is in the dentry cache.
    pub(crate) fn dir_cached(&self, dir: u32, name: &[u8]) -> Option<FileId> {
        let step = names::dir_cached(&self.fs(), dir, name);
        if step.is_some() {
            self.fs().operations.add();
        }
        step
    }

    /// What a path leads to, links followed, if that is known: see [`names::lookup_cached`].
    pub(crate) fn lookup_cached(&self, path: &[u8]) -> Option<Attr> {
        let attr = names::lookup_cached(&self.fs(), path);
        if attr.is_some() {
            self.fs().operations.add();
        }
        attr
    }

    fn op<T>(&self, result: Result<T>) -> Result<T> {
        self.fs().operations.add();
        self.fs().note(result)
    }

    /// After a change of names in a directory.
    fn note_names(&self, dir: u32) -> Result<()> {
        self.fs().note(files::names_changed(&self.fs(), dir))
    }

    /// After a new name was made: the inode comes with a reference, which goes with an error.
    fn named(&self, made: Result<Attr>, dir: u32) -> Result<Attr> {
        let attr = made?;
        match self.note_names(dir) {
            Ok(()) => Ok(attr),
            Err(e) => {
                self.forget(attr.id.ino, 1);
                Err(e)
            }
        }
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

impl FileSystem for Ext4 {
    fn root(&self) -> u32 {
        extol_ondisk::InodeNr::ROOT.0
    }

    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr> {
        self.op(names::lookup(&self.fs(), dir, name))
    }

    fn retain(&self, ino: u32) {
        self.fs().table.retain(ino);
    }

    fn forget(&self, ino: u32, n: u64) {
        references::forget(&self.fs(), ino, n);
    }

    fn getattr(&self, ino: u32) -> Result<Attr> {
        self.op(attrs::getattr(&self.fs(), ino))
    }

    fn setattr(&self, ino: u32, set: &SetAttr) -> Result<Attr> {
        self.change(|| attrs::setattr(&self.fs(), ino, set))
    }

    fn create(
        &self,
        dir: u32,
        name: &[u8],
        new: NewNode,
        perm: u16,
        umask: u16,
        creds: Creds,
    ) -> Result<Attr> {
        self.named(
            self.change(|| create::create(&self.fs(), dir, name, &new, perm, umask, creds)),
            dir,
        )
    }

    fn create_unnamed(&self, dir: u32, perm: u16, umask: u16, creds: Creds) -> Result<Attr> {
        self.change(|| create::create_unnamed(&self.fs(), dir, perm, umask, creds))
    }

    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
        self.named(self.change(|| names::link(&self.fs(), ino, dir, name)), dir)
    }

    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.change(|| names::unlink(&self.fs(), dir, name))?;
        self.note_names(dir)
    }

    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.change(|| names::rmdir(&self.fs(), dir, name))?;
        self.note_names(dir)
    }

    fn rename(
        &self,
        dir: u32,
        name: &[u8],
        new_dir: u32,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.change(|| rename::rename(&self.fs(), dir, name, new_dir, new_name, flags))?;
        self.note_names(dir)?;
        if new_dir == dir { Ok(()) } else { self.note_names(new_dir) }
    }

    fn readlink(&self, ino: u32) -> Result<Vec<u8>> {
        self.op(names::readlink(&self.fs(), ino))
    }

    fn readdir(&self, dir: u32, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.op(names::readdir(&self.fs(), dir, cookie, each))
    }

    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.op(files::read(&self.fs(), ino, offset, buf, None))
    }

    fn reader(&self, ino: u32) -> Box<dyn Reader + '_> {
        Box::new(InodeReader { fs: self, ino, ahead: FileReadahead::default() })
    }

    fn write(&self, ino: u32, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_as(ino, offset, data, Author::Owner)
    }

    fn fallocate(&self, ino: u32, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        self.fallocate_as(ino, mode, offset, len, Author::Owner)
    }

    fn seek(&self, ino: u32, offset: u64, what: Seek) -> Result<u64> {
        self.op(files::seek(&self.fs(), ino, offset, what))
    }

    fn fiemap(&self, ino: u32, offset: u64, len: u64) -> Result<Vec<FileExtent>> {
        self.op(files::fiemap(&self.fs(), ino, offset, len))
    }

    fn fsync(&self, ino: u32, data_only: bool) -> Result<()> {
        self.op(files::fsync(&self.fs(), ino, data_only))
    }

    fn sync(&self) -> Result<()> {
        self.op(maintenance::sync(&self.fs()))
    }

    fn statfs(&self) -> Result<StatFs> {
        let fs = &self.fs();
        fs.sb.refresh();
        let blocks = fs.sb.read(|sb| sb.blocks_count);
        let overhead = if fs.runtime.minixdf.load() { 0 } else { fs.vol.alloc.overhead_blocks() };
        let c = fs.vol.alloc.counters();
        Ok(StatFs {
            block_size: fs.vol.geo.block_size.bytes(),
            blocks: blocks.saturating_sub(overhead),
            blocks_free: c.free,
            blocks_available: c.available,
            inodes: u64::from(fs.vol.geo.inodes),
            inodes_free: c.free_inodes,
            name_max: 255,
        })
    }

    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
        self.op(xattrs::get(&self.fs(), ino, name))
    }

    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        self.change(|| xattrs::set(&self.fs(), ino, name, Some(value), how))
    }

    fn listxattr(&self, ino: u32) -> Result<Vec<Vec<u8>>> {
        self.op(xattrs::list(&self.fs(), ino))
    }

    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()> {
        self.change(|| xattrs::set(&self.fs(), ino, name, None, XattrSet::Replace))
    }
}

impl VolumeControl for Ext4 {
    fn checkpoint(&self, flags: CheckpointFlags) -> Result<()> {
        self.op(maintenance::checkpoint(&self.fs(), flags))
    }

    fn freeze(&self) -> Result<()> {
        self.op(maintenance::freeze(&self.fs()))
    }

    fn thaw(&self) -> Result<()> {
        self.op(maintenance::thaw(&self.fs()))
    }

    fn shut_down(&self, how: Shutdown) -> Result<()> {
        self.op(maintenance::shut_down(&self.fs(), how))
    }

    fn trim(&self, start: u64, len: u64, min_len: u64) -> Result<u64> {
        let fs = &self.fs();
        let _open = fs.freeze_gate.enter()?;
        fs.check_writable()?;
        // Blocks freed so far become discardable first.
        fs.vol.journal.commit_all().map_err(error::journal)?;
        let bits = fs.vol.geo.block_size.bits();
        let first = start >> bits;
        if first >= fs.vol.geo.blocks || len < 1 << bits {
            return Err(FsError::Invalid("nothing of the volume lies in this range"));
        }
        let blocks = len.min(u64::MAX - start) >> bits;
        let min = min_len.div_ceil(1 << bits);
        self.op(fs.vol.alloc.trim(
            &*fs.vol.dev,
            extol_block::BlockNr(first),
            blocks,
            min,
            &mut |_| true,
        ))
        .map(|n| n << bits)
    }

    fn identity(&self) -> Result<Identity> {
        Ok(maintenance::tune::identity(&self.fs()))
    }

    fn tunables(&self) -> Result<Tunables> {
        Ok(maintenance::tune::tunables(&self.fs()))
    }

    fn tune(&self, change: &Tune) -> Result<()> {
        self.change(|| maintenance::tune::tune(&self.fs(), change))?;
        // So that programs that read the device see it, too.
        match self.checkpoint(CheckpointFlags::empty()) {
            Err(FsError::NoJournal) => Ok(()),
            done => done,
        }
    }

    fn remount(&self, options: &str) -> std::result::Result<Vec<String>, RemountError> {
        Self::remount(self, options)
    }

    fn stats_json(&self) -> String {
        serde_json::to_string(&self.stats()).unwrap_or_default()
    }
}

impl Mountable for Ext4 {
    fn open_by_number(&self, ino: u32) -> Result<Attr> {
        self.op(names::open_by_number(&self.fs(), ino))
    }

    fn count_opens(&self) {
        self.fs().table.count_opens();
    }

    fn opened(&self, ino: u32) -> Result<()> {
        self.fs().table.open(ino)
    }

    fn closed(&self, ino: u32) {
        if self.fs().table.close(&self.fs().vol, ino) {
            references::unused(&self.fs(), ino);
        }
    }

    fn write_as(&self, ino: u32, offset: u64, data: &[u8], author: Author) -> Result<usize> {
        self.change(|| files::write(&self.fs(), ino, offset, data, author))
    }

    fn fallocate_as(
        &self,
        ino: u32,
        mode: Fallocate,
        offset: u64,
        len: u64,
        author: Author,
    ) -> Result<()> {
        self.change(|| files::fallocate(&self.fs(), ino, mode, (offset, len), author))
    }

    fn kill_privileges(&self, ino: u32, outsider: bool) -> Result<()> {
        self.change(|| files::kill_privileges(&self.fs(), ino, outsider))
    }

    fn fsync_then(&self, ino: u32, data_only: bool, done: Done, lead: &mut dyn FnMut(Job)) {
        self.fs().operations.add();
        files::fsync_then(&self.fs(), ino, data_only, done, lead);
    }

    fn refuse_when_frozen(&self) {
        self.fs().freeze_gate.refuse();
    }

    fn wait_thawed(&self) {
        self.fs().freeze_gate.wait_open();
    }

    fn caches_sizes(&self) {
        self.sizes_cached.store(true, Ordering::Release);
    }

    fn take_outdated(&self) -> Vec<u32> {
        self.outdated()
    }

    fn unmounted(&self) -> Result<()> {
        self.unmount()
    }
}

#[cfg(all(test, debug_assertions))]
mod lock_order;
