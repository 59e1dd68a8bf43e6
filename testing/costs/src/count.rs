//! Counts of one operation.

use std::path::Path;
use std::sync::Arc;

use alloc_tracker::Session;
use extol_block::FileDevice;
use extol_devices::{CountingDevice, DeviceStats};
use extol_sync::plain::locks_taken;

use crate::table::{COUNTED, Counts};
use crate::trace::mark;

/// Counts what operations do to a device and in this thread.
#[derive(Debug)]
pub struct Counter {
    device: Arc<CountingDevice<FileDevice>>,
    row: usize,
}

impl Counter {
    /// A counter for this device; `row` is the number of its first row in the trace.
    #[must_use]
    pub fn new(device: Arc<CountingDevice<FileDevice>>, row: usize) -> Self {
        Self { device, row }
    }

    /// Counts operations of one row: `before` prepares each, and is not counted.
    pub fn row<T>(
        &mut self,
        times: u64,
        state: &mut T,
        before: impl Fn(&mut T, u64),
        operation: impl Fn(&mut T, u64),
    ) -> Counts {
        let mut total = Counts::default();
        for n in 0..times {
            before(state, n);
            mark(self.row, "begin");
            let counted = self.once(|| operation(state, n));
            mark(self.row, "end");
            total.add(&counted);
        }
        self.row += 1;
        total
    }

    fn once(&self, operation: impl FnOnce()) -> Counts {
        let session = Session::new().no_stdout().no_file();
        let allocations = session.operation("operation");
        let (device, locks) = (self.device.stats(), locks_taken());
        {
            let _span = allocations.measure_thread().iterations(1);
            operation();
        }
        let (now, locked) = (self.device.stats(), locks_taken());
        let grown = |of: fn(&DeviceStats) -> u64| of(&now) - of(&device);
        let mut counts = Counts::default();
        let values = [
            grown(|d| d.reads),
            grown(|d| d.read_bytes),
            grown(|d| d.writes),
            grown(|d| d.write_bytes),
            grown(|d| d.fua_writes),
            grown(|d| d.flushes),
            grown(|d| d.discards + d.zeros),
            locked - locks,
            session.to_report().operations().map(|(_, op)| op.total_allocations_count()).sum(),
        ];
        for (name, value) in COUNTED.iter().zip(values) {
            counts.set(name, value);
        }
        counts
    }
}

/// Makes an image and counts what is asked of it.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn image(path: &Path, bytes: u64) -> Arc<CountingDevice<FileDevice>> {
    // The page cache in between: what direct I/O needs depends on the file system below.
    let how =
        extol_block::OpenOptions::read_write().create_size(bytes).direct(extol_block::Direct::Off);
    Arc::new(CountingDevice::new(FileDevice::open(path, &how).expect("an image")))
}
