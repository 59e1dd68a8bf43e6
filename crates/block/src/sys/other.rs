//! What there is in place of the calls of Linux.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::Path;

use rustix::io::Errno;

use super::RangeLock;

/// None: a lock of fcntl(2) belongs to the process, and meets its own flock(2) on these systems. An
/// open of a part locks the whole image instead.
pub(crate) const HAS_RANGE_LOCKS: bool = false;

pub(crate) fn lock_range(_file: &File, _range: &Range<u64>, _lock: RangeLock) -> io::Result<()> {
    Err(Errno::OPNOTSUPP.into())
}

pub(crate) fn is_range_locked(_file: &File, _range: &Range<u64>) -> io::Result<bool> {
    Ok(false)
}

/// Block devices are not written: nothing here keeps a mount of the kernel away from them.
pub(crate) fn open_exclusively(_path: &Path) -> io::Result<File> {
    let why = "this system's block devices cannot be written, only disk images";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

pub(crate) fn sector_size(_device: &File) -> Option<u32> {
    None
}

pub(crate) fn set_direct(_file: &File, _direct: bool) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn direct_alignments(_file: &File) -> Option<(usize, usize)> {
    None
}

pub(crate) fn write_durably(
    _file: &File,
    _bufs: &[IoSlice<'_>],
    _offset: u64,
) -> rustix::io::Result<usize> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn punch_hole(_file: &File, _offset: u64, _len: u64) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn zero_range(_file: &File, _offset: u64, _len: u64) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

pub(crate) fn discard_block_device(
    _file: &File,
    _offset: u64,
    _len: u64,
) -> rustix::io::Result<()> {
    Err(Errno::OPNOTSUPP)
}

/// Keeps it: what is read after a failed flush may not be on the medium.
pub(crate) fn drop_clean_pages(_file: &File) {}

/// Threads have no numbers here that a priority could be set by.
pub(crate) fn own_thread() -> i32 {
    0
}

pub(crate) fn io_priority(_thread: i32) -> io::Result<i32> {
    Err(Errno::OPNOTSUPP.into())
}

pub(crate) fn set_io_priority(_thread: i32, _priority: i32) -> io::Result<()> {
    Err(Errno::OPNOTSUPP.into())
}
