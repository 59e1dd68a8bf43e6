//! Aligned memory for direct I/O, without unsafe code.
//!
//! `O_DIRECT` needs the memory of a request aligned (usually to 512 or 4096 bytes), which a
//! `Vec<u8>` does not guarantee. [`AlignedBuf`] allocates a little more and uses the part that
//! begins at an aligned address. A vector that is never resized never moves its bytes, so they stay
//! aligned.
//!
//! [`BufferPool`] keeps a few such buffers for requests whose memory is not aligned. It is bounded:
//! 16 small and 4 large buffers, about 5 MiB. A request that finds it empty allocates a buffer.

use parking_lot::Mutex;
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

/// Most bytes of one bounced request; longer ones go in several.
pub(crate) const BOUNCE_MAX: usize = 1 << 20;
const SMALL: usize = 64 << 10;
const KEEP_SMALL: usize = 16;
const KEEP_LARGE: usize = 4;

/// A bounded pool of aligned buffers.
#[derive(Debug)]
pub(crate) struct BufferPool {
    align: usize,
    small: Mutex<Vec<AlignedBuf>>,
    large: Mutex<Vec<AlignedBuf>>,
}

impl BufferPool {
    pub(crate) fn new(align: usize) -> Self {
        Self { align, small: Mutex::default(), large: Mutex::default() }
    }

    /// A buffer of at least `len` bytes (at most [`BOUNCE_MAX`]), with arbitrary contents.
    pub(crate) fn take(&self, len: usize) -> Pooled<'_> {
        debug_assert!(len <= BOUNCE_MAX);
        let (stock, size) =
            if len <= SMALL { (&self.small, SMALL) } else { (&self.large, BOUNCE_MAX) };
        let kept = stock.lock().pop();
        let buf = kept.unwrap_or_else(|| AlignedBuf::new(size, self.align));
        Pooled { pool: self, buf: Some(buf) }
    }

    fn put(&self, buf: AlignedBuf) {
        let (stock, keep) =
            if buf.len() == SMALL { (&self.small, KEEP_SMALL) } else { (&self.large, KEEP_LARGE) };
        let mut stock = stock.lock();
        if stock.len() < keep {
            stock.push(buf);
        }
    }
}

/// A buffer on loan; returns to its pool when dropped.
pub(crate) struct Pooled<'a> {
    pool: &'a BufferPool,
    /// `None` only inside `drop`.
    buf: Option<AlignedBuf>,
}

impl Deref for Pooled<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Pooled<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.pool.put(buf);
        }
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

    #[test]
    fn pool_reuses_and_stays_bounded() {
        let pool = BufferPool::new(4096);
        let first = pool.take(100).as_ptr().addr();
        assert_eq!(pool.take(4096).as_ptr().addr(), first, "the same buffer comes back");
        let loans: Vec<_> = (0..40).map(|_| pool.take(SMALL)).collect();
        assert!(loans.iter().all(|b| b.len() >= SMALL && b.as_ptr().addr() % 4096 == 0));
        drop(loans);
        assert_eq!(pool.small.lock().len(), KEEP_SMALL);
        let loans: Vec<_> = (0..9).map(|_| pool.take(SMALL + 1)).collect();
        assert!(loans.iter().all(|b| b.len() == BOUNCE_MAX));
        drop(loans);
        assert_eq!(pool.large.lock().len(), KEEP_LARGE);
    }
}
