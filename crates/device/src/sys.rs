//! Ioctls that have no safe wrapper. This and `file/uring.rs` hold all `unsafe` code of the project.
//!
//! There is one, `BLKDISCARD`. (Size and sector size come from `lseek` and `BLKSSZGET`, zeroing of block devices
//! from `fallocate`; these have safe faces.)

use std::fs::File;
use std::io;

/// `_IO(0x12, 119)` of `<linux/fs.h>`.
const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);

/// Discards `len` bytes at `offset` of the block device `file`; both must be multiples of its sector size.
pub(crate) fn discard_block_device(file: &File, offset: u64, len: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64 (offset, length) through its argument, which `Setter` passes as a pointer
    // to this array, valid for the whole call; the kernel writes nothing back. `file` is an open descriptor. On
    // something else than a block device the call fails with ENOTTY and touches no memory.
    #[allow(unsafe_code)]
    unsafe {
        let request = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len]);
        rustix::ioctl::ioctl(file, request)?;
    }
    Ok(())
}
