//! The calls of Linux.

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{self, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::tree::XattrSet;

/// How a directory is opened that others are opened below: it need not be readable.
pub(crate) const DIR_HANDLE: OFlags = OFlags::PATH;

/// The number of a file's device, as `MetadataExt::dev` gives it.
pub(crate) fn device(stat: &Stat) -> u64 {
    stat.st_dev
}

/// A file in a directory that has no name there.
pub(crate) fn open_unnamed(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    fs::open(dir, flags, Mode::RUSR | Mode::WUSR)
}

/// Extended attributes that ext4 keeps by their names.
fn is_copied(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The attributes of a file. Links are not followed; there is no system call that takes a directory
/// and a name, so `/proc` gives the directory a path.
pub(crate) fn read_xattrs(fd: &OwnedFd, name: &CStr) -> rustix::io::Result<XattrSet> {
    let mut path = format!("/proc/self/fd/{}/", fd.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    let list = match growing(|buf| fs::llistxattr(&*path, buf)) {
        Ok(list) => list,
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(XattrSet::new()),
        Err(error) => return Err(error),
    };
    let mut set = XattrSet::new();
    for attr in list.split(|&byte| byte == 0).filter(|attr| is_copied(attr)) {
        match growing(|buf| fs::lgetxattr(&*path, attr, buf)) {
            Ok(value) => set.push((attr.into(), value.into())),
            // Gone meanwhile, or not for this user to read.
            Err(Errno::NODATA | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(set)
}

/// Calls with a buffer that is large enough.
fn growing(call: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buf = vec![0; 512];
    loop {
        match call(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            // Linux has no attribute, and no list of them, that is longer.
            Err(Errno::RANGE) if buf.len() < 1 << 16 => buf = vec![0; 1 << 16],
            Err(error) => return Err(error),
        }
    }
}
