//! Where replayed blocks go: home, or to memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use extol_device::{BlockDevice, BlockNr, BlockSize, DeviceError, DeviceOp, SharedDevice};
use extol_sync::Mutex;

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

    /// `device` as it would read after recovery, for changes that stay in memory.
    #[must_use]
    pub fn scratch(self, device: SharedDevice, size: BlockSize) -> ScratchDevice {
        ScratchDevice { device, overlay: Mutex::new(self), size }
    }

    /// `device` as it would read after recovery, read-only.
    #[must_use]
    pub fn over(self, device: SharedDevice, size: BlockSize) -> OverlayDevice {
        OverlayDevice { device, overlay: self, size }
    }

    /// Puts what it has over bytes that were read from the device.
    fn show(&self, buf: &mut [u8], offset: u64, size: BlockSize) {
        if self.is_empty() {
            return;
        }
        for piece in pieces(buf.len(), offset, size) {
            if let Some(block) = self.get(piece.block) {
                buf[piece.bytes].copy_from_slice(&block[piece.inside]);
            }
        }
    }
}

/// The part of a request that lies in one block.
struct Piece {
    block: BlockNr,
    bytes: Range<usize>,
    inside: Range<usize>,
}

/// The blocks that a request touches. It lies on the device, so that no number overflows.
fn pieces(len: usize, offset: u64, size: BlockSize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let skip = (at % size.len() as u64) as usize;
        let now = (size.len() - skip).min(len - done);
        let piece = Piece {
            block: BlockNr(at / size.len() as u64),
            bytes: done..done + now,
            inside: skip..skip + now,
        };
        done += now;
        (now > 0).then_some(piece)
    })
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
        self.overlay.show(buf, offset, self.size);
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

/// A device seen through an [`Overlay`] that takes every change. The device itself stays as it is.
#[derive(Debug)]
pub struct ScratchDevice {
    device: SharedDevice,
    overlay: Mutex<Overlay>,
    size: BlockSize,
}

impl ScratchDevice {
    /// The overlay with all changes so far.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        self.overlay.lock().clone()
    }
}

impl BlockDevice for ScratchDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn alignment(&self) -> usize {
        self.device.alignment()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_device::Result<()> {
        self.device.read_at(buf, offset)?;
        self.overlay.lock().show(buf, offset, self.size);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extol_device::Result<()> {
        let len = buf.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > self.device.size()) {
            let past = std::io::ErrorKind::InvalidInput.into();
            return Err(DeviceError::new(DeviceOp::Write, offset, len, past));
        }
        let mut overlay = self.overlay.lock();
        for piece in pieces(buf.len(), offset, self.size) {
            let mut block = vec![0; self.size.len()];
            if piece.bytes.len() < block.len() {
                let at = piece.block.offset(self.size);
                self.device.read_at(&mut block, at)?;
                overlay.show(&mut block, at, self.size);
            }
            block[piece.inside].copy_from_slice(&buf[piece.bytes]);
            overlay.blocks.insert(piece.block.0, Arc::new(block));
        }
        Ok(())
    }

    fn flush(&self) -> extol_device::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> extol_device::Result<()> {
        // Advice, and there is nothing to tell.
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> extol_device::Result<()> {
        // No more than a block at a time: a large range is not worth its memory twice.
        let zeros = vec![0; self.size.len()];
        let mut done = 0;
        while done < len {
            let now = (len - done).min(zeros.len() as u64);
            self.write_at(&zeros[..now as usize], offset + done)?;
            done += now;
        }
        Ok(())
    }
}
