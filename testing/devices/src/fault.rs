//! A device that fails on demand, for tests.
//!
//! A [`Fault`] names an operation, how many of them succeed first, and whether only one fails or
//! all from then on. Operations are counted per kind since the device was made; a vectored request
//! is one, a FUA write is a write, a scattered batch is as many as it has writes, and those behind
//! the failed one are not done. A failed operation does not reach the device inside.

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result, ScatteredWrite, total_len};
use parking_lot::Mutex;
use std::io::{self, IoSlice, IoSliceMut};

/// How long a fault lasts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultSpan {
    /// One operation fails.
    Once,
    /// This one and all later ones fail.
    FromThenOn,
}

/// What fails, when, how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The kind of operation.
    pub op: DeviceOp,
    /// How many operations of this kind succeed first, counted from when the fault was armed.
    pub after: u64,
    /// How long it lasts.
    pub span: FaultSpan,
    /// The error number given to the caller.
    pub errno: i32,
}

impl Fault {
    /// The operation number `after` (from 0) fails with EIO.
    #[must_use]
    pub fn once(op: DeviceOp, after: u64) -> Self {
        Self { op, after, span: FaultSpan::Once, errno: libc::EIO }
    }

    /// The operation number `after` (from 0) and all later ones fail with EIO.
    #[must_use]
    pub fn from_then_on(op: DeviceOp, after: u64) -> Self {
        Self { op, after, span: FaultSpan::FromThenOn, errno: libc::EIO }
    }
}

/// Decorator that fails chosen operations.
#[derive(Debug)]
pub struct FaultDevice<D> {
    inner: D,
    armed: Mutex<Vec<Fault>>,
}

impl<D: BlockDevice> FaultDevice<D> {
    /// Wraps `inner` with these faults armed.
    pub fn new(inner: D, faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { inner, armed: Mutex::new(faults.into_iter().collect()) }
    }

    /// Adds a fault; its count starts now.
    pub fn arm(&self, fault: Fault) {
        self.armed.lock().push(fault);
    }

    /// Takes all faults away.
    pub fn disarm(&self) {
        self.armed.lock().clear();
    }

    /// The device inside.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn strike(&self, op: DeviceOp, offset: u64, len: u64) -> Result<()> {
        let mut hit = None;
        self.armed.lock().retain_mut(|fault| {
            if fault.op != op {
                return true;
            }
            if fault.after > 0 {
                fault.after -= 1;
                return true;
            }
            hit = Some(fault.errno);
            fault.span == FaultSpan::FromThenOn
        });
        match hit {
            None => Ok(()),
            Some(errno) => {
                Err(DeviceError::new(op, offset, len, io::Error::from_raw_os_error(errno)))
            }
        }
    }

    fn strike_batch(
        &self,
        writes: &[ScatteredWrite<'_>],
        write: impl Fn(&D, &[ScatteredWrite<'_>]) -> Result<()>,
    ) -> Result<()> {
        for (i, next) in writes.iter().enumerate() {
            if let Err(error) = self.strike(DeviceOp::Write, next.offset, next.len()) {
                // A failure inside concerns an earlier write of the batch and goes first.
                write(&self.inner, &writes[..i])?;
                return Err(error);
            }
        }
        write(&self.inner, writes)
    }
}

impl<D: BlockDevice> BlockDevice for FaultDevice<D> {
    extol_block::pass_on!(shape, abilities);

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.strike(DeviceOp::Read, offset, buf.len() as u64)?;
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.strike(DeviceOp::Write, offset, buf.len() as u64)?;
        self.inner.write_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.strike(DeviceOp::Read, offset, total_len(bufs))?;
        self.inner.read_vectored_at(bufs, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.strike(DeviceOp::Write, offset, total_len(bufs))?;
        self.inner.write_vectored_at(bufs, offset)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.strike_batch(writes, |d, writes| d.write_scattered(writes))
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.strike_batch(writes, |d, writes| d.write_scattered_fua(writes))
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.strike(DeviceOp::Write, offset, buf.len() as u64)?;
        self.inner.write_fua(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.strike(DeviceOp::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.strike(DeviceOp::Discard, offset, len)?;
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.strike(DeviceOp::Zero, offset, len)?;
        self.inner.zero_range(offset, len)
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        self.strike(DeviceOp::Resize, 0, bytes)?;
        self.inner.set_size(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_block::MemDevice;

    #[test]
    fn once_and_from_then_on() {
        let d = FaultDevice::new(MemDevice::new(4096), [Fault::once(DeviceOp::Write, 2)]);
        let results: Vec<bool> = (0..5).map(|i| d.write_at(&[i], u64::from(i)).is_ok()).collect();
        assert_eq!(results, [true, true, false, true, true]);
        let mut bytes = [9; 5];
        d.read_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes, [0, 1, 0, 3, 4], "the failed write did nothing");

        d.arm(Fault { errno: libc::ENOSPC, ..Fault::from_then_on(DeviceOp::Flush, 1) });
        let errors: Vec<_> =
            (0..3).map(|_| d.flush().err().and_then(|e| e.source.raw_os_error())).collect();
        assert_eq!(errors, [None, Some(libc::ENOSPC), Some(libc::ENOSPC)]);
        d.disarm();
        d.flush().expect("flush");
    }

    #[test]
    fn each_write_of_a_batch_counts() {
        let d = FaultDevice::new(MemDevice::new(4096), [Fault::once(DeviceOp::Write, 2)]);
        let bufs = [IoSlice::new(&[7])];
        let writes = [0, 1, 2, 3].map(|offset| ScatteredWrite { offset, bufs: &bufs });
        assert_eq!(d.write_scattered(&writes).expect_err("the third").offset, 2);
        let mut bytes = [9; 4];
        d.read_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes, [7, 7, 0, 0]);
        d.write_scattered(&writes).expect("the fault is over");
    }

    #[test]
    fn every_kind_can_fail() {
        let d = FaultDevice::new(MemDevice::new(4096), []);
        for op in
            [DeviceOp::Read, DeviceOp::Write, DeviceOp::Flush, DeviceOp::Discard, DeviceOp::Zero]
        {
            d.arm(Fault::from_then_on(op, 0));
        }
        let mut byte = [0];
        assert!(d.read_at(&mut byte, 0).is_err());
        assert!(d.read_vectored_at(&mut [IoSliceMut::new(&mut byte)], 0).is_err());
        assert!(d.write_at(&[1], 0).is_err());
        assert!(d.write_vectored_at(&[IoSlice::new(&[1])], 0).is_err());
        assert!(d.write_fua(&[1], 0).is_err());
        assert!(d.flush().is_err());
        assert!(d.discard(0, 1).is_err());
        assert!(d.zero_range(0, 1).is_err());
    }
}
