//! Record marking: a record is a row of fragments, each behind a word with its length, whose top
//! bit marks the last.
//!
//! Memory for a record grows with what has arrived of it, and not with what its peer announces. A
//! record that is longer than [`SMALL`](limits::SMALL) is read when its memory is there.

use std::io::{self, ErrorKind, Read};
use std::time::{Duration, Instant};

use crate::limits;

/// Bytes asked of the system at once.
const PIECE: usize = limits::SMALL;

/// Reads the records of a peer.
#[derive(Debug)]
pub(crate) struct Records<R> {
    input: R,
    /// What was read and belongs to no record yet.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Time for a record, once it has begun.
    record_time: Duration,
    /// Time without any.
    idle: Duration,
}

/// Why there is no record.
#[derive(Debug)]
pub(crate) enum End {
    /// The peer has ended the connection between records.
    Closed,
    /// The peer has sent nothing for long.
    Idle,
    /// The connection is of no use any more, for this reason.
    Broken(&'static str),
}

impl<R: Read> Records<R> {
    /// Records of an input whose reads give [`ErrorKind::WouldBlock`] now and then.
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            record_time: limits::RECORD_TIME,
            idle: limits::IDLE,
        }
    }

    /// The next record. `admit` waits for the memory of one that is long, of at most so many bytes;
    /// if it gives false, there is none.
    pub(crate) fn next(&mut self, admit: &mut dyn FnMut(usize) -> bool) -> Result<Vec<u8>, End> {
        let mut record = Vec::new();
        if self.start == self.end {
            self.wait()?;
        }
        let mut end = Instant::now() + self.record_time;
        let mut is_admitted = false;
        for _ in 0..limits::FRAGMENTS {
            let mut marker = [0; 4];
            self.fill(&mut marker, end)?;
            let marker = u32::from_be_bytes(marker);
            let (len, is_last) = ((marker & !(1 << 31)) as usize, marker & 1 << 31 != 0);
            if len > limits::RECORD - record.len() {
                return Err(End::Broken("a record is too long"));
            }
            if !is_admitted && record.len() + len > limits::SMALL {
                let most = if is_last { record.len() + len } else { limits::RECORD };
                if !admit(most) {
                    return Err(End::Closed);
                }
                is_admitted = true;
                end = Instant::now() + self.record_time;
            }
            self.append(&mut record, len, end)?;
            if is_last {
                return Ok(record);
            }
        }
        Err(End::Broken("a record has too many fragments"))
    }

    /// Waits for the beginning of a record.
    fn wait(&mut self) -> Result<(), End> {
        let end = Instant::now() + self.idle;
        match self.read_some(end) {
            Ok(0) => Err(End::Closed),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::TimedOut => Err(End::Idle),
            // Some peers end with a reset.
            Err(_) => Err(End::Closed),
        }
    }

    /// Reads into the buffer, which is empty.
    fn read_some(&mut self, end: Instant) -> io::Result<usize> {
        let len = read_until(&mut self.input, &mut self.buffer, end)?;
        (self.start, self.end) = (0, len);
        Ok(len)
    }

    fn fill(&mut self, mut place: &mut [u8], end: Instant) -> Result<(), End> {
        while !place.is_empty() {
            if self.start == self.end {
                self.more(|records| records.read_some(end))?;
            }
            let len = place.len().min(self.end - self.start);
            let (now, rest) = place.split_at_mut(len);
            now.copy_from_slice(&self.buffer[self.start..self.start + len]);
            self.start += len;
            place = rest;
        }
        Ok(())
    }

    fn append(&mut self, record: &mut Vec<u8>, mut len: usize, end: Instant) -> Result<(), End> {
        let buffered = len.min(self.end - self.start);
        record.extend_from_slice(&self.buffer[self.start..self.start + buffered]);
        self.start += buffered;
        len -= buffered;
        while len > 0 {
            // Not more room at once than has arrived before.
            let at = record.len();
            let room = len.min(at.max(PIECE));
            record.resize(at + room, 0);
            let place = &mut record[at..];
            let read = self.more(|records| read_until(&mut records.input, place, end));
            let read = read.inspect_err(|_| record.truncate(at))?;
            record.truncate(at + read);
            len -= read;
        }
        Ok(())
    }

    /// Reads within a record.
    fn more(&mut self, read: impl FnOnce(&mut Self) -> io::Result<usize>) -> Result<usize, End> {
        match read(self) {
            Ok(0) => Err(End::Broken("a record ends early")),
            Ok(len) => Ok(len),
            Err(error) if error.kind() == ErrorKind::TimedOut => {
                Err(End::Broken("a record arrives too slowly"))
            }
            Err(_) => Err(End::Broken("the connection was lost")),
        }
    }
}

/// Reads something, until `end`.
fn read_until(input: &mut impl Read, place: &mut [u8], end: Instant) -> io::Result<usize> {
    loop {
        if Instant::now() >= end {
            return Err(ErrorKind::TimedOut.into());
        }
        match input.read(place) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes with each read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(place.len()).min(self.0.len());
            place[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    /// Gives nothing more, and does not end.
    struct Silent<'a>(&'a [u8]);

    impl Read for Silent<'_> {
        fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
            match self.0.read(place)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                len => Ok(len),
            }
        }
    }

    fn next<R: Read>(records: &mut Records<R>) -> Result<Vec<u8>, End> {
        records.next(&mut |_| true)
    }

    fn fragment(len: usize, is_last: bool) -> Vec<u8> {
        let marker = u32::try_from(len).expect("short") | u32::from(is_last) << 31;
        [&marker.to_be_bytes()[..], &vec![7; len]].concat()
    }

    #[test]
    fn records_are_whole_however_they_arrive() {
        let input = [fragment(5, false), fragment(200_000, true), fragment(3, true)].concat();
        for step in [1, 3, 4096, usize::MAX] {
            let mut records = Records::new(Slow(&input, step));
            assert_eq!(next(&mut records).expect("a record").len(), 200_005);
            assert_eq!(next(&mut records).expect("a record"), [7; 3]);
            assert!(matches!(next(&mut records), Err(End::Closed)));
        }
    }

    #[test]
    fn a_long_record_is_read_when_its_memory_is_there() {
        let admitted = |input: &[u8], may: bool| {
            let mut asked = Vec::new();
            let mut admit = |bytes| {
                asked.push(bytes);
                may
            };
            let len = Records::new(input).next(&mut admit).ok().map(|record| record.len());
            (len, asked)
        };
        let (small, long) = (fragment(limits::SMALL, true), fragment(limits::SMALL + 1, true));
        assert_eq!(admitted(&small, false), (Some(limits::SMALL), vec![]));
        assert_eq!(admitted(&long, true), (Some(limits::SMALL + 1), vec![limits::SMALL + 1]));
        assert_eq!(admitted(&long, false), (None, vec![limits::SMALL + 1]));
        // How long it becomes is not known before its last fragment; memory is asked for once.
        let part = fragment(limits::SMALL / 2 + 1, false);
        let parts = [&part[..], &part, &part, &fragment(1, true)].concat();
        assert_eq!(admitted(&parts, true), (Some(limits::SMALL / 2 * 3 + 4), vec![limits::RECORD]));
    }

    #[test]
    fn records_beyond_the_limits_end_the_connection() {
        let long = fragment(limits::RECORD, true);
        let first = |input: &[u8]| next(&mut Records::new(input));
        assert_eq!(first(&long).expect("a record").len(), limits::RECORD);
        let longer = (u32::try_from(limits::RECORD).expect("short") + 1).to_be_bytes();
        assert!(matches!(first(&longer), Err(End::Broken("a record is too long"))));
        let parts = [fragment(8, false), fragment(limits::RECORD, true)].concat();
        assert!(matches!(first(&parts), Err(End::Broken("a record is too long"))));
        let cut = &fragment(100, true)[..50];
        assert!(matches!(first(cut), Err(End::Broken("a record ends early"))));
    }

    /// Bytes are bounded, in however many parts they come; and parts without any have an end.
    #[test]
    fn a_record_may_have_a_fragment_for_each_byte() {
        let first = |input: &[u8]| next(&mut Records::new(input));
        let bytes = [fragment(1, false).repeat(5000), fragment(0, true)].concat();
        assert_eq!(first(&bytes).expect("a record"), [7; 5000]);
        let many = fragment(0, false).repeat(limits::FRAGMENTS);
        let whole = [&many[4..], &fragment(3, true)].concat();
        assert_eq!(first(&whole).expect("a record"), [7; 3]);
        assert!(matches!(first(&many), Err(End::Broken("a record has too many fragments"))));
    }

    #[test]
    fn what_is_announced_takes_no_memory() {
        let mut records = Records::new(&[0x80, 0x0f, 0xff, 0xff][..]);
        let mut record = Vec::new();
        let end = Instant::now() + Duration::from_secs(5);
        let mut marker = [0; 4];
        records.fill(&mut marker, end).expect("the marker");
        assert!(records.append(&mut record, 1 << 20, end).is_err());
        assert!(record.capacity() <= PIECE * 2);
    }

    #[test]
    fn slow_and_silent_peers_run_out_of_time() {
        let mut records = Records::new(Silent(&[0x80, 0, 0, 9, 1]));
        records.record_time = Duration::from_millis(20);
        assert!(matches!(next(&mut records), Err(End::Broken("a record arrives too slowly"))));
        let mut records = Records::new(Silent(&[]));
        records.idle = Duration::from_millis(20);
        assert!(matches!(next(&mut records), Err(End::Idle)));
    }
}
