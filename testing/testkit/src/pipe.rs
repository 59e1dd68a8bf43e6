//! Pipes with bytes in them.

use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// A pipe that holds these bytes, and its other end; neither blocks, as those of a mount.
///
/// # Errors
/// If there is no pipe so large to be had.
pub fn holding(bytes: &[u8]) -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK)?;
    fcntl_setpipe_size(&writer, bytes.len())?;
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[rustix::io::write(&writer, rest)?..];
    }
    Ok((reader, writer))
}
