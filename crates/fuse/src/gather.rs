//! Several READs at a time.
//!
//! A worker that has read a READ looks whether more wait, without waiting itself, and does them all
//! together ([`read_many`](extol_vfs::FileSystem::read_many)): one trip to the device, and one
//! worker woken, instead of as many as there are reads. What is found behind them and is no such
//! READ goes to another worker at once: it must not wait for reads.
//!
//! ```text
//!   read: READ ──► second: READ, READ … until there are no more, or no room ──► read_many ──► a reply to each, as it is done
//!                     └── something else ──► another worker; if none is to be had, behind the reads
//! ```
//!
//! Reads of the device wait where there is nothing, and another worker may be quicker than any look
//! beforehand. So there is a *second* descriptor of the same connection, which never waits. The
//! kernel keeps apart what was read from which: replies go the way that the request came
//! ([`Request::second`](crate::wire::Request)).
//!
//! 1. A request that was taken is answered once: each READ by what `read_many` says of it, or by
//!    what a read of its own says if that panics before ([`Batch::answer`]); another one by whoever
//!    it was given to.
//! 2. Nothing waits for a read but reads, and these not for long: what is no small READ goes to
//!    another worker before the reads begin; each is answered as it is done; and where reads take
//!    long, or the device does one at a time for each thread, nobody looks for more
//!    ([`Reads::are_long`](crate::reads::Reads), [`FileSystem::reads_together`]). With 16 readers
//!    on an emulated disk of 7 ms batches had taken an eighth of the rate.
//! 3. Whether there is anything to find is learnt ([`Crowd`]): a look that finds nothing costs a
//!    system call, one that finds something else wakes a thread.

use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};

use extol_vfs::{FileSystem, ReadJob};
use parking_lot::Mutex;

use crate::abi::op;
use crate::buffer::Buffer;
use crate::counts::Counts;
use crate::errno::Errno;
use crate::wire::{self, Request};

/// Most READs of one batch.
const MOST: usize = 16;
/// Room for the data of one batch: small reads are what it is for.
const ROOM: usize = 256 << 10;
/// A READ of more has enough work of its own.
const SMALL: usize = 64 << 10;
/// Data begins on boundaries of this many bytes: direct I/O reads into it.
const PAGE: usize = 4096;

/// Whether more READs are to be expected behind one.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// So many READs are not to look.
    pause: AtomicU32,
}

impl Crowd {
    /// After a look that found nothing: one that comes alone costs a quarter of a system call more.
    const ALONE: u32 = 3;
    /// After one that found another kind of request.
    const MIXED: u32 = 64;

    /// True if this READ is to look. (Workers may overtake one another here, which costs a look at
    /// the most.)
    fn is_likely(&self) -> bool {
        let left = self.pause.load(Ordering::Relaxed);
        self.pause.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    fn pause(&self, reads: u32) {
        self.pause.store(reads, Ordering::Relaxed);
    }
}

/// A READ that was taken.
#[derive(Clone, Debug)]
struct Taken {
    unique: u64,
    second: bool,
    ino: u32,
    offset: u64,
    /// Where its data goes.
    place: Range<usize>,
}

/// The READs that a worker does together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    taken: Vec<Taken>,
}

/// Memory for the data of batches. Workers share it: many gather now and then, few at the same
/// time.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<Vec<Buffer>>);

impl Rooms {
    /// So many are kept.
    const KEPT: usize = 2;

    fn take(&self) -> Buffer {
        let kept = self.0.lock().pop();
        kept.unwrap_or_else(|| Buffer::new(ROOM, 0))
    }

    fn give_back(&self, room: Buffer) {
        let mut kept = self.0.lock();
        if kept.len() < Self::KEPT {
            kept.push(room);
        }
    }
}

/// A request for another worker.
#[derive(Debug)]
pub(crate) struct Given(pub(crate) Vec<u8>);

impl Given {
    /// Bytes of it, all of which were in the memory of the worker that took it.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Batch {
    /// Takes what waits behind `first`, through `second`, by way of `spare` (room for any request).
    /// `first` is in the batch afterwards if anything else is. Gives what was taken and is not for
    /// it.
    pub(crate) fn gather(
        &mut self,
        first: Wanted,
        second: &OwnedFd,
        spare: &mut [u8],
        crowd: &Crowd,
    ) -> Option<Given> {
        self.taken.clear();
        if first.size > SMALL || !crowd.is_likely() {
            return None;
        }
        self.add(first);
        let mut other = None;
        while self.taken.len() < MOST {
            let Ok(size) = rustix::io::read(second, &mut *spare) else { break };
            let bytes = spare.get(..size).unwrap_or_default();
            let wanted =
                Request::parse(bytes).and_then(|request| Wanted::of(&request, true, first.root));
            if !wanted.is_some_and(|wanted| self.add(wanted)) {
                other = Some(Given(bytes.to_vec()));
                break;
            }
        }
        if other.is_some() {
            crowd.pause(Crowd::MIXED);
        }
        if self.taken.len() == 1 && other.is_none() {
            self.taken.clear();
            crowd.pause(Crowd::ALONE);
        }
        other
    }

    /// False if there is no room.
    fn add(&mut self, wanted: Wanted) -> bool {
        let start = self.taken.last().map_or(0, |last| last.place.end.next_multiple_of(PAGE));
        let place = start..start + wanted.size;
        let fits = place.end <= ROOM;
        if fits {
            let Wanted { unique, second, ino, offset, .. } = wanted;
            self.taken.push(Taken { unique, second, ino, offset, place });
        }
        fits
    }

    /// How many it has.
    pub(crate) fn len(&self) -> usize {
        self.taken.len()
    }

    /// Does and answers them all.
    pub(crate) fn answer(
        &mut self,
        fs: &dyn FileSystem,
        counts: &Counts,
        rooms: &Rooms,
        device: &OwnedFd,
        second: &OwnedFd,
    ) {
        let mut room = rooms.take();
        let mut rest = &mut room[..];
        let mut at = 0;
        let mut jobs = Vec::with_capacity(self.taken.len());
        for taken in &self.taken {
            counts.note(op::READ);
            let (_, from) = std::mem::take(&mut rest).split_at_mut(taken.place.start - at);
            let (buf, behind) = from.split_at_mut(taken.place.len());
            (rest, at) = (behind, taken.place.end);
            jobs.push(ReadJob { ino: taken.ino, offset: taken.offset, buf });
        }
        let taken = &mut self.taken;
        let mut left: Vec<bool> = vec![true; taken.len()];
        let send = |taken: &Taken, data: Result<&[u8], Errno>| {
            let (data, code) = data.map_or_else(|error| (&[][..], -error.0), |data| (data, 0));
            let header = wire::header(data.len(), taken.unique, code);
            let way = if taken.second { second } else { device };
            // It fails if nobody waits any more.
            let _ = rustix::io::writev(way, &[IoSlice::new(&header), IoSlice::new(data)]);
        };
        let _ = std::panic::catch_unwind(AssertUnwindSafe(|| {
            fs.read_many(&mut jobs, &mut |i, result| {
                if std::mem::take(&mut left[i]) {
                    send(&taken[i], result.map_err(Errno::from));
                }
            });
        }));
        // It panicked: nobody can say over which of them, so each that is left is tried alone.
        for ((taken, job), _) in taken.iter().zip(&mut jobs).zip(left).filter(|(_, left)| *left) {
            let ReadJob { ino, offset, buf } = job;
            let alone = std::panic::catch_unwind(AssertUnwindSafe(|| fs.read(*ino, *offset, buf)));
            let alone = alone.map_or(Err(Errno(libc::EIO)), |result| result.map_err(Errno::from));
            send(taken, alone.map(|n| buf.get(..n).unwrap_or_default()));
        }
        taken.clear();
        rooms.give_back(room);
    }
}

/// What a READ wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) unique: u64,
    second: bool,
    pub(crate) ino: u32,
    pub(crate) offset: u64,
    pub(crate) size: usize,
    root: u32,
}

impl Wanted {
    /// `None` if it is no READ, or not a sound one.
    pub(crate) fn of(request: &Request<'_>, second: bool, root: u32) -> Option<Self> {
        if request.opcode != op::READ {
            return None;
        }
        let ino = crate::ops::ino(request.nodeid, root).ok()?;
        let (offset, size) = crate::ops::read_range(request).ok()?;
        Some(Self { unique: request.unique, second, ino, offset, size, root })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::abi::IN_HEADER;

    /// What stands for a FUSE device: messages, one for each request or reply.
    fn device() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap()
    }

    fn request(opcode: u32, unique: u64, nodeid: u64, offset: u64, size: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend((IN_HEADER as u32 + 40).to_ne_bytes());
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(unique.to_ne_bytes());
        bytes.extend(nodeid.to_ne_bytes());
        bytes.extend([0; 16]);
        bytes.extend([0; 8]);
        bytes.extend(offset.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend([0; 20]);
        bytes
    }

    fn wanted(unique: u64, size: u32) -> Wanted {
        let bytes = request(op::READ, unique, 1, 0, size);
        Wanted::of(&Request::parse(&bytes).unwrap(), false, 2).unwrap()
    }

    fn gather(batch: &mut Batch, first: Wanted, second: &OwnedFd, crowd: &Crowd) -> Option<Given> {
        batch.gather(first, second, &mut [0; 8192], crowd)
    }

    /// Crowd, kernel's end and our end of the second device, in which these requests wait.
    fn waiting(requests: &[Vec<u8>]) -> (Crowd, OwnedFd, OwnedFd) {
        let (kernel, ours) = device();
        for request in requests {
            rustix::io::write(&kernel, request).unwrap();
        }
        (Crowd::default(), kernel, ours)
    }

    #[test]
    fn reads_that_wait_are_taken_and_others_given_away() {
        let read = |unique| request(op::READ, unique, unique, 4096 * unique, 5000);
        let lookup = request(op::LOOKUP, 9, 1, 0, 0);
        let (crowd, _kernel, second) = waiting(&[read(7), read(8), lookup.clone(), read(10)]);
        let mut batch = Batch::default();
        let given = gather(&mut batch, wanted(6, 4096), &second, &crowd);
        assert_eq!(given.unwrap().0, lookup);
        let taken: Vec<_> =
            batch.taken.iter().map(|t| (t.unique, t.second, t.ino, t.offset)).collect();
        assert_eq!(taken, [(6, false, 2, 0), (7, true, 7, 28_672), (8, true, 8, 32_768)]);
        assert!(batch.taken.iter().all(|t| t.place.start.is_multiple_of(PAGE)), "{batch:?}");
        assert_eq!(batch.taken[2].place, 12_288..17_288, "none overlap");
        // Others are about: nobody looks for a while.
        for _ in 0..Crowd::MIXED {
            assert!(
                gather(&mut batch, wanted(6, 4096), &second, &crowd).is_none() && batch.len() == 0
            );
        }
        assert!(gather(&mut batch, wanted(6, 4096), &second, &crowd).is_none());
        assert_eq!(batch.len(), 2);
    }

    #[test]
    fn who_comes_alone_is_left_alone() {
        let (crowd, kernel, second) = waiting(&[]);
        let mut batch = Batch::default();
        assert!(gather(&mut batch, wanted(6, 4096), &second, &crowd).is_none());
        assert_eq!(batch.len(), 0);
        rustix::io::write(&kernel, &request(op::READ, 7, 7, 0, 4096)).unwrap();
        for _ in 0..Crowd::ALONE {
            gather(&mut batch, wanted(6, 4096), &second, &crowd);
            assert_eq!(batch.len(), 0);
        }
        gather(&mut batch, wanted(6, 4096), &second, &crowd);
        assert_eq!(batch.len(), 2);
    }

    #[test]
    fn few_rooms_are_kept() {
        let rooms = Rooms::default();
        let taken: Vec<Buffer> = (0..5).map(|_| rooms.take()).collect();
        assert!(taken.iter().all(|room| room.len() == ROOM));
        taken.into_iter().for_each(|room| rooms.give_back(room));
        assert_eq!(rooms.0.lock().len(), Rooms::KEPT);
        rooms.take();
        assert_eq!(rooms.0.lock().len(), Rooms::KEPT - 1, "a kept one serves again");
    }

    #[test]
    fn there_is_an_end_to_it() {
        let mut batch = Batch::default();
        let read = |size| request(op::READ, 7, 7, 0, size);
        let (crowd, _kernel, second) = waiting(&vec![read(4096); 20]);
        assert!(gather(&mut batch, wanted(1, 4096), &second, &crowd).is_none());
        assert_eq!(batch.len(), MOST);
        // Large ones: too large at all, or for the room that is left. A large one alone is not
        // looked behind.
        for (size, count) in [(1 << 20, 1), (60 << 10, 5)] {
            let (crowd, _kernel, second) = waiting(&vec![read(size); 20]);
            assert!(gather(&mut batch, wanted(1, SMALL as u32 + 1), &second, &crowd).is_none());
            assert_eq!(batch.len(), 0);
            assert_eq!(gather(&mut batch, wanted(1, 4096), &second, &crowd).unwrap().0, read(size));
            assert_eq!(batch.len(), count);
        }
        // What cannot be a request is for whoever takes it, as it would be without this.
        let (crowd, _kernel, second) = waiting(&[vec![1; 60]]);
        assert!(gather(&mut batch, wanted(1, 4096), &second, &crowd).is_some());
    }
}
