//! Counts what reaches a device.

use extol_block::{BlockDevice, Result, ScatteredWrite, total_len};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a device was asked to do so far. Failed operations count too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests, FUA writes included.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Durable writes; a batch of them counts once.
    pub fua_writes: u64,
    /// Flushes asked for.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Zeroed ranges.
    pub zeros: u64,
}

/// Decorator with atomic counters.
#[derive(Debug)]
pub struct CountingDevice<D> {
    inner: D,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    fua_writes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    zeros: AtomicU64,
}

impl<D: BlockDevice> CountingDevice<D> {
    /// Wraps `inner`, all counters at zero.
    pub fn new(inner: D) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            inner,
            reads: zero(),
            read_bytes: zero(),
            writes: zero(),
            write_bytes: zero(),
            fua_writes: zero(),
            flushes: zero(),
            discards: zero(),
            zeros: zero(),
        }
    }

    /// The device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The counters now. Each is exact; together they are not one instant.
    pub fn stats(&self) -> DeviceStats {
        DeviceStats {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            fua_writes: self.fua_writes.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
            discards: self.discards.load(Relaxed),
            zeros: self.zeros.load(Relaxed),
        }
    }

    fn count_read(&self, bytes: u64) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    fn count_write(&self, bytes: u64) {
        self.writes.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(bytes, Relaxed);
    }
}

impl<D: BlockDevice> BlockDevice for CountingDevice<D> {
    extol_block::pass_on!(shape, abilities, length);

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.count_read(buf.len() as u64);
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.count_write(buf.len() as u64);
        self.inner.write_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.count_read(total_len(bufs));
        self.inner.read_vectored_at(bufs, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.count_write(total_len(bufs));
        self.inner.write_vectored_at(bufs, offset)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        for write in writes {
            self.count_write(write.len());
        }
        self.inner.write_scattered(writes)
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        for write in writes {
            self.count_write(write.len());
        }
        self.fua_writes.fetch_add(1, Relaxed);
        self.inner.write_scattered_fua(writes)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.count_write(buf.len() as u64);
        self.fua_writes.fetch_add(1, Relaxed);
        self.inner.write_fua(buf, offset)
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.count_write(buf.len() as u64);
        self.fua_writes.fetch_add(1, Relaxed);
        self.inner.write_mark(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Relaxed);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.discards.fetch_add(1, Relaxed);
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.zeros.fetch_add(1, Relaxed);
        self.inner.zero_range(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_block::MemDevice;

    #[test]
    fn counts_requests_and_bytes() {
        let d = CountingDevice::new(MemDevice::new(1 << 20));
        d.write_at(&[1; 100], 0).expect("write");
        d.write_fua(&[1; 50], 0).expect("fua");
        d.write_vectored_at(&[IoSlice::new(&[1; 10]), IoSlice::new(&[2; 20])], 0).expect("writev");
        let bufs = [IoSlice::new(&[3; 5]), IoSlice::new(&[4; 2])];
        let writes = [100, 200].map(|offset| ScatteredWrite { offset, bufs: &bufs });
        d.write_scattered(&writes).expect("scattered");
        let (mut a, mut b) = ([0; 8], [0; 4]);
        d.read_at(&mut a, 0).expect("read");
        d.read_vectored_at(&mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)], 0)
            .expect("readv");
        d.flush().expect("flush");
        d.discard(0, 10).expect("discard");
        d.zero_range(0, 10).expect("zero");
        let expected = DeviceStats {
            reads: 2,
            read_bytes: 20,
            writes: 5,
            write_bytes: 194,
            fua_writes: 1,
            flushes: 1,
            discards: 1,
            zeros: 1,
        };
        assert_eq!(d.stats(), expected);
    }

    #[test]
    fn a_mark_stays_a_mark() {
        use crate::{Fault, FaultDevice};
        use extol_block::{DeviceOp, FailLatch};
        let broken = FaultDevice::new(MemDevice::new(1 << 20), [Fault::once(DeviceOp::Flush, 0)]);
        let d = CountingDevice::new(FailLatch::new(broken));
        d.flush().expect_err("the fault");
        d.write_fua(&[1; 50], 0).expect_err("latched");
        d.write_mark(&[1; 50], 0).expect("gets through");
        assert_eq!(d.stats().fua_writes, 2);
    }
}
