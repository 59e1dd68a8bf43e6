//! Entries of a queue of FUSE requests over io_uring: the unsafe part of them, with a safe
//! interface.
//!
//! Linux 6.14 and later can hand the requests of a mount to its server through io_uring instead of
//! `read` and `write` on `/dev/fuse`. The mount has one queue per processor; the server registers
//! *entries* with the queues, each of them memory for one request and its reply. An entry is with
//! the kernel until a request has come, then with the server until it is handed back with the reply
//! (*commit*), in one system call with the wait for the next request.
//!
//! ```text
//!        add                    request has come            lend
//!   ───────────────► kernel's ───────────────────► ours ◄─────────► lent to another thread
//!                       ▲                          │  ▲    give back
//!                       └────────── commit ────────┤  │ all pieces are there, or failed
//!                                                  └─►┘
//!                                                 read
//! ```
//!
//! A [`Ring`] has the entries of one thread, which waits for all of them at the same time; others
//! may wake it ([`Waker`]). The memory of an entry that has a request can be lent, so that somebody
//! else works on it; only the thread of the ring can commit. What is lent ([`Lent`]) knows its ring
//! and its entry, so it comes back to the entry that the kernel knows this memory by, and to no
//! other: the kernel would write the memory of one entry while the server has it as that of
//! another. A reply that is to come from a file is read into the memory by the same ring
//! ([`Ring::read`]): the thread that waits for requests waits for that, too.
//!
//! ```text
//!   0        128        256        288            4096                        memory of an entry
//!   │ header │ fixed    │ sizes    │ free         │ payload ...
//! ```
//!
//! *Safety.* The kernel writes the memory (and reads the reply) only while a command is on its way:
//! between the `submit` of a register, commit or read and its completion. [`Ring`] lends the memory
//! out only outside that time ([`Ring::memory`] is empty within), and does not unmap it while a
//! command is on its way: then it is leaked, which happens only after io_uring itself has failed.
//! One command of an entry at a time, so a completion with its number is that of the command; or
//! the pieces of one read, whose completions are counted, and nothing else.
//!
//! *Trust.* The kernel's bytes are handed on as they are; lengths in them are for the caller to
//! check.

mod memory;
mod waker;

pub use memory::Lent;
pub use waker::Waker;

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use crate::memory::Memory;

/// Where the fixed fields of a request begin that follow its header.
pub const FIXED: usize = 128;
/// Room for them.
pub const FIXED_SIZE: usize = 128;
/// Where the kernel says how much payload there is (`u32`), and is told so.
pub const PAYLOAD_SIZE: usize = 272;
/// From here up to the payload the memory is the server's own.
pub const FREE: usize = 288;
/// Where the payload begins: on a page boundary.
pub const PAYLOAD: usize = 4096;
/// Most entries of a ring.
pub const MOST: usize = 64;

/// Where the kernel says which number commits the request (`u64`).
const COMMIT_ID: usize = 264;
/// Before another attempt.
const PAUSE: Duration = Duration::from_millis(1);
const COMMAND_REGISTER: u32 = 1;
const COMMAND_COMMIT_AND_FETCH: u32 = 2;
/// Commands that are handed over with one call.
const AT_ONCE: u32 = 16;
/// A completion of what watches the waker.
const WAKE: u64 = u64::MAX;
/// Its place, and that of the mount's device, among the files of the ring.
const DEVICE: types::Fixed = types::Fixed(0);
const WAKER: types::Fixed = types::Fixed(1);
/// A completion of a piece of a read: this, how many bytes it has, from bit 16 on, and the entry.
const READ: u64 = 1 << 63;
const READ_LEN: u32 = 16;
const READ_ENTRY: u64 = (1 << READ_LEN) - 1;

/// The number of the next ring.
static NEXT_RING: AtomicU64 = AtomicU64::new(0);

/// Entries of one queue, for one thread.
pub struct Ring {
    ring: ManuallyDrop<Io>,
    entries: Vec<Entry>,
    /// Entries that are with the kernel.
    away: usize,
    /// Entries whose memory is being read into.
    reading: usize,
    /// What nobody has heard of yet.
    ready: VecDeque<(usize, What)>,
    /// Requests among that.
    requests: usize,
    failed: Option<io::Error>,
    waker: Waker,
    /// The kernel tells when somebody has woken this ring.
    watched: bool,
    woken: bool,
    queue: u16,
    room: usize,
    /// Tells this ring from all others of the process.
    id: u64,
}

type Io = IoUring<Entry128, cqueue::Entry>;

/// Memory for one request and its reply.
enum Entry {
    Ours(Memory),
    /// A command is pushed or on its way.
    Kernels(ManuallyDrop<Memory>),
    /// So many pieces of a read are pushed or on their way.
    Reading {
        memory: ManuallyDrop<Memory>,
        pieces: usize,
        good: bool,
    },
    Lent,
}

/// What has become of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Request,
    Read { good: bool },
}

/// A part of a read: bytes `at` to `at + len` behind [`PAYLOAD`] are to be those behind `offset` of
/// the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it lies.
    pub offset: u64,
    /// Where it goes.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// What a ring has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// This entry has a request.
    Request(usize),
    /// A [read](Ring::read) into the memory of an entry has ended; all of it is there if it is
    /// `good`.
    Read {
        /// Which.
        entry: usize,
        /// Else its memory has anything where the pieces are.
        good: bool,
    },
    /// Somebody has woken it.
    Woken,
    /// Nothing for a while.
    Nothing,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { queue, away, entries, .. } = self;
        write!(f, "ring of queue {queue}, {away} of {} entries with the kernel", entries.len())
    }
}

impl Ring {
    /// A ring without entries; those that it will have are to have room for `room` bytes besides
    /// the fixed fields. All that follows must be done by the thread that made it.
    ///
    /// # Errors
    /// If the kernel does not know such rings or does not let us have one, or is short of memory or
    /// descriptors.
    pub fn new(room: usize) -> io::Result<Self> {
        let ring: Io = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(4 * MOST as u32)
            .build(AT_ONCE)?;
        // One look-up of a descriptor less in every call; it may be refused.
        let _ = ring.submitter().register_ring_fd();
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            entries: Vec::new(),
            away: 0,
            reading: 0,
            ready: VecDeque::new(),
            requests: 0,
            failed: None,
            waker: Waker::new()?,
            watched: false,
            woken: false,
            queue: 0,
            room,
            id: NEXT_RING.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Says which queue of which mount the entries are for. The mount behind `device`, which the
    /// ring keeps open, must have answered INIT.
    ///
    /// # Errors
    /// If the kernel is short of memory, or there was a device before.
    pub fn serve(&mut self, device: BorrowedFd<'_>, queue: u16) -> io::Result<()> {
        self.queue = queue;
        self.ring.submitter().register_files(&[device.as_raw_fd(), self.waker.as_raw_fd()])
    }

    /// Registers another entry. (A request that waits in the queue already does not come to it.)
    ///
    /// # Errors
    /// If the kernel refuses it, or there are [`MOST`].
    pub fn add(&mut self) -> io::Result<()> {
        let number = self.entries.len();
        if number >= MOST {
            return Err(io::Error::other("too many entries"));
        }
        let memory = Memory::new(PAYLOAD + self.room, FREE, PAYLOAD)?;
        let parts = memory.parts();
        self.entries.push(Entry::Kernels(ManuallyDrop::new(memory)));
        self.away += 1;
        let command = with_count(self.command(number, COMMAND_REGISTER, 0, Some(parts)));
        self.push(&command)?;
        self.ring.submit()?;
        // A refusal is there at once; else the completion is the first request.
        self.absorb();
        match &self.entries[number] {
            Entry::Ours(_) if !self.ready.contains(&(number, What::Request)) => {
                Err(self.failed.take().unwrap_or_else(|| io::Error::other("an entry was refused")))
            }
            _ => Ok(()),
        }
    }

    /// Hands the reply of an entry over, for `next` to send: the header of it stands at the
    /// beginning of the memory, `payload` bytes at [`PAYLOAD`].
    ///
    /// # Errors
    /// If there is no request to reply to.
    pub fn commit(&mut self, number: usize, payload: u32) -> io::Result<()> {
        let Some(Entry::Ours(memory)) = self.entries.get_mut(number) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let bytes = memory.bytes();
        let id = bytes[COMMIT_ID..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
        bytes[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&payload.to_ne_bytes());
        let Entry::Ours(memory) = std::mem::replace(&mut self.entries[number], Entry::Lent) else {
            unreachable!("seen above")
        };
        self.entries[number] = Entry::Kernels(ManuallyDrop::new(memory));
        self.away += 1;
        let command = self.command(number, COMMAND_COMMIT_AND_FETCH, id, None);
        self.push(&command)
    }

    /// Has these pieces of a file read into the memory of an entry, for `next` to send; that tells
    /// of the end. Pieces are read in any order. The file must stay open until then.
    ///
    /// # Errors
    /// If the entry is not here, there are no pieces or they do not fit; or if io_uring fails.
    pub fn read(
        &mut self,
        number: usize,
        file: BorrowedFd<'_>,
        pieces: &[Piece],
    ) -> io::Result<()> {
        let Some(Entry::Ours(memory)) = self.entries.get_mut(number) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let room = memory.bytes().len() - PAYLOAD;
        let fits = |piece: &Piece| {
            piece.len > 0
                && u32::try_from(piece.len).is_ok()
                && piece.at.checked_add(piece.len).is_some_and(|end| end <= room)
        };
        if pieces.is_empty() || !pieces.iter().all(fits) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let start = memory.bytes()[PAYLOAD..].as_mut_ptr();
        let Entry::Ours(memory) = std::mem::replace(&mut self.entries[number], Entry::Lent) else {
            unreachable!("seen above")
        };
        let memory = ManuallyDrop::new(memory);
        self.entries[number] = Entry::Reading { memory, pieces: pieces.len(), good: true };
        self.reading += 1;
        for piece in pieces {
            let len = piece.len as u32;
            let to = start.wrapping_add(piece.at);
            let read = opcode::Read::new(types::Fd(file.as_raw_fd()), to, len)
                .offset(piece.offset)
                .build();
            self.push(&read.user_data(READ | u64::from(len) << READ_LEN | number as u64).into())?;
        }
        Ok(())
    }

    /// Reads that have not ended.
    #[must_use]
    pub fn reading(&self) -> usize {
        self.reading
    }

    /// Sends the replies that have been handed over, without waiting.
    ///
    /// # Errors
    /// If io_uring fails.
    pub fn send(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() { Ok(()) } else { self.submit() }
    }

    /// Sends the replies that have been handed over, and waits, for the next request or for
    /// somebody who wakes this ring. With `patience`, no longer than that.
    ///
    /// # Errors
    /// `ENOTCONN` and its kin, once for each entry that was with the kernel when the mount ended;
    /// anything else if io_uring fails.
    pub fn next(&mut self, patience: Option<Duration>) -> io::Result<Event> {
        let patience = patience.map(types::Timespec::from);
        loop {
            self.absorb();
            match self.ready.pop_front() {
                Some((entry, What::Request)) => {
                    self.requests -= 1;
                    return Ok(Event::Request(entry));
                }
                Some((entry, What::Read { good })) => return Ok(Event::Read { entry, good }),
                None => {}
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if std::mem::take(&mut self.woken) {
                return Ok(Event::Woken);
            }
            if !self.watched {
                self.watched = true;
                let watch = opcode::PollAdd::new(WAKER, libc::POLLIN as u32).multi(true).build();
                self.push(&watch.user_data(WAKE).into())?;
            }
            let waited = match &patience {
                Some(patience) => self
                    .ring
                    .submitter()
                    .submit_with_args(1, &types::SubmitArgs::new().timespec(patience)),
                None => self.ring.submit_and_wait(1),
            };
            match waited {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                    return Ok(Event::Nothing);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    /// Request or reply of an entry. Empty while it is not here.
    pub fn memory(&mut self, number: usize) -> &mut [u8] {
        match self.entries.get_mut(number) {
            Some(Entry::Ours(memory)) => memory.bytes(),
            _ => &mut [],
        }
    }

    /// Takes the memory of an entry out, for another thread, until it is [given
    /// back](Self::give_back).
    pub fn lend(&mut self, number: usize) -> Option<Lent> {
        let entry = self.entries.get_mut(number).filter(|entry| matches!(entry, Entry::Ours(_)))?;
        match std::mem::replace(entry, Entry::Lent) {
            Entry::Ours(memory) => Some(Lent { memory, ring: self.id, entry: number }),
            _ => None,
        }
    }

    /// Puts the memory back into the entry that it was taken out of, and gives that entry's number.
    ///
    /// # Errors
    /// If another ring has lent it. It comes back to the caller: only that ring can have it.
    pub fn give_back(&mut self, lent: Lent) -> Result<usize, Lent> {
        let number = lent.entry;
        match self.entries.get_mut(number) {
            Some(entry @ Entry::Lent) if lent.ring == self.id => {
                *entry = Entry::Ours(lent.memory);
                Ok(number)
            }
            _ => Err(lent),
        }
    }

    /// Entries that are with the kernel, or have a request that [`next`](Self::next) has not told
    /// yet.
    #[must_use]
    pub fn open(&self) -> usize {
        self.away + self.requests
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What wakes this ring.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Gives the memory of payloads back to the machine, of entries with neither a request nor a
    /// reply. For when [`next`](Self::next) has waited in vain: the kernel has read the replies by
    /// then, and writes requests only during a call of this thread.
    pub fn discard(&mut self) {
        if self.ring.submission().is_empty() && self.ring.completion().is_empty() {
            for entry in &mut self.entries {
                if let Entry::Kernels(memory) = entry {
                    memory.discard(PAYLOAD);
                }
            }
        }
    }

    fn command(&self, number: usize, command: u32, id: u64, parts: Option<u64>) -> Entry128 {
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&id.to_ne_bytes());
        arguments[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let command = opcode::UringCmd80::new(DEVICE, command).cmd(arguments).addr(parts);
        command.build().user_data(number as u64)
    }

    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: nobody else has the submission queue. What a command points to is the list of an
        // entry's parts, and memory that these name, or a piece of the memory: all belong to the
        // entry's `Memory`, which is `Kernels` or `Reading` from before this call until the
        // completion (of all pieces) has been seen, and so neither lent out nor freed.
        #[allow(unsafe_code)]
        unsafe {
            self.ring.submission().push(command).map_err(|_| io::Error::other("the ring is full"))
        }
    }

    fn submit(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the completions.
    fn absorb(&mut self) {
        for done in self.ring.completion() {
            if done.user_data() == WAKE {
                self.woken = true;
                self.watched &= cqueue::more(done.flags());
                continue;
            }
            if done.user_data() & READ != 0 {
                let number = (done.user_data() & READ_ENTRY) as usize;
                let len = (done.user_data() & !READ) >> READ_LEN;
                let Some(entry) = self.entries.get_mut(number) else { continue };
                let Entry::Reading { pieces, good, .. } = entry else { continue };
                *good &= u64::try_from(done.result()).is_ok_and(|n| n == len);
                *pieces -= 1;
                if let Entry::Reading { pieces: 0, good, .. } = *entry
                    && let Entry::Reading { memory, .. } = std::mem::replace(entry, Entry::Lent)
                {
                    *entry = Entry::Ours(ManuallyDrop::into_inner(memory));
                    self.reading -= 1;
                    self.ready.push_back((number, What::Read { good }));
                }
                continue;
            }
            let number = done.user_data() as usize;
            let Some(entry) = self.entries.get_mut(number) else { continue };
            match std::mem::replace(entry, Entry::Lent) {
                Entry::Kernels(memory) => *entry = Entry::Ours(ManuallyDrop::into_inner(memory)),
                // (There is no completion without a command.)
                other => {
                    *entry = other;
                    continue;
                }
            }
            self.away -= 1;
            if done.result() < 0 {
                self.failed.get_or_insert(io::Error::from_raw_os_error(-done.result()));
            } else {
                self.ready.push_back((number, What::Request));
                self.requests += 1;
            }
        }
    }
}

/// True for what goes over by itself.
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
}

/// The entry with 2 in the field that says how many parts its address means, which the crate has no
/// setter for.
fn with_count(mut entry: Entry128) -> Entry128 {
    const LEN: usize = 24;
    // SAFETY: an entry is a `repr(C)` copy of the 128 bytes of `struct io_uring_sqe`, plain numbers
    // all of them, with `len` (32 bits, aligned) at byte 24.
    #[allow(unsafe_code)]
    unsafe {
        std::ptr::from_mut(&mut entry).byte_add(LEN).cast::<u32>().write(2);
    }
    entry
}

const _: () = assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4);

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: dropped once, here, before the entries. (With a command on its way the kernel may
        // write an entry's memory even after the ring is closed: that memory, and the list of its
        // parts, stay for ever.)
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
        }
    }
}

#[cfg(test)]
mod tests;
