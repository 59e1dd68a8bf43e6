//! Writes down what one or two devices were asked to do, in one order.
//!
//! Device 0 is the volume, device 1 its external journal. Every change takes one lock for both, so the order of the
//! tape is the order in which the devices saw the changes, and a cut through the tape is a moment in which the power
//! went for both at once. Notes of the load ("operation 12 of actor 0 returned") stand between the changes.
//!
//! Locking: one leaf lock around log and live contents. Reads do not take it; the contents have locks of their own.

use std::io::IoSlice;
use std::sync::Arc;

use extol_device::{BlockDevice, MemDevice, Result, ScatteredWrite, SharedDevice, joined};
use parking_lot::Mutex;

/// What happened to a device.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes were written.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
        /// Durable on return.
        fua: bool,
    },
    /// Everything that this device completed before is durable.
    Flush,
    /// The changes just before, so many, are durable: a batch of durable writes has ended.
    Settled {
        /// How many.
        writes: usize,
    },
    /// A range was zeroed, or discarded (a discarded range reads as zeros here, or keeps what it had).
    Zero {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
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

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    /// Each with the number of events before it.
    notes: Vec<(usize, Note)>,
}

/// Everything that happened to the devices of one volume.
#[derive(Debug)]
pub struct Tape {
    live: Vec<MemDevice>,
    log: Mutex<Log>,
}

impl Tape {
    /// Starts with these contents.
    #[must_use]
    pub fn new(start: Vec<MemDevice>) -> Arc<Self> {
        Arc::new(Self { live: start, log: Mutex::default() })
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

    fn change(&self, nr: usize, change: Change, apply: impl FnOnce(&MemDevice) -> Result<()>) -> Result<()> {
        let mut log = self.log.lock();
        apply(&self.live[nr])?;
        log.events.push(Event { device: nr, change });
        Ok(())
    }
}

#[derive(Debug)]
struct Taped {
    tape: Arc<Tape>,
    nr: usize,
}

impl Taped {
    fn write(&self, buf: &[u8], offset: u64, fua: bool) -> Result<()> {
        let change = Change::Write { offset, data: buf.into(), fua };
        self.tape.change(self.nr, change, |d| d.write_at(buf, offset))
    }
}

impl BlockDevice for Taped {
    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        let mut log = self.tape.log.lock();
        for write in writes {
            let data = joined(write.bufs);
            self.tape.live[self.nr].write_at(&data, write.offset)?;
            let change = Change::Write { offset: write.offset, data: data.into(), fua: false };
            log.events.push(Event { device: self.nr, change });
        }
        log.events.push(Event { device: self.nr, change: Change::Settled { writes: writes.len() } });
        Ok(())
    }

    fn fua_together(&self) -> bool {
        true
    }

    fn size(&self) -> u64 {
        self.tape.live[self.nr].size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
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
        self.tape.change(self.nr, Change::Flush, BlockDevice::flush)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.zero_range(offset, len)
    }

    fn discard_zeroes(&self) -> bool {
        true
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.tape.change(self.nr, Change::Zero { offset, len }, |d| d.zero_range(offset, len))
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
        assert_eq!(events.iter().map(|e| e.device).collect::<Vec<_>>(), [0, 1, 1, 0]);
        assert!(matches!(events[1].change, Change::Write { fua: true, offset: 5, .. }));
        assert_eq!(notes, [(1, Note::Begin(0, 0)), (4, Note::End(0, 0))]);
    }
}
