//! Records every change of a device and builds the image after a crash at any point, for tests.
//!
//! The model of the medium: a write is in the device's volatile cache when it returns. A flush
//! makes everything durable that had returned before it began; a FUA write is durable at once. At a
//! crash any subset of the other writes may have reached the medium, in any order between two
//! flushes. Not modelled: overlapping cached writes that swap their order (callers never have two
//! at a time), sectors that change without being written.
//!
//! ```text
//!  base ── w0 w1 w2 FLUSH w3 w4 FUA5 w6 ✂ w7 …
//!          └ all there ──┘ └ w3 w4 w6: any subset; FUA5 always ┘
//! ```
//!
//! A scattered batch is logged as single writes, which between two flushes survive in any
//! combination anyway; behind a batch of durable ones a note says that they are.
//!
//! A change is logged when it takes effect, by one lock, so the log's order is the order on the
//! device; its caller hears of it later. A flush is logged when it ends, with what was under way
//! when it began. In a shaken debug build requests take their time (`extol_sync::medium`), and so
//! meet.

use extol_block::{
    BlockDevice, DeviceOp, Fua, MemDevice, Result, ScatteredWrite, check_range, joined,
};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::sync::Arc;

/// Bytes that a medium writes all or nothing.
const SECTOR: usize = 512;

/// One entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes were written.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
        /// Durable on return.
        fua: bool,
    },
    /// A flush completed: everything before it is durable, but for what was under way when it
    /// began.
    Flush,
    /// A batch of durable writes completed: the events from this one on up to here, all of them
    /// writes, are durable.
    Settled {
        /// The first of them.
        from: usize,
    },
    /// A range was discarded.
    Discard {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A range was zeroed.
    Zero {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// The size changed. That is durable when it returns.
    Size(u64),
    /// The test's own note, such as "fsync number 7 returned here".
    Mark(u64),
}

/// A memory device that remembers how it came to its contents.
#[derive(Debug)]
pub struct RecordingDevice {
    base: MemDevice,
    live: MemDevice,
    log: Mutex<Log>,
    knows_fua: bool,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    /// Changes that have not returned.
    under_way: Vec<usize>,
    /// Flushes that say nothing about some events before them, in order.
    open: Vec<(usize, Vec<usize>)>,
}

impl Log {
    /// For which of the first `cut` events do flushes among them say that they are durable? The end
    /// of these, and exceptions.
    fn flushed(&self, cut: usize) -> (usize, Vec<usize>) {
        let Some(last) = self.events[..cut].iter().rposition(|e| *e == Event::Flush) else {
            return (0, Vec::new());
        };
        let open_at = |flush: usize| match self.open.binary_search_by_key(&flush, |(at, _)| *at) {
            Ok(at) => &self.open[at].1[..],
            Err(_) => &[],
        };
        let mut open = open_at(last).to_vec();
        // One that ended earlier may have begun later.
        for flush in (0..last).rev() {
            if open.is_empty() {
                break;
            }
            if self.events[flush] == Event::Flush {
                open.retain(|at| *at > flush || open_at(flush).contains(at));
            }
        }
        (last, open)
    }
}

impl RecordingDevice {
    /// Starts recording on top of `base`.
    #[must_use]
    pub fn new(base: MemDevice) -> Self {
        let live = base.snapshot();
        Self { base, live, log: Mutex::default(), knows_fua: true }
    }

    /// As a medium that knows no durable writes: each is a write and a flush.
    #[must_use]
    pub fn without_fua(mut self) -> Self {
        self.knows_fua = false;
        self
    }

    /// Everything so far.
    pub fn log(&self) -> Vec<Event> {
        self.log.lock().events.clone()
    }

    /// Number of events so far: the `cut` for "now".
    pub fn position(&self) -> usize {
        self.log.lock().events.len()
    }

    /// Puts a note into the log.
    pub fn mark(&self, note: u64) {
        self.log.lock().events.push(Event::Mark(note));
    }

    /// The present contents, with everything applied.
    pub fn current(&self) -> MemDevice {
        let _log = self.log.lock();
        self.live.snapshot()
    }

    /// The medium after a crash behind the first `cut` events. Events before the last flush among
    /// them are there and FUA writes are; `keep(i)` decides about every other change, by its place
    /// in the log.
    pub fn image_at(&self, cut: usize, mut keep: impl FnMut(usize) -> bool) -> MemDevice {
        let mut decided = (usize::MAX, false);
        self.torn_image_at(cut, |event, _| {
            if decided.0 != event {
                decided = (event, keep(event));
            }
            decided.1
        })
    }

    /// Like [`image_at`](Self::image_at), with single sectors: `keep(i, s)` decides about the `s`th
    /// piece of event `i`, cut at multiples of 512 bytes of the device. Discards and zeroed ranges
    /// are one piece.
    pub fn torn_image_at(
        &self,
        cut: usize,
        mut keep: impl FnMut(usize, usize) -> bool,
    ) -> MemDevice {
        let log = self.log.lock();
        let events = &log.events[..cut.min(log.events.len())];
        let (flushed, open) = log.flushed(events.len());
        let mut settled = vec![false; events.len()];
        for (i, event) in events.iter().enumerate() {
            if let Event::Settled { from } = event {
                settled[*from..i].fill(true);
            }
        }
        let image = self.base.snapshot();
        for (i, event) in events.iter().enumerate() {
            let sure = (i < flushed && !open.contains(&i)) || settled[i];
            // The device accepted these ranges when they were recorded.
            let applied = match event {
                Event::Write { offset, data, fua } if sure || *fua => image.write_at(data, *offset),
                Event::Write { offset, data, .. } => {
                    let mut at = *offset;
                    let mut rest = &data[..];
                    let mut piece = 0;
                    let mut result = Ok(());
                    while !rest.is_empty() && result.is_ok() {
                        let n = rest.len().min(SECTOR - (at % SECTOR as u64) as usize);
                        let (now, later) = rest.split_at(n);
                        if keep(i, piece) {
                            result = image.write_at(now, at);
                        }
                        (at, rest, piece) = (at + n as u64, later, piece + 1);
                    }
                    result
                }
                Event::Discard { offset, len } if sure || keep(i, 0) => {
                    image.discard(*offset, *len)
                }
                Event::Zero { offset, len } if sure || keep(i, 0) => {
                    image.zero_range(*offset, *len)
                }
                Event::Size(bytes) => image.set_size(*bytes),
                _ => Ok(()),
            };
            debug_assert!(applied.is_ok());
        }
        image
    }

    fn record(&self, event: Event, apply: impl FnOnce(&MemDevice) -> Result<()>) -> Result<()> {
        extol_sync::medium();
        let at = {
            let mut log = self.log.lock();
            apply(&self.live)?;
            let at = log.events.len();
            log.events.push(event);
            log.under_way.push(at);
            at
        };
        extol_sync::medium();
        self.log.lock().under_way.retain(|other| *other != at);
        Ok(())
    }
}

impl BlockDevice for RecordingDevice {
    fn size(&self) -> u64 {
        self.live.size()
    }

    fn is_read_only(&self) -> bool {
        self.live.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.live.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.record(Event::Write { offset, data: buf.into(), fua: false }, |d| {
            d.write_at(buf, offset)
        })
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let data = joined(bufs);
        check_range(DeviceOp::Write, offset, data.len() as u64, self.size())?;
        self.write_at(&data, offset)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> Result<()> {
        if !self.knows_fua {
            self.write_at(buf, offset)?;
            return self.flush();
        }
        self.record(Event::Write { offset, data: buf.into(), fua: true }, |d| {
            d.write_at(buf, offset)
        })
    }

    fn write_scattered_fua(&self, writes: &[ScatteredWrite<'_>]) -> Result<()> {
        if !self.knows_fua {
            self.write_scattered(writes)?;
            return self.flush();
        }
        for write in writes {
            check_range(DeviceOp::Write, write.offset, write.len(), self.size())?;
        }
        extol_sync::medium();
        let mut log = self.log.lock();
        let from = log.events.len();
        for write in writes {
            let data = joined(write.bufs);
            self.live.write_at(&data, write.offset)?;
            log.events.push(Event::Write { offset: write.offset, data: data.into(), fua: false });
        }
        log.events.push(Event::Settled { from });
        drop(log);
        extol_sync::medium();
        Ok(())
    }

    fn fua(&self) -> Fua {
        if self.knows_fua { Fua::PerWrite } else { Fua::Flush }
    }

    fn fua_is_flush(&self) -> bool {
        !self.knows_fua
    }

    fn flush(&self) -> Result<()> {
        let (mut open, from) = {
            let log = self.log.lock();
            (log.under_way.clone(), log.events.len())
        };
        extol_sync::medium();
        let mut log = self.log.lock();
        let at = log.events.len();
        open.extend(
            (from..at).filter(|i| !matches!(log.events[*i], Event::Flush | Event::Mark(_))),
        );
        if !open.is_empty() {
            log.open.push((at, open));
        }
        log.events.push(Event::Flush);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.record(Event::Discard { offset, len }, |d| d.discard(offset, len))
    }

    fn can_discard(&self) -> bool {
        self.live.can_discard()
    }

    fn discard_zeroes(&self) -> bool {
        self.live.discard_zeroes()
    }

    fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.record(Event::Zero { offset, len }, |d| d.zero_range(offset, len))
    }

    fn set_size(&self, bytes: u64) -> Result<()> {
        self.record(Event::Size(bytes), |d| d.set_size(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(d: &MemDevice, offset: u64) -> u8 {
        let mut b = [0];
        d.read_at(&mut b, offset).expect("read");
        b[0]
    }

    #[test]
    fn durable_is_there_and_the_rest_by_choice() {
        let d = RecordingDevice::new(MemDevice::from_bytes(&[9; 4096]));
        d.write_at(&[1], 0).expect("w0");
        d.write_at(&[2], 1).expect("w1");
        d.flush().expect("flush");
        d.write_at(&[3], 2).expect("w3");
        d.write_fua(&[4], 3).expect("fua");
        d.mark(77);
        d.zero_range(4, 1).expect("zero");
        d.discard(5, 1).expect("discard");
        let end = d.position();
        assert_eq!(d.log()[5], Event::Mark(77));

        let bytes = |image: &MemDevice| (0..6).map(|i| byte(image, i)).collect::<Vec<_>>();
        assert_eq!(bytes(&d.image_at(end, |_| false)), [1, 2, 9, 4, 9, 9]);
        assert_eq!(bytes(&d.image_at(end, |_| true)), [1, 2, 3, 4, 0, 0]);
        assert_eq!(bytes(&d.image_at(end, |i| i == 3)), [1, 2, 3, 4, 9, 9]);
        assert_eq!(bytes(&d.image_at(end, |i| i == 6)), [1, 2, 9, 4, 0, 9]);
        assert_eq!(
            bytes(&d.image_at(2, |i| i == 1)),
            [9, 2, 9, 9, 9, 9],
            "before the flush all is open"
        );
        assert_eq!(bytes(&d.image_at(0, |_| true)), [9; 6]);
        assert_eq!(bytes(&d.current()), [1, 2, 3, 4, 0, 0]);
    }

    #[test]
    fn a_durable_batch_is_open_until_it_has_ended_and_takes_nothing_along() {
        let d = RecordingDevice::new(MemDevice::new(4096));
        d.write_at(&[1], 0).expect("w0");
        let (a, b) = ([IoSlice::new(&[2])], [IoSlice::new(&[3])]);
        let batch =
            [ScatteredWrite { offset: 1, bufs: &a }, ScatteredWrite { offset: 2, bufs: &b }];
        d.write_scattered_fua(&batch).expect("batch");
        let bytes = |image: &MemDevice| (0..3).map(|i| byte(image, i)).collect::<Vec<_>>();
        assert_eq!(bytes(&d.image_at(3, |_| false)), [0, 0, 0], "both are under way");
        assert_eq!(bytes(&d.image_at(3, |i| i == 2)), [0, 0, 3], "in any order");
        assert_eq!(bytes(&d.image_at(4, |_| false)), [0, 2, 3], "w0 is not among them");
        let plain = RecordingDevice::new(MemDevice::new(4096)).without_fua();
        assert_eq!((d.fua(), plain.fua()), (Fua::PerWrite, Fua::Flush));
        plain.write_at(&[1], 0).expect("w0");
        plain.write_scattered_fua(&batch).expect("batch");
        assert_eq!(plain.log().last(), Some(&Event::Flush));
    }

    #[test]
    fn a_flush_says_nothing_about_what_was_under_way() {
        let d = RecordingDevice::new(MemDevice::new(4096));
        for at in 0..3 {
            d.write_at(&[1], at).expect("write");
        }
        d.log.lock().under_way = vec![1];
        d.flush().expect("flush");
        d.log.lock().under_way.clear();
        let bytes = |cut: usize| {
            let image = d.image_at(cut, |_| false);
            (0..4).map(|i| byte(&image, i)).collect::<Vec<_>>()
        };
        assert_eq!(bytes(4), [1, 0, 1, 0]);
        d.write_at(&[1], 3).expect("write");
        d.flush().expect("flush");
        assert_eq!(bytes(5), [1, 0, 1, 0]);
        assert_eq!(bytes(6), [1, 1, 1, 1]);
        // This one began before both, and ended behind them.
        d.log.lock().open.push((6, vec![0, 1, 2, 3]));
        d.log.lock().events.push(Event::Flush);
        assert_eq!(bytes(7), [1, 1, 1, 1]);
    }

    #[test]
    fn the_choice_is_asked_once_per_event() {
        let d = RecordingDevice::new(MemDevice::new(1 << 16));
        d.write_at(&[1; 4096], 0).expect("write");
        d.write_at(&[2; 4096], 4096).expect("write");
        let mut asked = Vec::new();
        let _ = d.image_at(2, |i| {
            asked.push(i);
            i == 1
        });
        assert_eq!(asked, [0, 1]);
    }

    #[test]
    fn writes_tear_at_sectors() {
        let d = RecordingDevice::new(MemDevice::new(8192));
        d.write_at(&[1; 2048], 256).expect("write");
        let image = d.torn_image_at(1, |_, piece| piece % 2 == 1);
        let seen: Vec<u8> =
            [256, 511, 512, 1023, 1024, 1536, 2048, 2303].map(|o| byte(&image, o)).into();
        assert_eq!(seen, [0, 0, 1, 1, 0, 1, 0, 0]);
    }

    #[test]
    fn failed_changes_are_not_recorded() {
        let d = RecordingDevice::new(MemDevice::new(100));
        assert!(d.write_at(&[1; 10], 95).is_err());
        assert!(d.write_vectored_at(&[IoSlice::new(&[1; 10])], 95).is_err());
        assert!(d.zero_range(95, 10).is_err());
        assert_eq!(d.position(), 0);
        d.write_vectored_at(&[IoSlice::new(b"ab"), IoSlice::new(b"c")], 1).expect("write");
        assert_eq!(d.log(), [Event::Write { offset: 1, data: (*b"abc").into(), fua: false }]);
        let bufs = [IoSlice::new(b"x")];
        let writes =
            [7, 99, 100, 3].map(|offset| extol_block::ScatteredWrite { offset, bufs: &bufs });
        assert_eq!(d.write_scattered(&writes).expect_err("past the end").offset, 100);
        let offsets: Vec<_> = d
            .log()
            .iter()
            .map(|e| if let Event::Write { offset, .. } = e { *offset } else { 0 })
            .collect();
        assert_eq!(offsets, [1, 7, 99], "each on its own");
    }
}
