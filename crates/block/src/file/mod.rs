//! Disk images and block devices.
//!
//! *Opening* (`open.rs`) finds out what the path is, takes it away from others (`busy.rs`:
//! exclusive open, advisory lock, claims of loop devices), measures it and settles, once and for
//! all requests, whether I/O is direct.
//!
//! *Opening again* for writing ([`BlockDevice::make_writable`]): a device that was opened read-only
//! gets a second descriptor, and its locks become a writer's in place, so that no other writer
//! comes in between.
//!
//! *Direct I/O* bypasses the page cache: what the layers above cache is not cached twice, and a
//! write error reaches the write that caused it. The kernel wants offsets, lengths and memory
//! aligned:
//!
//! | request | what happens |
//! | --- | --- |
//! | all aligned | goes to the kernel as it is |
//! | memory not aligned | through an aligned buffer, in parts of at most 1 MiB |
//! | offset or length not aligned | read: whole sectors are read; write: the sectors at the edges are read, changed and written back, apart from other writes to them (`range_lock.rs`) |
//!
//! A file whose length is no multiple of its alignment, or whose alignment is above 4096, is used
//! buffered. Direct and buffered requests are never mixed on one device.
//!
//! *Scattered batches* (`scattered.rs`) of a direct device go to the kernel together through
//! io_uring (`uring.rs`) where it may be used, else one by one.
//!
//! *Flushes* of several threads are merged (`coalesce.rs`). A FUA write is a write with
//! `RWF_DSYNC`. It is a write and a flush where the kernel does not know that, and on a direct
//! block device if it is a call of its own: there Linux makes the write itself durable (with a
//! flush of its own where the device knows no FUA) and then flushes all the same, so the flag costs
//! a trip to the medium more. Writes through io_uring do not get that second flush, so batches have
//! the flag on block devices, too.

mod busy;
mod holder;
mod open;
mod scattered;
mod transfer;
mod uring;

#[cfg(test)]
mod tests;

pub use open::{Direct, OpenOptions};

use crate::aligned::{AlignedBuf, BOUNCE_MAX, BufferPool};
use crate::coalesce::FlushCoalescer;
use crate::range_lock::{Coverage, RangeLock};
use crate::{
    BlockDevice, DeviceError, DeviceOp, Fua, Result, ScatteredWrite, check_range, check_writable,
    sys, total_len,
};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use transfer::{read_all, retry, write_all};
use uring::Rings;

/// A disk image or block device. Closing it (drop) does not flush.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: u64,
    is_block_device: bool,
    /// It is a block device that knows FUA, as its queue said when it was opened.
    has_fua: bool,
    read_only: bool,
    /// Of one opened read-only, once it was opened again for writing: the file for all I/O from
    /// then on.
    writable: OnceLock<Writable>,
    /// Others are kept out.
    exclusive: bool,
    /// Set if I/O is direct.
    direct: Option<DirectIo>,
    /// The kernel discards and zeroes multiples of this many bytes.
    unit: u64,
    /// FUA writes that are calls of their own carry `RWF_DSYNC`. Cleared when the kernel turns out
    /// not to know it here.
    dsync_works: AtomicBool,
    flushes: FlushCoalescer,
    rings: Rings,
    /// What keeps others away.
    claims: busy::Claims,
    /// The exclusive claim on a block device.
    held: Mutex<Held>,
}

/// What holds a block device exclusively.
#[derive(Debug)]
enum Held {
    /// Nothing: it is a file, or only read, or the caller wants no claim.
    No,
    /// This open file.
    Here { _open: File },
    /// The kernel, for a mount of type `fuseblk` over this device.
    ByKernel,
}

/// The file, opened once more; its claims are those that only a writer has.
#[derive(Debug)]
struct Writable {
    file: File,
    _claims: Vec<File>,
}

/// What direct I/O needs.
#[derive(Debug)]
struct DirectIo {
    /// Offsets and lengths are multiples of this (a power of two).
    sector: usize,
    /// Memory begins at multiples of this (a power of two).
    memory: usize,
    buffers: BufferPool,
    locks: RangeLock,
}

impl DirectIo {
    /// The whole sectors that hold the range.
    fn sectors(&self, offset: u64, len: u64) -> Range<u64> {
        let sector = self.sector as u64;
        offset / sector * sector..(offset + len).next_multiple_of(sector)
    }

    fn is_whole(&self, offset: u64, len: u64) -> bool {
        (offset | len).is_multiple_of(self.sector as u64)
    }

    /// True if the kernel takes this piece of memory.
    fn accepts(&self, memory: &[u8]) -> bool {
        memory.as_ptr().addr().is_multiple_of(self.memory)
            && memory.len().is_multiple_of(self.sector)
    }
}

impl FileDevice {
    /// Opens with these options. The error's text names the path and says what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open::open(path.as_ref(), options)
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True for a block device, false for a disk image.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Gives up the exclusive claim on a block device, so that the kernel can claim it for a mount
    /// of type `fuseblk` over this device.
    pub fn release_claim(&self) {
        *self.held() = Held::ByKernel;
    }

    /// Claims a block device exclusively again, after [`release_claim`](Self::release_claim). A
    /// device that was opened read-only never had a claim.
    ///
    /// # Errors
    /// If another program or the kernel holds it by now.
    pub fn claim_again(&self) -> Result<()> {
        let mut held = self.held();
        *held = Held::No;
        if !self.is_read_only() && self.exclusive && self.is_block_device {
            *held = open::hold(&self.path)?;
        }
        Ok(())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sector size of a block device, 1 for a disk image. Linux cannot mount a volume with smaller
    /// blocks.
    pub fn sector_size(&self) -> u32 {
        u32::try_from(self.unit).unwrap_or(u32::MAX)
    }

    /// True if I/O bypasses the kernel's page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    fn file(&self) -> &File {
        self.writable.get().map_or(&self.file, |writable| &writable.file)
    }

    /// Runs a write under the range lock, if the device has one.
    fn with_lock(
        &self,
        range: Range<u64>,
        coverage: Coverage,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let _guard = self.direct.as_ref().map(|d| d.locks.lock(range, coverage));
        write()
    }

    fn read_bufs(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<()> {
        let len = total_len(bufs);
        let Some(direct) = &self.direct else {
            return read_all(self.file(), bufs, offset, 1);
        };
        if direct.is_whole(offset, len) && bufs.iter().all(|b| direct.accepts(b)) {
            return read_all(self.file(), bufs, offset, direct.sector);
        }
        let mut targets = bufs.iter_mut().map(|b| &mut **b);
        let mut target: &mut [u8] = &mut [];
        let sectors = direct.sectors(offset, len);
        let mut at = sectors.start;
        while at < sectors.end {
            let n = (sectors.end - at).min(BOUNCE_MAX as u64) as usize;
            let mut bounce = direct.buffers.take(n);
            read_all(self.file(), &mut [IoSliceMut::new(&mut bounce[..n])], at, direct.sector)?;
            let wanted = at.max(offset)..(at + n as u64).min(offset + len);
            let mut source = &bounce[(wanted.start - at) as usize..(wanted.end - at) as usize];
            while !source.is_empty() {
                if target.is_empty() {
                    match targets.next() {
                        Some(next) => target = next,
                        None => break,
                    }
                }
                let part = source.len().min(target.len());
                let (filled, rest) = std::mem::take(&mut target).split_at_mut(part);
                filled.copy_from_slice(&source[..part]);
                (target, source) = (rest, &source[part..]);
            }
            at += n as u64;
        }
        Ok(())
    }

    fn write_bufs(&self, bufs: &[IoSlice<'_>], offset: u64, durable: bool) -> io::Result<()> {
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
        let mut sources = bufs.iter().map(|b| &**b);
        let mut source: &[u8] = &[];
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
            while !target.is_empty() {
                if source.is_empty() {
                    match sources.next() {
                        Some(next) => source = next,
                        None => break,
                    }
                }
                let part = source.len().min(target.len());
                let (filled, rest) = target.split_at_mut(part);
                filled.copy_from_slice(&source[..part]);
                (target, source) = (rest, &source[part..]);
            }
            write_all(self.file(), &[IoSlice::new(&bounce[..n])], at, sector, durable)?;
            at += n as u64;
        }
        Ok(())
    }

    fn write_checked(&self, bufs: &[IoSlice<'_>], offset: u64, durable: bool) -> Result<()> {
        let len = total_len(bufs);
        check_writable(DeviceOp::Write, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Write, offset, len, self.size)?;
        if len == 0 {
            return Ok(());
        }
        self.write_bufs(bufs, offset, durable)
            .map_err(|e| DeviceError::new(DeviceOp::Write, offset, len, e))
    }

    /// True if this is what became of a durable write where the kernel knows none; from now on
    /// nobody asks for one.
    fn lacks_dsync(&self, result: &Result<()>) -> bool {
        // The kernel looks at the flags before it writes; EINVAL may also come from older ones.
        let unknown = |code| matches!(code, libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL);
        let lacks = result.as_ref().is_err_and(|e| e.source.raw_os_error().is_some_and(unknown));
        if lacks {
            self.dsync_works.store(false, Ordering::Relaxed);
        }
        lacks
    }

    fn sync(&self) -> Result<()> {
        retry(|| rustix::fs::fdatasync(self.file()))
            .map_err(|e| DeviceError::new(DeviceOp::Flush, 0, self.size, e.into()))
    }

    /// The part of the range that the kernel can discard or zero.
    fn inner_units(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset.next_multiple_of(self.unit);
        start..((offset + len) / self.unit * self.unit).max(start)
    }

    /// Zeroes whole units in the kernel. `Ok(false)`: it cannot.
    fn zero_in_kernel(&self, range: Range<u64>) -> io::Result<bool> {
        let (offset, len) = (range.start, range.end - range.start);
        // On a file a hole reads as zeros and keeps the image sparse; the next choice allocates
        // without writing. A block device takes the first only if it can unmap to zeros, the second
        // always, in its fastest way.
        for mode in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            let mode = mode | FallocateFlags::KEEP_SIZE;
            let done = self.past_the_page_cache(|| {
                Ok(retry(|| rustix::fs::fallocate(self.file(), mode, offset, len))?)
            });
            match done.map_err(|e| (rustix::io::Errno::from_io_error(&e), e)) {
                Ok(()) => return Ok(true),
                Err((Some(code), _)) if is_unsupported(code) || code == rustix::io::Errno::BUSY => {
                }
                Err((_, e)) => return Err(e),
            }
        }
        Ok(false)
    }

    /// Discards or zeroes a part of a block device whose claim is held by another file or by the
    /// kernel: Linux then refuses (EBUSY) while pages of that part are dirty, instead of dropping
    /// them.
    fn past_the_page_cache(&self, change: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match change() {
            Err(e) if self.is_block_device && e.kind() == io::ErrorKind::ResourceBusy => {
                retry(|| rustix::fs::fdatasync(self.file()))?;
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

fn is_unsupported(e: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::NODEV, Errno::NOTTY].contains(&e)
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, |d| d.sector)
    }

    fn is_locked(&self) -> bool {
        self.claims.locked
    }

    fn is_read_only(&self) -> bool {
        self.read_only && self.writable.get().is_none()
    }

    fn make_writable(&self) -> Result<()> {
        if self.is_read_only() {
            let writable = open::again(self)?;
            // (If another thread was faster, that one is as good.)
            let _ = self.writable.set(writable);
        }
        Ok(())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_checked(&[IoSlice::new(buf)], offset, false)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let len = total_len(bufs);
        check_range(DeviceOp::Read, offset, len, self.size)?;
        if len == 0 {
            return Ok(());
        }
        self.read_bufs(bufs, offset).map_err(|e| DeviceError::new(DeviceOp::Read, offset, len, e))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write_checked(bufs, offset, false)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        scattered::write(self, writes, false)
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        if self.fua() != Fua::Flush {
            let result = scattered::write(self, writes, true);
            if !self.lacks_dsync(&result) {
                return result;
            }
        }
        scattered::write(self, writes, false)?;
        self.flush()
    }

    fn fua(&self) -> Fua {
        let known = self.is_block_device || self.dsync_works.load(Ordering::Relaxed);
        if !known || self.direct.is_none() || self.rings.refused() {
            Fua::Flush
        } else if self.has_fua {
            Fua::Native
        } else {
            Fua::PerWrite
        }
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        let bufs = [IoSlice::new(buf)];
        if self.dsync_works.load(Ordering::Relaxed) {
            let result = self.write_checked(&bufs, offset, true);
            if !self.lacks_dsync(&result) {
                return result;
            }
        }
        self.write_checked(&bufs, offset, false)?;
        self.flush()
    }

    fn fua_is_flush(&self) -> bool {
        !self.dsync_works.load(Ordering::Relaxed)
    }

    fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.flushes.run(|| self.sync())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Discard, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Discard, offset, len, self.size)?;
        let range = self.inner_units(offset, len);
        if range.is_empty() {
            return Ok(());
        }
        let (start, bytes) = (range.start, range.end - range.start);
        self.with_lock(range, Coverage::Partial, || {
            if self.is_block_device {
                return self.past_the_page_cache(|| {
                    retry_io(|| sys::discard_block_device(self.file(), start, bytes))
                });
            }
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(retry(|| rustix::fs::fallocate(self.file(), mode, start, bytes))?)
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

    fn can_discard(&self) -> bool {
        !self.is_block_device || most_discarded(self.file()) != Some(0)
    }

    fn discard_zeroes(&self) -> bool {
        // A hole in a file reads as zeros. What a disk gives is its own affair.
        !self.is_block_device
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Zero, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Zero, offset, len, self.size)?;
        let all = offset..offset + len;
        let inner = self.inner_units(offset, len);
        let zero = || {
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
        };
        if len == 0 {
            return Ok(());
        }
        zero().map_err(|e| DeviceError::new(DeviceOp::Zero, offset, len, e))
    }
}

fn retry_io(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The largest discard that a disk takes, 0 if it takes none; `None` if the system does not say.
fn most_discarded(disk: &File) -> Option<u64> {
    queue_attribute(disk, "discard_max_bytes")
}

/// A number that the kernel tells of a disk's queue.
fn queue_attribute(disk: &File, name: &str) -> Option<u64> {
    let id = rustix::fs::fstat(disk).ok()?.st_rdev;
    let (major, minor) = (rustix::fs::major(id), rustix::fs::minor(id));
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // A partition has the queue of its disk.
    let queue = [device.join("queue"), device.join("../queue")];
    let text = queue.iter().find_map(|q| std::fs::read_to_string(q.join(name)).ok())?;
    text.trim().parse().ok()
}
