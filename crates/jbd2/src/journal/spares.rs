//! Memory of blocks that goes round: from who writes a small file's data to who makes it durable,
//! and back.
//!
//! The two are different threads, mostly. An allocator gives each thread memory of its own, so what
//! one frees comes back to the other by a detour, and what it hands out next was last used long
//! ago: 6 or 7 % of the processor time of a small synced file (`docs/performance-notes.md`). Here
//! what was given back last goes out first, to anybody, and is still in the processor's cache.
//!
//! Locking: the last of all ranks, held for a push or a pop.

use extol_block::BlockSize;
use extol_sync::rank::{Mutex, Rank};

/// Most bytes that are kept: groups of 64 blocks of 4 KiB.
const MOST: usize = 256 << 10;

/// See the module's story.
#[derive(Debug)]
pub struct Spares {
    block: usize,
    kept: Mutex<Vec<Vec<u8>>, { Rank::Spares as u8 }>,
}

impl Spares {
    pub(super) fn new(block_size: BlockSize) -> Self {
        Self { block: block_size.len(), kept: Mutex::default() }
    }

    /// Room for so many blocks, and nothing in it.
    #[must_use]
    pub fn take(&self, blocks: u32) -> Vec<u8> {
        let kept = if blocks == 1 { self.kept.lock().pop() } else { None };
        kept.unwrap_or_else(|| Vec::with_capacity(blocks as usize * self.block))
    }

    /// Memory that is not needed any more. It is kept if it is a block's, and there is room.
    pub fn give(&self, mut memory: Vec<u8>) {
        if memory.capacity() != self.block {
            return;
        }
        memory.clear();
        let mut kept = self.kept.lock();
        if kept.len() < (MOST / self.block).max(1) {
            kept.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_last_goes_first_and_no_more_is_kept_than_a_part() {
        let spares = Spares::new(BlockSize::new(4096).expect("size"));
        let (mut a, b) = (spares.take(1), spares.take(1));
        assert_eq!((a.len(), a.capacity(), b.capacity()), (0, 4096, 4096));
        a.extend_from_slice(&[7; 4096]);
        let (first, second) = (a.as_ptr(), b.as_ptr());
        spares.give(b);
        spares.give(a);
        let (a, b) = (spares.take(1), spares.take(1));
        assert_eq!((a.as_ptr(), b.as_ptr(), a.len()), (first, second, 0), "empty again");
        // Of another size.
        spares.give(spares.take(2));
        spares.give(Vec::new());
        assert!(spares.kept.lock().is_empty());
        for _ in 0..100 {
            spares.give(Vec::with_capacity(4096));
        }
        assert_eq!(spares.kept.lock().len(), MOST / 4096);
    }
}
