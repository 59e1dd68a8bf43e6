//! Devices of the tests: one that writes down in which order two devices saw their changes, and one
//! that stops at a gate until the test lets it pass.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extol_block::{BlockDevice, DeviceOp, MemDevice, Result, SharedDevice};
use extol_devices::RecordingDevice;
use extol_jbd2::Tid;
use extol_sync::plain::{Condvar, Mutex};

/// One moment of a recorded run.
#[derive(Clone, Copy, Debug)]
pub enum Point {
    /// Lengths of the two recordings after a change.
    Io { fs: usize, log: usize },
    /// This transaction was acknowledged.
    Ack(Tid),
}

/// A promise that the device does not keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Flushes do nothing.
    FlushIsNothing,
    /// A FUA write is a plain one.
    PlainFua,
    /// Only those at this offset.
    PlainFuaAt(u64),
}

/// Recordings of the file system's device and of the journal device, on one time line.
#[derive(Debug)]
pub struct Tape {
    pub fs: RecordingDevice,
    /// The journal device, if the log is not on `fs`.
    pub log: Option<RecordingDevice>,
    lie: Option<Lie>,
    changes: AtomicU64,
    points: Mutex<Vec<Point>>,
}

impl Tape {
    pub fn new(fs: MemDevice, log: Option<MemDevice>, lie: Option<Lie>) -> Arc<Self> {
        let points = Mutex::new(vec![Point::Io { fs: 0, log: 0 }]);
        Arc::new(Self {
            fs: RecordingDevice::new(fs),
            log: log.map(RecordingDevice::new),
            lie,
            changes: AtomicU64::new(0),
            points,
        })
    }

    /// The device that the journal gets.
    pub fn device(self: &Arc<Self>, is_log: bool) -> SharedDevice {
        Arc::new(Taped { tape: Arc::clone(self), is_log: is_log && self.log.is_some() })
    }

    pub fn ack(&self, tid: Tid) {
        self.points.lock().push(Point::Ack(tid));
    }

    pub fn points(&self) -> Vec<Point> {
        self.points.lock().clone()
    }
}

#[derive(Debug)]
struct Taped {
    tape: Arc<Tape>,
    is_log: bool,
}

impl Taped {
    fn inner(&self) -> &RecordingDevice {
        match &self.tape.log {
            Some(log) if self.is_log => log,
            _ => &self.tape.fs,
        }
    }

    fn change(&self, apply: impl FnOnce(&RecordingDevice) -> Result<()>) -> Result<()> {
        // Now and then a change takes long, so that other threads come in between.
        if self.tape.changes.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
            std::thread::sleep(Duration::from_micros(30));
        }
        let mut points = self.tape.points.lock();
        apply(self.inner())?;
        let log = self.tape.log.as_ref().map_or(0, RecordingDevice::position);
        points.push(Point::Io { fs: self.tape.fs.position(), log });
        Ok(())
    }
}

impl BlockDevice for Taped {
    fn size(&self) -> u64 {
        self.inner().size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner().read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.change(|d| d.write_at(buf, offset))
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.change(|d| d.write_vectored_at(bufs, offset))
    }
    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        match self.tape.lie {
            Some(Lie::PlainFua) => self.write_at(buf, offset),
            Some(Lie::PlainFuaAt(at)) if at == offset => self.write_at(buf, offset),
            _ => self.change(|d| d.write_fua(buf, offset)),
        }
    }
    fn flush(&self) -> Result<()> {
        match self.tape.lie {
            Some(Lie::FlushIsNothing) => Ok(()),
            _ => self.change(BlockDevice::flush),
        }
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.change(|d| d.discard(offset, len))
    }
    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.change(|d| d.zero_range(offset, len))
    }
}

#[derive(Debug, Default)]
struct GateState {
    /// Operations of this kind stop, if they touch these bytes.
    closed: Option<(DeviceOp, std::ops::Range<u64>)>,
    stopped: usize,
}

/// A device whose operations of one kind can be made to wait.
#[derive(Debug)]
pub struct Gate {
    inner: SharedDevice,
    state: Mutex<GateState>,
    changed: Condvar,
}

impl Gate {
    pub fn new(inner: SharedDevice) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default(), changed: Condvar::new() })
    }

    /// From now on, operations of this kind wait before they reach the device.
    pub fn close(&self, op: DeviceOp) {
        self.close_range(op, 0..u64::MAX);
    }

    /// Only those that begin in `range`.
    pub fn close_range(&self, op: DeviceOp, range: std::ops::Range<u64>) {
        self.state.lock().closed = Some((op, range));
    }

    pub fn open(&self) {
        self.state.lock().closed = None;
        self.changed.notify_all();
    }

    /// Waits until an operation stands at the gate.
    pub fn wait_for_a_thread(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut state = self.state.lock();
        while state.stopped == 0 {
            let timed_out = self.changed.wait_until(&mut state, deadline).timed_out();
            assert!(!timed_out, "nothing came to the gate");
        }
    }

    fn pass(&self, op: DeviceOp, at: u64) {
        let mut state = self.state.lock();
        let stops = |s: &GateState| {
            s.closed.as_ref().is_some_and(|(o, range)| *o == op && range.contains(&at))
        };
        if !stops(&state) {
            return;
        }
        state.stopped += 1;
        self.changed.notify_all();
        while stops(&state) {
            self.changed.wait(&mut state);
        }
        state.stopped -= 1;
    }
}

impl BlockDevice for Gate {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.pass(DeviceOp::Read, offset);
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.pass(DeviceOp::Write, offset);
        self.inner.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.pass(DeviceOp::Write, offset);
        self.inner.write_vectored_at(bufs, offset)
    }
    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.pass(DeviceOp::Write, offset);
        self.inner.write_fua(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        self.pass(DeviceOp::Flush, 0);
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.zero_range(offset, len)
    }
}
