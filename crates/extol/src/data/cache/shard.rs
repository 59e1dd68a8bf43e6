//! One shard, with S3-FIFO eviction (Yang and others, "FIFO queues are all you need for cache
//! eviction", 2023).
//!
//! ```text
//!   new ──► small queue (a tenth) ──► hit since: main queue ──► hit since: once more round
//!    ▲                            └──► no hit: evicted, its number stays in the history
//!    └── number in the history: straight to the main queue
//! ```
//!
//! So a long scan evicts a tenth at most. A reader of small pieces asks for the same block several
//! times in a row: that counts as one hit.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

/// Most hits that count: rounds that a block stays in the main queue.
const HITS: u8 = 3;
/// The small queue has one part in so many of the room.
const SMALL_PART: usize = 10;

/// A block's place. A free slot keeps its memory: allocating it each time costs more than the copy.
#[derive(Debug)]
struct Slot {
    block: u64,
    bytes: Box<[u8]>,
    /// False: the slot is free, or its block is about to be written.
    filled: bool,
    hits: u8,
    main: bool,
}

/// Blocks of a part of the device.
#[derive(Debug)]
pub(super) struct Shard {
    room: usize,
    block_len: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashMap<u64, u32, RandomState>,
    /// Slots, the oldest first. (A block that is written in part or discarded leaves from the
    /// middle; that is rare, and a search in the queue of a shard is short.)
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// Numbers of blocks evicted from the small queue, by hash.
    history: Vec<u32>,
    /// The slot of the last hit.
    last: Option<u32>,
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
            small: VecDeque::new(),
            main: VecDeque::new(),
            history: Vec::new(),
            last: None,
            filled: 0,
        }
    }

    /// Blocks with bytes.
    pub fn filled(&self) -> usize {
        self.filled
    }

    pub fn blocks(&self) -> Vec<u64> {
        self.index.keys().copied().collect()
    }

    /// Drops all blocks.
    pub fn clear(&mut self) {
        *self = Self::new(self.room, self.block_len);
    }

    pub fn has(&self, block: u64) -> bool {
        self.index.contains_key(&block)
    }

    /// True if the block is held with its bytes.
    pub fn is_filled(&self, block: u64) -> bool {
        self.index.get(&block).is_some_and(|at| self.slots[*at as usize].filled)
    }

    /// The bytes of a block, for a read.
    pub fn get(&mut self, block: u64) -> Option<&[u8]> {
        let at = *self.index.get(&block)?;
        let slot = &mut self.slots[at as usize];
        if !slot.filled {
            return None;
        }
        if self.last != Some(at) {
            slot.hits = (slot.hits + 1).min(HITS);
            self.last = Some(at);
        }
        Some(&slot.bytes)
    }

    /// Sets the bytes of a block, if it has a slot.
    pub fn fill(&mut self, block: u64, bytes: &[u8]) {
        let Some(at) = self.index.get(&block) else { return };
        let slot = &mut self.slots[*at as usize];
        slot.bytes.copy_from_slice(bytes);
        self.filled += usize::from(!slot.filled);
        slot.filled = true;
    }

    /// A part of a block was written. False if it is there and its bytes are unknown.
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

    /// Adds a block that has no slot. Returns the block evicted for it.
    pub fn admit(&mut self, block: u64, bytes: Option<&[u8]>) -> Option<u64> {
        let out = if self.index.len() >= self.room { self.evict() } else { None };
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                block: 0,
                bytes: vec![0; self.block_len].into(),
                filled: false,
                hits: 0,
                main: false,
            });
            (self.slots.len() - 1) as u32
        });
        let main = self.take_from_history(block);
        let slot = &mut self.slots[at as usize];
        (slot.block, slot.hits, slot.main) = (block, 0, main);
        if main { &mut self.main } else { &mut self.small }.push_back(at);
        self.index.insert(block, at);
        if let Some(bytes) = bytes {
            self.fill(block, bytes);
        }
        // The same reader's next pieces of it are no hits.
        self.last = Some(at);
        out
    }

    /// True if it had a slot.
    pub fn remove(&mut self, block: u64) -> bool {
        let Some(at) = self.index.get(&block).copied() else { return false };
        self.take(at);
        true
    }

    fn take(&mut self, at: u32) -> u64 {
        let slot = &mut self.slots[at as usize];
        let queue = if slot.main { &mut self.main } else { &mut self.small };
        if let Some(place) = queue.iter().position(|other| *other == at) {
            queue.remove(place);
        }
        self.filled -= usize::from(std::mem::take(&mut slot.filled));
        self.index.remove(&slot.block);
        self.free.push(at);
        self.last = self.last.filter(|last| *last != at);
        slot.block
    }

    /// Evicts one block. Ends: every step evicts, moves a block to the main queue, or takes a hit
    /// away.
    fn evict(&mut self) -> Option<u64> {
        loop {
            let small = self.small.len() > self.room / SMALL_PART || self.main.is_empty();
            let queue = if small { &mut self.small } else { &mut self.main };
            let at = *queue.front()?;
            let slot = &mut self.slots[at as usize];
            if slot.hits == 0 {
                let block = slot.block;
                if small {
                    self.remember(block);
                }
                return Some(self.take(at));
            }
            slot.hits = if small { 0 } else { slot.hits - 1 };
            slot.main = true;
            queue.pop_front();
            self.main.push_back(at);
        }
    }

    fn place_of(&self, block: u64) -> (usize, u32) {
        let mixed = block.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        // 0: no block.
        ((mixed >> 32) as usize % self.room, (mixed as u32) | 1)
    }

    fn remember(&mut self, block: u64) {
        let (place, number) = self.place_of(block);
        if self.history.is_empty() {
            self.history = vec![0; self.room];
        }
        self.history[place] = number;
    }

    fn take_from_history(&mut self, block: u64) -> bool {
        let (place, number) = self.place_of(block);
        match self.history.get_mut(place) {
            Some(history) if *history == number => {
                *history = 0;
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

    /// Reads a block, and adds it if it is not held. True if it was.
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
    fn the_room_is_a_limit() {
        let mut shard = Shard::new(100, LEN);
        for n in 0..1000 {
            let out = shard.admit(n, Some(&block(n)));
            assert_eq!(out.is_some(), n >= 100, "{n}");
            assert!(out.is_none_or(|out| !shard.has(out)));
            assert_eq!(shard.filled(), (n as usize + 1).min(100));
            assert_eq!(shard.small.len() + shard.main.len(), shard.index.len());
        }
        assert_eq!(shard.slots.len(), 100);
        assert_eq!((900..1000).filter(|n| shard.remove(*n)).count(), shard.free.len());
        assert_eq!(shard.filled(), shard.index.len());
        let mut one = Shard::new(1, LEN);
        assert_eq!(hits(&mut one, 0..50), 0);
        assert_eq!((one.filled(), one.slots.len()), (1, 1));
    }

    /// Blocks read repeatedly survive a scan of ten times as many, also in pieces of blocks.
    #[test]
    fn a_scan_evicts_little() {
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

    /// A block read again soon after its eviction goes to the main queue.
    #[test]
    fn a_number_in_the_history_goes_to_the_main_queue() {
        let mut shard = Shard::new(1000, LEN);
        hits(&mut shard, 0..1200);
        assert!(!shard.has(0) && !read(&mut shard, 0));
        hits(&mut shard, 5000..5950);
        assert!(shard.has(0));
    }

    #[test]
    fn a_slot_for_a_block_about_to_be_written() {
        let mut shard = Shard::new(4, LEN);
        shard.admit(7, None);
        assert!(shard.get(7).is_none() && shard.filled() == 0);
        assert!(!shard.update(7, 2, &[9; 3]), "the rest is unknown");
        assert!(shard.update(7, 0, &[1; LEN]));
        assert!(shard.update(7, 2, &[9; 3]));
        assert_eq!(shard.get(7), Some(&[1, 1, 9, 9, 9, 1, 1, 1][..]));
        assert!(shard.update(8, 2, &[9; 3]) && shard.update(8, 0, &[9; LEN]));
        assert!(!shard.has(8), "it has no slot");
    }
}
