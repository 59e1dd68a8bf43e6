//! System calls without a safe wrapper: `BLKDISCARD`, `ioprio_set` and `ioprio_get`.
//! This and `file/uring.rs` hold the `unsafe` code of devices.

use std::fs::File;
use std::io;

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
