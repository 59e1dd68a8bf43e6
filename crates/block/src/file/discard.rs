//! Discards and zeroes ranges, in the kernel where it can.

use super::FileDevice;
use super::pool::BOUNCE_MAX;
use super::transfer::retry;
use crate::aligned::AlignedBuf;
use crate::range_lock::Coverage;
use crate::{DeviceError, DeviceOp, Result, sys};
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

impl FileDevice {
    /// Discards the whole units in a range.
    pub(super) fn discard_units(&self, offset: u64, len: u64) -> Result<()> {
        let range = self.inner_units(offset, len);
        if range.is_empty() {
            return Ok(());
        }
        let (start, bytes) = (range.start, range.end - range.start);
        self.with_lock(range, Coverage::Partial, || {
            if self.is_block_device {
                return self.past_the_page_cache(|| {
                    Ok(retry(|| sys::discard_block_device(self.file(), start, bytes))?)
                });
            }
            Ok(retry(|| sys::punch_hole(self.file(), start, bytes))?)
        })
        .map_err(|e| {
            let unsupported = rustix::io::Errno::from_io_error(&e).is_some_and(is_unsupported);
            let e = if unsupported {
                io::Error::new(io::ErrorKind::Unsupported, e.to_string())
            } else {
                e
            };
            DeviceError::new(DeviceOp::Discard, offset, len, e)
        })
    }

    /// Zeroes a range: whole units in the kernel if it can, the rest by writes.
    pub(super) fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let all = offset..offset + len;
        let inner = self.inner_units(offset, len);
        if inner.is_empty() {
            return self.write_zeros(all);
        }
        let mut done = false;
        self.with_lock(inner.clone(), Coverage::Partial, || {
            done = self.zero_in_kernel(inner.clone())?;
            Ok(())
        })?;
        if !done {
            return self.write_zeros(all);
        }
        self.write_zeros(all.start..inner.start)?;
        self.write_zeros(inner.end..all.end)
    }

    /// The part of the range that the kernel can discard or zero.
    fn inner_units(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset.next_multiple_of(self.unit);
        start..((offset + len) / self.unit * self.unit).max(start)
    }

    /// Zeroes whole units in the kernel. `Ok(false)`: it cannot.
    fn zero_in_kernel(&self, range: Range<u64>) -> io::Result<bool> {
        let (offset, len) = (range.start, range.end - range.start);
        // In a file a hole reads as zeros and keeps the image sparse; the second mode allocates
        // without writing. A block device takes the first only if it can unmap to zeros, the second
        // always.
        for zero in [sys::punch_hole, sys::zero_range] {
            let done = self.past_the_page_cache(|| Ok(retry(|| zero(self.file(), offset, len))?));
            match done.map_err(|e| (rustix::io::Errno::from_io_error(&e), e)) {
                Ok(()) => return Ok(true),
                Err((Some(code), _)) if is_unsupported(code) || code == rustix::io::Errno::BUSY => {
                }
                Err((_, e)) => return Err(e),
            }
        }
        Ok(false)
    }

    /// Discards or zeroes a part of a block device whose claim another file or the kernel holds:
    /// Linux then refuses (EBUSY) while pages of that part are dirty, so they are written first.
    fn past_the_page_cache(&self, change: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match change() {
            Err(e) if self.is_block_device && e.kind() == io::ErrorKind::ResourceBusy => {
                self.file().sync_data()?;
                change()
            }
            result => result,
        }
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        let len = range.end - range.start;
        let zeros = AlignedBuf::new(len.min(BOUNCE_MAX as u64) as usize, 4096);
        let mut at = range.start;
        while at < range.end {
            let n = (range.end - at).min(zeros.len() as u64);
            self.write_bufs(&[IoSlice::new(&zeros[..n as usize])], at, false)?;
            at += n;
        }
        Ok(())
    }
}

/// True if a call failed because the file or the system lacks it.
pub(super) fn is_unsupported(e: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::OPNOTSUPP, Errno::NOTSUP, Errno::NOSYS, Errno::INVAL];
    lacks.contains(&e) || [Errno::NODEV, Errno::NOTTY].contains(&e)
}

/// The largest discard of a disk, 0 if it has none; `None` if it is unknown.
pub(super) fn max_discard(disk: &File) -> Option<u64> {
    queue_attribute(disk, "discard_max_bytes")
}

/// An attribute of a disk's queue in sysfs.
pub(super) fn queue_attribute(disk: &File, name: &str) -> Option<u64> {
    let number = extol_proc::DeviceNumber::of(disk.metadata().ok()?.rdev());
    let device = PathBuf::from(format!("/sys/dev/block/{number}"));
    // A partition has the queue of its disk.
    let queue = [device.join("queue"), device.join("../queue")];
    queue.iter().find_map(|queue| extol_proc::read_number(queue.join(name)))
}
