//! Block devices: the only layer that accesses files and disks.
//!
//! All layers above use [`BlockDevice`]: byte-addressed reads and writes on `&self`, a flush that
//! makes completed writes durable, discard and zeroing. I/O needs no lock.
//!
//! | type | purpose |
//! | --- | --- |
//! | [`FileDevice`] | a disk image or a block device, direct or buffered, with one writer |
//! | [`MemDevice`] | memory, sparse, with snapshots |
//! | `NetworkDevice` | an export of an NBD server (feature `network`) |
//! | [`FailLatch`] | decorator: refuses all changes after the first failed write or flush |
//!
//! [`open`](mod@open) turns a name into a device: a file, a partition, a part of an image.
//!
//! Decorators for tests and measurements are in testing/devices.

mod aligned;
mod coalesce;
#[cfg_attr(windows, path = "file/windows.rs")]
mod file;
mod latch;
mod memory;
#[cfg(feature = "network")]
mod network;
pub mod open;
mod pass_on;
mod priority;
#[cfg(any(unix, feature = "network"))]
mod range_lock;
mod sys;
mod types;

pub use aligned::AlignedBuf;
pub use coalesce::FlushCoalescer;
#[cfg(feature = "network")]
pub use extol_nbd::{Dial, Dialer};
pub use extol_ondisk::{BlockNr, BlockSize};
pub use file::{Direct, FileDevice, OpenOptions};
#[cfg(unix)]
pub use file::{Overwritten, check_loop_devices, claim_to_overwrite, refuse_itself};
pub use latch::FailLatch;
pub use memory::MemDevice;
#[cfg(feature = "network")]
pub use network::NetworkDevice;
pub use priority::{IoPriority, Membership, PriorityGroup};
pub use types::{DeviceError, DeviceOp, Fua, Result, ScatteredWrite};

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

/// A random-access device. All methods take `&self` and may be called from many threads at once.
/// Five are enough for a device of one's own: `size`, `is_read_only`, `read_at`, `write_at` and
/// `flush`; the others have defaults.
///
/// Durability: a write is durable after a later [`flush`](BlockDevice::flush) that *began* after
/// the write returned, or at once if it was a [`write_fua`](BlockDevice::write_fua).
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Size in bytes. Requests behind it fail.
    fn size(&self) -> u64;

    /// How many bytes are there now. More than [`size`](BlockDevice::size) if a disk grew while it
    /// is open; less if a file, or the file below a loop device, was cut. What lies behind the cut
    /// is lost, though Linux lets a loop device read it as zeros and a write makes the file longer
    /// again.
    fn size_now(&self) -> u64 {
        self.size()
    }

    /// Smallest unit (bytes) that one write changes without a read-modify-write: offsets and
    /// lengths should be multiples of it. Implementations accept any alignment, slower.
    fn alignment(&self) -> usize {
        1
    }

    /// Bytes of a sector as a partition table on this device counts them.
    fn table_sector(&self) -> u64 {
        512
    }

    /// True if the device refuses writes.
    fn is_read_only(&self) -> bool;

    /// Why it would refuse to be opened for writing; `None`: nothing in it is against that.
    fn write_refusal(&self) -> Option<String> {
        None
    }

    /// Makes a device opened read-only accept writes. On an error nothing has changed. Does nothing
    /// if it accepts them already.
    fn make_writable(&self) -> Result<()> {
        check_writable(DeviceOp::Open, 0, 0, self.is_read_only())
    }

    /// False if nothing keeps other processes from writing: it is a file on a file system without
    /// locks.
    fn is_locked(&self) -> bool {
        true
    }

    /// Looks for other writers as an open for writing does: for those that came since. Keeps them
    /// out from now on where that is possible.
    ///
    /// # Errors
    /// One line that names the device and what holds it.
    fn keep_others_out(&self) -> Result<()> {
        Ok(())
    }

    /// True if another process has opened it since the last call, or has it open, as far as that is
    /// told. A layer above that watches for other writers looks at once then.
    fn others_open_it(&self) -> bool {
        false
    }

    /// Makes later reads show what is on the medium. After a failed flush the kernel's page cache
    /// may hold as clean what was never written. Does nothing if reads come from the medium anyway.
    fn drop_page_cache(&self) {}

    /// What tells apart devices that are made anew for each open: the address of the object that
    /// this one shows. `None`: the device is that object. Of two volumes on one object one may
    /// write if the other is closed.
    fn object(&self) -> Option<usize> {
        None
    }

    /// Fills `buf` from `offset`. Reading past the end is an error, never a short read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Writes all of `buf` at `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Fills the buffers one after the other from `offset`.
    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], mut offset: u64) -> Result<()> {
        for buf in bufs {
            self.read_at(buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes the buffers one after the other at `offset`.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> Result<()> {
        for buf in bufs {
            self.write_at(buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    /// Does all these writes, at the same time where the device can. They are not ordered among
    /// each other, so their ranges must not overlap. All have ended when this returns; if some
    /// failed, the error is that of the first of them in `writes`, and any of those behind it may
    /// or may not be done.
    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        writes.iter().try_for_each(|w| self.write_vectored_at(w.bufs, w.offset))
    }

    /// Writes `buf` and makes it (and only it, necessarily) durable before returning.
    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)?;
        self.flush()
    }

    /// Does all these writes as [`write_scattered`](BlockDevice::write_scattered) does, and makes
    /// them (and only them, necessarily) durable before returning. After an error any of them may
    /// or may not be done.
    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.write_scattered(writes)?;
        self.flush()
    }

    /// How [`write_scattered_fua`](BlockDevice::write_scattered_fua) makes its writes durable.
    fn fua(&self) -> Fua {
        Fua::Flush
    }

    /// True if [`write_fua`](BlockDevice::write_fua) is a write and a whole flush. A caller that
    /// makes both itself pays no more, and knows which other writes the flush covers.
    fn fua_is_flush(&self) -> bool {
        false
    }

    /// Writes `buf` as [`write_fua`](BlockDevice::write_fua) does: the error mark for the next
    /// mount. A [`FailLatch`] lets it through after a failure, so it must be valid whichever other
    /// writes reached the medium.
    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_fua(buf, offset)
    }

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> Result<()>;

    /// Discards the range: its contents are undefined afterwards. `Err` with `Unsupported` if the
    /// device cannot.
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let why = io::Error::from(io::ErrorKind::Unsupported);
        Err(DeviceError::new(DeviceOp::Discard, offset, len, why))
    }

    /// False if [`discard`](BlockDevice::discard) is known to fail.
    fn can_discard(&self) -> bool {
        true
    }

    /// True if a range reads as zeros after a successful [`discard`](BlockDevice::discard).
    fn discard_zeroes(&self) -> bool {
        false
    }

    /// Makes the range read as zeros.
    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(ZEROS.len() as u64);
            self.write_at(&ZEROS[..step as usize], offset.saturating_add(done))?;
            done += step;
        }
        Ok(())
    }

    /// The first range of data that begins or ends behind `at`, from `at` on. All between `at` and
    /// its start reads as zeros; `None`: so does the whole rest. A device that does not know its
    /// holes says that all is data.
    fn data_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        Ok((at < size).then_some(at..size))
    }

    /// Changes [`size`](BlockDevice::size), durably: what is cut off is lost, what is added reads
    /// as zeros. `bytes` is a multiple of [`alignment`](BlockDevice::alignment). A disk cannot be
    /// changed: it takes over the size that it has by now if that is at least `bytes`. No other
    /// request may use what is cut off.
    ///
    /// # Errors
    /// `Unsupported` if the size is fixed. One of [`DeviceOp::Flush`] may concern earlier writes.
    fn set_size(&self, bytes: u64) -> Result<()> {
        if bytes == self.size() {
            return Ok(());
        }
        let why = io::Error::new(io::ErrorKind::Unsupported, "its size is fixed");
        Err(DeviceError::new(DeviceOp::Resize, 0, bytes, why))
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    pass_on!(me => (**me); shape, abilities, reads, writes, ends, length);
}

/// `Ok` if `offset..offset + len` lies on a device of `size` bytes.
///
/// # Errors
/// If it does not.
pub fn check_range(op: DeviceOp, offset: u64, len: u64, size: u64) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => {
            let why = format!("the range ends past the end of the device ({size} bytes)");
            Err(DeviceError::new(op, offset, len, io::Error::new(io::ErrorKind::InvalidInput, why)))
        }
    }
}

/// Refuses a change of a device that was opened read-only.
fn check_writable(op: DeviceOp, offset: u64, len: u64, read_only: bool) -> Result<()> {
    if read_only {
        return Err(DeviceError::new(op, offset, len, sys::read_only()));
    }
    Ok(())
}

/// The bytes of all buffers, one after the other, in one piece.
#[must_use]
pub fn joined(bufs: &[IoSlice<'_>]) -> Vec<u8> {
    bufs.iter().flat_map(|b| b.iter().copied()).collect()
}

/// Bytes in all buffers of a vectored request.
#[must_use]
pub fn total_len<B: std::ops::Deref<Target = [u8]>>(bufs: &[B]) -> u64 {
    bufs.iter().map(|b| b.len() as u64).sum()
}

/// A shared device.
pub type SharedDevice = Arc<dyn BlockDevice>;
