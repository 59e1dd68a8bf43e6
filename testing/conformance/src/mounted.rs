//! A subject that is a mounted directory: Linux's ext4, Extol or fuse2fs. Every method is the
//! system call of its name.
//!
//! Paths start at an open directory, so that their length is the same for every subject; only the
//! calls about extended attributes have no such form and get the whole path (`/proc/self/fd/N/…`).

use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use extol_testkit::{Image, Subject, as_user};
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RawDir, RenameFlags,
    SeekFrom, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::posix::{Caller, Entry, Fd, Posix, Remount, Result, Space, Stat, Time};

/// What all views of one mount share.
struct Shared {
    subject: Subject,
    image: Image,
    dir: PathBuf,
    options: Vec<String>,
    mount: Mutex<Option<extol_testkit::Mounted>>,
    open: RwLock<HashMap<Fd, Arc<OwnedFd>>>,
    next: AtomicU32,
}

/// A mounted directory as a [`Posix`] subject.
pub struct Mounted {
    shared: Arc<Shared>,
    /// Where paths start.
    base: RwLock<Arc<OwnedFd>>,
}

fn open_base(dir: &std::path::Path) -> Arc<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Arc::new(rustix::fs::open(dir, flags, Mode::empty()).expect("open the root of a mount"))
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

impl Mounted {
    /// Mounts an image by a subject on a directory.
    ///
    /// # Panics
    /// If the mount fails.
    #[must_use]
    pub fn new(subject: Subject, image: Image, dir: PathBuf, options: &[&str]) -> Self {
        let mount = subject.mount(&image, &dir, options);
        let base = open_base(&dir);
        let shared = Shared {
            subject,
            image,
            dir,
            options: options.iter().map(|o| (*o).to_owned()).collect(),
            mount: Mutex::new(Some(mount)),
            open: RwLock::default(),
            next: AtomicU32::new(0),
        };
        Self { shared: Arc::new(shared), base: RwLock::new(base) }
    }

    /// Closes everything that keeps the mount busy and hands the mount out.
    fn down(&self) -> Option<extol_testkit::Mounted> {
        self.shared.open.write().unwrap_or_else(PoisonError::into_inner).clear();
        // Something that is open anywhere else takes the place of the root.
        *self.base.write().unwrap_or_else(PoisonError::into_inner) =
            open_base(std::path::Path::new("/"));
        self.shared.mount.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn base(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.base.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn fd(&self, fd: Fd) -> Result<Arc<OwnedFd>> {
        let open = self.shared.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&fd).cloned().ok_or(Errno::BADF)
    }

    fn file(&self, fd: Fd) -> Result<File> {
        self.fd(fd)?.try_clone().map(File::from).map_err(|e| errno(&e))
    }

    /// The path as one that starts at the root of everything.
    fn whole(&self, path: &str) -> String {
        format!("/proc/self/fd/{}/{path}", self.base().as_raw_fd())
    }

    fn stat_with(&self, path: &str, flags: AtFlags) -> Result<Stat> {
        statx(&self.base(), path, flags)
    }

    fn chown_with(
        &self,
        path: &str,
        uid: Option<u32>,
        gid: Option<u32>,
        flags: AtFlags,
    ) -> Result<()> {
        rustix::fs::chownat(
            self.base(),
            path,
            uid.map(Uid::from_raw),
            gid.map(Gid::from_raw),
            flags,
        )
    }
}

fn statx(base: &OwnedFd, path: &str, flags: AtFlags) -> Result<Stat> {
    let s = rustix::fs::statx(base, path, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
    let moment = |t: &rustix::fs::StatxTimestamp| (t.tv_sec, t.tv_nsec);
    Ok(Stat {
        ino: s.stx_ino,
        kind: FileType::from_raw_mode(s.stx_mode.into()),
        mode: u32::from(s.stx_mode) & 0o7777,
        nlink: s.stx_nlink,
        uid: s.stx_uid,
        gid: s.stx_gid,
        rdev: (s.stx_rdev_major, s.stx_rdev_minor),
        size: s.stx_size,
        blocks: s.stx_blocks,
        blksize: s.stx_blksize,
        atime: moment(&s.stx_atime),
        mtime: moment(&s.stx_mtime),
        ctime: moment(&s.stx_ctime),
        btime: moment(&s.stx_btime),
    })
}

fn timespec(time: Time) -> Timespec {
    match time {
        Time::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Time::Omit => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Time::At(sec, nsec) => Timespec { tv_sec: sec, tv_nsec: nsec.into() },
    }
}

impl Posix for Mounted {
    fn open(&self, path: &str, flags: OFlags, mode: u32) -> Result<Fd> {
        let flags = flags | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(self.base(), path, flags, Mode::from_raw_mode(mode))?;
        let fd = Fd(self.shared.next.fetch_add(1, Ordering::Relaxed));
        self.shared
            .open
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(fd, Arc::new(opened));
        Ok(fd)
    }

    fn close(&self, fd: Fd) {
        self.shared.open.write().unwrap_or_else(PoisonError::into_inner).remove(&fd);
    }

    fn read(&self, fd: Fd, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let n = rustix::io::read(&*self.fd(fd)?, &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn write(&self, fd: Fd, bytes: &[u8]) -> Result<usize> {
        rustix::io::write(&*self.fd(fd)?, bytes)
    }

    fn pread(&self, fd: Fd, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let n = rustix::io::pread(&*self.fd(fd)?, &mut bytes, at)?;
        bytes.truncate(n);
        Ok(bytes)
    }

    fn pwrite(&self, fd: Fd, at: u64, bytes: &[u8]) -> Result<usize> {
        self.file(fd)?.write_at(bytes, at).map_err(|e| errno(&e))
    }

    fn lseek(&self, fd: Fd, to: SeekFrom) -> Result<u64> {
        rustix::fs::seek(&*self.fd(fd)?, to)
    }

    fn ftruncate(&self, fd: Fd, size: u64) -> Result<()> {
        rustix::fs::ftruncate(&*self.fd(fd)?, size)
    }

    fn fallocate(&self, fd: Fd, mode: FallocateFlags, at: u64, len: u64) -> Result<()> {
        rustix::fs::fallocate(&*self.fd(fd)?, mode, at, len)
    }

    fn fsync(&self, fd: Fd) -> Result<()> {
        rustix::fs::fsync(&*self.fd(fd)?)
    }

    fn fdatasync(&self, fd: Fd) -> Result<()> {
        rustix::fs::fdatasync(&*self.fd(fd)?)
    }

    fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&*open_base(&self.shared.dir))?;
        match extol_fuse::control::sync(&self.shared.dir) {
            Ok(()) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                // It is no mount of Extol.
                Some(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
                number => Err(number.unwrap_or(Errno::IO)),
            },
        }
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        self.stat_with(path, AtFlags::empty())
    }

    fn lstat(&self, path: &str) -> Result<Stat> {
        self.stat_with(path, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn fstat(&self, fd: Fd) -> Result<Stat> {
        statx(&*self.fd(fd)?, "", AtFlags::EMPTY_PATH)
    }

    fn access(&self, path: &str, mode: u32) -> Result<()> {
        let mode = Access::from_bits_retain(mode);
        rustix::fs::accessat(self.base(), path, mode, AtFlags::EACCESS)
    }

    fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        rustix::fs::chmodat(self.base(), path, Mode::from_raw_mode(mode), AtFlags::empty())
    }

    fn fchmod(&self, fd: Fd, mode: u32) -> Result<()> {
        rustix::fs::fchmod(&*self.fd(fd)?, Mode::from_raw_mode(mode))
    }

    fn chown(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.chown_with(path, uid, gid, AtFlags::empty())
    }

    fn lchown(&self, path: &str, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.chown_with(path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn utimens(&self, path: &str, atime: Time, mtime: Time) -> Result<()> {
        let both = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        rustix::fs::utimensat(self.base(), path, &both, AtFlags::empty())
    }

    fn get_flags(&self, path: &str) -> Result<u32> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(self.base(), path, flags, Mode::empty())?;
        rustix::fs::ioctl_getflags(&file).map(|f| f.bits())
    }

    fn set_flags(&self, path: &str, flags: u32) -> Result<()> {
        let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(self.base(), path, how, Mode::empty())?;
        rustix::fs::ioctl_setflags(&file, IFlags::from_bits_retain(flags))
    }

    fn link(&self, from: &str, to: &str) -> Result<()> {
        let base = self.base();
        rustix::fs::linkat(&base, from, &base, to, AtFlags::empty())
    }

    fn link_fd(&self, fd: Fd, to: &str) -> Result<()> {
        let from = format!("/proc/self/fd/{}", self.fd(fd)?.as_raw_fd());
        rustix::fs::linkat(CWD, from, self.base(), to, AtFlags::SYMLINK_FOLLOW)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        rustix::fs::unlinkat(self.base(), path, AtFlags::empty())
    }

    fn rmdir(&self, path: &str) -> Result<()> {
        rustix::fs::unlinkat(self.base(), path, AtFlags::REMOVEDIR)
    }

    fn mkdir(&self, path: &str, mode: u32) -> Result<()> {
        rustix::fs::mkdirat(self.base(), path, Mode::from_raw_mode(mode))
    }

    fn mknod(&self, path: &str, kind: FileType, mode: u32, dev: (u32, u32)) -> Result<()> {
        let dev = rustix::fs::makedev(dev.0, dev.1);
        rustix::fs::mknodat(self.base(), path, kind, Mode::from_raw_mode(mode), dev)
    }

    fn symlink(&self, target: &str, path: &str) -> Result<()> {
        rustix::fs::symlinkat(target, self.base(), path)
    }

    fn readlink(&self, path: &str) -> Result<String> {
        let target = rustix::fs::readlinkat(self.base(), path, Vec::new())?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        let base = self.base();
        rustix::fs::renameat_with(&base, from, &base, to, flags)
    }

    fn setxattr(&self, path: &str, name: &str, value: &[u8], how: XattrFlags) -> Result<()> {
        rustix::fs::lsetxattr(self.whole(path), name, value, how)
    }

    fn getxattr(&self, path: &str, name: &str, room: usize) -> Result<Vec<u8>> {
        if room == 0 {
            return rustix::fs::lgetxattr_query(self.whole(path), name).map(|n| vec![0; n]);
        }
        let mut value = vec![0; room];
        let n = rustix::fs::lgetxattr(self.whole(path), name, &mut value[..])?;
        value.truncate(n);
        Ok(value)
    }

    fn listxattr(&self, path: &str, room: usize) -> Result<Vec<String>> {
        let mut names = vec![0; room];
        let n = rustix::fs::llistxattr(self.whole(path), &mut names[..])?;
        let text = String::from_utf8_lossy(&names[..n.min(room)]).into_owned();
        let mut names: Vec<String> =
            text.split('\0').filter(|n| !n.is_empty()).map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    fn removexattr(&self, path: &str, name: &str) -> Result<()> {
        rustix::fs::lremovexattr(self.whole(path), name)
    }

    fn readdir(&self, fd: Fd, count: usize) -> Result<Vec<Entry>> {
        let fd = self.fd(fd)?;
        // A small buffer, so that the kernel is asked often.
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut raw = RawDir::new(&*fd, &mut buffer);
        let mut found = Vec::new();
        while found.len() < count {
            let Some(entry) = raw.next() else { return Ok(found) };
            let entry = entry?;
            found.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                ino: entry.ino(),
                kind: entry.file_type(),
                next: entry.next_entry_cookie(),
            });
        }
        // What is left in the buffer is read again.
        if let Some(last) = found.last() {
            self.seek_to(&fd, last.next)?;
        }
        Ok(found)
    }

    fn seekdir(&self, fd: Fd, position: u64) -> Result<()> {
        self.seek_to(&*self.fd(fd)?, position)
    }

    fn statfs(&self) -> Result<Space> {
        let v = rustix::fs::fstatvfs(&*self.base())?;
        Ok(Space {
            block_size: v.f_bsize,
            blocks: v.f_blocks,
            free: v.f_bfree,
            available: v.f_bavail,
            files: v.f_files,
            files_free: v.f_ffree,
            name_max: v.f_namemax,
        })
    }

    fn map_read(&self, fd: Fd, at: u64, len: usize) -> Option<Result<Vec<u8>>> {
        let file = match self.fd(fd) {
            Ok(file) => file,
            Err(e) => return Some(Err(e)),
        };
        Some(extol_testkit::map_read(&file, at, len).map_err(|e| errno(&e)))
    }

    fn map_write(&self, fd: Fd, at: u64, bytes: &[u8]) -> Option<Result<()>> {
        let file = match self.fd(fd) {
            Ok(file) => file,
            Err(e) => return Some(Err(e)),
        };
        Some(extol_testkit::map_write(&file, at, bytes).map_err(|e| errno(&e)))
    }

    fn copy_range(&self, fd: Fd, from: u64, to: u64, len: usize) -> Option<Result<usize>> {
        let copy = |file: Arc<OwnedFd>| {
            let (mut from, mut to) = (from, to);
            rustix::fs::copy_file_range(&*file, Some(&mut from), &*file, Some(&mut to), len)
        };
        Some(self.fd(fd).and_then(copy))
    }

    fn drop_caches(&self) {
        let open = self.shared.open.read().unwrap_or_else(PoisonError::into_inner);
        for file in open.values() {
            // Only clean pages go; that is what a reader's miss needs.
            let _ = rustix::fs::fadvise(&**file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }

    fn at(&self, dir: Fd) -> Result<Box<dyn Posix>> {
        let base = RwLock::new(self.fd(dir)?);
        Ok(Box::new(Self { shared: Arc::clone(&self.shared), base }))
    }

    fn as_user(&self, caller: &Caller, work: &mut (dyn FnMut(&dyn Posix) + Send)) {
        as_user(caller.uid, caller.gid, &caller.groups, caller.umask, || work(self));
    }

    fn unmount(&self) {
        if let Some(mount) = self.down() {
            mount.unmount();
        }
    }

    fn remount(&self, how: Remount) {
        let Some(mount) = self.down() else { return };
        match how {
            Remount::Clean => mount.unmount(),
            Remount::Crash => mount.crash(),
        }
        let s = &self.shared;
        let options: Vec<&str> = s.options.iter().map(String::as_str).collect();
        let mount = s.subject.mount(&s.image, &s.dir, &options);
        *s.mount.lock().unwrap_or_else(PoisonError::into_inner) = Some(mount);
        *self.base.write().unwrap_or_else(PoisonError::into_inner) = open_base(&s.dir);
    }
}

impl Mounted {
    fn seek_to(&self, fd: &OwnedFd, position: u64) -> Result<()> {
        rustix::fs::seek(fd, SeekFrom::Start(position)).map(drop)
    }
}
