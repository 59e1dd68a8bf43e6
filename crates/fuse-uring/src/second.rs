//! A second descriptor for the requests of a mount.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/fuse";
/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// A descriptor of the same connection as `device` whose reads never wait: `EAGAIN` where there is
/// nothing to read. What is read from it must be answered through it.
///
/// # Errors
/// If the device cannot be opened again, or the kernel does not know the request.
pub fn second(device: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let new = File::options().read(true).write(true).custom_flags(flags).open(DEVICE)?;
    let number =
        u32::try_from(device.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the request reads one u32 through its argument, which `Setter` passes as a pointer to
    // one that lives through the call, and writes nothing to this process's memory. Both
    // descriptors are open. On something else than a FUSE device it fails.
    #[allow(unsafe_code)]
    unsafe {
        rustix::ioctl::ioctl(&new, rustix::ioctl::Setter::<CLONE, u32>::new(number))?;
    }
    Ok(new.into())
}
