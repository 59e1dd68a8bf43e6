//! Where replayed blocks go: home, or to memory.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{
    BlockDevice, BlockNr, BlockSize, DeviceError, DeviceOp, ScatteredWrite, SharedDevice,
};
use extol_sync::Mutex;
use extol_sync::plain::RwLock;

use super::ReplaySink;
use crate::home;
use crate::types::{Result, Tid};

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

/// The recovered contents of blocks, for looking at a volume that must not be changed. As large as
/// the log at most; zeros are kept once, so that the holes of a sparse log cost next to nothing.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    blocks: HashMap<u64, Arc<Vec<u8>>>,
    zeros: Option<Arc<Vec<u8>>>,
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
        let [bytes, least] = [device.size(); 2].map(AtomicU64::new);
        ScratchDevice { device, overlay: Mutex::new(self), size, bytes, least }
    }

    /// `device` as it would read after recovery, read-only.
    #[must_use]
    pub fn over(self, device: SharedDevice, size: BlockSize) -> OverlayDevice {
        OverlayDevice { inner: device, overlay: RwLock::new(Some(self)), size }
    }

    fn put(&mut self, nr: BlockNr, data: Vec<u8>) {
        let block = if data.iter().any(|byte| *byte != 0) {
            Arc::new(data)
        } else {
            let len = data.len();
            let zeros = self.zeros.take().filter(|zeros| zeros.len() == len);
            Arc::clone(self.zeros.insert(zeros.unwrap_or_else(|| Arc::new(data))))
        };
        self.blocks.insert(nr.0, block);
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

    /// Forgets what lies behind so many bytes.
    fn cut(&mut self, bytes: u64, size: BlockSize) {
        self.blocks.retain(|nr, _| BlockNr(*nr).offset(size) < bytes);
        let last = bytes >> size.bits();
        let kept = (bytes - BlockNr(last).offset(size)) as usize;
        if let Some(block) = self.blocks.get_mut(&last) {
            Arc::make_mut(block)[kept..].fill(0);
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
        self.put(nr, data.to_vec());
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A device seen through an [`Overlay`]. Refuses every change, until the blocks of the overlay have
/// come home ([`OverlayDevice::is_home`]): from then on it is the device itself.
#[derive(Debug)]
pub struct OverlayDevice {
    inner: SharedDevice,
    overlay: RwLock<Option<Overlay>>,
    size: BlockSize,
}

impl OverlayDevice {
    /// The blocks that it shows instead of the device's, while there are any.
    #[must_use]
    pub fn blocks(&self) -> Vec<(BlockNr, Arc<Vec<u8>>)> {
        let overlay = self.overlay.read();
        let blocks = overlay.iter().flat_map(|overlay| &overlay.blocks);
        blocks.map(|(nr, block)| (BlockNr(*nr), Arc::clone(block))).collect()
    }

    /// The device reads by itself as it did through the overlay: it was recovered. The overlay is
    /// gone.
    pub fn is_home(&self) {
        *self.overlay.write() = None;
    }

    fn change<T>(
        &self,
        op: DeviceOp,
        offset: u64,
        change: impl FnOnce(&SharedDevice) -> extol_block::Result<T>,
    ) -> extol_block::Result<T> {
        if self.overlay.read().is_some() {
            return Err(DeviceError::new(
                op,
                offset,
                0,
                std::io::ErrorKind::ReadOnlyFilesystem.into(),
            ));
        }
        change(&self.inner)
    }
}

impl BlockDevice for OverlayDevice {
    extol_block::pass_on!(abilities);

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn is_read_only(&self) -> bool {
        self.overlay.read().is_some() || self.inner.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        let overlay = self.overlay.read();
        self.inner.read_at(buf, offset)?;
        if let Some(overlay) = &*overlay {
            overlay.show(buf, offset, self.size);
        }
        Ok(())
    }

    fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        mut offset: u64,
    ) -> extol_block::Result<()> {
        if self.overlay.read().is_none() {
            return self.inner.read_vectored_at(bufs, offset);
        }
        for buf in bufs {
            self.read_at(buf, offset)?;
            offset += buf.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Write, offset, |inner| inner.write_at(buf, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Write, offset, |inner| inner.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> extol_block::Result<()> {
        self.change(DeviceOp::Write, 0, |inner| inner.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> extol_block::Result<()> {
        self.change(DeviceOp::Write, 0, |inner| inner.write_scattered_fua(writes))
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Write, offset, |inner| inner.write_fua(buf, offset))
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Write, offset, |inner| inner.write_mark(buf, offset))
    }

    fn flush(&self) -> extol_block::Result<()> {
        if self.overlay.read().is_some() { Ok(()) } else { self.inner.flush() }
    }

    fn discard(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Discard, offset, |inner| inner.discard(offset, len))
    }

    fn zero_range(&self, offset: u64, len: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Zero, offset, |inner| inner.zero_range(offset, len))
    }

    fn set_size(&self, bytes: u64) -> extol_block::Result<()> {
        self.change(DeviceOp::Resize, 0, |inner| inner.set_size(bytes))
    }
}

/// A device seen through an [`Overlay`] that takes every change, of its size as well. The device
/// itself stays as it is.
#[derive(Debug)]
pub struct ScratchDevice {
    device: SharedDevice,
    overlay: Mutex<Overlay>,
    size: BlockSize,
    /// Bytes that it has by now.
    bytes: AtomicU64,
    /// Bytes that it has always had: behind them nothing of the device shows.
    least: AtomicU64,
}

impl ScratchDevice {
    /// The overlay with all changes so far.
    #[must_use]
    pub fn overlay(&self) -> Overlay {
        self.overlay.lock().clone()
    }

    /// The device as it is; zeros behind its end.
    fn read_below(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        let least = self.least.load(Ordering::Acquire);
        let there = least.saturating_sub(offset).min(buf.len() as u64);
        let (there, behind) = buf.split_at_mut(usize::try_from(there).unwrap_or(buf.len()));
        behind.fill(0);
        if there.is_empty() { Ok(()) } else { self.device.read_at(there, offset) }
    }

    fn check_range(&self, op: DeviceOp, offset: u64, len: u64) -> extol_block::Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.size()) {
            return Ok(());
        }
        let past = std::io::ErrorKind::InvalidInput.into();
        Err(DeviceError::new(op, offset, len, past))
    }
}

impl BlockDevice for ScratchDevice {
    fn size(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    fn alignment(&self) -> usize {
        self.device.alignment()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> extol_block::Result<()> {
        self.check_range(DeviceOp::Read, offset, buf.len() as u64)?;
        self.read_below(buf, offset)?;
        self.overlay.lock().show(buf, offset, self.size);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> extol_block::Result<()> {
        self.check_range(DeviceOp::Write, offset, buf.len() as u64)?;
        let mut overlay = self.overlay.lock();
        for piece in pieces(buf.len(), offset, self.size) {
            let mut block = vec![0; self.size.len()];
            if piece.bytes.len() < block.len() {
                let at = piece.block.offset(self.size);
                self.read_below(&mut block, at)?;
                overlay.show(&mut block, at, self.size);
            }
            block[piece.inside].copy_from_slice(&buf[piece.bytes]);
            overlay.put(piece.block, block);
        }
        Ok(())
    }

    fn flush(&self) -> extol_block::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> extol_block::Result<()> {
        // Advice, and there is nothing to tell.
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> extol_block::Result<()> {
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

    fn set_size(&self, bytes: u64) -> extol_block::Result<()> {
        let before = self.bytes.swap(bytes, Ordering::AcqRel);
        if bytes < before {
            // What is added later reads as zeros.
            self.least.fetch_min(bytes, Ordering::AcqRel);
            self.overlay.lock().cut(bytes, self.size);
        }
        Ok(())
    }
}
