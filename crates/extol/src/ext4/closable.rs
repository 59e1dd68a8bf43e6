//! The device of a volume that is closed with it.
//!
//! A handle may outlive its volume: open files keep it. The device that [`Ext4::open_path`] has
//! opened must not stay locked for that long, so the volume has it through a [`Closable`], which
//! gives it up when the volume is closed. (The claim on a device of the program's own is dropped
//! then, too: CM-1, in the crate of devices.)
//!
//! [`Ext4::open_path`]: super::Ext4::open_path

use std::io;
use std::sync::Arc;

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result as DeviceResult, SharedDevice};
use extol_sync::plain::RwLock;

/// A device that is given up when its volume is closed.
#[derive(Debug)]
pub(super) struct Closable(RwLock<SharedDevice>);

impl Closable {
    pub fn new(device: SharedDevice) -> Self {
        Self(RwLock::new(device))
    }

    /// Gives the device up. It is closed when requests that are under way have ended.
    pub fn close(&self) {
        let mut device = self.0.write();
        *device = Arc::new(Closed { size: device.size() });
    }

    fn device(&self) -> SharedDevice {
        Arc::clone(&self.0.read())
    }
}

impl BlockDevice for Closable {
    extol_block::pass_on!(me => me.device(); shape, abilities, reads, writes, ends, length);
}

/// What is left of it.
#[derive(Debug)]
struct Closed {
    size: u64,
}

impl Closed {
    fn refuse<T>(op: DeviceOp, offset: u64, len: u64) -> DeviceResult<T> {
        Err(DeviceError::new(op, offset, len, io::Error::other("the volume is closed")))
    }
}

impl BlockDevice for Closed {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn make_writable(&self) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Open, 0, 0)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Read, offset, buf.len() as u64)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Write, offset, buf.len() as u64)
    }

    fn flush(&self) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Flush, 0, 0)
    }
}
