//! Names, and what attributes they lead to.

use std::ffi::{c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use extol::Ext4;
use extol::vfs::{
    Attr, FileSystem as _, NewNode, Rdev, RenameFlags, SetAttr, SetTime, Timestamp, XattrSet,
};

use crate::failure::{Failure, Result, call, done};
use crate::files;
use crate::given;
use crate::volume::extol_fs;

/// A point in time, seconds since 1970.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_time {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds, 0 to 999999999; for extol_utimens() EXTOL_UTIME_NOW or EXTOL_UTIME_OMIT as
    /// well.
    pub nsec: u32,
}

/// In `nsec`: the present moment.
pub const EXTOL_UTIME_NOW: u32 = (1 << 30) - 1;
/// In `nsec`: leave this time alone.
pub const EXTOL_UTIME_OMIT: u32 = (1 << 30) - 2;

/// Attributes of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extol_stat {
    /// Inode number.
    pub ino: u32,
    /// Its generation, another one each time the number is used.
    pub generation: u32,
    /// What it is (S_IFREG and so on), and permission bits, as Linux has them in st_mode.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Of a device file: the major number.
    pub rdev_major: u32,
    /// Of a device file: the minor number.
    pub rdev_minor: u32,
    /// Flags, as of chattr(1).
    pub flags: u32,
    /// Project.
    pub project: u32,
    /// Bytes of a block, in which reads and writes are best.
    pub blksize: u32,
    /// Last access.
    pub atime: extol_time,
    /// Last change of the contents.
    pub mtime: extol_time,
    /// Last change of the inode.
    pub ctime: extol_time,
    /// Creation; 0 if the inode is too small to have it.
    pub crtime: extol_time,
}

impl extol_stat {
    pub(crate) fn of(attr: &Attr) -> Self {
        let time = |at: Timestamp| extol_time { sec: at.sec, nsec: at.nsec };
        Self {
            ino: attr.id.ino,
            generation: attr.id.generation,
            mode: attr.mode(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            blocks: attr.blocks,
            rdev_major: attr.rdev.major,
            rdev_minor: attr.rdev.minor,
            flags: attr.flags,
            project: attr.project,
            blksize: attr.blksize,
            atime: time(attr.atime),
            mtime: time(attr.mtime),
            ctime: time(attr.ctime),
            crtime: time(attr.crtime),
        }
    }
}

/// Does work on what a path leads to. A failure names the path.
///
/// # Safety
/// As [`given::held`] and [`given::path`].
pub(crate) unsafe fn on<T>(
    fs: *const extol_fs,
    path: *const c_char,
    work: impl FnOnce(&Arc<Ext4>, &Path) -> Result<T>,
) -> Result<T> {
    // SAFETY: by the contract.
    let (fs, path) = unsafe { (given::held(fs, "the volume")?, given::path(path)?) };
    work(&fs.0, path).map_err(|failure| failure.about(&[path]))
}

/// Does the work of a function of one path.
///
/// # Safety
/// As [`on`].
unsafe fn at(
    fs: *const extol_fs,
    path: *const c_char,
    work: impl FnOnce(&Arc<Ext4>, &Path) -> Result<()>,
) -> i32 {
    // SAFETY: by the contract.
    done(|| unsafe { on(fs, path, work) })
}

/// The same of two paths.
///
/// # Safety
/// As [`on`].
unsafe fn at_both(
    fs: *const extol_fs,
    (one, other): (*const c_char, *const c_char),
    work: impl FnOnce(&Arc<Ext4>, &Path, &Path) -> Result<()>,
) -> i32 {
    done(|| {
        // SAFETY: by the contract.
        let fs = unsafe { given::held(fs, "the volume") }?;
        // SAFETY: by the contract.
        let (one, other) = unsafe { (given::path(one)?, given::path(other)?) };
        work(&fs.0, one, other).map_err(|failure| failure.about(&[one, other]))
    })
}

pub(crate) fn set_mode(fs: &Ext4, ino: u32, mode: u32) -> Result<()> {
    let perm = Some((mode & 0o7777) as u16);
    Ok(fs.setattr(ino, &SetAttr { perm, ..SetAttr::default() }).map(drop)?)
}

/// Puts the attributes that `read` finds.
///
/// # Safety
/// As [`at`] and [`given::put`].
unsafe fn stat_at(
    fs: *const extol_fs,
    path: *const c_char,
    out: *mut extol_stat,
    read: impl FnOnce(&Arc<Ext4>, &Path) -> extol::vfs::Result<Attr>,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| given::put(out, extol_stat::of(&read(fs, path)?))) }
}

/// Attributes of what a path leads to.
///
/// # Safety
/// `fs` is open; `path` ends with a zero; `out` has room for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_stat(
    fs: *const extol_fs,
    path: *const c_char,
    out: *mut extol_stat,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { stat_at(fs, path, out, |fs, path| fs.metadata(path)) }
}

/// Attributes of what a path names: of a symbolic link itself.
///
/// # Safety
/// As extol_stat().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_lstat(
    fs: *const extol_fs,
    path: *const c_char,
    out: *mut extol_stat,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { stat_at(fs, path, out, |fs, path| fs.symlink_metadata(path)) }
}

/// Makes a directory, which belongs to root.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_mkdir(fs: *const extol_fs, path: *const c_char, mode: u32) -> i32 {
    let perm = (mode & 0o7777) as u16;
    // SAFETY: by the contract.
    unsafe {
        at(fs, path, |fs, path| {
            Ok(fs.create_node(path, NewNode::Directory, perm, files::root()).map(drop)?)
        })
    }
}

/// Makes a device file, a named pipe, a socket or an empty file, as `mode` says (S_IFCHR and so on,
/// with permission bits). `major` and `minor` count for device files.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_mknod(
    fs: *const extol_fs,
    path: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
) -> i32 {
    let rdev = Rdev { major, minor };
    let perm = (mode & 0o7777) as u16;
    // SAFETY: by the contract.
    unsafe {
        at(fs, path, |fs, path| {
            let no_such = || Failure::invalid(format_args!("mode {mode:#o} is no such file"));
            let new = NewNode::of_mode(mode, rdev).ok_or_else(no_such)?;
            Ok(fs.create_node(path, new, perm, files::root()).map(drop)?)
        })
    }
}

/// Removes an empty directory.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_rmdir(fs: *const extol_fs, path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_dir(path)?)) }
}

/// Removes the name of a file or symbolic link.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_unlink(fs: *const extol_fs, path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_file(path)?)) }
}

/// Removes whatever a path names, a directory with all that is in it. Links are removed, not
/// followed.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_remove_all(fs: *const extol_fs, path: *const c_char) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_dir_all(path)?)) }
}

/// For extol_rename(): fail if the new name is there.
pub const EXTOL_RENAME_NOREPLACE: u32 = 1;
/// For extol_rename(): exchange the two names.
pub const EXTOL_RENAME_EXCHANGE: u32 = 2;

/// Renames; `flags` is 0 or one of those above.
///
/// # Safety
/// `fs` is open; both paths end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_rename(
    fs: *const extol_fs,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> i32 {
    // SAFETY: by the contract.
    unsafe {
        at_both(fs, (from, to), |fs, from, to| {
            let flags = RenameFlags::from_bits(flags)
                .ok_or_else(|| Failure::invalid(format_args!("unknown flags: {flags:#x}")))?;
            Ok(fs.rename_with(from, to, flags)?)
        })
    }
}

/// Gives a file a second name. A symbolic link gets it itself.
///
/// # Safety
/// `fs` is open; both paths end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_link(
    fs: *const extol_fs,
    original: *const c_char,
    path: *const c_char,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { at_both(fs, (original, path), |fs, original, path| Ok(fs.hard_link(original, path)?)) }
}

/// Makes a symbolic link at `path` to `target`.
///
/// # Safety
/// `fs` is open; both texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_symlink(
    fs: *const extol_fs,
    target: *const c_char,
    path: *const c_char,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { at_both(fs, (target, path), |fs, target, path| Ok(fs.symlink(target, path)?)) }
}

/// The target of a symbolic link, without a zero behind it. Returns its length; with a `len` of 0
/// nothing else. ERANGE if the buffer is too short.
///
/// # Safety
/// `fs` is open; `path` ends with a zero; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_readlink(
    fs: *const extol_fs,
    path: *const c_char,
    buffer: *mut c_void,
    len: usize,
) -> isize {
    let work = |fs: &Arc<Ext4>, path: &Path| {
        let target = fs.read_link(path)?;
        // SAFETY: by the contract.
        unsafe { given::copy(target.as_os_str().as_bytes(), buffer, len) }
    };
    // SAFETY: by the contract.
    call(-1, || unsafe { on(fs, path, work) })
}

/// Sets the permission bits.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_chmod(fs: *const extol_fs, path: *const c_char, mode: u32) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.set_permissions(path, (mode & 0o7777) as u16)?)) }
}

/// An id, or none for -1.
fn id(number: u32) -> Option<u32> {
    (number != u32::MAX).then_some(number)
}

/// Sets owner and group; (uint32_t)-1 leaves one alone.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_chown(
    fs: *const extol_fs,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.chown(path, id(uid), id(gid))?)) }
}

/// The same, for a symbolic link itself.
///
/// # Safety
/// As extol_chown().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_lchown(
    fs: *const extol_fs,
    path: *const c_char,
    uid: u32,
    gid: u32,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.lchown(path, id(uid), id(gid))?)) }
}

/// Sets the time of last access and that of the last change of the contents.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_utimens(
    fs: *const extol_fs,
    path: *const c_char,
    atime: extol_time,
    mtime: extol_time,
) -> i32 {
    let set = |at: extol_time| match at.nsec {
        EXTOL_UTIME_OMIT => Ok(None),
        EXTOL_UTIME_NOW => Ok(Some(SetTime::Now)),
        nsec @ 0..1_000_000_000 => Ok(Some(SetTime::At(Timestamp { sec: at.sec, nsec }))),
        nsec => Err(Failure::invalid(format_args!("{nsec} nanoseconds"))),
    };
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.set_times(path, set(atime)?, set(mtime)?)?)) }
}

/// Sets the size of a file: cuts the end off, or adds a hole.
///
/// # Safety
/// `fs` is open; `path` ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_truncate(
    fs: *const extol_fs,
    path: *const c_char,
    size: u64,
) -> i32 {
    // SAFETY: by the contract.
    unsafe {
        at(fs, path, |fs, path| {
            let file = fs.open_file(path, extol::OpenOptions::new().write(true))?;
            Ok(file.set_len(size)?)
        })
    }
}

/// The value of an extended attribute, by its full name ("user.x"). Returns its length; with a
/// `len` of 0 nothing else. ERANGE if the buffer is too short, ENODATA if there is no such
/// attribute.
///
/// # Safety
/// `fs` is open; `path` and `name` end with a zero; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_getxattr(
    fs: *const extol_fs,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    len: usize,
) -> isize {
    let work = |fs: &Arc<Ext4>, path: &Path| {
        // SAFETY: by the contract.
        let name = unsafe { given::bytes(name, "the name") }?;
        let value = fs.get_xattr(path, name)?;
        // SAFETY: by the contract.
        unsafe { given::copy(&value, buffer, len) }
    };
    // SAFETY: by the contract.
    call(-1, || unsafe { on(fs, path, work) })
}

/// For extol_setxattr(): fail if the attribute is there.
pub const EXTOL_XATTR_CREATE: i32 = 1;
/// For extol_setxattr(): fail if it is not.
pub const EXTOL_XATTR_REPLACE: i32 = 2;

/// Sets an extended attribute; `flags` is 0 or one of those above.
///
/// # Safety
/// `fs` is open; `path` and `name` end with a zero; `value` has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_setxattr(
    fs: *const extol_fs,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    len: usize,
    flags: i32,
) -> i32 {
    // SAFETY: by the contract.
    unsafe {
        at(fs, path, |fs, path| {
            let (name, value) = (given::bytes(name, "the name")?, given::buffer(value, len)?);
            let how = match flags {
                0 => XattrSet::Any,
                EXTOL_XATTR_CREATE => XattrSet::Create,
                EXTOL_XATTR_REPLACE => XattrSet::Replace,
                _ => return Err(Failure::invalid(format_args!("unknown flags: {flags:#x}"))),
            };
            Ok(fs.set_xattr(path, name, value, how)?)
        })
    }
}

/// The full names of all extended attributes, each with a zero behind it. Returns the length of
/// all; with a `len` of 0 nothing else. ERANGE if the buffer is too short.
///
/// # Safety
/// `fs` is open; `path` ends with a zero; `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_listxattr(
    fs: *const extol_fs,
    path: *const c_char,
    buffer: *mut c_void,
    len: usize,
) -> isize {
    let work = |fs: &Arc<Ext4>, path: &Path| {
        let mut list = Vec::new();
        for name in fs.list_xattrs(path)? {
            list.extend(name);
            list.push(0);
        }
        // SAFETY: by the contract.
        unsafe { given::copy(&list, buffer, len) }
    };
    // SAFETY: by the contract.
    call(-1, || unsafe { on(fs, path, work) })
}

/// Removes an extended attribute.
///
/// # Safety
/// `fs` is open; `path` and `name` end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_removexattr(
    fs: *const extol_fs,
    path: *const c_char,
    name: *const c_char,
) -> i32 {
    // SAFETY: by the contract.
    unsafe { at(fs, path, |fs, path| Ok(fs.remove_xattr(path, given::bytes(name, "the name")?)?)) }
}
