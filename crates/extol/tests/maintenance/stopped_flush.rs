//! A device that records its writes, and whose flushes stop while the test holds them.

use std::io::IoSlice;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use extol_block::{BlockDevice, MemDevice, Result};
use extol_devices::{Fault, FaultDevice, RecordingDevice};

pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct FlushStopDevice {
    inner: FaultDevice<Arc<RecordingDevice>>,
    /// Held by the test while flushes stop.
    hold: Mutex<()>,
    /// Tells the test of the first flush that stops.
    arrival: Mutex<Option<Sender<()>>>,
}

impl FlushStopDevice {
    pub fn new(base: &MemDevice) -> Arc<Self> {
        let recording = Arc::new(RecordingDevice::new(base.snapshot()));
        let inner = FaultDevice::new(recording, []);
        Arc::new(Self { inner, hold: Mutex::new(()), arrival: Mutex::new(None) })
    }

    pub fn recording(&self) -> &RecordingDevice {
        self.inner.inner()
    }

    pub fn arm(&self, fault: Fault) {
        self.inner.arm(fault);
    }

    /// Stops flushes until the guard is dropped; the other value receives the first flush that
    /// stops.
    pub fn hold_flushes(&self) -> (MutexGuard<'_, ()>, Receiver<()>) {
        let guard = self.hold.lock().unwrap();
        let (arrival, arrived) = channel();
        *self.arrival.lock().unwrap() = Some(arrival);
        (guard, arrived)
    }

    fn pass(&self) {
        if let Some(arrival) = self.arrival.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = arrival.send(());
        }
        drop(self.hold.lock());
    }
}

impl BlockDevice for FlushStopDevice {
    extol_block::pass_on!(shape);

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.inner.write_vectored_at(bufs, offset)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_fua(buf, offset)
    }

    fn flush(&self) -> Result<()> {
        self.pass();
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.zero_range(offset, len)
    }
}
