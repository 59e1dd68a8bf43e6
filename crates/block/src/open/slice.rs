//! A part of a device as a device: a partition, or a window into an image.
//!
//! - OP-2: nothing outside of the part is read or written. Each range is checked against the length
//!   of the part before it is moved, and a part ends where its device does at the latest.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;

use crate::{
    BlockDevice, DeviceOp, Fua, Result, ScatteredWrite, SharedDevice, check_range, total_len,
};

/// A part of a device.
#[derive(Clone, Debug)]
pub struct Slice {
    inner: SharedDevice,
    start: u64,
    len: u64,
}

impl Slice {
    /// The `len` bytes from `start`, fewer where the device ends before.
    #[must_use]
    pub fn new(inner: SharedDevice, start: u64, len: u64) -> Self {
        let size = inner.size();
        let start = start.min(size);
        Self { len: len.min(size - start), inner, start }
    }

    /// Where a range of the part is on the device.
    fn at(&self, op: DeviceOp, offset: u64, len: u64) -> Result<u64> {
        check_range(op, offset, len, self.len)?;
        Ok(self.start + offset)
    }

    fn moved<'w>(&self, writes: &[ScatteredWrite<'w>]) -> Result<Vec<ScatteredWrite<'w>>> {
        let moved = |write: &ScatteredWrite<'w>| {
            let offset = self.at(DeviceOp::Write, write.offset, write.len())?;
            Ok(ScatteredWrite { offset, ..*write })
        };
        writes.iter().map(moved).collect()
    }
}

impl BlockDevice for Slice {
    fn size(&self) -> u64 {
        self.len
    }

    fn size_now(&self) -> u64 {
        self.inner.size_now().saturating_sub(self.start).min(self.len)
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn table_sector(&self) -> u64 {
        self.inner.table_sector()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn write_refusal(&self) -> Option<String> {
        self.inner.write_refusal()
    }

    fn make_writable(&self) -> Result<()> {
        self.inner.make_writable()
    }

    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    fn keep_others_out(&self) -> Result<()> {
        self.inner.keep_others_out()
    }

    fn drop_page_cache(&self) {
        self.inner.drop_page_cache();
    }

    fn fua_is_flush(&self) -> bool {
        self.inner.fua_is_flush()
    }

    fn fua(&self) -> Fua {
        self.inner.fua()
    }

    fn can_discard(&self) -> bool {
        self.inner.can_discard()
    }

    fn discard_zeroes(&self) -> bool {
        self.inner.discard_zeroes()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let at = self.at(DeviceOp::Read, offset, buf.len() as u64)?;
        self.inner.read_at(buf, at)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        let at = self.at(DeviceOp::Read, offset, total_len(bufs))?;
        self.inner.read_vectored_at(bufs, at)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let at = self.at(DeviceOp::Write, offset, buf.len() as u64)?;
        self.inner.write_at(buf, at)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let at = self.at(DeviceOp::Write, offset, total_len(bufs))?;
        self.inner.write_vectored_at(bufs, at)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.inner.write_scattered(&self.moved(writes)?)
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.inner.write_scattered_fua(&self.moved(writes)?)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        let at = self.at(DeviceOp::Write, offset, buf.len() as u64)?;
        self.inner.write_fua(buf, at)
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        let at = self.at(DeviceOp::Write, offset, buf.len() as u64)?;
        self.inner.write_mark(buf, at)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let at = self.at(DeviceOp::Discard, offset, len)?;
        self.inner.discard(at, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        let at = self.at(DeviceOp::Zero, offset, len)?;
        self.inner.zero_range(at, len)
    }

    fn data_from(&self, at: u64) -> Result<Option<Range<u64>>> {
        if at >= self.len {
            return Ok(None);
        }
        let data = self.inner.data_from(self.start + at)?;
        let inside = data.map(|data| data.start - self.start..data.end - self.start);
        Ok(inside
            .filter(|data| data.start < self.len)
            .map(|data| data.start..data.end.min(self.len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;
    use std::sync::Arc;

    /// OP-2: whatever is asked of a part, its neighbours stay as they are.
    #[test]
    fn nothing_outside_is_touched() {
        let whole = Arc::new(MemDevice::new(64 << 10));
        whole.write_at(&[7; 64 << 10], 0).unwrap();
        let part = Slice::new(whole.clone(), 16 << 10, 8 << 10);
        assert_eq!((part.size(), part.size_now()), (8 << 10, 8 << 10));
        let buf = [1; 4096];
        let bufs = [IoSlice::new(&buf)];
        let good = ScatteredWrite { offset: 0, bufs: &bufs };
        let bad = ScatteredWrite { offset: 4097, bufs: &bufs };
        for at in [4097, 8 << 10, u64::MAX, u64::MAX - 4095] {
            assert!(part.read_at(&mut [0; 4096], at).is_err(), "{at}");
            assert!(part.read_vectored_at(&mut [IoSliceMut::new(&mut [0; 4096])], at).is_err());
            assert!(part.write_at(&buf, at).is_err() && part.write_fua(&buf, at).is_err());
            assert!(part.write_vectored_at(&bufs, at).is_err(), "{at}");
            assert!(part.write_mark(&buf, at).is_err() && part.zero_range(at, 4096).is_err());
            assert!(part.discard(at, 4096).is_err(), "{at}");
        }
        assert!(part.write_scattered(&[good, bad]).is_err());
        assert!(part.write_scattered_fua(&[good, bad]).is_err());
        assert!(part.set_size(16 << 10).is_err());
        assert_eq!(part.data_from(4096).unwrap(), Some(4096..8 << 10));
        assert_eq!(part.data_from(8 << 10).unwrap(), None);
        part.write_scattered(&[good]).unwrap();
        part.write_at(&buf, 4096).unwrap();
        let mut all = vec![0; 64 << 10];
        whole.read_at(&mut all, 0).unwrap();
        let is_part = |at: usize| (16 << 10..24 << 10).contains(&at);
        for (at, byte) in all.iter().enumerate() {
            assert_eq!(*byte, if is_part(at) { 1 } else { 7 }, "{at}");
        }
    }

    #[test]
    fn a_part_ends_with_its_device() {
        let whole: SharedDevice = Arc::new(MemDevice::new(4096));
        let ends = |start, len| Slice::new(whole.clone(), start, len).size();
        assert_eq!(ends(4000, 1000), 96);
        assert_eq!((ends(4096, 1), ends(u64::MAX, u64::MAX), ends(1, u64::MAX)), (0, 0, 4095));
    }
}
