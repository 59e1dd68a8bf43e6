//! The calls of Linux. Those without a safe wrapper are `BLKDISCARD`, `ioprio_set`, `ioprio_get`,
//! and locks of ranges (`F_OFD_SETLK`, `F_OFD_GETLK`): this and `file/uring.rs` hold the `unsafe`
//! code of devices.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::{Advice, AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::ReadWriteFlags;

use super::RangeLock;

/// A lock of a range belongs to the open file, and leaves its flock(2) alone.
pub(crate) const HAS_RANGE_LOCKS: bool = true;

/// Opens a block device so that no mount, no swap and no other such open is beside this one. Fails
/// with EBUSY if there is one.
pub(crate) fn open_exclusively(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(path)
}

/// The size of a block device's sectors, in bytes.
pub(crate) fn sector_size(device: &File) -> Option<u32> {
    rustix::fs::ioctl_blksszget(device).ok()
}

/// Makes all further I/O of an open file direct, or buffered.
pub(crate) fn set_direct(file: &File, direct: bool) -> rustix::io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    rustix::fs::fcntl_setfl(file, flags)
}

/// What direct I/O needs as alignment, of offsets and lengths and of memory, in bytes; 0 if there
/// is no direct I/O. `None`: the kernel does not tell.
pub(crate) fn direct_alignments(file: &File) -> Option<(usize, usize)> {
    let stat = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    (stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
        .then_some((stat.stx_dio_offset_align as usize, stat.stx_dio_mem_align as usize))
}

/// Writes at an offset as pwritev(2), and makes that durable (`RWF_DSYNC`).
pub(crate) fn write_durably(
    file: &File,
    bufs: &[IoSlice<'_>],
    offset: u64,
) -> rustix::io::Result<usize> {
    rustix::io::pwritev2(file, bufs, offset, ReadWriteFlags::DSYNC)
}

/// Makes a hole, and keeps the size.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, mode, offset, len)
}

/// Zeroes without writing, and keeps the size and what is allocated.
pub(crate) fn zero_range(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, mode, offset, len)
}

/// Drops the clean pages of a file from the page cache.
pub(crate) fn drop_clean_pages(file: &File) {
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// The number of the calling thread.
pub(crate) fn own_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// `_IO(0x12, 119)` of `<linux/fs.h>`.
const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);

/// Discards `len` bytes at `offset` of the block device `file`; both must be multiples of its
/// sector size.
pub(crate) fn discard_block_device(file: &File, offset: u64, len: u64) -> rustix::io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 (offset, length) through its argument, which `Setter` passes
    // as a pointer to this array, valid for the whole call; the kernel writes nothing back. `file`
    // is an open descriptor. On something else than a block device the call fails with ENOTTY and
    // touches no memory.
    #[allow(unsafe_code)]
    unsafe {
        let request = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        rustix::ioctl::ioctl(file, request)
    }
}

/// `IOPRIO_WHO_PROCESS`: one thread, by its id.
const ONE_THREAD: libc::c_int = 1;

/// The I/O priority of a thread, as the kernel's number.
pub(crate) fn io_priority(thread: i32) -> io::Result<i32> {
    // SAFETY: ioprio_get takes two integers and touches no memory of this process.
    #[allow(unsafe_code)]
    let got = unsafe { libc::syscall(libc::SYS_ioprio_get, ONE_THREAD, thread) };
    i32::try_from(got).ok().filter(|n| *n >= 0).ok_or_else(io::Error::last_os_error)
}

/// Sets the I/O priority of a thread, as the kernel's number.
pub(crate) fn set_io_priority(thread: i32, priority: i32) -> io::Result<()> {
    // SAFETY: ioprio_set takes three integers and touches no memory of this process.
    #[allow(unsafe_code)]
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, ONE_THREAD, thread, priority) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Locks a range of a file for this open file (not for the process), or fails at once.
pub(crate) fn lock_range(file: &File, range: &Range<u64>, lock: RangeLock) -> io::Result<()> {
    let kind = match lock {
        RangeLock::Shared => libc::F_RDLCK,
        RangeLock::Exclusive => libc::F_WRLCK,
        RangeLock::Unlocked => libc::F_UNLCK,
    };
    let request = lock_request(kind, range)?;
    // SAFETY: F_OFD_SETLK reads one `struct flock` through the pointer, which is valid for the
    // whole call, and writes nothing back. `file` is an open descriptor.
    #[allow(unsafe_code)]
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const request) };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// True if another open file has a lock of any kind on something of the range.
pub(crate) fn is_range_locked(file: &File, range: &Range<u64>) -> io::Result<bool> {
    let mut request = lock_request(libc::F_WRLCK, range)?;
    // SAFETY: F_OFD_GETLK reads and writes one `struct flock` through the pointer, which is valid
    // for the whole call and not shared. `file` is an open descriptor.
    #[allow(unsafe_code)]
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut request) };
    if done == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::c_int::from(request.l_type) != libc::F_UNLCK)
}

/// Where file sizes have 32 bits, everything behind them is one range: two locks there meet each
/// other although their ranges do not.
fn lock_request(kind: libc::c_int, range: &Range<u64>) -> io::Result<libc::flock> {
    let most = |bytes: u64| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    let (start, end) = (most(range.start), most(range.end));
    Ok(libc::flock {
        l_type: libc::c_short::try_from(kind).map_err(io::Error::other)?,
        l_whence: 0, // SEEK_SET
        l_start: start,
        // 0 is "to the end, however long the file becomes".
        l_len: if end == libc::off_t::MAX { 0 } else { end - start },
        l_pid: 0,
    })
}
