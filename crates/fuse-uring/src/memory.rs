//! The memory that an entry shares with the kernel: one anonymous mapping, whose pages come into
//! being when they are touched.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Zeroed memory on page boundaries that stays where it is.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    /// The two parts of it that the kernel uses, in the form that it expects.
    parts: Box<[libc::iovec; 2]>,
}

impl Memory {
    /// `len` bytes, of which the kernel is to have those before `head` and those from `tail` on.
    pub(crate) fn new(len: usize, head: usize, tail: usize) -> io::Result<Self> {
        assert!(head <= tail && tail <= len, "parts that do not fit");
        // SAFETY: a new mapping of its own, at an address that the kernel chooses.
        #[allow(unsafe_code)]
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let parts = Box::new([
            libc::iovec { iov_base: start, iov_len: head },
            libc::iovec { iov_base: start.wrapping_byte_add(tail), iov_len: len - tail },
        ]);
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory at address 0"))?;
        Ok(Self { start, len, parts })
    }

    /// Address of the list of parts, for the kernel. It stays where it is as long as this value
    /// lives, wherever that is moved.
    pub(crate) fn parts(&self) -> u64 {
        self.parts.as_ptr().cast::<c_void>().expose_provenance() as u64
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes of the mapping, initialised (zeros at first), borrowed as this value
        // is. That the kernel does not write them meanwhile is what `Entry` sees to (FU-1).
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len)
        }
    }

    /// Gives the pages from `from` (a page boundary) back; they read as zeros afterwards.
    pub(crate) fn discard(&mut self, from: usize) {
        let Some(len) = self.len.checked_sub(from) else { return };
        // SAFETY: a part of the mapping, which is borrowed mutably during this call.
        #[allow(unsafe_code)]
        let _ =
            unsafe { madvise(self.start.as_ptr().add(from).cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, of which there is no borrow any more; an entry that the kernel
        // may still write to leaks it instead (FU-2).
        #[allow(unsafe_code)]
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
