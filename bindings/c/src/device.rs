//! A device that the caller is.

use std::ffi::c_void;
use std::fmt;
use std::io;

use extol::device::{BlockDevice, DeviceError, DeviceOp, Result as DeviceResult, check_range};

use crate::failure::{EIO, Failure, Result};

/// A device that the program itself is. Each callback returns 0, or a number of errno, and may be
/// called by many threads at once. Offsets and lengths are in bytes; no request goes beyond `size`.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types)]
pub struct extol_device {
    /// Passed to the callbacks. Of two volumes with the same `data` none may be written while the
    /// other is open; if it is NULL, that is the program's duty.
    pub data: *mut c_void,
    /// Bytes of the device.
    pub size: u64,
    /// Fills `len` bytes at `buffer` from `offset`.
    pub read: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            buffer: *mut c_void,
            len: usize,
            offset: u64,
        ) -> i32,
    >,
    /// Writes `len` bytes at `offset`. NULL: the device is read-only.
    pub write: Option<
        unsafe extern "C" fn(
            data: *mut c_void,
            buffer: *const c_void,
            len: usize,
            offset: u64,
        ) -> i32,
    >,
    /// Makes durable what was written before. NULL: what is written is durable.
    pub flush: Option<unsafe extern "C" fn(data: *mut c_void) -> i32>,
}

/// Such a device.
pub(crate) struct CallbackDevice(extol_device);

// SAFETY: the header demands that callbacks may be called by any thread, with this pointer.
unsafe impl Send for CallbackDevice {}
// SAFETY: as above, by many at once.
unsafe impl Sync for CallbackDevice {}

impl fmt::Debug for CallbackDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackDevice").field("size", &self.0.size).finish_non_exhaustive()
    }
}

impl CallbackDevice {
    pub(crate) fn new(device: extol_device) -> Result<Self> {
        match device.read {
            Some(_) => Ok(Self(device)),
            None => Err(Failure::invalid("the device cannot be read: read is NULL")),
        }
    }

    fn outcome(op: DeviceOp, offset: u64, len: usize, errno: i32) -> DeviceResult<()> {
        match errno {
            0 => Ok(()),
            // (Some return it negative; -1 says no more than that it failed.)
            _ => {
                let errno = if errno == -1 { EIO } else { errno.saturating_abs() };
                let why = io::Error::from_raw_os_error(errno);
                Err(DeviceError::new(op, offset, len as u64, why))
            }
        }
    }
}

impl BlockDevice for CallbackDevice {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn is_read_only(&self) -> bool {
        self.0.write.is_none()
    }

    /// What the callbacks get, if they get something.
    fn object(&self) -> Option<usize> {
        (!self.0.data.is_null()).then(|| self.0.data.addr())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        check_range(DeviceOp::Read, offset, buf.len() as u64, self.0.size)?;
        // SAFETY: the callback takes so many bytes, by the header.
        let errno = self.0.read.map_or(0, |read| unsafe {
            read(self.0.data, buf.as_mut_ptr().cast(), buf.len(), offset)
        });
        Self::outcome(DeviceOp::Read, offset, buf.len(), errno)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        check_range(DeviceOp::Write, offset, buf.len() as u64, self.0.size)?;
        let Some(write) = self.0.write else {
            let why = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
            return Err(DeviceError::new(DeviceOp::Write, offset, buf.len() as u64, why));
        };
        // SAFETY: the callback reads so many bytes, by the header.
        let errno = unsafe { write(self.0.data, buf.as_ptr().cast(), buf.len(), offset) };
        Self::outcome(DeviceOp::Write, offset, buf.len(), errno)
    }

    fn flush(&self) -> DeviceResult<()> {
        // SAFETY: by the header.
        let errno = self.0.flush.map_or(0, |flush| unsafe { flush(self.0.data) });
        Self::outcome(DeviceOp::Flush, 0, 0, errno)
    }

    fn can_discard(&self) -> bool {
        false
    }
}
