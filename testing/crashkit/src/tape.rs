//! Writes down what one or two devices were asked to do, in one order.
//!
//! Device 0 is the volume, device 1 its external journal. Every change takes one lock for both, so
//! the order of the tape is the order in which the devices saw the changes, and a cut through the
//! tape is a moment in which the power went for both at once. Notes of the load ("operation 12 of
//! actor 0 returned") stand between the changes.
//!
//! A request takes time. A change is on the tape from when it may have reached the medium, and its
//! caller hears of it later; in between other requests come and go, and a flush among them promises
//! nothing about it:
//!
//! ```text
//!  thread 1   write a ────────────┐ returns
//!  thread 2     flush ─────┐      │  covers what had returned before it began: neither a nor b
//!  thread 3       write b ───┐ returns
//!  tape           a  b  Flush { open: a, b }
//! ```
//!
//! A durable write is a change as others are, followed by [`Change::Settled`] when it ends.
//!
//! With a [`Pace`] requests really take a while, so that threads meet; without, one request after
//! the other of a single thread makes the same tape each time.
//!
//! Locking: one leaf lock around log and live contents. Reads do not take it; the contents have
//! locks of their own.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use extol_block::{
    BlockDevice, DeviceError, DeviceOp, Fua, MemDevice, Result, ScatteredWrite, SharedDevice,
    joined,
};
use parking_lot::Mutex;
use rand::Rng as _;

/// What happened to a device.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes were written.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// A flush has ended: what this device was asked before is durable,
    Flush {
        /// but for these events, which had not ended when it began.
        open: Vec<usize>,
    },
    /// These events are durable: a durable write, or a batch of them, has ended.
    Settled {
        /// Their numbers.
        writes: Range<usize>,
    },
    /// A range was zeroed, or discarded (a discarded range reads as zeros here, or keeps what it
    /// had).
    Zero {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The device is a file that has so many bytes from now on. Its lengths reach the medium one
    /// after the other, and one that is shorter or longer may be there or not as a write may.
    Size(u64),
}

/// A change and where.
#[derive(Clone, Debug)]
pub struct Event {
    /// 0: the volume; 1: the external journal.
    pub device: usize,
    /// What.
    pub change: Change,
}

/// A note of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Note {
    /// An actor is about to do its operation of this number.
    Begin(usize, usize),
    /// That operation returned.
    End(usize, usize),
}

/// How long requests take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// One request of so many takes a while,
    pub one_of: u32,
    /// up to this long before it reaches the medium, and as long behind.
    pub at_most: Duration,
}

impl Pace {
    fn wait(self) {
        let mut rng = rand::rng();
        if rng.random_ratio(1, self.one_of.max(1)) {
            std::thread::sleep(self.at_most.mul_f64(rng.random()));
        }
    }
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    /// Changes that have not ended: the device, and the number of the event.
    under_way: Vec<(usize, usize)>,
    /// Each with the number of events before it.
    notes: Vec<(usize, Note)>,
}

impl Log {
    fn begin(&mut self, device: usize, change: Change) {
        let at = self.events.len();
        self.events.push(Event { device, change });
        self.under_way.push((device, at));
    }

    fn open(&self, device: usize) -> Vec<usize> {
        self.under_way.iter().filter(|(nr, _)| *nr == device).map(|(_, at)| *at).collect()
    }
}

/// Everything that happened to the devices of one volume.
#[derive(Debug)]
pub struct Tape {
    live: Vec<MemDevice>,
    /// The lengths can change.
    images: bool,
    pace: Option<Pace>,
    log: Mutex<Log>,
}

impl Tape {
    /// Starts with these contents.
    #[must_use]
    pub fn new(start: Vec<MemDevice>) -> Arc<Self> {
        Self::with_pace(start, None, false)
    }

    /// The same with requests that take their time; `images`: the lengths can change.
    #[must_use]
    pub fn with_pace(start: Vec<MemDevice>, pace: Option<Pace>, images: bool) -> Arc<Self> {
        Arc::new(Self { live: start, images, pace, log: Mutex::default() })
    }

    /// The device to give to the file system.
    #[must_use]
    pub fn device(self: &Arc<Self>, nr: usize) -> SharedDevice {
        Arc::new(Taped { tape: Arc::clone(self), nr })
    }

    /// Adds a note.
    pub fn note(&self, note: Note) {
        let mut log = self.log.lock();
        let at = log.events.len();
        log.notes.push((at, note));
    }

    /// Number of changes so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.log.lock().events.len()
    }

    /// Takes what was recorded.
    #[must_use]
    pub fn finish(&self) -> (Vec<Event>, Vec<(usize, Note)>) {
        let mut log = self.log.lock();
        (std::mem::take(&mut log.events), std::mem::take(&mut log.notes))
    }

    /// The contents as they are with every change applied.
    #[must_use]
    pub fn contents(&self) -> Vec<MemDevice> {
        let _all_at_once = self.log.lock();
        self.live.iter().map(MemDevice::snapshot).collect()
    }

    fn pause(&self) {
        if let Some(pace) = self.pace {
            pace.wait();
        }
    }

    /// Does changes of a device that begin and end together.
    fn change(&self, nr: usize, durable: bool, changes: Vec<Change>) -> Result<()> {
        self.pause();
        let mut writes = 0..0;
        let mut result = Ok(());
        {
            let mut log = self.log.lock();
            writes.start = log.events.len();
            for change in changes {
                result = apply(&change, &self.live[nr]);
                if result.is_err() {
                    break;
                }
                log.begin(nr, change);
            }
            writes.end = log.events.len();
        }
        self.pause();
        let mut log = self.log.lock();
        log.under_way.retain(|(_, at)| !writes.contains(at));
        if durable && result.is_ok() {
            log.events.push(Event { device: nr, change: Change::Settled { writes } });
        }
        result
    }

    fn flush(&self, nr: usize) {
        self.pause();
        let (mut open, from) = {
            let log = self.log.lock();
            (log.open(nr), log.events.len())
        };
        self.pause();
        let mut log = self.log.lock();
        let since = (from..).zip(&log.events[from..]);
        let later =
            |(_, e): &(usize, &Event)| e.device == nr && !matches!(e.change, Change::Flush { .. });
        open.extend(since.filter(later).map(|(at, _)| at));
        log.events.push(Event { device: nr, change: Change::Flush { open } });
    }
}

fn apply(change: &Change, to: &MemDevice) -> Result<()> {
    match change {
        Change::Write { offset, data } => to.write_at(data, *offset),
        Change::Zero { offset, len } => to.zero_range(*offset, *len),
        Change::Size(bytes) => to.set_size(*bytes),
        Change::Flush { .. } | Change::Settled { .. } => Ok(()),
    }
}

#[derive(Debug)]
struct Taped {
    tape: Arc<Tape>,
    nr: usize,
}

impl Taped {
    fn write(&self, buf: &[u8], offset: u64, durable: bool) -> Result<()> {
        self.tape.change(self.nr, durable, vec![Change::Write { offset, data: buf.into() }])
    }

    fn write_all(&self, writes: &[ScatteredWrite<'_>], durable: bool) -> Result<()> {
        let change = |w: &ScatteredWrite<'_>| Change::Write {
            offset: w.offset,
            data: joined(w.bufs).into(),
        };
        self.tape.change(self.nr, durable, writes.iter().map(change).collect())
    }
}

impl BlockDevice for Taped {
    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.write_all(writes, false)
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        self.write_all(writes, true)
    }

    fn fua(&self) -> Fua {
        Fua::PerWrite
    }

    fn size(&self) -> u64 {
        self.tape.live[self.nr].size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.tape.pause();
        self.tape.live[self.nr].read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset, false)
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write(&joined(bufs), offset, false)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write(buf, offset, true)
    }

    fn flush(&self) -> Result<()> {
        self.tape.flush(self.nr);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.zero_range(offset, len)
    }

    fn discard_zeroes(&self) -> bool {
        true
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.tape.change(self.nr, false, vec![Change::Zero { offset, len }])
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        if bytes == self.size() {
            return Ok(());
        }
        if !self.tape.images {
            let why = std::io::Error::new(std::io::ErrorKind::Unsupported, "its size is fixed");
            return Err(DeviceError::new(DeviceOp::Resize, 0, bytes, why));
        }
        self.tape.change(self.nr, false, vec![Change::Size(bytes)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_devices_share_one_order() {
        let tape = Tape::new(vec![MemDevice::new(8192), MemDevice::new(8192)]);
        let (volume, journal) = (tape.device(0), tape.device(1));
        volume.write_at(&[1; 10], 5).expect("write");
        tape.note(Note::Begin(0, 0));
        journal.write_fua(&[2; 10], 5).expect("write");
        journal.flush().expect("flush");
        volume.zero_range(7, 2).expect("zero");
        tape.note(Note::End(0, 0));
        assert!(volume.write_at(&[1; 10], 8190).is_err(), "what fails is not recorded");
        let mut byte = [9];
        tape.contents()[0].read_at(&mut byte, 7).expect("read");
        assert_eq!(byte, [0]);
        let (events, notes) = tape.finish();
        assert_eq!(events.iter().map(|e| e.device).collect::<Vec<_>>(), [0, 1, 1, 1, 0]);
        assert!(matches!(events[1].change, Change::Write { offset: 5, .. }));
        assert!(matches!(&events[2].change, Change::Settled { writes } if *writes == (1..2)));
        assert_eq!(notes, [(1, Note::Begin(0, 0)), (5, Note::End(0, 0))]);
    }
}
