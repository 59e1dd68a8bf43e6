//! A few aligned buffers, for requests whose memory is not aligned.
//!
//! The pool is bounded: 16 small and 4 large buffers, about 5 MiB. A request that finds it empty
//! allocates a buffer.

use crate::aligned::AlignedBuf;
use extol_sync::plain::Mutex;
use std::ops::{Deref, DerefMut};

/// Most bytes of one bounced request; longer ones go in several.
pub(super) const BOUNCE_MAX: usize = 1 << 20;
const SMALL: usize = 64 << 10;
const KEEP_SMALL: usize = 16;
const KEEP_LARGE: usize = 4;

/// A bounded pool of aligned buffers.
#[derive(Debug)]
pub(super) struct BufferPool {
    align: usize,
    small: Mutex<Vec<AlignedBuf>>,
    large: Mutex<Vec<AlignedBuf>>,
}

impl BufferPool {
    pub(super) fn new(align: usize) -> Self {
        Self { align, small: Mutex::default(), large: Mutex::default() }
    }

    /// A buffer of at least `len` bytes (at most [`BOUNCE_MAX`]), with arbitrary contents.
    pub(super) fn take(&self, len: usize) -> Pooled<'_> {
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
pub(super) struct Pooled<'a> {
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
