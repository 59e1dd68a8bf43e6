//! Taking requests from the device; the data of large writes stays in a pipe.
//!
//! A `read` copies what a request holds into our memory, and a direct write of that memory pins its
//! pages one by one: half of what the daemon does for a mebibyte. `splice` hands over the pages of
//! the kernel's cache themselves, in a pipe, and from there they go to the device as they are
//! ([`FileSystem::write_piped`](extol_vfs::FileSystem::write_piped)). For small requests it costs a
//! little more than it saves, and how large the next one is nobody knows; but large ones come in
//! rows. So the few requests behind a large one are spliced, whichever workers they go to
//! ([`Bulk`]), and others are read.
//!
//! ```text
//!           ┌─ behind a large one ──► splice ──┬─ large write ──► head in memory, data in the pipe: taken from there,
//!   next ───┤                                  │                  or read after all
//!           └─ else ──► read ──► in memory ◄───┴─ else
//! ```
//!
//! 1. A pipe is used only if it has room for the largest request, in pages ([`Pipe::new`]): one
//!    that does not fit would be answered with an error by the kernel, and its data lost.
//! 2. A pipe is empty before a request is spliced into it: the whole of it is taken, or the pipe is
//!    thrown away ([`Intake::spent`]).

use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno as Os;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::abi::{IN_HEADER, WRITE_HEADER};
use crate::errno::{Errno, Result};
use crate::wire::Request;
use crate::worker::LARGE;

/// What stands before the data of a WRITE.
const HEAD: usize = IN_HEADER + WRITE_HEADER;
/// Pages of a request that are not full of data: the one with the headers, and one more because
/// data of a program (with direct I/O) need not begin a page.
const MORE: usize = 2;

/// Less data than this in a request is read: file systems would rather have it as bytes.
const PIECE: usize = 256 << 10;
/// Less data than this in the largest request costs more, in requests, than pipes save.
const LEAST: usize = 512 << 10;

/// Most bytes of data in a request that a pipe has room for, at most `wanted`; 0: not worth it.
/// Without the right to exceed it (`CAP_SYS_RESOURCE`) the limit for pipes decides, which is just
/// too little for a mebibyte and its headers.
pub(crate) fn most_piped(wanted: usize) -> usize {
    if Pipe::new(wanted).is_some() {
        return wanted;
    }
    let limit = std::fs::read_to_string("/proc/sys/fs/pipe-max-size").ok();
    let limit = limit.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(0);
    let page = rustix::param::page_size();
    let most = (limit / page).saturating_sub(MORE) * page;
    if most >= LEAST && most < wanted && Pipe::new(most).is_some() { most } else { 0 }
}

/// A pipe with room for any request.
#[derive(Debug)]
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    room: usize,
}

impl Pipe {
    /// Room for `data` bytes of data. `None` if that is not to be had.
    fn new(data: usize) -> Option<Self> {
        let page = rustix::param::page_size();
        let room = (data / page + MORE) * page;
        // Nobody waits at it: a request is in it as a whole, or not at all.
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let has = fcntl_setpipe_size(&writer, room).ok()?;
        (has >= room).then_some(Self { reader, writer, room: has })
    }

    fn take(&self, memory: &mut [u8]) -> rustix::io::Result<()> {
        take(self.reader.as_fd(), memory)
    }
}

/// Takes exactly so many bytes out of a pipe.
fn take(pipe: BorrowedFd<'_>, mut memory: &mut [u8]) -> rustix::io::Result<()> {
    while !memory.is_empty() {
        match rustix::io::read(pipe, &mut *memory) {
            Ok(0) => return Err(Os::IO),
            Ok(n) => memory = &mut memory[n..],
            Err(Os::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether large requests are to be expected, and are worth a pipe.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    /// So many requests are still to be spliced.
    next: AtomicU32,
    /// So many large ones are to be read first, because data had to be read out of a pipe after
    /// all.
    pause: AtomicU32,
}

impl Bulk {
    /// So many requests behind a large one are spliced: what small ones among them lose is far less
    /// than a large one that is read would.
    const NEXT: u32 = 16;

    /// What took no data out of a pipe (a file system that never does, a journalled file, a volume
    /// that is almost full) is asked again after so many large requests.
    const PAUSE: u32 = 256;

    fn is_likely(&self) -> bool {
        self.next.load(Ordering::Relaxed) > 0
    }

    /// Data had to be read out of a pipe after all.
    pub(crate) fn was_refused(&self) {
        self.next.store(0, Ordering::Relaxed);
        self.pause.store(Self::PAUSE, Ordering::Relaxed);
    }

    /// A request of this size has come. (Workers may overtake one another here, which costs a copy
    /// at the most.)
    fn note(&self, size: usize) {
        let count_down = |counter: &AtomicU32| {
            let left = counter.load(Ordering::Relaxed);
            counter.store(left.saturating_sub(1), Ordering::Relaxed);
            left
        };
        if size <= LARGE {
            if self.is_likely() {
                count_down(&self.next);
            }
        } else if self.pause.load(Ordering::Relaxed) == 0 || count_down(&self.pause) == 0 {
            self.next.store(Self::NEXT, Ordering::Relaxed);
        }
    }
}

/// Where a worker's requests come from.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    pipe: Option<Pipe>,
    /// There is no pipe to be had.
    refused: bool,
}

/// What has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// A request of so many bytes.
    Whole(usize),
    /// A WRITE of so many bytes, of which its data is in the pipe.
    Piped(usize),
}

impl Taken {
    /// Bytes of the request, wherever they are.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Whole(size) | Self::Piped(size) => size,
        }
    }
}

impl Intake {
    /// Waits for a request and puts it into `memory`, but for data that stays in the pipe.
    pub(crate) fn next(
        &mut self,
        device: &OwnedFd,
        memory: &mut [u8],
        bulk: &Bulk,
    ) -> rustix::io::Result<Taken> {
        let Some(pipe) = self.pipe(bulk) else {
            let size = rustix::io::read(device, &mut *memory)?;
            bulk.note(size);
            return Ok(Taken::Whole(size));
        };
        let size = splice(device, None, &pipe.writer, None, pipe.room, SpliceFlags::empty())?;
        bulk.note(size);
        let may_stay = size >= HEAD + PIECE;
        let known = if may_stay { HEAD } else { size };
        let request = memory.get_mut(..size).ok_or(Os::IO)?;
        let (head, rest) = request.split_at_mut(known);
        pipe.take(head)?;
        if may_stay && Request::is_write(head, size) {
            return Ok(Taken::Piped(size));
        }
        pipe.take(rest)?;
        Ok(Taken::Whole(size))
    }

    /// The request in `memory`; `None` if the bytes cannot be one.
    pub(crate) fn request<'a>(&'a self, taken: Taken, memory: &'a mut [u8]) -> Option<Request<'a>> {
        match (taken, &self.pipe) {
            (Taken::Whole(size), _) => Request::parse(memory.get(..size)?),
            (Taken::Piped(size), Some(pipe)) => {
                let (head, data) = memory.get_mut(..size)?.split_at_mut(HEAD);
                let data = Piped {
                    pipe: pipe.reader.as_fd(),
                    memory: RefCell::new(data),
                    read: Cell::new(false),
                };
                Request::with_data(head, data)
            }
            (Taken::Piped(_), None) => None,
        }
    }

    /// A request with data in the pipe is over, and not all of it may have been taken.
    pub(crate) fn spent(&mut self) {
        self.pipe = None;
    }

    /// A pipe, if that is what the next request should come through.
    fn pipe(&mut self, bulk: &Bulk) -> Option<&Pipe> {
        if self.refused || !bulk.is_likely() {
            return None;
        }
        if self.pipe.is_none() {
            self.pipe = Pipe::new(crate::init::max_write() as usize);
            self.refused = self.pipe.is_none();
        }
        self.pipe.as_ref()
    }
}

/// Data of a request that is still in a pipe.
#[derive(Debug)]
pub(crate) struct Piped<'a> {
    pipe: BorrowedFd<'a>,
    /// Where it goes if it has to be read.
    memory: RefCell<&'a mut [u8]>,
    read: Cell<bool>,
}

impl Piped<'_> {
    /// The pipe, if exactly so many bytes wait in it.
    pub(crate) fn holds(&self, size: usize) -> Option<BorrowedFd<'_>> {
        (!self.read.get() && self.len() == size).then_some(self.pipe)
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.borrow().len()
    }

    /// True if the data is in memory: nothing is left in the pipe.
    pub(crate) fn is_read(&self) -> bool {
        self.read.get()
    }

    /// Reads the data, unless that was done before, and hands it to `work`.
    pub(crate) fn with_bytes<T>(&self, work: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let mut memory = self.memory.try_borrow_mut().map_err(|_| Errno(libc::EIO))?;
        if !self.read.get() {
            take(self.pipe, &mut memory).map_err(|_| Errno(libc::EIO))?;
            self.read.set(true);
        }
        work(&memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::op;

    /// A WRITE with so many bytes of data.
    fn write_request(data: usize) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[..4].copy_from_slice(&((HEAD + data) as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&op::WRITE.to_ne_bytes());
        bytes.extend((0..data).map(|i| (i / 3) as u8));
        bytes
    }

    /// Something that gives the bytes of a request, as the device does.
    fn device(request: &[u8]) -> OwnedFd {
        let (reader, writer) = pipe_with(PipeFlags::empty()).unwrap();
        fcntl_setpipe_size(&writer, request.len() + 4096).unwrap();
        assert_eq!(rustix::io::write(&writer, request).unwrap(), request.len());
        reader
    }

    #[test]
    fn data_of_a_large_write_behind_another_stays_in_the_pipe() {
        let (bulk, mut intake) = (Bulk::default(), Intake::default());
        let (large, small) = (write_request(300 << 10), write_request(4096));
        let mut memory = vec![0; 1 << 20];
        let size = large.len();
        assert_eq!(
            intake.next(&device(&large), &mut memory, &bulk),
            Ok(Taken::Whole(size)),
            "who knows"
        );
        assert!(memory[..size] == large);
        memory.fill(0);
        let taken = intake.next(&device(&large), &mut memory, &bulk).unwrap();
        assert_eq!(taken, Taken::Piped(size));
        let request = intake.request(taken, &mut memory).unwrap();
        assert_eq!((request.opcode, request.body.len()), (op::WRITE, WRITE_HEADER));
        let data = request.piped.as_ref().unwrap();
        assert!(data.holds((300 << 10) - 1).is_none() && data.holds((300 << 10) + 1).is_none());
        assert!(data.holds(300 << 10).is_some() && !data.is_read());
        for _ in 0..2 {
            data.with_bytes(|bytes| {
                assert!(bytes == &large[HEAD..]);
                Ok(())
            })
            .unwrap();
        }
        assert!(data.holds(300 << 10).is_none() && data.is_read(), "it is in memory now");
        // Small ones are whole, and the last of a few is read.
        for _ in 0..Bulk::NEXT + 1 {
            let taken = intake.next(&device(&small), &mut memory, &bulk).unwrap();
            assert_eq!(taken, Taken::Whole(small.len()));
            assert!(memory[..small.len()] == small);
        }
        assert!(!bulk.is_likely());
    }

    /// What is not just a WRITE with data is handed over whole, and what lies about its length as
    /// no request.
    #[test]
    fn other_large_requests_are_read() {
        let (bulk, mut intake) = (Bulk::default(), Intake::default());
        let mut memory = vec![0; 1 << 20];
        let good = write_request(280 << 10);
        for (at, value) in [(4, op::SETXATTR as u8), (36, 1), (0, 1)] {
            bulk.note(LARGE + 1);
            let mut request = good.clone();
            request[at] = value;
            let taken = intake.next(&device(&request), &mut memory, &bulk).unwrap();
            assert_eq!(taken, Taken::Whole(request.len()));
            assert!(memory[..request.len()] == request);
            assert_eq!(intake.request(taken, &mut memory).is_some(), at != 0);
        }
    }

    /// A request that finds its data gone fails alone.
    #[test]
    fn missing_data_is_an_error() {
        let (bulk, mut intake) = (Bulk::default(), Intake::default());
        bulk.note(LARGE + 1);
        let mut memory = vec![0; 1 << 20];
        let good = write_request(280 << 10);
        let taken = intake.next(&device(&good), &mut memory, &bulk).unwrap();
        intake.pipe.as_ref().unwrap().take(&mut [0; 100]).unwrap();
        let request = intake.request(taken, &mut memory).unwrap();
        assert_eq!(request.piped.as_ref().unwrap().with_bytes(|_| Ok(())), Err(Errno(libc::EIO)));
        intake.spent();
        let taken = intake.next(&device(&good), &mut memory, &bulk).unwrap();
        let request = intake.request(taken, &mut memory).unwrap();
        assert_eq!(
            request.piped.as_ref().unwrap().with_bytes(|bytes| Ok(bytes.len())),
            Ok(280 << 10)
        );
    }

    #[test]
    fn who_refuses_is_asked_again_later() {
        let bulk = Bulk::default();
        bulk.note(1 << 20);
        assert!(bulk.is_likely());
        bulk.was_refused();
        for n in 0..Bulk::PAUSE {
            assert!(!bulk.is_likely(), "{n}");
            bulk.note(1 << 20);
            bulk.note(4096);
        }
        assert!(!bulk.is_likely());
        bulk.note(1 << 20);
        assert!(bulk.is_likely());
    }

    #[test]
    fn pipes_have_room_for_every_request() {
        let page = rustix::param::page_size();
        let most = most_piped(1 << 20);
        assert!(most == 0 || ((LEAST..=1 << 20).contains(&most) && most.is_multiple_of(page)));
        if let Some(pipe) = Pipe::new(most) {
            assert!(pipe.room >= most + MORE * page);
        }
    }
}
