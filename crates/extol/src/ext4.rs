//! [`Ext4`], the handle of an open volume: it implements the traits of `extol_vfs`, and each method
//! calls one operation of `ops`, `maintenance` or `remount`.

mod batch;
mod blocks;
mod claim;
mod current;
mod encryption;
mod handle;
mod mountable;
mod old_quotas;
mod quotas;
mod reopen;
mod resize;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use extol_block::SharedDevice;
use extol_sync::plain::Mutex;
use extol_vfs::{
    Attr, Author, CheckpointFlags, Creds, Defragmented, DirEntry, EnableVerity, Fallocate,
    FileExtent, FileId, FileSystem, Fragments, FsError, GrowError, Identity, Mountable, NewNode,
    OpenNr, Reader, RemountError, RenameFlags, Resized, Result, Seek, SetAttr, Shutdown, StatFs,
    Tunables, Tune, VerityDigest, VerityPart, VolumeControl, XattrSet, acting_for,
};

use crate::data::readahead::FileReadahead;
use crate::error;
use crate::maintenance;
use crate::mount::threads::Threads;
use crate::mounted::MountedFs;
use crate::ops::listing::{self, Listed, Listing};
use crate::ops::{attrs, create, files, names, references, rename, verity, xattrs};
use crate::tune;
pub use batch::Batch;
use claim::{Claim, Closable};
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
    /// The device is open in this process, until the volume is closed.
    claim: Mutex<Option<Claim>>,
    /// The device, if it is closed with the volume.
    closable: Option<Arc<Closable>>,
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

/// The same, with the file system in it. It holds no reference on the inode: what was read ahead
/// for an inode that is another one now is not used (RA-1).
struct KeptReader {
    fs: Arc<Ext4>,
    ino: u32,
    ahead: FileReadahead,
}

impl Reader for KeptReader {
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
    fn new(device: SharedDevice, fs: &Arc<MountedFs>, threads: Threads, claim: Claim) -> Self {
        Self {
            current: Current::new(fs),
            device,
            threads: Mutex::new(Some(threads)),
            claim: Mutex::new(Some(claim)),
            closable: None,
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

    /// An operation. It has one state from its beginning to its end.
    fn op<T>(&self, work: impl FnOnce(&MountedFs) -> Result<T>) -> Result<T> {
        let fs = self.fs();
        fs.operations.add();
        fs.note(work(&fs))
    }

    /// Work on the state, whose errors are noted.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&MountedFs) -> Result<T>) -> Result<T> {
        self.op(work)
    }

    /// An operation that changes the volume: it passes the gate that a freeze closes.
    fn change<T>(&self, work: impl FnOnce(&MountedFs) -> Result<T>) -> Result<T> {
        self.op(|fs| fs.freeze_gate.enter().and_then(|_open| work(fs)))
    }

    /// A change of names in directories, which are made durable behind the gate if they must be.
    /// `undo` gets the result if that fails.
    fn change_names<T>(
        &self,
        dirs: &[u32],
        work: impl FnOnce(&MountedFs) -> Result<T>,
        undo: impl FnOnce(&MountedFs, T),
    ) -> Result<T> {
        self.op(|fs| {
            let done = fs.freeze_gate.enter().and_then(|_open| work(fs))?;
            match dirs.iter().try_for_each(|dir| files::names_changed(fs, *dir)) {
                Ok(()) => Ok(done),
                Err(e) => {
                    undo(fs, done);
                    Err(e)
                }
            }
        })
    }

    /// Makes a name. The inode comes with a reference, which goes with an error.
    fn make_name(&self, dir: u32, work: impl FnOnce(&MountedFs) -> Result<Attr>) -> Result<Attr> {
        self.change_names(&[dir], work, |fs, attr| references::forget(fs, attr.id.ino, 1))
    }

    /// Refuses to open a file that was found in an encrypted directory to which it does not belong.
    /// In a build without fs-verity: and one of that.
    pub(crate) fn check_place(&self, ino: u32) -> Result<()> {
        #[cfg(not(feature = "verity"))]
        self.op(|fs| verity::check_open(fs, ino))?;
        if self.fs().table.is_misplaced(ino) { Err(FsError::NotPermitted) } else { Ok(()) }
    }

    /// Reads an open file, with what was read ahead for it.
    pub(crate) fn read_on(
        &self,
        ino: u32,
        offset: u64,
        buf: &mut [u8],
        ahead: &FileReadahead,
    ) -> Result<usize> {
        self.op(|fs| files::read(fs, ino, offset, buf, Some(ahead)))
    }

    /// Writes at the end of a file; gives the offset, and how many bytes were written.
    pub(crate) fn append(&self, ino: u32, data: &[u8]) -> Result<(u64, usize)> {
        acting_for(Author::Owner.process(), || self.change(|fs| files::append(fs, ino, data)))
    }

    /// Takes a reference on a directory on the way of a path, if its name is in the dentry cache.
    pub(crate) fn dir_cached(&self, dir: u32, name: &[u8]) -> Option<FileId> {
        let fs = self.fs();
        let step = names::dir_cached(&fs, dir, name);
        if step.is_some() {
            fs.operations.add();
        }
        step
    }

    /// Up to `most` entries of a directory behind `cookie`.
    pub(crate) fn list(&self, dir: u32, cookie: u64, most: usize) -> Result<Listing> {
        self.op(|fs| listing::list(fs, dir, cookie, most))
    }

    /// The attributes of what an entry leads to, if the directory has not changed: see
    /// [`listing::entry_attr`].
    pub(crate) fn entry_attr(&self, listed: &Listed, ino: u32) -> Option<Attr> {
        let fs = self.fs();
        let attr = listing::entry_attr(&fs, listed, ino);
        if attr.is_some() {
            fs.operations.add();
        }
        attr
    }

    /// What a path leads to, links followed, if that is known: see [`names::lookup_cached`].
    pub(crate) fn lookup_cached(&self, path: &[u8]) -> Option<Attr> {
        let fs = self.fs();
        let attr = names::lookup_cached(&fs, path);
        if attr.is_some() {
            fs.operations.add();
        }
        attr
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
        self.op(|fs| names::lookup(fs, dir, name))
    }

    fn retain(&self, ino: u32) {
        self.fs().table.retain(ino);
    }

    fn forget(&self, ino: u32, n: u64) {
        references::forget(&self.fs(), ino, n);
    }

    fn getattr(&self, ino: u32) -> Result<Attr> {
        self.op(|fs| attrs::getattr(fs, ino))
    }

    fn setattr(&self, ino: u32, set: &SetAttr) -> Result<Attr> {
        self.change(|fs| attrs::setattr(fs, ino, set))
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
        let make = |fs: &MountedFs| create::create(fs, dir, name, &new, perm, umask, creds);
        acting_for(Some(creds), || self.make_name(dir, make))
    }

    fn create_unnamed(&self, dir: u32, perm: u16, umask: u16, creds: Creds) -> Result<Attr> {
        let make = |fs: &MountedFs| create::create_unnamed(fs, dir, perm, umask, creds);
        acting_for(Some(creds), || self.change(make))
    }

    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr> {
        self.make_name(dir, |fs| names::link(fs, ino, dir, name))
    }

    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.change_names(&[dir], |fs| names::unlink(fs, dir, name), |_, ()| {})
    }

    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()> {
        self.change_names(&[dir], |fs| names::rmdir(fs, dir, name), |_, ()| {})
    }

    fn rename(
        &self,
        dir: u32,
        name: &[u8],
        new_dir: u32,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let dirs: &[u32] = if new_dir == dir { &[dir] } else { &[dir, new_dir] };
        let rename = |fs: &MountedFs| rename::rename(fs, dir, name, new_dir, new_name, flags);
        self.change_names(dirs, rename, |_, ()| {})
    }

    fn readlink(&self, ino: u32) -> Result<Vec<u8>> {
        self.op(|fs| names::readlink(fs, ino))
    }

    fn readdir(&self, dir: u32, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.op(|fs| listing::readdir(fs, dir, cookie, each))
    }

    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.op(|fs| files::read(fs, ino, offset, buf, None))
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
        self.op(|fs| files::seek(fs, ino, offset, what))
    }

    fn fiemap(&self, ino: u32, offset: u64, len: u64) -> Result<Vec<FileExtent>> {
        self.op(|fs| files::fiemap(fs, ino, offset, len))
    }

    fn fsync(&self, ino: u32, data_only: bool) -> Result<()> {
        self.fsync_open(ino, OpenNr::default(), data_only)
    }

    fn sync(&self) -> Result<()> {
        self.op(maintenance::sync)
    }

    fn statfs(&self) -> Result<StatFs> {
        let fs = &self.fs();
        fs.want_look();
        let (blocks, stated) = fs.sb.read(|sb| (sb.blocks_count, sb.overhead_clusters));
        let overhead = match stated {
            _ if fs.runtime.minixdf.load() => 0,
            // As Linux: clusters that some metadata shares are not counted again.
            1.. if fs.vol.geo.has_clusters() => fs.vol.geo.cluster_blocks(stated.into()),
            _ => fs.vol.alloc.overhead_blocks(),
        };
        let c = fs.vol.alloc.block_counters();
        Ok(StatFs {
            block_size: fs.vol.geo.block_size.bytes(),
            blocks: blocks.saturating_sub(overhead),
            blocks_free: c.free,
            blocks_available: c.available,
            inodes: u64::from(fs.vol.geo.inodes()),
            inodes_free: c.free_inodes,
            name_max: 255,
        })
    }

    fn statfs_at(&self, ino: u32) -> Result<StatFs> {
        let all = self.statfs()?;
        self.op(|fs| crate::quotas::within_project(fs, ino, all))
    }

    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
        self.op(|fs| xattrs::get(fs, ino, name))
    }

    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], how: XattrSet) -> Result<()> {
        self.change(|fs| xattrs::set(fs, ino, name, Some(value), how))
    }

    fn listxattr(&self, ino: u32) -> Result<Vec<Vec<u8>>> {
        self.op(|fs| xattrs::list(fs, ino))
    }

    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()> {
        self.change(|fs| xattrs::set(fs, ino, name, None, XattrSet::Replace))
    }
}

impl VolumeControl for Ext4 {
    fn checkpoint(&self, flags: CheckpointFlags) -> Result<()> {
        self.op(|fs| maintenance::checkpoint(fs, flags))
    }

    fn freeze(&self) -> Result<()> {
        self.op(maintenance::freeze)
    }

    fn thaw(&self) -> Result<()> {
        self.op(maintenance::thaw)
    }

    fn shut_down(&self, how: Shutdown) -> Result<()> {
        self.op(|fs| maintenance::shut_down(fs, how))
    }

    fn trim(&self, start: u64, len: u64, min_len: u64) -> Result<u64> {
        let fs = self.fs();
        let _open = fs.freeze_gate.enter()?;
        fs.check_writable()?;
        // Blocks freed so far become discardable first.
        fs.vol.journal.commit_all().map_err(error::journal)?;
        let bits = fs.vol.geo.block_size.bits();
        let first = start >> bits;
        if first >= fs.vol.geo.blocks() || len < 1 << bits {
            return Err(FsError::Invalid("nothing of the volume lies in this range"));
        }
        let blocks = len.min(u64::MAX - start) >> bits;
        let min = min_len.div_ceil(1 << bits);
        let first = extol_block::BlockNr(first);
        self.op(|fs| fs.vol.alloc.trim(&*fs.vol.dev, first, blocks, min, &mut |_| true))
            .map(|n| n << bits)
    }

    fn identity(&self) -> Result<Identity> {
        Ok(maintenance::tune::identity(&self.fs()))
    }

    fn tunables(&self) -> Result<Tunables> {
        Ok(maintenance::tune::tunables(&self.fs()))
    }

    fn tune(&self, change: &Tune) -> Result<()> {
        let _one_state = self.fs();
        self.change(|fs| maintenance::tune::tune(fs, change))?;
        // So that programs that read the device see it, too.
        match self.checkpoint(CheckpointFlags::empty()) {
            Err(FsError::NoJournal) => Ok(()),
            done => done,
        }
    }

    fn fragments(&self, ino: u32) -> Result<Fragments> {
        self.op(|fs| crate::resize::fragments(fs, ino))
    }

    fn defragment(&self, ino: u32) -> Result<Defragmented> {
        self.change(|fs| crate::resize::defragment(fs, ino))
    }

    fn enable_verity_unless(
        &self,
        ino: u32,
        how: &EnableVerity,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        // Only the beginning and the end pass the gate: a freeze waits for neither the contents nor
        // their hashes.
        let mut file = self.change(|fs| verity::begin(fs, ino, how))?;
        while !self.op(|fs| file.hash(fs, stop))? {}
        self.change(|fs| verity::finish(fs, &file, stop))
    }

    fn measure_verity(&self, ino: u32) -> Result<VerityDigest> {
        self.op(|fs| verity::measure(fs, ino))
    }

    fn read_verity(
        &self,
        ino: u32,
        part: VerityPart,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        self.op(|fs| verity::part(fs, ino, part, offset, buf))
    }

    fn grow(
        &self,
        bytes: Option<u64>,
        at_most: Option<Duration>,
    ) -> std::result::Result<Resized, GrowError> {
        Ok(self.grow_in_use(bytes, at_most)?)
    }

    fn tune_by_text(&self, request: &str) -> std::result::Result<Vec<String>, RemountError> {
        let refused = |why: &dyn std::fmt::Display| RemountError(why.to_string());
        let request = tune::Request::from_text(request)
            .ok_or_else(|| refused(&"the request is of another version of extol"))?;
        let before = self.fs().sb.read(extol_ondisk::Superblock::clone);
        let (change, changes) = tune::live(&before, &request).map_err(|e| refused(&e))?;
        if !changes.is_empty() {
            self.tune(&change).map_err(|e| refused(&e))?;
        }
        let line = |c: &tune::Change| format!("{}\t{}\t{}", c.property, c.before, c.after);
        Ok(changes.iter().map(line).collect())
    }

    fn quota_by_text(&self, request: &str) -> std::result::Result<Vec<String>, RemountError> {
        self.answer_about_quotas(request)
    }

    fn encryption_nonce(&self, ino: u32) -> Result<[u8; 16]> {
        self.context(ino).map(|context| context.nonce)
    }

    fn encryption_by_text(&self, request: &str) -> std::result::Result<Vec<String>, RemountError> {
        self.answer_about_encryption(request)
    }

    fn remount(&self, options: &str) -> std::result::Result<Vec<String>, RemountError> {
        Self::remount(self, options)
    }

    #[cfg(feature = "json")]
    fn stats_json(&self) -> String {
        serde_json::to_string(&self.stats()).unwrap_or_default()
    }
}

#[cfg(all(test, debug_assertions))]
mod lock_order;
