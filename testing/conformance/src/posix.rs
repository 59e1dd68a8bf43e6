//! The calls that a test needs, as every subject offers them.
//!
//! Paths are relative to the subject's base: the root of the volume, or the open directory of
//! [`Posix::at`]. A test never names anything outside of the volume (`..` of the root, absolute
//! paths), because there the subjects differ by nature. Open files are numbers of the subject's own
//! table.

use rustix::fs::{FallocateFlags, FileType, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

/// Outcome of a call.
pub type Result<T> = std::result::Result<T, Errno>;

/// An open file of a subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Fd(pub u32);

/// A point in time, as stat(2) gives it.
pub type Moment = (i64, u32);

/// What stat(2) and statx(2) tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileType,
    /// Permission bits (07777).
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor number of a device file.
    pub rdev: (u32, u32),
    /// Bytes.
    pub size: u64,
    /// Space in 512-byte units.
    pub blocks: u64,
    /// Block size for I/O.
    pub blksize: u32,
    /// Last access.
    pub atime: Moment,
    /// Last change of the contents.
    pub mtime: Moment,
    /// Last change of the inode.
    pub ctime: Moment,
    /// Creation.
    pub btime: Moment,
}

/// One name that readdir found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// Inode number.
    pub ino: u64,
    /// Kind.
    pub kind: FileType,
    /// Position behind the entry, for [`Posix::seekdir`].
    pub next: u64,
}

/// What statvfs(2) tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Block size.
    pub block_size: u64,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for ordinary users.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name_max: u64,
}

/// The user, groups and umask of a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// umask.
    pub umask: u32,
}

impl Caller {
    /// A user with no further groups and the umask 022.
    #[must_use]
    pub fn user(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Vec::new(), umask: 0o022 }
    }
}

/// A time for [`Posix::utimens`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// UTIME_NOW.
    Now,
    /// UTIME_OMIT.
    Omit,
    /// Seconds and nanoseconds; the latter may be out of range, for the errno.
    At(i64, u32),
}

/// How a subject goes down before it comes up again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remount {
    /// Unmount and mount.
    Clean,
    /// As after a power cut: nothing that was only in memory is written.
    Crash,
}

/// A POSIX file system under test. The owner and umask of the calls are root's and 022 unless
/// [`as_user`] says otherwise.
///
/// [`as_user`]: Posix::as_user
#[allow(missing_docs, reason = "each is the system call of the same name")]
pub trait Posix: Send + Sync {
    fn open(&self, path: &str, flags: OFlags, mode: u32) -> Result<Fd>;
    fn close(&self, fd: Fd);
    fn read(&self, fd: Fd, len: usize) -> Result<Vec<u8>>;
    fn write(&self, fd: Fd, bytes: &[u8]) -> Result<usize>;
    fn pread(&self, fd: Fd, at: u64, len: usize) -> Result<Vec<u8>>;
    fn pwrite(&self, fd: Fd, at: u64, bytes: &[u8]) -> Result<usize>;
    fn lseek(&self, fd: Fd, to: SeekFrom) -> Result<u64>;
    fn ftruncate(&self, fd: Fd, size: u64) -> Result<()>;
    fn fallocate(&self, fd: Fd, mode: FallocateFlags, at: u64, len: u64) -> Result<()>;
    fn fsync(&self, fd: Fd) -> Result<()>;
    fn fdatasync(&self, fd: Fd) -> Result<()>;
    /// Everything is durable afterwards. (On mounts of Extol by a request of its own, because Linux
    /// keeps syncfs(2) from FUSE.)
    fn sync(&self) -> Result<()>;

    fn stat(&self, path: &str) -> Result<Stat>;
    fn lstat(&self, path: &str) -> Result<Stat>;
    fn fstat(&self, fd: Fd) -> Result<Stat>;
    fn access(&self, path: &str, mode: u32) -> Result<()>;
    fn chmod(&self, path: &str, mode: u32) -> Result<()>;
    fn fchmod(&self, fd: Fd, mode: u32) -> Result<()>;
    fn chown(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
    fn lchown(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
    fn utimens(&self, path: &str, atime: Time, mtime: Time) -> Result<()>;
    fn get_flags(&self, path: &str) -> Result<u32>;
    fn set_flags(&self, path: &str, flags: u32) -> Result<()>;

    fn link(&self, from: &str, to: &str) -> Result<()>;
    /// Gives an open file a name (linkat with AT_EMPTY_PATH, as /proc/self/fd does).
    fn link_fd(&self, fd: Fd, to: &str) -> Result<()>;
    fn unlink(&self, path: &str) -> Result<()>;
    fn rmdir(&self, path: &str) -> Result<()>;
    fn mkdir(&self, path: &str, mode: u32) -> Result<()>;
    fn mknod(&self, path: &str, kind: FileType, mode: u32, dev: (u32, u32)) -> Result<()>;
    fn symlink(&self, target: &str, path: &str) -> Result<()>;
    fn readlink(&self, path: &str) -> Result<String>;
    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()>;

    fn setxattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> Result<()>;
    /// Value, for a buffer of `room` bytes.
    fn getxattr(&self, path: &str, name: &str, room: usize) -> Result<Vec<u8>>;
    fn listxattr(&self, path: &str, room: usize) -> Result<Vec<String>>;
    fn removexattr(&self, path: &str, name: &str) -> Result<()>;

    /// Up to `count` entries from the position of the open directory, `.` and `..` included.
    fn readdir(&self, fd: Fd, count: usize) -> Result<Vec<Entry>>;
    fn seekdir(&self, fd: Fd, position: u64) -> Result<()>;
    fn statfs(&self) -> Result<Space>;

    /// Reads through a shared mapping; `None` where the subject has no mappings.
    fn map_read(&self, _fd: Fd, _at: u64, _len: usize) -> Option<Result<Vec<u8>>> {
        None
    }
    /// Writes through a shared mapping of a range that lies inside the file; `None` where there are
    /// no mappings.
    fn map_write(&self, _fd: Fd, _at: u64, _bytes: &[u8]) -> Option<Result<()>> {
        None
    }
    /// copy_file_range inside one file; `None` where there is no such call.
    fn copy_range(&self, _fd: Fd, _from: u64, _to: u64, _len: usize) -> Option<Result<usize>> {
        None
    }
    /// Lets the subject forget what it has cached, where it can.
    fn drop_caches(&self) {}

    /// The same file system seen from an open directory.
    fn at(&self, dir: Fd) -> Result<Box<dyn Posix>>;
    /// Makes calls as another user.
    fn as_user(&self, caller: &Caller, work: &mut (dyn FnMut(&dyn Posix) + Send));
    /// Goes down and comes up again. Open files are gone; so are views made by [`at`](Posix::at).
    fn remount(&self, how: Remount);
    /// Goes down for good; fails the test if that does not end well.
    fn unmount(&self);
}

/// What tests do again and again.
impl dyn Posix + '_ {
    /// A file opened for reading and writing, created if need be.
    pub fn create(&self, path: &str) -> Result<Fd> {
        self.open(path, OFlags::RDWR | OFlags::CREATE, 0o644)
    }

    /// Opens and closes; for the errno.
    pub fn try_open(&self, path: &str, flags: OFlags, mode: u32) -> Result<()> {
        self.open(path, flags, mode).map(|fd| self.close(fd))
    }

    /// Replaces a file's contents.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let fd = self.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, 0o644)?;
        let mut done = 0;
        let mut wrote = Ok(0);
        while done < bytes.len() {
            wrote = self.write(fd, &bytes[done..]);
            match wrote {
                Ok(n) => done += n,
                Err(_) => break,
            }
        }
        self.close(fd);
        wrote.map(drop)
    }

    /// A file's contents.
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        let fd = self.open(path, OFlags::RDONLY, 0)?;
        let mut all = Vec::new();
        let end = loop {
            match self.read(fd, 1 << 16) {
                Ok(bytes) if bytes.is_empty() => break Ok(all),
                Ok(bytes) => all.extend(bytes),
                Err(e) => break Err(e),
            }
        };
        self.close(fd);
        end
    }

    /// A file's contents as text.
    pub fn text(&self, path: &str) -> Result<String> {
        self.get(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sorted names in a directory, without `.` and `..`.
    pub fn names(&self, path: &str) -> Result<Vec<String>> {
        let fd = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        let all = self.readdir(fd, usize::MAX);
        self.close(fd);
        let mut names: Vec<String> = all?.into_iter().map(|e| e.name).collect();
        names.retain(|n| n != "." && n != "..");
        names.sort();
        Ok(names)
    }

    /// Removes a directory and all that is in it, name by name.
    pub fn remove_all(&self, path: &str) -> Result<()> {
        for name in self.names(path)? {
            let inner = format!("{path}/{name}");
            if self.lstat(&inner)?.kind == FileType::Directory {
                self.remove_all(&inner)?;
            } else {
                self.unlink(&inner)?;
            }
        }
        self.rmdir(path)
    }

    /// Makes a directory and those above it.
    pub fn mkdirs(&self, path: &str) -> Result<()> {
        let mut end = 0;
        while end < path.len() {
            end = path[end + 1..].find('/').map_or(path.len(), |n| end + 1 + n);
            match self.mkdir(&path[..end], 0o755) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
