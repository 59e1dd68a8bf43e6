//! Direct I/O: requests of any alignment on a descriptor that takes only aligned ones.
//!
//! | request | handling |
//! | --- | --- |
//! | all aligned | goes to the kernel as it is |
//! | memory not aligned | through an aligned buffer, in parts of at most 1 MiB |
//! | offset or length not aligned, read | whole sectors are read |
//! | offset or length not aligned, write | edge sectors are read, changed, written back |
//!
//! The last kind excludes other writes of the same sectors meanwhile (`range_lock.rs`).
//!
//! A file whose length is no multiple of its alignment, or whose alignment is above 4096, is used
//! buffered: the same methods then pass requests on as they are.

use super::FileDevice;
use super::pool::{BOUNCE_MAX, BufferPool};
use super::transfer::{read_all, write_all};
use crate::range_lock::{Coverage, RangeLock};
use crate::{BlockDevice, DeviceError, DeviceOp, Result, check_range, check_writable, total_len};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::ops::Range;

/// The alignment that direct I/O needs, and its helpers.
#[derive(Debug)]
pub(super) struct DirectIo {
    /// Offsets and lengths are multiples of this (a power of two).
    pub(super) sector: usize,
    /// Memory begins at multiples of this (a power of two).
    pub(super) memory: usize,
    pub(super) buffers: BufferPool,
    pub(super) locks: RangeLock,
}

impl DirectIo {
    /// The whole sectors around a range.
    fn sectors(&self, offset: u64, len: u64) -> Range<u64> {
        let sector = self.sector as u64;
        offset / sector * sector..(offset + len).next_multiple_of(sector)
    }

    pub(super) fn is_whole(&self, offset: u64, len: u64) -> bool {
        (offset | len).is_multiple_of(self.sector as u64)
    }

    /// True if the kernel accepts this piece of memory.
    pub(super) fn accepts(&self, memory: &[u8]) -> bool {
        memory.as_ptr().addr().is_multiple_of(self.memory)
            && memory.len().is_multiple_of(self.sector)
    }
}

impl FileDevice {
    /// Runs a write under the range lock, if the device has one.
    pub(super) fn with_lock(
        &self,
        range: Range<u64>,
        coverage: Coverage,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _guard = self.direct.as_ref().map(|d| d.locks.lock(range, coverage));
        write()
    }

    pub(super) fn read_bufs(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let len = total_len(bufs);
        let Some(direct) = &self.direct else {
            return read_all(self.file(), bufs, offset, 1);
        };
        if direct.is_whole(offset, len) && bufs.iter().all(|b| direct.accepts(b)) {
            return read_all(self.file(), bufs, offset, direct.sector);
        }
        let mut targets: Vec<_> = bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        let mut targets = &mut targets[..];
        let sectors = direct.sectors(offset, len);
        let mut at = sectors.start;
        while at < sectors.end {
            let n = (sectors.end - at).min(BOUNCE_MAX as u64) as usize;
            let mut bounce = direct.buffers.take(n);
            read_all(self.file(), &mut [IoSliceMut::new(&mut bounce[..n])], at, direct.sector)?;
            let wanted = at.max(offset)..(at + n as u64).min(offset + len);
            let mut source = &bounce[(wanted.start - at) as usize..(wanted.end - at) as usize];
            let filled = source.read_vectored(targets)?;
            IoSliceMut::advance_slices(&mut targets, filled);
            at += n as u64;
        }
        Ok(())
    }

    pub(super) fn write_bufs(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        durable: bool,
    ) -> io::Result<()> {
        let len = total_len(bufs);
        let Some(direct) = &self.direct else {
            return write_all(self.file(), bufs, offset, 1, durable);
        };
        let sectors = direct.sectors(offset, len);
        if !direct.is_whole(offset, len) {
            return self.with_lock(sectors.clone(), Coverage::Partial, || {
                self.write_bounced(direct, bufs, offset, len, sectors, durable)
            });
        }
        self.with_lock(sectors.clone(), Coverage::Whole, || {
            if bufs.iter().all(|b| direct.accepts(b)) {
                write_all(self.file(), bufs, offset, direct.sector, durable)
            } else {
                self.write_bounced(direct, bufs, offset, len, sectors, durable)
            }
        })
    }

    /// Writes through aligned buffers. Sectors that the request covers only in part are read first.
    fn write_bounced(
        &self,
        direct: &DirectIo,
        bufs: &[IoSlice<'_>],
        offset: u64,
        len: u64,
        sectors: Range<u64>,
        durable: bool,
    ) -> io::Result<()> {
        let sector = direct.sector;
        let end = offset + len;
        let mut sources = bufs.to_vec();
        let mut sources = &mut sources[..];
        let mut at = sectors.start;
        while at < sectors.end {
            let n = (sectors.end - at).min(BOUNCE_MAX as u64) as usize;
            let mut bounce = direct.buffers.take(n);
            let wanted = at.max(offset)..(at + n as u64).min(end);
            let last = n - sector;
            if wanted.start > at {
                let edge = &mut bounce[..sector];
                read_all(self.file(), &mut [IoSliceMut::new(edge)], at, sector)?;
            }
            if wanted.end < at + n as u64 && (last > 0 || wanted.start == at) {
                let edge = &mut bounce[last..n];
                read_all(self.file(), &mut [IoSliceMut::new(edge)], at + last as u64, sector)?;
            }
            let mut target = &mut bounce[(wanted.start - at) as usize..(wanted.end - at) as usize];
            let filled = target.write_vectored(sources)?;
            IoSlice::advance_slices(&mut sources, filled);
            write_all(self.file(), &[IoSlice::new(&bounce[..n])], at, sector, durable)?;
            at += n as u64;
        }
        Ok(())
    }

    pub(super) fn write_checked(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        durable: bool,
    ) -> Result<()> {
        let len = total_len(bufs);
        check_writable(DeviceOp::Write, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Write, offset, len, BlockDevice::size(self))?;
        if len == 0 {
            return Ok(());
        }
        self.write_bufs(bufs, offset, durable)
            .map_err(|e| DeviceError::new(DeviceOp::Write, offset, len, e))
    }
}
