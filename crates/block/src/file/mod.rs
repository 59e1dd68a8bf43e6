//! Disk images and block devices.
//!
//! *Opening* (`open.rs`, as `options.rs` says) finds out what the path is, keeps other writers out
//! (`busy.rs`: exclusive open, advisory lock, claims of loop devices), measures it and decides
//! whether I/O is direct.
//!
//! *Opening again* for writing ([`BlockDevice::make_writable`]): a device opened read-only gets a
//! second descriptor, and its shared locks become exclusive in place, so that no other writer comes
//! in between.
//!
//! *Direct I/O* (`direct.rs`) bypasses the kernel's page cache: the layers above have caches of
//! their own, and a write error reaches the write that caused it. Direct and buffered requests are
//! never mixed on one device.
//!
//! *Scattered batches* (`scattered.rs`) of a direct device go to the kernel together through
//! io_uring (`uring.rs`, feature `io-uring`) where it may be used, else one by one.
//!
//! *Flushes* of several threads are merged (`coalesce.rs`). A FUA write is a write with
//! `RWF_DSYNC`. It becomes a write and a flush where the kernel does not support the flag, and on a
//! direct block device if it is a system call of its own: Linux then makes the write durable and
//! flushes all the same, which costs one flush more. Writes through io_uring get no second flush,
//! so batches carry the flag on block devices, too.
//!
//! *Discarding and zeroing* (`discard.rs`) happen in the kernel where it can.
//!
//! *Opens by others* (`opens.rs`) are noticed.
//!
//! *Holes, sizes and shared storage* are in `length.rs`; *what a command replaces* is claimed in
//! `overwrite.rs`.

mod busy;
mod device_users;
mod direct;
mod discard;
mod holder;
mod length;
mod open;
#[cfg_attr(not(target_os = "linux"), path = "without_opens.rs")]
mod opens;
mod options;
mod overwrite;
mod pool;
mod qemu;
mod scattered;
mod transfer;
#[cfg(feature = "io-uring")]
mod uring;
#[cfg(not(feature = "io-uring"))]
#[path = "without_uring.rs"]
mod uring;

#[cfg(test)]
mod tests;

pub use device_users::check_loop_devices;
pub use options::{Direct, OpenOptions};
pub use overwrite::{Overwritten, claim_to_overwrite, refuse_itself};

use crate::coalesce::FlushCoalescer;
use crate::{
    BlockDevice, DeviceError, DeviceOp, Fua, Result, ScatteredWrite, check_range, check_writable,
    sys, total_len,
};
use direct::DirectIo;
use opens::Opens;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use uring::Rings;

/// A disk image or block device. Closing it (drop) does not flush.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    path: PathBuf,
    size: AtomicU64,
    is_block_device: bool,
    /// It is a block device whose queue supports FUA, as read when it was opened.
    has_fua: bool,
    read_only: bool,
    /// The file for all I/O of a device opened read-only, once it was opened again for writing.
    writable: OnceLock<Writable>,
    /// Other writers are kept out.
    exclusive: bool,
    /// Set if I/O is direct.
    direct: Option<DirectIo>,
    /// The kernel discards and zeroes multiples of this many bytes.
    unit: u64,
    /// FUA writes that are system calls of their own carry `RWF_DSYNC`. Cleared when the kernel
    /// does not support it here.
    dsync_works: AtomicBool,
    flushes: FlushCoalescer,
    rings: Rings,
    /// Keeps other writers out.
    claims: busy::Claims,
    /// Opens of an image that is opened for writing.
    opens: Opens,
    /// The exclusive claim on a block device.
    held: Mutex<Held>,
}

/// What holds a block device exclusively.
#[derive(Debug)]
enum Held {
    /// Nothing: a file, a device opened read-only, or no claim wanted.
    No,
    /// This open file.
    Here { _open: File },
    /// The kernel, for a mount of type `fuseblk` over this device.
    ByKernel,
}

/// The file, opened again for writing, with the claims that only a writer has.
#[derive(Debug)]
struct Writable {
    file: File,
    claims: busy::Loops,
    opens: Opens,
}

impl FileDevice {
    /// Opens with these options. The error names the path and what to do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open::open(path.as_ref(), options)
    }

    /// Lengthens a disk image that was opened with [`Direct::Off`] to `bytes`; then I/O is direct
    /// as `direct` says.
    ///
    /// # Errors
    /// If it cannot be so long, or not be direct.
    pub fn lengthen(&mut self, bytes: u64, direct: Direct) -> Result<()> {
        open::lengthen(self, bytes, direct)
    }

    /// Claims the part of a disk image that is used, of an open with
    /// [`part`](OpenOptions::part), before the first write to it. `names` gives what mounts of it
    /// show as their source. With `direct`, as the open had it, a part that cannot be accessed
    /// directly is accessed through the page cache.
    ///
    /// # Errors
    /// If another process has it.
    pub fn claim_part(
        &mut self,
        range: std::ops::Range<u64>,
        names: &dyn Fn(&Self) -> Vec<std::ffi::OsString>,
        direct: Direct,
    ) -> Result<()> {
        open::claim_part(self, range, names, direct)
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

    /// True if a durable write failed because the kernel does not support `RWF_DSYNC` here; later
    /// ones do without.
    fn lacks_dsync(&self, result: &Result<()>) -> bool {
        // The kernel checks the flags before it writes. (Old kernels return EINVAL.)
        let unknown = |code| matches!(code, libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL);
        let lacks = result.as_ref().is_err_and(|e| e.source.raw_os_error().is_some_and(unknown));
        if lacks {
            self.dsync_works.store(false, Ordering::Relaxed);
        }
        lacks
    }

    fn sync(&self) -> Result<()> {
        // (On macOS this is F_FULLFSYNC: fsync(2) leaves the data in the disk's cache there.)
        let synced = self.file().sync_data();
        synced.map_err(|e| DeviceError::new(DeviceOp::Flush, 0, self.size(), e))
    }
}

impl BlockDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn size_now(&self) -> u64 {
        // (Of a device that is gone the size may be unknown; its I/O tells that.)
        let own = open::length(self.file()).unwrap_or_else(|_| self.size());
        own.min(self.claims.size_below().unwrap_or(own))
    }

    fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, |d| d.sector)
    }

    fn table_sector(&self) -> u64 {
        u64::from(self.sector_size()).max(512)
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
            // (If another thread was faster, its file serves.)
            let _ = self.writable.set(writable);
        }
        Ok(())
    }

    fn keep_others_out(&self) -> Result<()> {
        open::keep_others_out(self)
    }

    fn others_open_it(&self) -> bool {
        self.writable.get().map_or(&self.opens, |writable| &writable.opens).any()
    }

    fn drop_page_cache(&self) {
        if self.is_direct() {
            return;
        }
        // Only clean pages can be dropped. Those that cannot be written either become clean, or
        // stay dirty and are written by a later flush; which of them failed does not matter here.
        let _ = self.sync();
        sys::drop_clean_pages(self.file());
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_checked(&[IoSlice::new(buf)], offset, false)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let len = total_len(bufs);
        check_range(DeviceOp::Read, offset, len, self.size())?;
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
        check_range(DeviceOp::Discard, offset, len, self.size())?;
        self.discard_units(offset, len)
    }

    fn can_discard(&self) -> bool {
        !self.is_block_device || discard::max_discard(self.file()) != Some(0)
    }

    fn discard_zeroes(&self) -> bool {
        // A hole in a file reads as zeros; a discarded part of a disk need not.
        !self.is_block_device
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Zero, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Zero, offset, len, self.size())?;
        self.zero(offset, len).map_err(|e| DeviceError::new(DeviceOp::Zero, offset, len, e))
    }

    fn data_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        self.next_data(at).map_err(|e| DeviceError::new(DeviceOp::Read, at, 0, e))
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        check_writable(DeviceOp::Resize, 0, bytes, self.is_read_only())?;
        self.change_size(bytes)
    }
}
