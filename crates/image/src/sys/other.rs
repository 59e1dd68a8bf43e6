//! What there is in place of the calls of Linux.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;

use crate::tree::XattrSet;

/// How a directory is opened that others are opened below: it must be readable.
pub(crate) const DIR_HANDLE: OFlags = OFlags::RDONLY;

/// The number of a file's device, as `MetadataExt::dev` gives it: the type of the field has another
/// width and sign on each system.
pub(crate) fn device(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

/// No file is made without a name.
pub(crate) fn open_unnamed(_dir: &Path) -> rustix::io::Result<OwnedFd> {
    Err(Errno::OPNOTSUPP)
}

/// None: attributes of other systems have other names than those of ext4.
pub(crate) fn read_xattrs(_fd: &OwnedFd, _name: &CStr) -> rustix::io::Result<XattrSet> {
    Ok(XattrSet::new())
}
