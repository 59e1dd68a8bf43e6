//! One shard: which blocks stay when there is no room for all (S3-FIFO: Yang and others, "FIFO
//! queues are all you need for cache eviction", 2023).
//!
//! ```text
//!   new ──► short queue (a tenth) ──► wanted meanwhile: long queue ──► wanted meanwhile: once more round
//!    ▲                            └──► not wanted: out, its number stays  └──► out
//!    └── number known: straight to the long queue
//! ```
//!
//! So whoever reads a lot that nobody wants again turns out a tenth at most. A reader of small
//! pieces asks for the same block several times in a row: that counts as once.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::list::{Link, List, NONE};

/// A block goes round so many times more than it was wanted lately, at most.
const HITS: u8 = 3;
/// The short queue's part of the room.
const SHORT: usize = 10;

/// Also one that is free keeps its memory: asking for it anew each time would cost more than the
/// copying.
#[derive(Debug)]
struct Slot {
    block: u64,
    bytes: Box<[u8]>,
    /// False: it is free, or its block is about to be written.
    filled: bool,
    hits: u8,
    long: bool,
    link: Link,
}

impl AsMut<Link> for Slot {
    fn as_mut(&mut self) -> &mut Link {
        &mut self.link
    }
}

/// Blocks of a part of the device.
#[derive(Debug)]
pub(super) struct Shard {
    room: usize,
    block_len: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashMap<u64, u32, RandomState>,
    short: List,
    long: List,
    /// Numbers of blocks that left the short queue unwanted, each at the place that it falls on.
    known: Vec<u32>,
    /// The slot that was wanted last.
    last: u32,
    filled: usize,
}

impl Shard {
    pub fn new(room: usize, block_len: usize) -> Self {
        Self {
            room,
            block_len,
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            short: List::default(),
            long: List::default(),
            known: Vec::new(),
            last: NONE,
            filled: 0,
        }
    }

    /// Blocks that have bytes.
    pub fn filled(&self) -> usize {
        self.filled
    }

    pub fn blocks(&self) -> Vec<u64> {
        self.index.keys().copied().collect()
    }

    pub fn has(&self, block: u64) -> bool {
        self.index.contains_key(&block)
    }

    /// True if it has bytes.
    pub fn is_filled(&self, block: u64) -> bool {
        self.index.get(&block).is_some_and(|at| self.slots[*at as usize].filled)
    }

    /// A reader wants the block.
    pub fn get(&mut self, block: u64) -> Option<&[u8]> {
        let at = *self.index.get(&block)?;
        let slot = &mut self.slots[at as usize];
        if !slot.filled {
            return None;
        }
        if self.last != at {
            slot.hits = (slot.hits + 1).min(HITS);
            self.last = at;
        }
        Some(&slot.bytes)
    }

    /// Sets the bytes of a block, if it is there.
    pub fn fill(&mut self, block: u64, bytes: &[u8]) {
        let Some(at) = self.index.get(&block) else { return };
        let slot = &mut self.slots[*at as usize];
        slot.bytes.copy_from_slice(bytes);
        self.filled += usize::from(!slot.filled);
        slot.filled = true;
    }

    /// A part of a block was written. False if it is there and its bytes are not known now.
    pub fn update(&mut self, block: u64, inside: usize, part: &[u8]) -> bool {
        if part.len() == self.block_len {
            self.fill(block, part);
            return true;
        }
        let Some(at) = self.index.get(&block) else { return true };
        let slot = &mut self.slots[*at as usize];
        if slot.filled {
            slot.bytes[inside..inside + part.len()].copy_from_slice(part);
        }
        slot.filled
    }

    /// Takes in a block that is not there. Returns the one that had to go for it.
    pub fn admit(&mut self, block: u64, bytes: Option<&[u8]>) -> Option<u64> {
        let out = if self.index.len() >= self.room { self.evict() } else { None };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                block: 0,
                bytes: vec![0; self.block_len].into(),
                filled: false,
                hits: 0,
                long: false,
                link: Link::default(),
            });
            (self.slots.len() - 1) as u32
        });
        let long = self.forget_known(block);
        let slot = &mut self.slots[at as usize];
        (slot.block, slot.hits, slot.long) = (block, 0, long);
        let queue = if long { &mut self.long } else { &mut self.short };
        queue.push(&mut self.slots, at);
        self.index.insert(block, at);
        if let Some(bytes) = bytes {
            self.fill(block, bytes);
        }
        // Whoever brought it reads on in it.
        self.last = at;
        out
    }

    /// True if it was there.
    pub fn remove(&mut self, block: u64) -> bool {
        let Some(at) = self.index.get(&block).copied() else { return false };
        self.take(at);
        true
    }

    fn take(&mut self, at: u32) -> u64 {
        let queue = if self.slots[at as usize].long { &mut self.long } else { &mut self.short };
        queue.take(&mut self.slots, at);
        let slot = &mut self.slots[at as usize];
        self.filled -= usize::from(std::mem::take(&mut slot.filled));
        self.index.remove(&slot.block);
        self.free.push(at);
        if self.last == at {
            self.last = NONE;
        }
        slot.block
    }

    /// Makes room for one. Ends: every step takes one out, moves it to the long queue, or takes a
    /// hit away.
    fn evict(&mut self) -> Option<u64> {
        loop {
            let short = self.short.len() > self.room / SHORT || self.long.len() == 0;
            let queue = if short { &mut self.short } else { &mut self.long };
            let at = queue.first()?;
            let slot = &mut self.slots[at as usize];
            if slot.hits == 0 {
                let block = slot.block;
                if short {
                    self.remember(block);
                }
                return Some(self.take(at));
            }
            slot.hits = if short { 0 } else { slot.hits - 1 };
            slot.long = true;
            queue.take(&mut self.slots, at);
            self.long.push(&mut self.slots, at);
        }
    }

    fn place_of(&self, block: u64) -> (usize, u32) {
        let mixed = block.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        // 0 is nobody.
        ((mixed >> 32) as usize % self.room, (mixed as u32) | 1)
    }

    fn remember(&mut self, block: u64) {
        let (place, number) = self.place_of(block);
        if self.known.is_empty() {
            self.known = vec![0; self.room];
        }
        self.known[place] = number;
    }

    fn forget_known(&mut self, block: u64) -> bool {
        let (place, number) = self.place_of(block);
        match self.known.get_mut(place) {
            Some(known) if *known == number => {
                *known = 0;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 8;

    fn block(n: u64) -> [u8; LEN] {
        n.to_le_bytes()
    }

    /// Reads a block as a reader does. True if it was there.
    fn read(shard: &mut Shard, n: u64) -> bool {
        if let Some(bytes) = shard.get(n) {
            assert_eq!(bytes, block(n));
            return true;
        }
        shard.admit(n, Some(&block(n)));
        false
    }

    fn hits(shard: &mut Shard, range: std::ops::Range<u64>) -> usize {
        range.filter(|n| read(shard, *n)).count()
    }

    #[test]
    fn no_more_than_there_is_room_for() {
        let mut shard = Shard::new(100, LEN);
        for n in 0..1000 {
            let out = shard.admit(n, Some(&block(n)));
            assert_eq!(out.is_some(), n >= 100, "{n}");
            assert!(out.is_none_or(|out| !shard.has(out)));
            assert_eq!(shard.filled(), (n as usize + 1).min(100));
            assert_eq!(shard.short.len() + shard.long.len(), shard.index.len());
        }
        assert_eq!(shard.slots.len(), 100);
        assert_eq!((900..1000).filter(|n| shard.remove(*n)).count(), shard.free.len());
        assert_eq!(shard.filled(), shard.index.len());
        let mut one = Shard::new(1, LEN);
        assert_eq!(hits(&mut one, 0..50), 0);
        assert_eq!((one.filled(), one.slots.len()), (1, 1));
    }

    /// What is wanted again and again survives somebody who reads ten times as much once, also in
    /// pieces of blocks.
    #[test]
    fn a_scan_turns_out_little() {
        let mut shard = Shard::new(1000, LEN);
        for _ in 0..3 {
            hits(&mut shard, 0..600);
        }
        for n in 10_000..20_000 {
            for _ in 0..4 {
                read(&mut shard, n);
            }
        }
        let left = hits(&mut shard, 0..600);
        assert!(left >= 590, "{left} of 600 are left");
    }

    /// What comes back soon after it was turned out is worth a place among those that stay.
    #[test]
    fn a_number_that_is_known_stays() {
        let mut shard = Shard::new(1000, LEN);
        hits(&mut shard, 0..1200);
        assert!(!shard.has(0) && !read(&mut shard, 0));
        hits(&mut shard, 5000..5950);
        assert!(shard.has(0));
    }

    #[test]
    fn a_place_for_what_is_written() {
        let mut shard = Shard::new(4, LEN);
        shard.admit(7, None);
        assert!(shard.get(7).is_none() && shard.filled() == 0);
        assert!(!shard.update(7, 2, &[9; 3]), "the rest is not known");
        assert!(shard.update(7, 0, &[1; LEN]));
        assert!(shard.update(7, 2, &[9; 3]));
        assert_eq!(shard.get(7), Some(&[1, 1, 9, 9, 9, 1, 1, 1][..]));
        assert!(shard.update(8, 2, &[9; 3]) && shard.update(8, 0, &[9; LEN]));
        assert!(!shard.has(8), "nobody wants it");
    }
}
