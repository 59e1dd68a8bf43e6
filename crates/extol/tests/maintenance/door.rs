//! A device that records, and whose flushes stop at a door while it is shut.

use std::io::IoSlice;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use extol_block::{BlockDevice, MemDevice, Result};
use extol_devices::{Fault, FaultDevice, RecordingDevice};

pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct DoorDevice {
    inner: FaultDevice<Arc<RecordingDevice>>,
    /// Held by the test while the door is shut.
    door: Mutex<()>,
    /// Who stands before the door says so.
    knock: Mutex<Option<Sender<()>>>,
}

impl DoorDevice {
    pub fn new(base: &MemDevice) -> Arc<Self> {
        let recording = Arc::new(RecordingDevice::new(base.snapshot()));
        let inner = FaultDevice::new(recording, []);
        Arc::new(Self { inner, door: Mutex::new(()), knock: Mutex::new(None) })
    }

    pub fn recording(&self) -> &RecordingDevice {
        self.inner.inner()
    }

    pub fn arm(&self, fault: Fault) {
        self.inner.arm(fault);
    }

    /// Shuts the door until the guard is dropped; the other value hears of the first flush that
    /// stands before it.
    pub fn shut(&self) -> (MutexGuard<'_, ()>, Receiver<()>) {
        let guard = self.door.lock().unwrap();
        let (knock, knocked) = channel();
        *self.knock.lock().unwrap() = Some(knock);
        (guard, knocked)
    }

    fn pass(&self) {
        if let Some(knock) = self.knock.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = knock.send(());
        }
        drop(self.door.lock());
    }
}

impl BlockDevice for DoorDevice {
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
