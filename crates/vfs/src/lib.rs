//! The interface between a file system and its front ends (FUSE, later NFS, and Rust programs).
//!
//! | trait | what | for |
//! |---|---|---|
//! | [`FileSystem`] | inodes, names, contents | every front end |
//! | [`VolumeControl`] | the whole volume: freeze, trim, remount, statistics | administration |
//! | [`Mountable`] | open counts, deferred fsync, freeze gates | FUSE |
//!
//! All are inode-level interfaces: front ends keep references on inodes they know
//! ([`FileSystem::lookup`] and the creating calls take one, [`FileSystem::forget`] gives it back),
//! so an unlinked file lives until its last reference goes. No method blocks for longer than the
//! operation needs, and every method may be called from many threads.

mod caller;
mod errno;
mod error;
mod fragments;
mod mode;
mod nearest;
pub mod number;
mod plain;
mod resized;
mod size;
mod types;

pub use caller::{acting_for, caller, directly, is_direct};
pub use errno::{errno_of, kind_of};
pub use error::{FsError, RemountError, Result};
pub use fragments::{Defragmented, Fragments, Outcome};
pub use mode::Mode;
pub use nearest::nearest;
pub use number::NumberError;
pub use plain::{bytes_text, is_active, plain, plain_json, plain_lines};
pub use resized::{GrowError, Resized};
pub use size::Size;
pub use types::*;

use std::sync::Arc;
use std::time::Duration;

/// Called with the result of an operation, once, by any thread, which holds no lock. It should
/// return at once.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;

/// Work that takes long: see [`Mountable::fsync_then`].
pub type Job = Box<dyn FnOnce() + Send>;

/// Reads one file, from one end to the other as a rule ([`FileSystem::reader`]).
pub trait Reader: Send + Sync {
    /// As [`FileSystem::read`].
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
}

/// A reader without read-ahead.
struct Plain<'f, F: ?Sized> {
    fs: &'f F,
    ino: u32,
}

impl<F: FileSystem + ?Sized> Reader for Plain<'_, F> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.fs.read(self.ino, offset, buf)
    }
}

/// A file system. Inodes are named by number; the front end must hold a reference on each inode it
/// names (the root always has one).
pub trait FileSystem: Send + Sync {
    /// Inode number of the root directory.
    fn root(&self) -> u32;

    /// Finds `name` in `dir` and takes one reference on the inode found. `.` and `..` work.
    fn lookup(&self, dir: u32, name: &[u8]) -> Result<Attr>;

    /// Takes one more reference on an inode that is already referenced.
    fn retain(&self, ino: u32);

    /// Gives back `n` references. The last one of an unlinked inode deletes it. Never fails: errors
    /// latch.
    fn forget(&self, ino: u32, n: u64);

    /// Attributes.
    fn getattr(&self, ino: u32) -> Result<Attr>;

    /// Changes attributes (chmod, chown, truncate, utimes, chattr) in one transaction where
    /// possible.
    fn setattr(&self, ino: u32, set: &SetAttr) -> Result<Attr>;

    /// Creates an inode with a name and takes one reference. `perm` has the umask already applied,
    /// unless the directory has a default ACL: pass the umask in `umask` and it is applied only
    /// without a default ACL.
    fn create(
        &self,
        dir: u32,
        name: &[u8],
        new: NewNode,
        perm: u16,
        umask: u16,
        creds: Creds,
    ) -> Result<Attr>;

    /// Creates a regular file without a name (O_TMPFILE) and takes one reference.
    fn create_unnamed(&self, dir: u32, perm: u16, umask: u16, creds: Creds) -> Result<Attr>;

    /// Adds a name to an inode; takes one reference.
    fn link(&self, ino: u32, dir: u32, name: &[u8]) -> Result<Attr>;

    /// Removes the name of a non-directory.
    fn unlink(&self, dir: u32, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, dir: u32, name: &[u8]) -> Result<()>;

    /// Renames.
    fn rename(
        &self,
        dir: u32,
        name: &[u8],
        new_dir: u32,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()>;

    /// Target of a symbolic link.
    fn readlink(&self, ino: u32) -> Result<Vec<u8>>;

    /// Entries of a directory from `cookie` (0 = start; `.` and `..` included), handed to `each`
    /// until it returns false. No lock is held while `each` runs, so it may call back.
    fn readdir(&self, dir: u32, cookie: u64, each: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Reads at `offset` into `buf`; the count is short only at the end of the file.
    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// A reader of this file, with read-ahead; the caller keeps its reference on it meanwhile.
    /// ([`read`](Self::read) reads nothing ahead: behind a mount the kernel does.)
    fn reader(&self, ino: u32) -> Box<dyn Reader + '_> {
        Box::new(Plain { fs: self, ino })
    }

    /// Writes all of `data` at `offset` (or fails); extends the file.
    ///
    /// # Errors
    /// `NotPermitted` if the file is immutable, or append-only and `offset` lies before its end.
    fn write(&self, ino: u32, offset: u64, data: &[u8]) -> Result<usize>;

    /// fallocate(2).
    fn fallocate(&self, ino: u32, mode: Fallocate, offset: u64, len: u64) -> Result<()>;

    /// SEEK_DATA and SEEK_HOLE.
    fn seek(&self, ino: u32, offset: u64, what: Seek) -> Result<u64>;

    /// The extents of a byte range.
    fn fiemap(&self, ino: u32, offset: u64, len: u64) -> Result<Vec<FileExtent>>;

    /// Makes a file durable: data, and all metadata needed to find it; with `data_only`, only what
    /// reading it back needs (fdatasync).
    fn fsync(&self, ino: u32, data_only: bool) -> Result<()>;

    /// Makes everything durable (syncfs).
    fn sync(&self) -> Result<()>;

    /// statfs.
    fn statfs(&self) -> Result<StatFs>;

    /// statfs of a file: where a limit holds for all that lies there, what that leaves.
    fn statfs_at(&self, _ino: u32) -> Result<StatFs> {
        self.statfs()
    }

    /// Value of an extended attribute by its full name (`user.x`, `system.posix_acl_access` …).
    fn getxattr(&self, ino: u32, name: &[u8]) -> Result<Vec<u8>>;

    /// Sets an extended attribute.
    fn setxattr(&self, ino: u32, name: &[u8], value: &[u8], how: XattrSet) -> Result<()>;

    /// Full names of all extended attributes.
    fn listxattr(&self, ino: u32) -> Result<Vec<Vec<u8>>>;

    /// Removes an extended attribute.
    fn removexattr(&self, ino: u32, name: &[u8]) -> Result<()>;
}

/// Requests about a volume as a whole. What a file system does not implement is not supported.
pub trait VolumeControl: FileSystem {
    /// Brings everything home and empties the journal's log, as `EXT4_IOC_CHECKPOINT` does; with
    /// flags, erases the log or only says whether that could be done.
    fn checkpoint(&self, _flags: CheckpointFlags) -> Result<()> {
        Err(FsError::NotSupported("this file system has no checkpoints"))
    }

    /// Writes everything, and then nothing until [`thaw`](Self::thaw): changes wait, reading works,
    /// and a copy of the device is a sound volume. [`FsError::Busy`] if it is frozen already.
    fn freeze(&self) -> Result<()> {
        Err(FsError::NotSupported("this file system cannot be frozen"))
    }

    /// Ends a freeze. [`FsError::Invalid`] if there is none.
    fn thaw(&self) -> Result<()> {
        Err(FsError::NotSupported("this file system cannot be frozen"))
    }

    /// Goes down at once, without an unmount: whatever is not on the device yet, but for what `how`
    /// says, is lost as in a power cut. Changes fail afterwards. The second time does nothing.
    fn shut_down(&self, _how: Shutdown) -> Result<()> {
        Err(FsError::NotSupported("this file system cannot be shut down"))
    }

    /// FITRIM: discards free space of at least `min_len` bytes in the byte range; returns bytes
    /// discarded.
    fn trim(&self, _start: u64, _len: u64, _min_len: u64) -> Result<u64> {
        Err(FsError::NotSupported("this file system has nothing to discard"))
    }

    /// Label and UUID of the volume.
    fn identity(&self) -> Result<Identity> {
        Err(FsError::NotSupported("this file system has no label"))
    }

    /// What [`tune`](Self::tune) can change.
    fn tunables(&self) -> Result<Tunables> {
        Err(FsError::NotSupported("this file system has nothing to tune"))
    }

    /// Changes label or tunables of the volume, durably.
    fn tune(&self, _change: &Tune) -> Result<()> {
        Err(FsError::NotSupported("this file system has nothing to tune"))
    }

    /// As [`tune`](Self::tune), by a text that the file system understands. Gives a line for each
    /// property that has another value now: its name, the value before and the value now, with
    /// tabs between them.
    ///
    /// # Errors
    /// One line; nothing has changed then.
    fn tune_by_text(&self, _request: &str) -> std::result::Result<Vec<String>, RemountError> {
        Err(RemountError("this file system has nothing to tune".into()))
    }

    /// Reports or sets quotas, by a text that the file system understands. Gives the answer, in
    /// lines.
    ///
    /// # Errors
    /// One line; nothing has changed then.
    fn quota_by_text(&self, _request: &str) -> std::result::Result<Vec<String>, RemountError> {
        Err(RemountError("this file system has no quotas".into()))
    }

    /// How a regular file lies on the volume. (What is not written back yet does not count.)
    fn fragments(&self, _ino: u32) -> Result<Fragments> {
        Err(FsError::NotSupported("this file system does not say where files lie"))
    }

    /// Moves a regular file into fewer pieces, if free space has room for that. It may be in use.
    fn defragment(&self, _ino: u32) -> Result<Defragmented> {
        Err(FsError::NotSupported("this file system cannot move files"))
    }

    /// Makes a regular file one of fs-verity: its contents never change again, and each read of
    /// them is checked against a Merkle tree. The caller sees to it that no process has it open for
    /// writing.
    ///
    /// # Errors
    /// `Exists` if it is one already; `NotSupported` if the volume, or this file, cannot be one;
    /// `NotPermitted` if it is immutable or append-only; `Invalid`.
    fn enable_verity(&self, ino: u32, how: &EnableVerity) -> Result<()> {
        self.enable_verity_unless(ino, how, &|| false)
    }

    /// As [`enable_verity`](Self::enable_verity), until `stop` says true: then the file is what it
    /// was. Other threads may read the file and its attributes meanwhile, and change its names.
    ///
    /// # Errors
    /// The same; `Interrupted`; `Busy` if another thread is at it.
    fn enable_verity_unless(
        &self,
        _ino: u32,
        _how: &EnableVerity,
        _stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        Err(FsError::NotSupported("this file system has no fs-verity"))
    }

    /// The digest of a file of fs-verity.
    ///
    /// # Errors
    /// `NoAttribute` if it is none.
    fn measure_verity(&self, _ino: u32) -> Result<VerityDigest> {
        Err(FsError::NotSupported("this file system has no fs-verity"))
    }

    /// Reads what a file of fs-verity has behind its contents, at `offset` of that part; the count
    /// is short only at its end.
    ///
    /// # Errors
    /// `NoAttribute` if it is none, or has no signature.
    fn read_verity(
        &self,
        _ino: u32,
        _part: VerityPart,
        _offset: u64,
        _buf: &mut [u8],
    ) -> Result<usize> {
        Err(FsError::NotSupported("this file system has no fs-verity"))
    }

    /// The nonce of an encrypted inode.
    ///
    /// # Errors
    /// `NoAttribute` if it is not encrypted.
    fn encryption_nonce(&self, _ino: u32) -> Result<[u8; 16]> {
        Err(FsError::NotSupported("this file system encrypts no files"))
    }

    /// Tells or makes how files are encrypted, by a text that the file system understands. Gives
    /// the answer, in lines.
    ///
    /// # Errors
    /// One line; nothing has changed then.
    fn encryption_by_text(&self, _request: &str) -> std::result::Result<Vec<String>, RemountError> {
        Err(RemountError("this file system encrypts no files".into()))
    }

    /// Makes the volume so many bytes long, or as long as its device, while it is in use. With
    /// `at_most` it may end early, at a size in between.
    ///
    /// # Errors
    /// An errno and a line. The volume is sound, and may have grown a part of the way.
    fn grow(
        &self,
        _bytes: Option<u64>,
        _at_most: Option<Duration>,
    ) -> std::result::Result<Resized, GrowError> {
        Err(FsError::NotSupported("this file system has one size").into())
    }

    /// Changes mount options while the file system is in use. Gives lines that the user should see.
    ///
    /// # Errors
    /// One line; no option has changed then.
    fn remount(&self, _options: &str) -> std::result::Result<Vec<String>, RemountError> {
        Err(RemountError(
            "this file system has no options that can change while it is mounted".into(),
        ))
    }

    /// State and counters as JSON, for `extol stat`.
    fn stats_json(&self) -> String {
        "{}".into()
    }
}

/// What a front end of a kernel wants beside the operations themselves.
pub trait Mountable: VolumeControl {
    /// Takes one reference on whatever inode has this number now, if it is in use; the attributes
    /// tell its generation. Front ends need it to fill directory listings with attributes, and
    /// where their protocol compares generations itself. A file system that cannot do it cheaply
    /// says [`FsError::Stale`], and the front end looks names up instead.
    fn open_by_number(&self, _ino: u32) -> Result<Attr> {
        Err(FsError::Stale)
    }

    /// As [`open_by_number`](Self::open_by_number), for an entry of a listing of `dir`.
    fn open_entry(&self, _dir: u32, ino: u32) -> Result<Attr> {
        self.open_by_number(ino)
    }

    /// As [`reader`](FileSystem::reader), to be kept for later reads: the caller needs its
    /// reference on the inode only while it reads. `None`: nothing would be read ahead.
    fn kept_reader(self: Arc<Self>, _ino: u32) -> Option<Arc<dyn Reader>> {
        None
    }

    /// From now on the caller says which files are open ([`opened`](Self::opened),
    /// [`closed`](Self::closed)). A reference on a regular file or a symbolic link without that
    /// serves to ask for attributes and to set times at most once the last name is gone, so the
    /// inode can be deleted at once. All front ends of a file system must do so, or none.
    ///
    /// Without this, an inode stays as it is until the last reference on it goes. File systems may
    /// do that always.
    fn count_opens(&self) {}

    /// A file is opened, on which the caller holds a reference: it keeps its contents until it is
    /// closed as often, whether it has a name or not. Gives the number for
    /// [`fsync_open`](Self::fsync_open).
    ///
    /// # Errors
    /// `Stale` if it was deleted.
    fn opened(&self, _ino: u32) -> Result<OpenNr> {
        Ok(OpenNr::default())
    }

    /// It is closed.
    fn closed(&self, _ino: u32) {}

    /// As [`write`](FileSystem::write), on behalf of an [`Author`].
    fn write_as(&self, ino: u32, offset: u64, data: &[u8], _author: Author) -> Result<usize> {
        self.write(ino, offset, data)
    }

    /// As [`fallocate`](FileSystem::fallocate), on behalf of an [`Author`].
    fn fallocate_as(
        &self,
        ino: u32,
        mode: Fallocate,
        offset: u64,
        len: u64,
        _author: Author,
    ) -> Result<()> {
        self.fallocate(ino, mode, offset, len)
    }

    /// Clears what a change of the contents or the owner takes from a file that is no directory:
    /// set-user-id, file capabilities, set-group-id of what its group may execute, and with
    /// `outsider` any set-group-id. An outsider is not in the file's group and has no CAP_FSETID.
    ///
    /// # Errors
    /// `NotPermitted` if there is something to clear and the file is immutable.
    fn kill_privileges(&self, ino: u32, outsider: bool) -> Result<()>;

    /// As [`fsync`](FileSystem::fsync), through one open of the file. If changes were lost before
    /// it, because the file system was read again from its device, each open is told so once;
    /// `fsync` tells it once for the file.
    fn fsync_open(&self, ino: u32, _open: OpenNr, data_only: bool) -> Result<()> {
        self.fsync(ino, data_only)
    }

    /// As [`fsync_open`](Self::fsync_open), for front ends whose threads have other things to do
    /// than to wait: this returns at once, and `done` is called with the result later, perhaps by
    /// another thread that called this. What takes long, for this request or for others that came
    /// meanwhile, is passed to `lead` as a job, at most one, which has to be done before long, by
    /// this thread or another.
    fn fsync_then(
        &self,
        (ino, open): (u32, OpenNr),
        data_only: bool,
        done: Done,
        _lead: &mut dyn FnMut(Job),
    ) {
        done(self.fsync_open(ino, open, data_only));
    }

    /// From now on an operation that a freeze keeps out fails with [`FsError::Frozen`] instead of
    /// waiting, without having done anything; the front end does it again after
    /// [`wait_thawed`](Self::wait_thawed). For front ends whose threads must not all wait, because
    /// one has to hear of the thaw.
    fn refuse_when_frozen(&self) {}

    /// Returns when the volume is not frozen.
    fn wait_thawed(&self) {}

    /// From now on the caller keeps the sizes of files itself, and writes its data back later. What
    /// it keeps cannot be taken from it, so a volume that an error has stopped cannot be opened
    /// again below it.
    fn caches_sizes(&self) {}

    /// True if directories may find a name by other spellings as well. A front end that remembers
    /// names, or that they are missing, asks for each again: a change of one spelling changes where
    /// the others lead, and a directory may begin to fold names.
    fn names_have_spellings(&self) -> bool {
        false
    }

    /// After a remount: the inodes of which a front end must drop all that it caches, because the
    /// file system was read again from its device. They are told once.
    fn take_outdated(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The last mount is about to go, and the unmount waits for this: everything becomes durable,
    /// and the volume is closed. Operations fail afterwards.
    ///
    /// # Errors
    /// What could not be written.
    fn unmounted(&self) -> Result<()> {
        Ok(())
    }
}
