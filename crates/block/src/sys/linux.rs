//! System calls without a safe wrapper: `BLKDISCARD`, `ioprio_set`, `ioprio_get`, and locks of
//! ranges (`F_OFD_SETLK`, `F_OFD_GETLK`).
//! This and `file/uring.rs` hold the `unsafe` code of devices.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;

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

/// A lock on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeLock {
    /// Beside other shared ones.
    Shared,
    /// Alone. The file must be open for writing.
    Exclusive,
    /// None any more.
    Unlocked,
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

fn lock_request(kind: libc::c_int, range: &Range<u64>) -> io::Result<libc::flock> {
    let most = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let (start, end) = (most(range.start), most(range.end));
    Ok(libc::flock {
        l_type: libc::c_short::try_from(kind).map_err(io::Error::other)?,
        l_whence: 0, // SEEK_SET
        l_start: start,
        // 0 is "to the end, however long the file becomes".
        l_len: if end == i64::MAX { 0 } else { end - start },
        l_pid: 0,
    })
}
