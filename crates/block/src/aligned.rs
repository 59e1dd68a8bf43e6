//! Aligned memory for direct I/O, without unsafe code.
//!
//! `O_DIRECT` needs the memory of a request aligned (usually to 512 or 4096 bytes), which a
//! `Vec<u8>` does not guarantee. [`AlignedBuf`] allocates a little more and uses the part that
//! begins at an aligned address. A vector that is never resized never moves its bytes, so they stay
//! aligned.

use std::ops::{Deref, DerefMut};

/// A zero-initialised byte buffer that begins at a multiple of the wanted alignment.
pub struct AlignedBuf {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes at a multiple of `align`, which must be a power of two.
    #[must_use]
    pub fn new(len: usize, align: usize) -> Self {
        debug_assert!(align.is_power_of_two());
        let memory = vec![0; len + align - 1];
        let address = memory.as_ptr().addr();
        let start = address.next_multiple_of(align) - address;
        Self { memory, start, len }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AlignedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zero() {
        for align in [1, 16, 512, 4096, 65536] {
            for len in [0, 1, 511, 4096, 100_000] {
                let mut buf = AlignedBuf::new(len, align);
                assert_eq!(buf.len(), len);
                assert_eq!(buf.as_ptr().addr() % align, 0, "align {align} len {len}");
                assert!(buf.iter().all(|b| *b == 0));
                buf.fill(7);
                assert!(buf.iter().all(|b| *b == 7));
            }
        }
    }
}
