//! A device of another host, by the NBD protocol.
//!
//! Requests of parts of the server's blocks are made of whole ones: a read takes those around it, a
//! write reads the blocks at its edges first, under the same lock as direct I/O (`range_lock.rs`).
//!
//! A server that has no flush has nothing to flush: its replies are all that it promises. What it
//! refuses is an error of the request; a connection that breaks is an error of every later one, as
//! for a disk that is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extol_nbd::{Client, Dial, ExportFlags, Uri};

use crate::coalesce::FlushCoalescer;
use crate::range_lock::{Coverage, RangeLock};
use crate::{
    BlockDevice, DeviceError, DeviceOp, Fua, Result, ScatteredWrite, check_range, check_writable,
    joined, total_len,
};

/// Bytes of zeros that are written at a time where the server cannot zero.
const ZEROS: u64 = 1 << 20;

/// An export of an NBD server.
#[derive(Debug)]
pub struct NetworkDevice {
    uri: Uri,
    path: PathBuf,
    client: Client,
    read_only: AtomicBool,
    /// Requests are whole multiples of it.
    block: u64,
    locks: RangeLock,
    flushes: FlushCoalescer,
}

impl NetworkDevice {
    /// Connects to an export, for a volume that begins at this byte of it.
    ///
    /// # Errors
    /// The server cannot be reached or refuses; the export is read-only, and `read_only` is not
    /// set.
    pub fn open(uri: &Uri, read_only: bool, start: u64) -> io::Result<Self> {
        let client = Client::connect_to(uri, start).map_err(extol_nbd::Error::into_io)?;
        if !read_only && client.export().flags.contains(ExportFlags::READ_ONLY) {
            return Err(crate::sys::read_only());
        }
        Ok(Self {
            path: PathBuf::from(uri.to_string()),
            uri: uri.clone(),
            block: client.export().limits.min.into(),
            client,
            read_only: AtomicBool::new(read_only),
            locks: RangeLock::default(),
            flushes: FlushCoalescer::new(),
        })
    }

    /// Its address, as it was written.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if a connection that breaks is made again.
    #[must_use]
    pub fn reconnects(&self) -> bool {
        self.uri.reconnect.is_none_or(|time| !time.is_zero())
    }

    /// Lets another process make all connections from now on. The first such call counts.
    pub fn dial_by(&self, other: Arc<dyn Dial>) {
        self.client.dial_by(other);
    }

    fn has(&self, flag: ExportFlags) -> bool {
        self.client.export().flags.contains(flag)
    }

    fn error(&self, op: DeviceOp, offset: u64, len: u64, error: extol_nbd::Error) -> DeviceError {
        let error = error.into_io();
        // (Numbers of errors are kept: layers above decide by them.)
        let error = match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::new(error.kind(), format!("{}: {error}", self.uri)),
        };
        DeviceError::new(op, offset, len, error)
    }

    /// The whole blocks around a range.
    fn blocks(&self, offset: u64, len: u64) -> Range<u64> {
        offset / self.block * self.block..(offset + len).next_multiple_of(self.block)
    }

    /// The whole blocks inside of a range.
    fn inner_blocks(&self, offset: u64, len: u64) -> Range<u64> {
        let start = offset.next_multiple_of(self.block);
        start..((offset + len) / self.block * self.block).max(start)
    }

    fn is_whole(&self, offset: u64, len: u64) -> bool {
        (offset | len).is_multiple_of(self.block)
    }

    fn write(&self, bufs: &[IoSlice<'_>], offset: u64, fua: bool) -> Result<()> {
        let len = total_len(bufs);
        check_writable(DeviceOp::Write, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Write, offset, len, self.size())?;
        if len == 0 {
            return Ok(());
        }
        let range = self.blocks(offset, len);
        let written = if self.is_whole(offset, len) {
            let _guard = self.locks.lock(range, Coverage::Whole);
            self.client.write(bufs, offset, fua)
        } else {
            let _guard = self.locks.lock(range.clone(), Coverage::Partial);
            self.write_partly(bufs, offset, range, fua)
        };
        written.map_err(|error| self.error(DeviceOp::Write, offset, len, error))
    }

    /// Writes whole blocks, of which those at the edges are read first.
    fn write_partly(
        &self,
        bufs: &[IoSlice<'_>],
        offset: u64,
        range: Range<u64>,
        fua: bool,
    ) -> extol_nbd::Result<()> {
        let block = self.block as usize;
        let bytes = joined(bufs);
        let mut all = vec![0; (range.end - range.start) as usize];
        let last = all.len() - block;
        let mut edges = vec![0];
        edges.extend((last > 0).then_some(last));
        for at in edges {
            let edge = &mut all[at..at + block];
            self.client.read(&mut [IoSliceMut::new(edge)], range.start + at as u64)?;
        }
        let at = (offset - range.start) as usize;
        all[at..at + bytes.len()].copy_from_slice(&bytes);
        self.client.write(&[IoSlice::new(&all)], range.start, fua)
    }

    fn write_zeros(&self, range: Range<u64>) -> Result<()> {
        let zeros = vec![0; ZEROS.min(range.end - range.start) as usize];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(ZEROS);
            self.write(&[IoSlice::new(&zeros[..len as usize])], at, false)?;
            at += len;
        }
        Ok(())
    }

    /// Writes that go out together; `None` if one of them is not of whole blocks.
    fn write_together(&self, writes: &[ScatteredWrite<'_>], fua: bool) -> Option<Result<()>> {
        let places: Vec<_> = writes.iter().map(|write| (write.offset, write.len())).collect();
        for (offset, len) in &places {
            let checked = check_writable(DeviceOp::Write, *offset, *len, self.is_read_only())
                .and_then(|()| check_range(DeviceOp::Write, *offset, *len, self.size()));
            if checked.is_err() {
                return Some(checked);
            }
        }
        if !places.iter().all(|(offset, len)| self.is_whole(*offset, *len)) {
            return None;
        }
        let lock = |(offset, len): &(u64, u64)| {
            self.locks.lock(self.blocks(*offset, *len), Coverage::Whole)
        };
        let _guards: Vec<_> = places.iter().map(lock).collect();
        let bufs: Vec<_> = writes.iter().flat_map(|w| w.bufs).map(|b| IoSlice::new(b)).collect();
        let first = places.first().copied().unwrap_or_default();
        let written = self.client.write_all(&places, &bufs, fua);
        Some(written.map_err(|error| self.error(DeviceOp::Write, first.0, first.1, error)))
    }
}

impl BlockDevice for NetworkDevice {
    fn size(&self) -> u64 {
        self.client.export().size
    }

    fn alignment(&self) -> usize {
        self.block as usize
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    fn make_writable(&self) -> Result<()> {
        if self.is_read_only() && self.has(ExportFlags::READ_ONLY) {
            return Err(DeviceError::new(DeviceOp::Open, 0, 0, crate::sys::read_only()));
        }
        self.read_only.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn is_locked(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let len = total_len(bufs);
        check_range(DeviceOp::Read, offset, len, self.size())?;
        if len == 0 {
            return Ok(());
        }
        let failed = |error| self.error(DeviceOp::Read, offset, len, error);
        if self.is_whole(offset, len) {
            return self.client.read(bufs, offset).map_err(failed);
        }
        let range = self.blocks(offset, len);
        let mut all = vec![0; (range.end - range.start) as usize];
        self.client.read(&mut [IoSliceMut::new(&mut all)], range.start).map_err(failed)?;
        let mut rest = &all[(offset - range.start) as usize..];
        for buf in bufs {
            let (now, later) = rest.split_at(buf.len());
            buf.copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(&[IoSlice::new(buf)], offset, false)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write(bufs, offset, false)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.write_together(writes, false).unwrap_or_else(|| {
            writes.iter().try_for_each(|write| self.write(write.bufs, write.offset, false))
        })
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        if self.has(ExportFlags::FUA)
            && let Some(written) = self.write_together(writes, true)
        {
            return written;
        }
        self.write_scattered(writes)?;
        self.flush()
    }

    fn fua(&self) -> Fua {
        // (Whether the medium of the server knows it, or the server flushes, is not told.)
        if self.has(ExportFlags::FUA) { Fua::PerWrite } else { Fua::Flush }
    }

    fn fua_is_flush(&self) -> bool {
        !self.has(ExportFlags::FUA)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        let fua = self.has(ExportFlags::FUA);
        self.write(&[IoSlice::new(buf)], offset, fua)?;
        if fua { Ok(()) } else { self.flush() }
    }

    fn flush(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.flushes.run(|| {
            self.client.flush().map_err(|error| self.error(DeviceOp::Flush, 0, self.size(), error))
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Discard, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Discard, offset, len, self.size())?;
        if !self.can_discard() {
            let why = io::Error::new(io::ErrorKind::Unsupported, "the server cannot discard");
            return Err(DeviceError::new(DeviceOp::Discard, offset, len, why));
        }
        let range = self.inner_blocks(offset, len);
        if range.is_empty() {
            return Ok(());
        }
        let _guard = self.locks.lock(range.clone(), Coverage::Partial);
        self.client.trim(range).map_err(|error| self.error(DeviceOp::Discard, offset, len, error))
    }

    fn can_discard(&self) -> bool {
        self.has(ExportFlags::TRIM)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        check_writable(DeviceOp::Zero, offset, len, self.is_read_only())?;
        check_range(DeviceOp::Zero, offset, len, self.size())?;
        let inner = self.inner_blocks(offset, len);
        if inner.is_empty() || !self.has(ExportFlags::WRITE_ZEROES) {
            return self.write_zeros(offset..offset + len);
        }
        let zeroed = {
            let _guard = self.locks.lock(inner.clone(), Coverage::Partial);
            self.client.write_zeroes(inner.clone(), true)
        };
        zeroed.map_err(|error| self.error(DeviceOp::Zero, offset, len, error))?;
        self.write_zeros(offset..inner.start)?;
        self.write_zeros(inner.end..offset + len)
    }

    fn data_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        let size = self.size();
        // (What is asked for begins at a block; its first extent may begin before `at`.)
        let mut from = at / self.block * self.block;
        let mut found: Option<Range<u64>> = None;
        while from < size {
            let status = self.client.block_status(from..size);
            let failed = |error| self.error(DeviceOp::Read, at, 0, error);
            let Some(extents) = status.map_err(failed)? else {
                return Ok(Some(at..size));
            };
            for extent in extents {
                match &mut found {
                    Some(data) if extent.is_zero => return Ok(Some(data.clone())),
                    Some(data) => data.end = extent.range.end,
                    None if extent.is_zero => {}
                    None => found = Some(extent.range.start.max(at)..extent.range.end),
                }
                from = extent.range.end;
            }
        }
        Ok(found)
    }
}
