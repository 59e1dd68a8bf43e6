//! One entry of a queue of FUSE requests over io_uring: the unsafe part of it, with a safe interface.
//!
//! Linux 6.14 and later can hand the requests of a mount to its server through io_uring instead of `read` and `write` on
//! `/dev/fuse`. The mount has one queue per processor; the server registers *entries* with the queues, each of them
//! memory for one request and its reply. An entry is with the kernel until a request has come, then with the server until it
//! is handed back with the reply (*commit*), in one system call with the wait for the next request.
//!
//! ```text
//!             register                request has come
//!   new ───────────────► kernel's ───────────────────► ours ──┐
//!                           ▲                                 │
//!                           └────────── commit ───────────────┘
//! ```
//!
//! An [`Entry`] has a ring of its own with at most one command in it, and belongs to one thread at a time.
//!
//! ```text
//!   0        128        256        288            4096                        memory
//!   │ header │ fixed    │ sizes    │ free         │ payload ...
//! ```
//!
//! *Safety.* The kernel writes the memory (and reads the reply) only while a command is on its way: between the `submit` of a
//! register or commit and its completion. [`Entry`] lends the memory out only outside that time ([`Entry::memory`] is empty
//! within), and does not unmap it while a command is on its way: then it is leaked, which happens only after io_uring itself
//! has failed. One command at a time, so a completion is that of the command.
//!
//! *Trust.* The kernel's bytes are handed on as they are; lengths in them are for the caller to check.

mod memory;
mod second;

pub use second::second;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
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

/// Where the kernel says which number commits the request (`u64`).
const COMMIT_ID: usize = 264;
/// Before another attempt.
const PAUSE: Duration = Duration::from_millis(1);
const COMMAND_REGISTER: u32 = 1;
const COMMAND_COMMIT_AND_FETCH: u32 = 2;

/// Memory for one request and its reply, and the ring through which it is handed to and fro.
pub struct Entry {
    ring: ManuallyDrop<Ring>,
    memory: ManuallyDrop<Memory>,
    /// A command is pushed or on its way: the memory is the kernel's.
    with_kernel: bool,
    queue: u16,
}

type Ring = IoUring<Entry128, cqueue::Entry>;

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("queue", &self.queue).field("with_kernel", &self.with_kernel).finish()
    }
}

impl Entry {
    /// An entry with room for `payload` bytes besides the fixed fields, not registered. All that follows must be done by the
    /// thread that made it.
    ///
    /// # Errors
    /// If the kernel does not know such rings or does not let us have one, or is short of memory or descriptors.
    pub fn new(payload: usize) -> io::Result<Self> {
        let ring: Ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(1)?;
        // One look-up of a descriptor less in every call; it may be refused.
        let _ = ring.submitter().register_ring_fd();
        let memory = Memory::new(PAYLOAD + payload)?;
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            memory: ManuallyDrop::new(memory),
            with_kernel: false,
            queue: 0,
        })
    }

    /// Registers it with a queue of the mount behind `device`, which must have answered INIT. The entry keeps the device open.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn register(&mut self, device: BorrowedFd<'_>, queue: u16) -> io::Result<()> {
        self.ring.submitter().register_files(&[device.as_raw_fd()])?;
        self.queue = queue;
        let start = self.memory.pointer();
        let parts = [
            libc::iovec { iov_base: start, iov_len: FREE },
            libc::iovec {
                iov_base: start.wrapping_byte_add(PAYLOAD),
                iov_len: self.memory.bytes().len() - PAYLOAD,
            },
        ];
        self.push(COMMAND_REGISTER, 0, Some(&parts))?;
        self.ring.submit()?;
        // A refusal is there at once; else the completion is the first request, which `wait` takes.
        match self.completion() {
            Some(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Hands the reply over, for `next` to send: the header of it stands at the beginning of the memory, `payload` bytes at
    /// [`PAYLOAD`].
    ///
    /// # Errors
    /// If there is no request to reply to.
    pub fn commit(&mut self, payload: u32) -> io::Result<()> {
        let Some(id) = self.memory().get(COMMIT_ID..).and_then(|bytes| bytes.first_chunk().copied()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.memory.bytes()[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&payload.to_ne_bytes());
        self.push(COMMAND_COMMIT_AND_FETCH, u64::from_ne_bytes(id), None)
    }

    /// Waits for the next request; afterwards it stands in the memory. False if none has come for `patience`.
    ///
    /// # Errors
    /// `ENOTCONN` and its kin after the mount has ended; anything else if io_uring fails.
    pub fn next(&mut self, patience: Option<Duration>) -> io::Result<bool> {
        let patience = patience.map(types::Timespec::from);
        loop {
            if let Some(done) = self.completion() {
                return done.map(|()| true);
            }
            if !self.with_kernel {
                return Ok(true);
            }
            let waited = match &patience {
                Some(patience) => {
                    self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(patience))
                }
                None => self.ring.submit_and_wait(1),
            };
            match waited {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
    }

    /// Request or reply. Empty while it is with the kernel.
    pub fn memory(&mut self) -> &mut [u8] {
        if self.with_kernel { &mut [] } else { self.memory.bytes() }
    }

    /// Gives the memory of the payload back to the machine, unless a request or a reply is in it. For when
    /// [`next`](Self::next) has waited in vain: the kernel has read the reply by then, and writes a request only during a call of
    /// this thread.
    pub fn discard(&mut self) {
        if self.with_kernel && self.ring.submission().is_empty() && self.ring.completion().is_empty() {
            self.memory.discard(PAYLOAD);
        }
    }

    fn push(&mut self, command: u32, id: u64, parts: Option<&[libc::iovec; 2]>) -> io::Result<()> {
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&id.to_ne_bytes());
        arguments[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let entry = opcode::UringCmd80::new(types::Fixed(0), command)
            .cmd(arguments)
            .addr(parts.map(|parts| parts.as_ptr().expose_provenance() as u64))
            .build();
        // SAFETY: nobody else has the submission queue. The kernel reads `parts` during the submit only, which `register` does
        // while it has them; their memory is a mapping that this value owns and neither lends out nor unmaps until the
        // completion has been seen (`with_kernel`).
        #[allow(unsafe_code)]
        unsafe {
            let entry = if parts.is_some() { with_count(entry) } else { entry };
            self.ring.submission().push(&entry).map_err(|_| io::Error::other("the ring is full"))?;
        }
        self.with_kernel = true;
        Ok(())
    }

    fn completion(&mut self) -> Option<io::Result<()>> {
        let done = self.ring.completion().next()?;
        self.with_kernel = false;
        Some(if done.result() < 0 { Err(io::Error::from_raw_os_error(-done.result())) } else { Ok(()) })
    }
}

/// True for what goes over by itself.
fn is_passing(error: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| passing.contains(&code))
}

/// The entry with 2 in the field that says how many parts its address means, which the crate has no setter for.
fn with_count(mut entry: Entry128) -> Entry128 {
    const LEN: usize = 24;
    // SAFETY: an entry is a `repr(C)` copy of the 128 bytes of `struct io_uring_sqe`, plain numbers all of them, with `len` (32 bits,
    // aligned) at byte 24.
    #[allow(unsafe_code)]
    unsafe {
        std::ptr::from_mut(&mut entry).byte_add(LEN).cast::<u32>().write(2);
    }
    entry
}

const _: () = assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= 4);

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: dropped once each, here, the ring first. With a command on its way the kernel may write the memory even after
        // the ring is closed: it stays for ever.
        #[allow(unsafe_code)]
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if !self.with_kernel {
                ManuallyDrop::drop(&mut self.memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    const ROOM: usize = 64 << 10;

    /// An entry, or a line that says why not.
    fn entry() -> Option<Entry> {
        Entry::new(ROOM).inspect_err(|e| println!("SKIP: no such io_uring here ({e})")).ok()
    }

    #[test]
    fn memory_is_ours_until_it_is_registered() {
        let Some(mut entry) = entry() else { return };
        assert_eq!(entry.memory().len(), PAYLOAD + ROOM);
        assert_eq!(entry.memory()[PAYLOAD..].as_ptr().addr() % 4096, 0);
        entry.memory().fill(7);
        entry.discard();
        assert!(entry.memory().iter().all(|&byte| byte == 7), "it is not with the kernel");
    }

    #[test]
    fn a_file_that_takes_no_commands_refuses_it() {
        let Some(mut entry) = entry() else { return };
        let file = File::open("/proc/self/stat").unwrap();
        assert!(entry.register(file.as_fd(), 3).is_err());
        assert_eq!(entry.memory().len(), PAYLOAD + ROOM, "the command is over");
    }

    /// `/dev/null` takes commands, and completes them at once, in Linux 6.1 and later.
    #[test]
    fn to_and_fro() {
        let Some(mut entry) = entry() else { return };
        let null = File::open("/dev/null").unwrap();
        if let Err(error) = entry.register(null.as_fd(), 1) {
            println!("SKIP: /dev/null takes no commands here ({error})");
            return;
        }
        for round in 0..100_u8 {
            assert!(entry.next((round % 2 == 0).then_some(Duration::from_secs(5))).unwrap());
            entry.memory()[PAYLOAD..].fill(round);
            entry.commit(ROOM as u32).unwrap();
            assert!(entry.memory().is_empty(), "the kernel's");
            assert!(entry.commit(0).is_err(), "once");
            entry.discard();
        }
        assert!(entry.next(None).unwrap());
        assert!(
            entry.memory()[PAYLOAD..].iter().all(|&byte| byte == 99),
            "not submitted when it was to be discarded"
        );
    }
}
