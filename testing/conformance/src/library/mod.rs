//! A subject without a kernel: `extol::Ext4` driven through its trait [`FileSystem`], inode by
//! inode.
//!
//! The trait leaves to its front ends what Linux's VFS does above every file system. Here is the
//! whole list of what this adapter does itself; every errno that is not on it comes from the
//! library, and cannot be hidden:
//!
//! - **walking a path** (`walk.rs`): components, `.` and `..`, symbolic links and their limit of 40
//!   (ELOOP), trailing slashes, PATH_MAX, search permission; `lookup` and its errnos are the
//!   library's;
//! - **permissions** (`access.rs`): mode bits, ACLs, owners, sticky directories, capabilities of
//!   root, set-group-id on chmod and in directories of strange groups, the owners of `trusted.` and
//!   `security.` names; no write access to immutable files (EPERM). Whether an inode itself may
//!   change (immutable, append-only, kinds, links, emptiness, own subtree) is the library's to say;
//! - **open files** (`files.rs`): the flags of open(2) that are no more than checks (O_EXCL,
//!   O_DIRECTORY, O_NOFOLLOW, access modes), positions, O_APPEND's offset, negative and overflowing
//!   offsets, set-id bits taken off by writes;
//! - **names** (`names.rs`): the last component of a path that is `.` or `..`, `link` of what
//!   cannot be linked again, rename's flags against what is there.
//!
//! An open file and a view hold a reference on their inode, as the kernel would.

mod access;
mod attrs;
mod files;
mod names;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use extol::path::Inode;
use extol::vfs::{Attr, FileKind, FileSystem};
use extol::{Ext4, FsError, MountOptions};
use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

use crate::posix::{Caller, Entry, Fd, Posix, Remount, Result, Space, Stat, Time};
use crate::secret;

/// An error of the library, as a front end would tell it.
fn errno(e: FsError) -> Errno {
    Errno::from_raw_os_error(e.errno())
}

/// An open file.
struct Open {
    node: Inode,
    flags: OFlags,
    /// Where read and write go on; for directories the readdir cookie.
    position: Mutex<u64>,
    /// Opened by O_TMPFILE without O_EXCL, so it may get its first name.
    may_link: bool,
}

/// What all views of one volume share.
struct Shared {
    image: PathBuf,
    options: String,
    with_key: bool,
    fs: RwLock<Option<Arc<Ext4>>>,
    open: RwLock<HashMap<Fd, Arc<Open>>>,
    next: AtomicU32,
}

/// A volume opened by the library as a [`Posix`] subject.
pub struct Library {
    shared: Arc<Shared>,
    /// Where paths start; `None`: the root.
    base: Option<Inode>,
    caller: Caller,
}

fn open_volume(image: &std::path::Path, options: &str, with_key: bool) -> Arc<Ext4> {
    let mut options = MountOptions::parse(options).expect("mount options");
    if with_key {
        options.keys.add(&secret::key()).expect("a good key");
    }
    Ext4::open_path(image, &options).unwrap_or_else(|e| panic!("open {}: {e}", image.display()))
}

impl Library {
    /// Opens a volume.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn new(image: PathBuf, options: &str) -> Self {
        Self::with_key(image, options, false)
    }

    /// Opens a volume, perhaps with the key of [`secret`].
    pub(crate) fn with_key(image: PathBuf, options: &str, with_key: bool) -> Self {
        let fs = open_volume(&image, options, with_key);
        let shared = Shared {
            image,
            options: options.to_owned(),
            with_key,
            fs: RwLock::new(Some(fs)),
            open: RwLock::default(),
            next: AtomicU32::new(0),
        };
        Self {
            shared: Arc::new(shared),
            base: None,
            caller: Caller { umask: 0o022, ..Caller::default() },
        }
    }

    fn down(&self) -> Option<Arc<Ext4>> {
        self.shared.open.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.fs.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn fs(&self) -> Arc<Ext4> {
        let fs = self.shared.fs.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(fs.as_ref().expect("the volume is open"))
    }

    fn base(&self) -> Result<Inode> {
        match &self.base {
            Some(base) => Ok(base.clone()),
            None => self.fs().root_dir().map_err(errno),
        }
    }

    fn file(&self, fd: Fd) -> Result<Arc<Open>> {
        let open = self.shared.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&fd).cloned().ok_or(Errno::BADF)
    }

    fn view(&self, base: Option<Inode>, caller: Caller) -> Self {
        Self { shared: Arc::clone(&self.shared), base, caller }
    }

    fn keep(&self, node: Inode, flags: OFlags, may_link: bool) -> Fd {
        let fd = Fd(self.shared.next.fetch_add(1, Ordering::Relaxed));
        let open = Open { node, flags, position: Mutex::new(0), may_link };
        self.shared.open.write().unwrap_or_else(PoisonError::into_inner).insert(fd, Arc::new(open));
        fd
    }
}

fn attr(node: &Inode) -> Result<Attr> {
    node.attr().map_err(errno)
}

fn kind(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
    }
}

fn stat_of(a: &Attr) -> Stat {
    Stat {
        ino: a.id.ino.into(),
        kind: kind(a.kind),
        mode: a.perm.into(),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: (a.rdev.major, a.rdev.minor),
        size: a.size,
        blocks: a.blocks,
        blksize: a.blksize,
        atime: (a.atime.sec, a.atime.nsec),
        mtime: (a.mtime.sec, a.mtime.nsec),
        ctime: (a.ctime.sec, a.ctime.nsec),
        btime: (a.crtime.sec, a.crtime.nsec),
    }
}

impl Posix for Library {
    fn open(&self, path: &str, flags: OFlags, mode: u32) -> Result<Fd> {
        self.do_open(path, flags, mode)
    }
    fn close(&self, fd: Fd) {
        let gone = self.shared.open.write().unwrap_or_else(PoisonError::into_inner).remove(&fd);
        drop(gone);
    }
    fn read(&self, fd: Fd, len: usize) -> Result<Vec<u8>> {
        self.do_read(fd, len)
    }
    fn write(&self, fd: Fd, bytes: &[u8]) -> Result<usize> {
        self.do_write(fd, None, bytes)
    }
    fn pread(&self, fd: Fd, at: u64, len: usize) -> Result<Vec<u8>> {
        self.do_pread(fd, at, len)
    }
    fn pwrite(&self, fd: Fd, at: u64, bytes: &[u8]) -> Result<usize> {
        self.do_write(fd, Some(at), bytes)
    }
    fn lseek(&self, fd: Fd, to: SeekFrom) -> Result<u64> {
        self.do_seek(fd, to)
    }
    fn ftruncate(&self, fd: Fd, size: u64) -> Result<()> {
        self.do_ftruncate(fd, size)
    }
    fn fallocate(&self, fd: Fd, mode: FallocateFlags, at: u64, len: u64) -> Result<()> {
        self.do_fallocate(fd, mode, at, len)
    }
    fn fsync(&self, fd: Fd) -> Result<()> {
        self.do_fsync(fd, false)
    }
    fn fdatasync(&self, fd: Fd) -> Result<()> {
        self.do_fsync(fd, true)
    }
    fn sync(&self) -> Result<()> {
        self.fs().sync().map_err(errno)
    }
    fn stat(&self, path: &str) -> Result<Stat> {
        Ok(stat_of(&attr(&self.walk(path, true)?)?))
    }
    fn lstat(&self, path: &str) -> Result<Stat> {
        Ok(stat_of(&attr(&self.walk(path, false)?)?))
    }
    fn fstat(&self, fd: Fd) -> Result<Stat> {
        Ok(stat_of(&attr(&self.file(fd)?.node)?))
    }
    fn access(&self, path: &str, mode: u32) -> Result<()> {
        let node = self.walk(path, true)?;
        if mode == 0 { Ok(()) } else { self.permit(&attr(&node)?, mode) }
    }
    fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        self.do_chmod(&self.walk(path, true)?, mode)
    }
    fn fchmod(&self, fd: Fd, mode: u32) -> Result<()> {
        self.do_chmod(&self.file(fd)?.node, mode)
    }
    fn chown(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.do_chown(&self.walk(path, true)?, uid, gid)
    }
    fn lchown(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.do_chown(&self.walk(path, false)?, uid, gid)
    }
    fn utimens(&self, path: &str, atime: Time, mtime: Time) -> Result<()> {
        self.do_utimens(path, atime, mtime)
    }
    fn get_flags(&self, path: &str) -> Result<u32> {
        let fd = self.do_open(path, OFlags::RDONLY | OFlags::NOFOLLOW, 0)?;
        let flags = attr(&self.file(fd)?.node).map(|a| a.flags);
        self.close(fd);
        flags
    }
    fn set_flags(&self, path: &str, flags: u32) -> Result<()> {
        let fd = self.do_open(path, OFlags::RDONLY | OFlags::NOFOLLOW, 0)?;
        let done = self.do_set_flags(&self.file(fd)?.node, flags);
        self.close(fd);
        done
    }
    fn link(&self, from: &str, to: &str) -> Result<()> {
        self.do_link(&self.walk(from, false)?, to, false)
    }
    fn link_fd(&self, fd: Fd, to: &str) -> Result<()> {
        let open = self.file(fd)?;
        self.do_link(&open.node, to, open.may_link)
    }
    fn unlink(&self, path: &str) -> Result<()> {
        self.do_unlink(path)
    }
    fn rmdir(&self, path: &str) -> Result<()> {
        self.do_rmdir(path)
    }
    fn mkdir(&self, path: &str, mode: u32) -> Result<()> {
        self.make(path, extol::vfs::NewNode::Directory, mode & 0o1777)
    }
    fn mknod(&self, path: &str, kind: FileType, mode: u32, dev: (u32, u32)) -> Result<()> {
        self.do_mknod(path, kind, mode, dev)
    }
    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        self.do_symlink(target, path)
    }
    fn readlink(&self, path: &str) -> Result<String> {
        let node = self.walk(path, false)?;
        if node.kind() != FileKind::Symlink {
            return Err(Errno::INVAL);
        }
        let target = self.fs().readlink(node.ino()).map_err(errno)?;
        Ok(String::from_utf8_lossy(&target).into_owned())
    }
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        self.do_rename(from, to, flags)
    }
    fn setxattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> Result<()> {
        self.do_setxattr(&self.walk(path, false)?, name, value, how)
    }
    fn getxattr(&self, path: &str, name: &str, room: usize) -> Result<Vec<u8>> {
        self.do_getxattr(&self.walk(path, false)?, name, room)
    }
    fn listxattr(&self, path: &str, room: usize) -> Result<Vec<String>> {
        self.do_listxattr(&self.walk(path, false)?, room)
    }
    fn removexattr(&self, path: &str, name: &str) -> Result<()> {
        self.do_removexattr(&self.walk(path, false)?, name)
    }
    fn readdir(&self, fd: Fd, count: usize) -> Result<Vec<Entry>> {
        self.do_readdir(fd, count)
    }
    fn seekdir(&self, fd: Fd, position: u64) -> Result<()> {
        *self.file(fd)?.position.lock().unwrap_or_else(PoisonError::into_inner) = position;
        Ok(())
    }
    fn statfs(&self) -> Result<Space> {
        let s = self.fs().statfs().map_err(errno)?;
        Ok(Space {
            block_size: s.block_size.into(),
            blocks: s.blocks,
            free: s.blocks_free,
            available: s.blocks_available,
            files: s.inodes,
            files_free: s.inodes_free,
            name_max: s.name_max.into(),
        })
    }
    fn at(&self, dir: Fd) -> Result<Box<dyn Posix>> {
        let base = self.file(dir)?.node.clone();
        Ok(Box::new(self.view(Some(base), self.caller.clone())))
    }
    fn as_user(&self, caller: &Caller, work: &mut (dyn FnMut(&dyn Posix) + Send)) {
        work(&self.view(self.base.clone(), caller.clone()));
    }
    fn unmount(&self) {
        if let Some(fs) = self.down() {
            fs.unmount().expect("unmount");
            assert_eq!(fs.stats().inodes_known, 0, "references are left");
        }
    }
    fn remount(&self, how: Remount) {
        let Some(fs) = self.down() else { return };
        match how {
            Remount::Clean => fs.unmount().expect("unmount"),
            Remount::Crash => fs.crash(),
        }
        // The image's lock goes with the last owner of the volume.
        drop(fs);
        let fs = open_volume(&self.shared.image, &self.shared.options, self.shared.with_key);
        *self.shared.fs.write().unwrap_or_else(PoisonError::into_inner) = Some(fs);
    }
}
