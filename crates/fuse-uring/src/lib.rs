//! An entry of a queue of FUSE requests over io_uring: the unsafe part, with a safe interface.
//!
//! Linux 6.14 and later can send the requests of a mount to the server through io_uring instead of
//! `read` and `write` on `/dev/fuse`. The mount has one queue per processor; the server registers
//! *entries* with the queues, each of them memory for one request and its reply. The kernel owns an
//! entry until a request has come. Then the server owns it until it returns it with the reply
//! (*commit*), in one system call with the wait for the next request.
//!
//! ```text
//!   new ──► server's ── register ──► kernel's ── next: a request has come ──► server's
//!                                        ▲                                       │
//!                                        ╰────────────── commit ─────────────────╯
//!
//!   0        128        256        288            4096                        memory of an entry
//!   │ header │ fixed    │ sizes    │ free         │ payload ...
//! ```
//!
//! An [`Entry`] has a ring of its own and belongs to the thread that made it.
//!
//! *Safety.*
//! - FU-1: the kernel writes the memory (and reads the reply) only while a command is in flight:
//!   between the submit of a register or commit and its completion. [`Entry::memory`] is empty
//!   within that time.
//! - FU-2: the memory is not unmapped while a command is in flight. If the entry is dropped then,
//!   its memory is leaked: that happens only after io_uring itself has failed, or when a mount is
//!   abandoned.
//!
//! The bytes of a request are returned unchecked; the caller checks the lengths in them.

mod memory;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use crate::memory::Memory;

/// Place of the fixed fields of a request, after its header.
pub const FIXED: usize = 128;
/// Space for them.
pub const FIXED_SIZE: usize = 128;
/// Place of the size of the payload (`u32`), both of a request and of a reply.
pub const PAYLOAD_SIZE: usize = 272;
/// Where the payload begins: on a page boundary.
pub const PAYLOAD: usize = 4096;

/// From here up to the payload the kernel does not use the memory.
const FREE: usize = 288;
/// Place of the number that commits the request (`u64`).
const COMMIT_ID: usize = 264;
/// Time before another attempt.
const PAUSE: Duration = Duration::from_millis(1);
const COMMAND_REGISTER: u32 = 1;
const COMMAND_COMMIT_AND_FETCH: u32 = 2;
/// Size of a ring: it has one command in flight.
const COMMANDS: u32 = 2;
/// The mount's device among the files of the ring.
const DEVICE: types::Fixed = types::Fixed(0);

/// Why an entry is not with the kernel.
#[derive(Debug)]
pub enum RegisterError {
    /// The kernel has refused it.
    Refused(io::Error),
    /// The kernel has not heard of it.
    Failed(io::Error),
}

/// An entry of a queue, with its ring.
pub struct Entry {
    ring: ManuallyDrop<Io>,
    memory: ManuallyDrop<Memory>,
    /// A command is pushed or on its way.
    is_kernels: bool,
    queue: u16,
}

type Io = IoUring<Entry128, cqueue::Entry>;

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry of queue {}, with the kernel: {}", self.queue, self.is_kernels)
    }
}

impl Entry {
    /// An entry with room for `room` bytes besides the fixed fields.
    ///
    /// # Errors
    /// If the kernel does not have such rings or refuses one, or is short of memory or
    /// descriptors.
    pub fn new(room: usize) -> io::Result<Self> {
        let ring: Io =
            IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(COMMANDS)?;
        // One look-up of a descriptor less in every call; it may be refused.
        let _ = ring.submitter().register_ring_fd();
        let memory = ManuallyDrop::new(Memory::new(PAYLOAD + room, FREE, PAYLOAD)?);
        Ok(Self { ring: ManuallyDrop::new(ring), memory, is_kernels: false, queue: 0 })
    }

    /// Gives the entry to a queue of the mount behind `device`, which must have answered INIT and
    /// which the ring keeps open.
    ///
    /// # Errors
    /// If the kernel refuses it, or is short of memory.
    pub fn register(&mut self, device: BorrowedFd<'_>, queue: u16) -> Result<(), RegisterError> {
        self.queue = queue;
        let parts = self.memory.parts();
        self.ring
            .submitter()
            .register_files(&[device.as_raw_fd()])
            .map_err(RegisterError::Failed)?;
        self.push(&with_count(self.command(COMMAND_REGISTER, 0, Some(parts))))
            .and_then(|()| self.submit(None))
            .map_err(RegisterError::Failed)?;
        // A refusal is there at once; else the completion is the first request.
        match self.ring.completion().next() {
            Some(done) if done.result() < 0 => {
                self.is_kernels = false;
                let error = io::Error::from_raw_os_error(-done.result());
                Err(RegisterError::Refused(error))
            }
            Some(_) => {
                self.is_kernels = false;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Hands the reply over, for [`next`](Self::next) to send: its header stands at the beginning
    /// of the memory, `payload` bytes at [`PAYLOAD`].
    ///
    /// # Errors
    /// If there is no request to reply to.
    pub fn commit(&mut self, payload: u32) -> io::Result<()> {
        if self.is_kernels {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = self.memory.bytes();
        let id = bytes[COMMIT_ID..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
        bytes[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&payload.to_ne_bytes());
        let command = self.command(COMMAND_COMMIT_AND_FETCH, id, None);
        self.push(&command)
    }

    /// Sends the reply that has been handed over, and waits for the next request; with `patience`,
    /// no longer than that. False: none has come.
    ///
    /// # Errors
    /// `ENOTCONN` or the like when the mount has ended; anything else if io_uring fails.
    pub fn next(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        if !self.is_kernels {
            // It came with the register.
            return Ok(true);
        }
        loop {
            if let Some(done) = self.ring.completion().next() {
                self.is_kernels = false;
                let code = done.result();
                return if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(true) };
            }
            match self.submit(Some(patience)) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => return Ok(false),
                result => result?,
            }
        }
    }

    /// Request or reply. Empty while the entry is with the kernel (FU-1).
    pub fn memory(&mut self) -> &mut [u8] {
        if self.is_kernels { &mut [] } else { self.memory.bytes() }
    }

    /// Gives the memory of the payload back to the machine. For when [`next`](Self::next) has
    /// waited in vain: the kernel has read the reply by then, and writes a request only during a
    /// call of this thread.
    pub fn discard(&mut self) {
        if self.is_kernels && self.ring.submission().is_empty() && self.ring.completion().is_empty()
        {
            self.memory.discard(PAYLOAD);
        }
    }

    fn command(&self, command: u32, id: u64, parts: Option<u64>) -> Entry128 {
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&id.to_ne_bytes());
        arguments[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        opcode::UringCmd80::new(DEVICE, command).cmd(arguments).addr(parts).build()
    }

    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        self.is_kernels = true;
        // SAFETY: the submission queue is this value's alone. What a command points to is the list
        // of the memory's parts, and the memory that these name: both belong to `memory`, which
        // `is_kernels` from before this call until the completion has been seen, and so neither
        // handed out nor freed (FU-1, FU-2).
        #[allow(unsafe_code)]
        unsafe {
            self.ring.submission().push(command).map_err(|_| io::Error::other("the ring is full"))
        }
    }

    /// Submits what is pushed, and with `wait` waits for a completion, for at most that long.
    fn submit(&mut self, wait: Option<Option<Duration>>) -> io::Result<()> {
        loop {
            let result = match wait {
                None => self.ring.submit(),
                Some(None) => self.ring.submit_and_wait(1),
                Some(Some(patience)) => {
                    let patience = types::Timespec::from(patience);
                    let args = types::SubmitArgs::new().timespec(&patience);
                    self.ring.submitter().submit_with_args(1, &args)
                }
            };
            match result {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
}

/// True for what goes over by itself.
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
}

/// The command with 2 in the field that says how many parts its address means, which the crate has
/// no setter for.
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

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: both are dropped once, here, and the memory only if no command is on its way: the
        // kernel may write it even after the ring is closed (FU-2).
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if !self.is_kernels {
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}

#[cfg(test)]
mod tests;
