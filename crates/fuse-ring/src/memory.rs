//! The memory that an entry shares with the kernel: one anonymous mapping, whose pages come into being when they are touched.

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Zeroed memory on page boundaries that stays where it is.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone, and is reached only through borrows of it.
#[allow(unsafe_code)]
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping of its own, at an address that the kernel chooses.
        #[allow(unsafe_code)]
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("memory at address 0"))?;
        Ok(Self { start, len })
    }

    /// Where it begins, for the kernel.
    pub(crate) fn pointer(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes of the mapping, initialised (zeros at first), borrowed as this value is. That the kernel does not
        // write them meanwhile is what `Entry` sees to.
        #[allow(unsafe_code)]
        unsafe {
            std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len)
        }
    }

    /// Gives the pages from `from` (a page boundary) back; they read as zeros afterwards.
    pub(crate) fn discard(&mut self, from: usize) {
        let Some(len) = self.len.checked_sub(from) else { return };
        // SAFETY: a part of the mapping, which nobody else uses during this call (it is borrowed mutably).
        #[allow(unsafe_code)]
        let _ = unsafe { madvise(self.start.as_ptr().add(from).cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, which nobody borrows any more; an entry that the kernel may still write to leaks it instead.
        #[allow(unsafe_code)]
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
