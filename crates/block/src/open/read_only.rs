//! Images that are only read: a format says where bytes of its disk are, and the rest of a device
//! follows from that.

use std::fmt;
use std::io;

use crate::{
    BlockDevice, DeviceError, DeviceOp, Result, SharedDevice, check_range, check_writable,
};

/// An image that is only read.
pub(super) trait ReadOnly: fmt::Debug + Send + Sync {
    /// Why it is not written to, and what to do.
    const REFUSAL: &'static str;

    /// The file of the image, which stays locked.
    fn inner(&self) -> &SharedDevice;

    /// Bytes of its disk.
    fn disk_size(&self) -> u64;

    /// Fills the start of `buf`, which is not empty and lies inside of the disk, with the bytes at
    /// `at`: how many, and never none.
    fn read_some(&self, buf: &mut [u8], at: u64) -> Result<usize>;
}

impl<T: ReadOnly> BlockDevice for T {
    fn size(&self) -> u64 {
        self.disk_size()
    }

    fn is_locked(&self) -> bool {
        self.inner().is_locked()
    }

    fn drop_page_cache(&self) {
        self.inner().drop_page_cache();
    }

    fn read_at(&self, mut buf: &mut [u8], mut offset: u64) -> Result<()> {
        check_range(DeviceOp::Read, offset, buf.len() as u64, self.disk_size())?;
        while !buf.is_empty() {
            let len = self.read_some(buf, offset)?;
            buf = buf.get_mut(len..).unwrap_or_default();
            offset += len as u64;
        }
        Ok(())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn write_refusal(&self) -> Option<String> {
        Some(T::REFUSAL.to_owned())
    }

    fn make_writable(&self) -> Result<()> {
        let why = io::Error::new(io::ErrorKind::Unsupported, T::REFUSAL);
        Err(DeviceError::new(DeviceOp::Open, 0, 0, why))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        check_writable(DeviceOp::Write, offset, buf.len() as u64, true)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Discard, offset, len, true)
    }

    fn can_discard(&self) -> bool {
        false
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Zero, offset, len, true)
    }
}

/// The start of `buf` that does not cross a multiple of `unit`.
#[cfg(feature = "formats")]
pub(super) fn in_unit(buf: &mut [u8], at: u64, unit: u64) -> &mut [u8] {
    let len = (unit - at % unit).min(buf.len() as u64) as usize;
    buf.get_mut(..len).unwrap_or_default()
}
