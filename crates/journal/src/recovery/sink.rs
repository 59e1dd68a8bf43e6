//! Where replayed blocks go: home, or to memory.

use std::collections::HashMap;
use std::sync::Arc;

use extol_device::{BlockDevice, BlockNr, BlockSize, DeviceError, DeviceOp, SharedDevice};

use super::ReplaySink;
use crate::{Result, Tid, home};

/// Bytes that are gathered before they are sorted and written.
const BATCH: usize = 8 << 20;

/// Writes blocks home, in sorted batches, and flushes at the end.
#[derive(Debug)]
pub struct HomeSink<'a> {
    device: &'a dyn BlockDevice,
    size: BlockSize,
    batch: Vec<(BlockNr, Arc<Vec<u8>>)>,
}

impl<'a> HomeSink<'a> {
    /// Writes to the file system on `device`.
    #[must_use]
    pub fn new(device: &'a dyn BlockDevice, size: BlockSize) -> Self {
        Self { device, size, batch: Vec::new() }
    }

    fn write(&mut self) -> Result<()> {
        self.batch.sort_unstable_by_key(|(nr, _)| *nr);
        home::write(self.device, self.size, &self.batch)?;
        self.batch.clear();
        Ok(())
    }
}

impl ReplaySink for HomeSink<'_> {
    fn block(&mut self, nr: BlockNr, data: &[u8], _tid: Tid) -> Result<()> {
        self.batch.push((nr, Arc::new(data.to_vec())));
        if self.batch.len() * self.size.len() >= BATCH {
            self.write()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.write()?;
        self.device.flush()?;
        Ok(())
    }
}

/// The recovered contents of blocks, for looking at a volume that must not be changed. As large as the log at
/// most.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    blocks: HashMap<u64, Arc<Vec<u8>>>,
}

impl Overlay {
    /// The recovered contents of block `nr`, if it was in the log.
    #[must_use]
    pub fn get(&self, nr: BlockNr) -> Option<&Arc<Vec<u8>>> {
        self.blocks.get(&nr.0)
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// The log held nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// `device` as it would read after recovery, read-only.
    #[must_use]
    pub fn over(self, device: SharedDevice, size: BlockSize) -> OverlayDevice {
        OverlayDevice { device, overlay: self, size }
    }
}

impl ReplaySink for Overlay {
    fn block(&mut self, nr: BlockNr, data: &[u8], _tid: Tid) -> Result<()> {
        self.blocks.insert(nr.0, Arc::new(data.to_vec()));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A device seen through an [`Overlay`]. Refuses every change.
#[derive(Debug)]
pub struct OverlayDevice {
    device: SharedDevice,
    overlay: Overlay,
    size: BlockSize,
}

impl OverlayDevice {
    fn refuse(op: DeviceOp, offset: u64, len: u64) -> extol_device::Result<()> {
        Err(DeviceError::new(op, offset, len, std::io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}

impl BlockDevice for OverlayDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn alignment(&self) -> usize {
        self.device.alignment()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_device::Result<()> {
        self.device.read_at(buf, offset)?;
        if self.overlay.is_empty() {
            return Ok(());
        }
        let size = self.size.len() as u64;
        let mut done = 0;
        while done < buf.len() {
            // The read succeeded, so these offsets are on the device and do not overflow.
            let at = offset + done as u64;
            let skip = (at % size) as usize;
            let len = (self.size.len() - skip).min(buf.len() - done);
            if let Some(block) = self.overlay.get(BlockNr(at / size)) {
                buf[done..done + len].copy_from_slice(&block[skip..skip + len]);
            }
            done += len;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extol_device::Result<()> {
        Self::refuse(DeviceOp::Write, offset, buf.len() as u64)
    }

    fn flush(&self) -> extol_device::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> extol_device::Result<()> {
        Self::refuse(DeviceOp::Discard, offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> extol_device::Result<()> {
        Self::refuse(DeviceOp::Zero, offset, len)
    }
}
