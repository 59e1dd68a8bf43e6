//! A device that fails at its n-th request, and what its medium holds if the power goes then.
//!
//! A write that fails has changed nothing, or, for a *short* write, the first half of its blocks. A
//! flush that fails has made nothing durable. The medium loses what was not flushed, all of it or
//! some; what a failed flush should have covered may be lost for ever: a later flush does not make
//! it durable.
//!
//! Short writes are cut at multiples of 1024 bytes: the superblock arrives as one, as Linux
//! assumes.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use extol::device::{
    BlockDevice, DeviceError, DeviceOp, MemDevice, Result, ScatteredWrite, joined,
};
use extol_devices::RecordingDevice;
use extol_sync::plain::Mutex;

/// Where a short write may be cut.
const UNIT: usize = 1024;
const EIO: i32 = 5;
const ENODEV: i32 = 19;
const ENOSPC: i32 = 28;

/// What fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    Write,
    Flush,
    /// Only writes that must be durable on return.
    Fua,
    /// Part of the request is written.
    Short,
    NoSpace,
    /// Everything fails, from then on.
    Gone,
}

impl Kind {
    /// True if data or metadata that should have become durable did not.
    pub fn loses_changes(self) -> bool {
        self != Kind::Read
    }
}

/// What fails, at which of its requests (from 0), and whether all later ones fail as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    pub kind: Kind,
    pub nth: u64,
    pub forever: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Read,
    Write,
    Fua,
    Flush,
    Other,
}

impl Request {
    fn op(self) -> DeviceOp {
        match self {
            Request::Read => DeviceOp::Read,
            Request::Write | Request::Fua => DeviceOp::Write,
            Request::Flush => DeviceOp::Flush,
            Request::Other => DeviceOp::Zero,
        }
    }
}

#[derive(Debug, Default)]
struct Plan {
    fault: Option<Fault>,
    /// Requests that the fault is about.
    seen: u64,
    struck: bool,
}

#[derive(Debug)]
pub struct Faulty {
    inner: RecordingDevice,
    plan: Mutex<Plan>,
}

impl Faulty {
    pub fn new(base: MemDevice) -> Arc<Self> {
        Arc::new(Self { inner: RecordingDevice::new(base), plan: Mutex::default() })
    }

    /// From now on, counting begins.
    pub fn arm(&self, fault: Fault) {
        *self.plan.lock() = Plan { fault: Some(fault), ..Plan::default() };
    }

    /// The fault has happened.
    pub fn struck(&self) -> bool {
        self.plan.lock().struck
    }

    /// The medium with everything that was written.
    pub fn written(&self) -> MemDevice {
        self.inner.current()
    }

    /// The medium after a power cut now; `keep` decides about each write that was not flushed.
    pub fn cut(&self, mut keep: impl FnMut() -> bool) -> MemDevice {
        self.inner.image_at(usize::MAX, |_| keep())
    }

    fn strike(&self, request: Request, offset: u64, len: u64) -> Result<()> {
        let mut plan = self.plan.lock();
        let Some(fault) = plan.fault else { return Ok(()) };
        let concerned = match fault.kind {
            Kind::Read => request == Request::Read,
            Kind::Flush => request == Request::Flush,
            Kind::Fua => request == Request::Fua,
            Kind::Write | Kind::NoSpace => {
                matches!(request, Request::Write | Request::Fua | Request::Other)
            }
            Kind::Short => matches!(request, Request::Write | Request::Fua) && len > UNIT as u64,
            Kind::Gone => true,
        };
        if !concerned {
            return Ok(());
        }
        let nth = plan.seen;
        plan.seen += 1;
        if nth < fault.nth || (nth > fault.nth && !fault.forever) {
            return Ok(());
        }
        plan.struck = true;
        let errno = match fault.kind {
            Kind::Gone => ENODEV,
            Kind::NoSpace => ENOSPC,
            _ => EIO,
        };
        Err(DeviceError::new(request.op(), offset, len, io::Error::from_raw_os_error(errno)))
    }

    fn write(&self, bufs: &[IoSlice<'_>], offset: u64, request: Request) -> Result<()> {
        let bytes = joined(bufs);
        if let Err(error) = self.strike(request, offset, bytes.len() as u64) {
            if self.plan.lock().fault.is_some_and(|f| f.kind == Kind::Short) {
                let part = (bytes.len() / 2).next_multiple_of(UNIT).min(bytes.len());
                self.inner.write_at(&bytes[..part], offset)?;
            }
            return Err(error);
        }
        match request {
            Request::Fua => self.inner.write_fua(&bytes, offset),
            _ => self.inner.write_at(&bytes, offset),
        }
    }
}

impl BlockDevice for Faulty {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.strike(Request::Read, offset, buf.len() as u64)?;
        self.inner.read_at(buf, offset)
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> Result<()> {
        self.strike(Request::Read, offset, bufs.iter().map(|b| b.len() as u64).sum())?;
        self.inner.read_vectored_at(bufs, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(&[IoSlice::new(buf)], offset, Request::Write)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write(bufs, offset, Request::Write)
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        // Those behind the failed one are done: they are not ordered among each other.
        let results: Vec<_> =
            writes.iter().map(|w| self.write_vectored_at(w.bufs, w.offset)).collect();
        results.into_iter().collect()
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(&[IoSlice::new(buf)], offset, Request::Fua)
    }

    fn flush(&self) -> Result<()> {
        self.strike(Request::Flush, 0, 0)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.strike(Request::Other, offset, len)?;
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.strike(Request::Other, offset, len)?;
        self.inner.zero_range(offset, len)
    }
}
