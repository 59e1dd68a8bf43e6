//! The device behind the guard.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use extol_block::{
    BlockDevice, DeviceError, DeviceOp, Result, ScatteredWrite, SharedDevice, joined,
};
use extol_ondisk::shared_super::{Bytes, Deliberate, merge};
use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};

use super::watch::LOG_PART;
use super::{Guard, NEVER};

/// What a device holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The volume (and its log, mostly).
    Volume,
    /// The log alone.
    Log,
}

/// Asks the [`Guard`] before every change, and merges what is written to the superblock.
#[derive(Debug)]
pub(crate) struct GuardedDevice {
    inner: SharedDevice,
    guard: Arc<Guard>,
    part: Part,
}

/// The bytes of `len` from `at` as a part of what is written at `offset`, if all of them are.
fn inside(offset: u64, len: u64, at: u64, part: usize) -> Option<usize> {
    let skip = at.checked_sub(offset)?;
    (skip.checked_add(part as u64)? <= len).then(|| usize::try_from(skip).ok()).flatten()
}

fn touches(offset: u64, len: u64, at: u64, part: usize) -> bool {
    offset < at.saturating_add(part as u64) && at < offset.saturating_add(len)
}

impl GuardedDevice {
    pub fn new(inner: SharedDevice, guard: Arc<Guard>, part: Part) -> Self {
        Self { inner, guard, part }
    }

    /// Where the log's superblock is, if it is here.
    fn log_at(&self) -> u64 {
        let external = self.guard.log_is_external.load(Ordering::Relaxed);
        if external == (self.part == Part::Log) {
            self.guard.log_at.load(Ordering::Acquire)
        } else {
            NEVER
        }
    }

    /// True if a change may touch one of the watched superblocks.
    fn is_watched(&self, offset: u64, len: u64) -> bool {
        (self.part == Part::Volume && touches(offset, len, SUPERBLOCK_OFFSET, SUPERBLOCK_LEN))
            || touches(offset, len, self.log_at(), LOG_PART)
    }

    /// Writes what touches a watched superblock, with the device's share of it. What the mount
    /// changed of that share goes with it, but not with a mark: that is for a volume whose changes
    /// never become durable.
    fn watched(
        &self,
        writes: &[ScatteredWrite<'_>],
        is_mark: bool,
        write: impl FnOnce(&[ScatteredWrite<'_>]) -> Result<()>,
    ) -> Result<()> {
        let mut slot = self.guard.watch.lock();
        let Some(watch) = &mut *slot else { return write(writes) };
        let mut buffers: Vec<Vec<u8>> = writes.iter().map(|w| joined(w.bufs)).collect();
        let (mut superblock, mut log) = (None, None);
        for (w, bytes) in writes.iter().zip(&mut buffers) {
            let len = bytes.len() as u64;
            if self.part == Part::Volume
                && let Some(at) = inside(w.offset, len, SUPERBLOCK_OFFSET, SUPERBLOCK_LEN)
                && let Some(part) = bytes.get_mut(at..at + SUPERBLOCK_LEN)
                && let Ok(ours) = <&mut Bytes>::try_from(part)
            {
                let known = *watch.superblock();
                let theirs = *watch.read_superblock().map_err(|why| {
                    self.guard.lose(why.clone());
                    DeviceError::new(DeviceOp::Write, w.offset, len, std::io::Error::other(why))
                })?;
                self.guard.note_outside_change(&known, &theirs);
                let deliberate = match is_mark {
                    true => Deliberate::default(),
                    false => self.guard.deliberate.lock().clone(),
                };
                *ours = merge(ours, &theirs, &deliberate);
                superblock = Some(*ours);
            }
            if let Some(at) = inside(w.offset, len, self.log_at(), LOG_PART) {
                log = bytes
                    .get(at..at + LOG_PART)
                    .and_then(|part| <[u8; LOG_PART]>::try_from(part).ok());
            }
        }
        let slices: Vec<[IoSlice<'_>; 1]> =
            buffers.iter().map(|bytes| [IoSlice::new(bytes)]).collect();
        let merged: Vec<ScatteredWrite<'_>> = writes
            .iter()
            .zip(&slices)
            .map(|(w, bufs)| ScatteredWrite { offset: w.offset, bufs })
            .collect();
        let result = write(&merged);
        if result.is_err() {
            watch.set_uncertain();
            return result;
        }
        if let Some(bytes) = superblock {
            watch.wrote_superblock(&bytes);
            self.guard.deliberate.lock().settle(&bytes);
        }
        if let Some(part) = log {
            watch.wrote_log(part);
        }
        result
    }

    /// One write that goes its own way unless it is watched.
    fn one(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        is_mark: bool,
        write: impl FnOnce(&[IoSlice<'_>]) -> Result<()>,
    ) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.guard.before(DeviceOp::Write, offset, len)?;
        if !self.is_watched(offset, len) {
            return write(bufs);
        }
        self.watched(&[ScatteredWrite { offset, bufs }], is_mark, |merged| {
            merged.first().map_or(Ok(()), |w| write(w.bufs))
        })
    }

    fn many(
        &self,
        writes: &[ScatteredWrite<'_>],
        write: impl FnOnce(&[ScatteredWrite<'_>]) -> Result<()>,
    ) -> Result<()> {
        let at = writes.first().map_or(0, |w| w.offset);
        self.guard.before(DeviceOp::Write, at, writes.iter().map(ScatteredWrite::len).sum())?;
        if writes.iter().any(|w| self.is_watched(w.offset, w.len())) {
            return self.watched(writes, false, write);
        }
        write(writes)
    }

    /// A durable write of one buffer.
    fn durable(
        &self,
        buf: &[u8],
        offset: u64,
        is_mark: bool,
        write: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.one(&[IoSlice::new(buf)], offset, is_mark, |bufs| match bufs {
            [one] => write(one),
            _ => write(&joined(bufs)),
        })?;
        self.guard.after(DeviceOp::Write, offset, buf.len() as u64)
    }
}

impl BlockDevice for GuardedDevice {
    extol_block::pass_on!(shape, abilities, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.one(&[IoSlice::new(buf)], offset, false, |bufs| match bufs {
            [one] => self.inner.write_at(one, offset),
            _ => self.inner.write_vectored_at(bufs, offset),
        })
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.one(bufs, offset, false, |bufs| self.inner.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.many(writes, |writes| self.inner.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.many(writes, |writes| self.inner.write_scattered_fua(writes))?;
        self.guard.after(DeviceOp::Write, writes.first().map_or(0, |w| w.offset), 0)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.durable(buf, offset, false, |buf| self.inner.write_fua(buf, offset))
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.durable(buf, offset, true, |buf| self.inner.write_mark(buf, offset))
    }

    fn flush(&self) -> Result<()> {
        self.guard.before(DeviceOp::Flush, 0, 0)?;
        self.inner.flush()?;
        self.guard.after(DeviceOp::Flush, 0, 0)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.guard.before(DeviceOp::Discard, offset, len)?;
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.guard.before(DeviceOp::Zero, offset, len)?;
        self.inner.zero_range(offset, len)
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        self.guard.before(DeviceOp::Resize, 0, bytes)?;
        self.inner.set_size(bytes)
    }
}
