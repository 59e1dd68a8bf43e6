//! A device that was used before: what was never written does not read as zeros.
//!
//! Without it zeroing would cost nothing, because memory and sparse files read as zeros
//! from the start, and a lazy initialisation that looks first finds nothing to do. Discarding is
//! refused, as that would make it as good as new.
//!
//! One bit per page of 4 KiB says whether the page was ever written. A page that is written in part
//! for the first time gets its old contents first; those writes go one after the other.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result, SharedDevice};
use parking_lot::Mutex;

const PAGE: u64 = 4096;
pub(super) const OLD: u8 = 0xA5;

/// The device.
#[derive(Debug)]
pub(super) struct Stale {
    inner: SharedDevice,
    written: Vec<AtomicU64>,
    partial: Mutex<()>,
}

impl Stale {
    /// Fills all of `inner`, which must hold nothing, with old contents.
    pub fn new(inner: SharedDevice) -> Self {
        let pages = inner.size().div_ceil(PAGE);
        let written = (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { inner, written, partial: Mutex::new(()) }
    }

    fn is_written(&self, page: u64) -> bool {
        let word = self.written.get((page / 64) as usize);
        word.is_some_and(|w| w.load(Ordering::Acquire) >> (page % 64) & 1 == 1)
    }

    fn mark(&self, page: u64) {
        if let Some(word) = self.written.get((page / 64) as usize) {
            word.fetch_or(1 << (page % 64), Ordering::Release);
        }
    }

    /// Runs `change` of a range, of which the pages at the ends get their old contents first if
    /// they are new.
    fn change(&self, offset: u64, len: u64, change: impl FnOnce() -> Result<()>) -> Result<()> {
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > self.size()) {
            return change();
        }
        let end = offset + len;
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        let _one = (!offset.is_multiple_of(PAGE) || !end.is_multiple_of(PAGE))
            .then(|| self.partial.lock());
        let cut =
            |page: u64| page * PAGE < offset || ((page + 1) * PAGE > end && end < self.size());
        for page in [first, last] {
            if cut(page) && !self.is_written(page) {
                let size = PAGE.min(self.size() - page * PAGE) as usize;
                self.inner.write_at(&[OLD; PAGE as usize][..size], page * PAGE)?;
                self.mark(page);
            }
        }
        change()?;
        (first..=last).for_each(|page| self.mark(page));
        Ok(())
    }
}

impl BlockDevice for Stale {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)?;
        let mut at = 0;
        while at < buf.len() {
            let here = offset + at as u64;
            let size = (PAGE - here % PAGE).min((buf.len() - at) as u64) as usize;
            if !self.is_written(here / PAGE) {
                buf[at..at + size].fill(OLD);
            }
            at += size;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.change(offset, buf.len() as u64, || self.inner.write_at(buf, offset))
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.change(offset, buf.len() as u64, || self.inner.write_fua(buf, offset))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        Err(DeviceError::new(
            DeviceOp::Discard,
            offset,
            len,
            io::Error::from(io::ErrorKind::Unsupported),
        ))
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.change(offset, len, || self.inner.zero_range(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extol_block::MemDevice;

    use super::*;

    #[test]
    fn old_until_written() {
        let device = Stale::new(Arc::new(MemDevice::new(1 << 20)));
        let read = |offset, len| {
            let mut buf = vec![0; len];
            device.read_at(&mut buf, offset).unwrap();
            buf
        };
        assert_eq!(read(100, 10_000), vec![OLD; 10_000]);
        device.write_at(&[1; 10], 5000).unwrap();
        assert_eq!(read(4999, 12), [vec![OLD], vec![1; 10], vec![OLD]].concat());
        device.zero_range(8192, 8192 + 100).unwrap();
        assert_eq!(read(8192, 8192 + 101), [vec![0; 8292], vec![OLD]].concat());
        device.write_fua(&[2; 4096], 1 << 16).unwrap();
        assert_eq!(read((1 << 16) - 1, 4098), [vec![OLD], vec![2; 4096], vec![OLD]].concat());
        assert!(device.discard(0, 4096).is_err());
        assert_eq!(read(0, 4096), vec![OLD; 4096]);
    }
}
