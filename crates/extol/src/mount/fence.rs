//! Ends the writes of a mount for good.
//!
//! A volume that an error has stopped may be opened again on the same device
//! (`ext4/reopen.rs`). By then nothing that belongs to the stopped mount may write: a thread of it
//! could be in the middle of a write of file data. So each mount writes through a fence of its own,
//! which is closed first: that waits for the writes under way, and refuses all later ones. Reads
//! pass.

use std::io::IoSlice;

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result, ScatteredWrite, SharedDevice};
use extol_sync::plain::RwLock;

/// The device of one mount.
#[derive(Debug)]
pub(crate) struct Fence {
    inner: SharedDevice,
    /// True once it is closed. Held for reading during each write.
    closed: RwLock<bool>,
}

impl Fence {
    pub fn new(inner: SharedDevice) -> Self {
        Self { inner, closed: RwLock::new(false) }
    }

    /// Waits for the writes under way; all later ones fail.
    pub fn close(&self) {
        *self.closed.write() = true;
    }

    fn pass<T>(
        &self,
        (op, offset): (DeviceOp, u64),
        change: impl FnOnce(&dyn BlockDevice) -> Result<T>,
    ) -> Result<T> {
        let closed = self.closed.read_recursive();
        if *closed {
            let why = std::io::Error::other("the volume was opened again meanwhile");
            return Err(DeviceError::new(op, offset, 0, why));
        }
        change(&*self.inner)
    }
}

impl BlockDevice for Fence {
    extol_block::pass_on!(shape, abilities, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.pass((DeviceOp::Write, offset), |d| d.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.pass((DeviceOp::Write, offset), |d| d.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.pass((DeviceOp::Write, 0), |d| d.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.pass((DeviceOp::Write, 0), |d| d.write_scattered_fua(writes))
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.pass((DeviceOp::Write, offset), |d| d.write_mark(buf, offset))
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.pass((DeviceOp::Write, offset), |d| d.write_fua(buf, offset))
    }

    fn flush(&self) -> Result<()> {
        self.pass((DeviceOp::Flush, 0), |d| d.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.pass((DeviceOp::Discard, offset), |d| d.discard(offset, len))
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.pass((DeviceOp::Write, offset), |d| d.zero_range(offset, len))
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        self.pass((DeviceOp::Resize, 0), |d| d.set_size(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extol_block::MemDevice;

    use super::*;

    #[test]
    fn nothing_is_written_behind_a_closed_fence() {
        let device = Arc::new(MemDevice::new(1 << 16));
        let fence = Fence::new(Arc::clone(&device) as SharedDevice);
        fence.write_at(&[1; 512], 0).unwrap();
        fence.close();
        assert!(fence.write_at(&[2; 512], 0).is_err() && fence.flush().is_err());
        assert!(fence.zero_range(0, 512).is_err() && fence.write_mark(&[2; 512], 0).is_err());
        let mut bytes = [0; 512];
        fence.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [1; 512]);
    }
}
