//! The files of a mount of Extol, for commands that only read: each call goes through the kernel.
//!
//! The daemon has the volume, so this process must not open it a second time. A mount answers the
//! same questions as the library, with the kernel's caches and the rights of this user.
//!
//! An inode that is referenced is a descriptor of it (`O_PATH`), so a name that another process
//! changes meanwhile leads nowhere else, and a path of any length works. Only regular files and
//! directories are opened; a device node or a pipe on the volume never is.
//!
//! - KF-1: nothing on another file system is reached: each inode that is looked up must be on the
//!   mount (`attr`). `..` ends at the directory that was named, and links are followed by name from
//!   there ([`Files::find`](super::Files::find)).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extol_cli_common::{Failure, Result};
use extol_proc::{MountTable, Shown as _};
use extol_vfs::{
    Attr, Creds, DirEntry, Fallocate, FileExtent, FileId, FileKind, FileSystem, FsError, NewNode,
    Rdev, Reader, RenameFlags, Seek, SetAttr, StatFs, Timestamp, XattrSet,
};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Statx, StatxFlags, StatxTimestamp,
};
use rustix::io::Errno;

use crate::mounted::MountedVolume;

/// A directory of a mount with all that is below it.
#[derive(Debug)]
pub struct KernelFiles {
    root: u32,
    /// Device number of the mount: major and minor.
    device: (u32, u32),
    held: Mutex<HashMap<u32, Held>>,
}

/// An inode that is referenced.
#[derive(Debug)]
struct Held {
    file: OwnedFd,
    references: u64,
}

impl KernelFiles {
    /// The files below `dir`, and what is mounted there, if that is a directory on a mount of
    /// Extol.
    ///
    /// # Errors
    /// It is a mount that does not answer, or lets another user in alone.
    pub fn on_mount(dir: &Path, command: &'static str) -> Result<Option<(Self, PathBuf)>> {
        let failed = |error: std::io::Error| Failure::system_call(dir.shown(), error);
        match dir.metadata() {
            Ok(about) if about.is_dir() => {}
            Err(error) if Errno::from_io_error(&error).is_some_and(extol_fuse::is_dead) => {
                return MountedVolume::of(dir, command).map(|_| None);
            }
            _ => return Ok(None),
        }
        let table = MountTable::own().map_err(|error| Failure::about("/proc", error))?;
        let path = dir.canonicalize().map_err(failed)?;
        let Some(mount) = table.holding(&path).filter(|mount| mount.is_extol()) else {
            return Ok(None);
        };
        let image = extol_proc::image_of(Path::new(&mount.source)).to_owned();
        // (With fewer than this a tree may be too deep, which is reported.)
        let _ = crate::limits::take_descriptors();
        let opened = rustix::fs::open(dir, PATH | OFlags::DIRECTORY, Mode::empty())
            .map_err(fs_error)
            .and_then(Self::below);
        opened.map(|files| Some((files, image))).map_err(|error| Failure::about(dir.shown(), error))
    }

    fn below(dir: OwnedFd) -> extol_vfs::Result<Self> {
        let stat = status(&dir)?;
        let files = Self {
            root: number(&stat)?,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            held: Mutex::default(),
        };
        files.held().insert(files.root, Held { file: dir, references: 1 });
        Ok(files)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u32, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor of an inode that is referenced.
    fn node(&self, ino: u32) -> extol_vfs::Result<OwnedFd> {
        let held = self.held();
        let file = &held.get(&ino).ok_or(FsError::Stale)?.file;
        file.try_clone().map_err(|error| FsError::Io(error.to_string()))
    }

    /// Opens an inode that may be read.
    fn open(&self, ino: u32, kind: FileKind) -> extol_vfs::Result<OwnedFd> {
        let node = self.node(ino)?;
        if self.attr(&node)?.kind != kind {
            return Err(FsError::Invalid("not a file with contents"));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::open(link_to(&node), flags, Mode::empty()).map_err(fs_error)
    }

    fn attr(&self, node: &OwnedFd) -> extol_vfs::Result<Attr> {
        let stat = status(node)?;
        if (stat.stx_dev_major, stat.stx_dev_minor) != self.device {
            return Err(FsError::NotSupported("another file system is mounted there"));
        }
        attr_of(&stat)
    }
}

/// How an inode is referenced.
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn status(node: &OwnedFd) -> extol_vfs::Result<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    rustix::fs::statx(node, "", flags, wanted).map_err(fs_error)
}

fn number(stat: &Statx) -> extol_vfs::Result<u32> {
    u32::try_from(stat.stx_ino).map_err(|_| FsError::Invalid("not a file of an ext4 volume"))
}

/// The name of an open inode for calls that take no descriptor with `O_PATH`.
fn link_to(node: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", node.as_raw_fd()).into()
}

fn kind_of(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}

fn attr_of(stat: &Statx) -> extol_vfs::Result<Attr> {
    let time = |time: StatxTimestamp| Timestamp { sec: time.tv_sec, nsec: time.tv_nsec };
    let kind = kind_of(FileType::from_raw_mode(stat.stx_mode.into()));
    Ok(Attr {
        id: FileId { ino: number(stat)?, generation: 0 },
        kind: kind.ok_or(FsError::Invalid("a file of no known kind"))?,
        perm: stat.stx_mode & 0o7777,
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        rdev: Rdev { major: stat.stx_rdev_major, minor: stat.stx_rdev_minor },
        atime: time(stat.stx_atime),
        mtime: time(stat.stx_mtime),
        ctime: time(stat.stx_ctime),
        crtime: time(stat.stx_btime),
        blksize: stat.stx_blksize,
        flags: 0,
        project: 0,
    })
}

fn fs_error(error: Errno) -> FsError {
    match error {
        Errno::NOENT => FsError::NotFound,
        Errno::ACCESS => FsError::AccessDenied,
        Errno::PERM => FsError::NotPermitted,
        Errno::NOTDIR => FsError::NotADirectory,
        Errno::ISDIR => FsError::IsADirectory,
        Errno::NAMETOOLONG => FsError::NameTooLong,
        Errno::LOOP => FsError::SymlinkLoop,
        Errno::NODATA => FsError::NoAttribute,
        Errno::NXIO => FsError::NoDataThere,
        Errno::STALE => FsError::Stale,
        Errno::NOKEY => FsError::NoKey,
        Errno::RANGE => FsError::Range,
        Errno::OPNOTSUPP => FsError::NotSupported("by this mount"),
        error if extol_fuse::is_dead(error) => {
            FsError::Io("the daemon of the mount has died".into())
        }
        error => FsError::Io(error.to_string()),
    }
}

/// The answer to what only a volume itself is asked.
fn changes_nothing<T>() -> extol_vfs::Result<T> {
    Err(FsError::ReadOnly)
}

/// An open file.
struct Contents(File);

impl Reader for Contents {
    fn read(&self, offset: u64, buf: &mut [u8]) -> extol_vfs::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(fs_error(Errno::from_io_error(&error).unwrap_or(Errno::IO)));
                }
            }
        }
        Ok(done)
    }
}

/// A file that cannot be opened.
struct Unopened(FsError);

impl Reader for Unopened {
    fn read(&self, _offset: u64, _buf: &mut [u8]) -> extol_vfs::Result<usize> {
        Err(self.0.clone())
    }
}

impl FileSystem for KernelFiles {
    fn root(&self) -> u32 {
        self.root
    }

    fn lookup(&self, dir: u32, name: &[u8]) -> extol_vfs::Result<Attr> {
        if dir == self.root && name == b".." {
            self.retain(dir);
            return self.getattr(dir);
        }
        let node = rustix::fs::openat(self.node(dir)?, name, PATH, Mode::empty());
        let node = node.map_err(fs_error)?;
        let attr = self.attr(&node)?;
        match self.held().entry(attr.id.ino) {
            Entry::Occupied(mut held) => held.get_mut().references += 1,
            Entry::Vacant(free) => {
                free.insert(Held { file: node, references: 1 });
            }
        }
        Ok(attr)
    }

    fn retain(&self, ino: u32) {
        if let Some(held) = self.held().get_mut(&ino) {
            held.references += 1;
        }
    }

    fn forget(&self, ino: u32, n: u64) {
        let mut held = self.held();
        let Some(of) = held.get_mut(&ino) else { return };
        of.references = of.references.saturating_sub(n);
        if of.references == 0 {
            held.remove(&ino);
        }
    }

    fn getattr(&self, ino: u32) -> extol_vfs::Result<Attr> {
        self.attr(&self.node(ino)?)
    }

    fn readlink(&self, ino: u32) -> extol_vfs::Result<Vec<u8>> {
        let target = rustix::fs::readlinkat(self.node(ino)?, "", Vec::new()).map_err(fs_error)?;
        Ok(target.into_bytes())
    }

    fn readdir(
        &self,
        dir: u32,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry) -> bool,
    ) -> extol_vfs::Result<()> {
        let opened = self.open(dir, FileKind::Directory)?;
        let entries = Dir::new(opened).map_err(fs_error)?;
        for (cookie, entry) in (1..).zip(entries).skip(cookie as usize) {
            let entry = entry.map_err(fs_error)?;
            let entry = DirEntry {
                // (The numbers of entries are not used, and may be larger than those of ext4.)
                ino: u32::try_from(entry.ino()).unwrap_or(0),
                cookie,
                kind: kind_of(entry.file_type()),
                name: entry.file_name().to_bytes().to_vec(),
            };
            if !each(entry) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self, ino: u32, offset: u64, buf: &mut [u8]) -> extol_vfs::Result<usize> {
        self.reader(ino).read(offset, buf)
    }

    fn reader(&self, ino: u32) -> Box<dyn Reader + '_> {
        match self.open(ino, FileKind::Regular) {
            Ok(file) => Box::new(Contents(file.into())),
            Err(error) => Box::new(Unopened(error)),
        }
    }

    fn seek(&self, ino: u32, offset: u64, what: Seek) -> extol_vfs::Result<u64> {
        let file = self.open(ino, FileKind::Regular)?;
        let place = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&file, place).map_err(fs_error)
    }

    fn statfs(&self) -> extol_vfs::Result<StatFs> {
        self.statfs_at(self.root)
    }

    fn statfs_at(&self, ino: u32) -> extol_vfs::Result<StatFs> {
        let about = rustix::fs::fstatvfs(self.node(ino)?).map_err(fs_error)?;
        Ok(StatFs {
            block_size: u32::try_from(about.f_frsize).unwrap_or(u32::MAX),
            blocks: about.f_blocks,
            blocks_free: about.f_bfree,
            blocks_available: about.f_bavail,
            inodes: about.f_files,
            inodes_free: about.f_ffree,
            name_max: u32::try_from(about.f_namemax).unwrap_or(u32::MAX),
        })
    }

    fn getxattr(&self, ino: u32, name: &[u8]) -> extol_vfs::Result<Vec<u8>> {
        let node = self.node(ino)?;
        let (path, name) = (link_to(&node), OsStr::from_bytes(name));
        with_room(|buffer| rustix::fs::getxattr(&path, name, buffer))
    }

    fn listxattr(&self, ino: u32) -> extol_vfs::Result<Vec<Vec<u8>>> {
        let node = self.node(ino)?;
        let path = link_to(&node);
        let names = with_room(|buffer| rustix::fs::listxattr(&path, buffer))?;
        let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn setattr(&self, _ino: u32, _set: &SetAttr) -> extol_vfs::Result<Attr> {
        changes_nothing()
    }

    fn create(
        &self,
        _dir: u32,
        _name: &[u8],
        _new: NewNode,
        _perm: u16,
        _umask: u16,
        _creds: Creds,
    ) -> extol_vfs::Result<Attr> {
        changes_nothing()
    }

    fn create_unnamed(
        &self,
        _dir: u32,
        _perm: u16,
        _umask: u16,
        _creds: Creds,
    ) -> extol_vfs::Result<Attr> {
        changes_nothing()
    }

    fn link(&self, _ino: u32, _dir: u32, _name: &[u8]) -> extol_vfs::Result<Attr> {
        changes_nothing()
    }

    fn unlink(&self, _dir: u32, _name: &[u8]) -> extol_vfs::Result<()> {
        changes_nothing()
    }

    fn rmdir(&self, _dir: u32, _name: &[u8]) -> extol_vfs::Result<()> {
        changes_nothing()
    }

    fn rename_at(
        &self,
        _dir: u32,
        _name: &[u8],
        _new_dir: u32,
        _new_name: &[u8],
        _flags: RenameFlags,
    ) -> extol_vfs::Result<()> {
        changes_nothing()
    }

    fn write(&self, _ino: u32, _offset: u64, _data: &[u8]) -> extol_vfs::Result<usize> {
        changes_nothing()
    }

    fn fallocate(
        &self,
        _ino: u32,
        _mode: Fallocate,
        _offset: u64,
        _len: u64,
    ) -> extol_vfs::Result<()> {
        changes_nothing()
    }

    fn fiemap(&self, _ino: u32, _offset: u64, _len: u64) -> extol_vfs::Result<Vec<FileExtent>> {
        Err(FsError::NotSupported("the place of a file, of a mount"))
    }

    fn fsync(&self, _ino: u32, _data_only: bool) -> extol_vfs::Result<()> {
        Ok(())
    }

    fn sync(&self) -> extol_vfs::Result<()> {
        Ok(())
    }

    fn setxattr(
        &self,
        _ino: u32,
        _name: &[u8],
        _value: &[u8],
        _how: XattrSet,
    ) -> extol_vfs::Result<()> {
        changes_nothing()
    }

    fn removexattr(&self, _ino: u32, _name: &[u8]) -> extol_vfs::Result<()> {
        changes_nothing()
    }
}

/// Most bytes of an extended attribute, or of a list of their names, that Linux gives.
const MOST_XATTR: usize = 65536;

/// What a call puts into a buffer.
fn with_room(
    call: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>,
) -> extol_vfs::Result<Vec<u8>> {
    let mut buffer = vec![0; MOST_XATTR];
    let len = call(&mut buffer).map_err(fs_error)?;
    buffer.truncate(len);
    Ok(buffer)
}
