//! The destination of a copy: one directory at a time, by its descriptor.
//!
//! The names come from a volume that is not trusted, and other programs may write in the
//! destination, too. So nothing is found by a path: [`DestDir`] is an open directory, each new
//! entry gets a name of one component, and an entry that is there is never followed:
//!
//! ```text
//!   open (the user's own argument, links are followed)
//!     │ enter: mkdirat, openat O_NOFOLLOW|O_DIRECTORY      file, symlink, special:
//!     ▼                                                    made (O_EXCL) as a [`Staged`]
//!   DestDir ──up──► "..", if that is the directory that `enter` began in (device and inode)
//! ```
//!
//! What is made has a temporary name in the same directory until it is whole; then
//! [`DestDir::place`] renames it, over what has the name. So an error or a signal leaves what was
//! there.
//!
//! One descriptor is open however deep the tree is. Attributes are set through the descriptor of
//! what was made, not by name; where only a path will do, it is that of the descriptor in
//! `/proc/self/fd`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dev, FileType, Gid, Mode, OFlags, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// Device and inode.
pub(super) type Id = (u64, u64);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Temporary names that are tried.
const TRIES: u32 = 100;

/// What was made under a temporary name, and the name it is to get.
#[derive(Debug)]
pub(super) struct Staged {
    temporary: OsString,
    name: OsString,
}

/// A directory of the destination.
#[derive(Debug)]
pub(super) struct DestDir {
    fd: OwnedFd,
    pub id: Id,
}

/// A name as one component.
fn component(name: &[u8]) -> io::Result<&OsStr> {
    match name {
        b"" | b"." | b".." => Err(io::Error::from(Errno::INVAL)),
        name if name.iter().any(|c| matches!(c, b'/' | 0)) => Err(io::Error::from(Errno::INVAL)),
        name => Ok(OsStr::from_bytes(name)),
    }
}

/// Opens a file to claim it, with `how` beside; without the right to read it, only as what a path
/// names.
pub fn open_to_claim(
    dir: impl AsFd,
    name: impl rustix::path::Arg + Copy,
    how: OFlags,
) -> io::Result<File> {
    let open =
        |flags| rustix::fs::openat(dir.as_fd(), name, flags | how | OFlags::CLOEXEC, Mode::empty());
    let fd = open(OFlags::RDONLY | OFlags::NONBLOCK).or_else(|_| open(OFlags::PATH))?;
    Ok(fd.into())
}

fn id_of(fd: impl AsFd) -> io::Result<Id> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn moved() -> io::Error {
    io::Error::other("the destination was changed by another program meanwhile")
}

impl DestDir {
    /// The user's own argument.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Self::open_at(CWD, path.as_os_str(), OFlags::empty())
    }

    fn open_at(dir: BorrowedFd<'_>, name: &OsStr, how: OFlags) -> io::Result<Self> {
        let fd =
            match rustix::fs::openat(dir, name, DIRECTORY | OFlags::RDONLY | how, Mode::empty()) {
                // Read permission is not needed to make entries.
                Err(Errno::ACCESS) => {
                    rustix::fs::openat(dir, name, DIRECTORY | OFlags::PATH | how, Mode::empty())
                }
                opened => opened,
            }?;
        let id = id_of(&fd)?;
        Ok(Self { fd, id })
    }

    /// Another descriptor of the same directory.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, id: self.id })
    }

    /// A directory in it, which is made if it is not there. True if it was made.
    pub fn enter(&self, name: &[u8]) -> io::Result<(Self, bool)> {
        let name = component(name)?;
        let is_new = match rustix::fs::mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let dir = Self::open_at(self.fd.as_fd(), name, OFlags::NOFOLLOW).map_err(|error| {
            let link = Errno::from_io_error(&error) == Some(Errno::LOOP);
            if link { Errno::NOTDIR.into() } else { error }
        })?;
        if is_new && rustix::fs::fstat(&dir.fd)?.st_uid != rustix::process::geteuid().as_raw() {
            return Err(moved());
        }
        Ok((dir, is_new))
    }

    /// Back to the directory that this one is in.
    pub fn up(&self, to: Id) -> io::Result<Self> {
        let above = Self::open_at(self.fd.as_fd(), OsStr::new(".."), OFlags::empty())?;
        if above.id == to { Ok(above) } else { Err(moved()) }
    }

    /// Makes something under a temporary name. What has its name is no directory.
    fn stage<T>(
        &self,
        name: &[u8],
        mut make: impl FnMut(&OsStr) -> rustix::io::Result<T>,
    ) -> io::Result<(T, Staged)> {
        let name = component(name)?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if FileType::from_raw_mode(there.st_mode).is_dir() => {
                return Err(Errno::ISDIR.into());
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        for _ in 0..TRIES {
            let number = RandomState::new().build_hasher().finish();
            let temporary = OsString::from(format!(".extol-{number:016x}"));
            match make(&temporary) {
                Err(Errno::EXIST) => {}
                made => return Ok((made?, Staged { temporary, name: name.to_owned() })),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Gives what was made its name. What had that name is gone then.
    pub fn place(&self, staged: &Staged) -> io::Result<()> {
        let placed = rustix::fs::renameat(&self.fd, &staged.temporary, &self.fd, &staged.name);
        if placed.is_err() {
            self.discard(staged);
        }
        Ok(placed?)
    }

    /// Removes what was made.
    pub fn discard(&self, staged: &Staged) {
        let _ = rustix::fs::unlinkat(&self.fd, &staged.temporary, AtFlags::empty());
    }

    /// A new file.
    pub fn file(&self, name: &[u8]) -> io::Result<(File, Staged)> {
        let how =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (fd, staged) = self.stage(name, |temporary| {
            rustix::fs::openat(&self.fd, temporary, how, Mode::RUSR | Mode::WUSR)
        })?;
        Ok((fd.into(), staged))
    }

    /// The regular file that has a name, opened to be claimed.
    pub fn opened(&self, name: &[u8]) -> io::Result<Option<File>> {
        let name = component(name)?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if FileType::from_raw_mode(there.st_mode).is_file() => {}
            // (An error comes again when it is replaced.)
            _ => return Ok(None),
        }
        Ok(open_to_claim(&self.fd, name, OFlags::NOFOLLOW).ok())
    }

    /// A new symbolic link.
    pub fn symlink(&self, name: &[u8], target: &[u8]) -> io::Result<(Node, Staged)> {
        let target = OsStr::from_bytes(target);
        let ((), staged) =
            self.stage(name, |temporary| rustix::fs::symlinkat(target, &self.fd, temporary))?;
        Ok((self.node(&staged.temporary, FileType::Symlink)?, staged))
    }

    /// A new device node, pipe or socket.
    pub fn special(&self, name: &[u8], kind: FileType, device: Dev) -> io::Result<(Node, Staged)> {
        let ((), staged) = self.stage(name, |temporary| {
            rustix::fs::mknodat(&self.fd, temporary, kind, Mode::RUSR | Mode::WUSR, device)
        })?;
        Ok((self.node(&staged.temporary, kind)?, staged))
    }

    fn node(&self, name: &OsStr, kind: FileType) -> io::Result<Node> {
        let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, how, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let ours = stat.st_uid == rustix::process::geteuid().as_raw();
        if FileType::from_raw_mode(stat.st_mode) != kind || !ours {
            return Err(moved());
        }
        Ok(Node(fd))
    }

    /// One more name for a file that was made `below` this directory.
    pub fn link(&self, below: &Path, id: Id, to: &Self, name: &[u8]) -> io::Result<()> {
        let mut dir = self.try_clone()?;
        let mut parts = below.iter().peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_some() {
                dir = Self::open_at(dir.fd.as_fd(), part, OFlags::NOFOLLOW)?;
                continue;
            }
            let how = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&dir.fd, part, how, Mode::empty())?;
            if id_of(&file)? != id {
                return Err(moved());
            }
            let path = proc_path(&file);
            let ((), staged) = to.stage(name, |temporary| {
                rustix::fs::linkat(CWD, &path, &to.fd, temporary, AtFlags::SYMLINK_FOLLOW)
            })?;
            to.place(&staged)?;
            // (A rename to another name of the same file leaves both.)
            to.discard(&staged);
            return Ok(());
        }
        Err(Errno::NOENT.into())
    }
}

/// Device and inode of a file.
pub(super) fn file_id(file: &File) -> io::Result<Id> {
    id_of(file)
}

fn proc_path(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

/// A new link or special file, by an O_PATH descriptor.
#[derive(Debug)]
pub(super) struct Node(OwnedFd);

impl Node {
    pub fn id(&self) -> io::Result<Id> {
        id_of(&self.0)
    }
}

/// What attributes are set on.
pub(super) trait Target {
    fn chown(&self, uid: u32, gid: u32) -> rustix::io::Result<()>;
    fn chmod(&self, mode: u32) -> rustix::io::Result<()>;
    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> rustix::io::Result<()>;
    fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()>;
}

/// The number that means "none" is no owner.
fn ids(uid: u32, gid: u32) -> rustix::io::Result<(Option<Uid>, Option<Gid>)> {
    if uid == u32::MAX || gid == u32::MAX {
        return Err(Errno::INVAL);
    }
    Ok((Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))))
}

impl Target for BorrowedFd<'_> {
    fn chown(&self, uid: u32, gid: u32) -> rustix::io::Result<()> {
        let (uid, gid) = ids(uid, gid)?;
        rustix::fs::fchown(self, uid, gid)
    }

    fn chmod(&self, mode: u32) -> rustix::io::Result<()> {
        rustix::fs::fchmod(self, Mode::from_raw_mode(mode))
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
        rustix::fs::fsetxattr(self, name, value, XattrFlags::empty())
    }

    fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        rustix::fs::futimens(self, times)
    }
}

impl Target for Node {
    fn chown(&self, uid: u32, gid: u32) -> rustix::io::Result<()> {
        let (uid, gid) = ids(uid, gid)?;
        rustix::fs::chownat(&self.0, "", uid, gid, AtFlags::EMPTY_PATH)
    }

    fn chmod(&self, mode: u32) -> rustix::io::Result<()> {
        rustix::fs::chmodat(CWD, proc_path(&self.0), Mode::from_raw_mode(mode), AtFlags::empty())
    }

    fn set_xattr(&self, name: &OsStr, value: &[u8]) -> rustix::io::Result<()> {
        rustix::fs::setxattr(proc_path(&self.0), name, value, XattrFlags::empty())
    }

    fn set_times(&self, times: &Timestamps) -> rustix::io::Result<()> {
        rustix::fs::utimensat(CWD, proc_path(&self.0), times, AtFlags::empty())
    }
}

impl AsFd for DestDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
