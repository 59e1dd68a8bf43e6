//! Taking bytes out of pipes that are known to hold them.
//!
//! Nobody fills such a pipe meanwhile, so an empty one is an error, not a reason to wait: its ends
//! do not block.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};

use crate::aligned::{AlignedBuf, BOUNCE_MAX};

/// Fills `buf` with the next bytes of the pipe.
///
/// # Errors
/// If it holds fewer.
pub fn take(pipe: BorrowedFd<'_>, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match rustix::io::read(pipe, &mut *buf) {
            Ok(0) => return Err(too_few()),
            Ok(n) => buf = &mut buf[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(too_few()),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Hands the next `len` bytes of the pipe to `each` in aligned parts, each with how many were
/// before it.
pub(crate) fn in_parts<E>(
    pipe: BorrowedFd<'_>,
    len: usize,
    failed: impl Fn(io::Error) -> E,
    mut each: impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut memory = AlignedBuf::new(len.min(BOUNCE_MAX), 4096);
    let mut done = 0;
    while done < len {
        let part = (len - done).min(BOUNCE_MAX);
        take(pipe, &mut memory[..part]).map_err(&failed)?;
        each(&memory[..part], done as u64)?;
        done += part;
    }
    Ok(())
}

/// Moves the next `len` bytes of the pipe to a file at `offset`. Gives how many; the kernel does
/// not move the next ones this way.
pub(crate) fn splice_to(
    pipe: BorrowedFd<'_>,
    file: &File,
    len: usize,
    offset: u64,
) -> io::Result<usize> {
    let mut at = offset;
    let end = offset + len as u64;
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        // (It moves `at`, and not on an error.)
        match splice(pipe, None, file, Some(&mut at), left, SpliceFlags::NONBLOCK) {
            Ok(0) | Err(Errno::AGAIN) => return Err(too_few()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok((at - offset) as usize)
}

fn too_few() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the pipe holds less than was said")
}
