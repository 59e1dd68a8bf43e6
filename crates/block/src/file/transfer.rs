//! Reads and writes, repeated until all bytes are moved.
//!
//! A system call may move fewer bytes than asked, may be interrupted by a signal, and takes at most
//! 1024 buffers. With direct I/O a short count is rounded down to whole sectors, so that the rest
//! is aligned.

use crate::sys;
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

/// Most buffers in one call (`IOV_MAX`).
pub(super) const MAX_BUFFERS: usize = 1024;

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Fills all buffers from `offset`. `unit`: progress is counted in multiples of this.
pub(super) fn read_all(
    file: &File,
    bufs: &mut [IoSliceMut<'_>],
    mut offset: u64,
    unit: usize,
) -> io::Result<()> {
    let mut copies: Vec<IoSliceMut<'_>> = bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
    let mut rest = &mut copies[..];
    IoSliceMut::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let batch = rest.len().min(MAX_BUFFERS);
        let n = retry(|| rustix::io::preadv(file, &mut rest[..batch], offset))?;
        let n = n / unit * unit;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is shorter than when it was opened",
            ));
        }
        IoSliceMut::advance_slices(&mut rest, n);
        offset += n as u64;
    }
    Ok(())
}

/// Writes all buffers at `offset`; `durable`: with `RWF_DSYNC`.
pub(super) fn write_all(
    file: &File,
    bufs: &[IoSlice<'_>],
    mut offset: u64,
    unit: usize,
    durable: bool,
) -> io::Result<()> {
    let mut copies: Vec<IoSlice<'_>> = bufs.iter().map(|b| IoSlice::new(b)).collect();
    let mut rest = &mut copies[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let batch = &rest[..rest.len().min(MAX_BUFFERS)];
        let n = if durable {
            retry(|| sys::write_durably(file, batch, offset))?
        } else {
            retry(|| rustix::io::pwritev(file, batch, offset))?
        };
        let n = n / unit * unit;
        if n == 0 {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "the kernel wrote nothing"));
        }
        IoSlice::advance_slices(&mut rest, n);
        offset += n as u64;
    }
    Ok(())
}
