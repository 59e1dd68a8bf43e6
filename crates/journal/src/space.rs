//! Log space: where the head and the tail are, and how much is free. Arithmetic only.
//!
//! ```text
//!   first            tail                    head              end
//!     │  free …        │ oldest live … newest   │   free          │
//!     └────────────────┴────────────────────────┴─────────────────┘   (wraps from end to first)
//! ```
//!
//! Invariants
//! - S1: `first <= head < end`, `first <= tail < end` (every constructor and `wrap`).
//! - S2: `free` is the number of blocks from head (inclusive) forward to tail (exclusive); one block always stays
//!   free, so that a full log is never taken for an empty one (`take`).
//! - S3: blocks become free only through `move_tail`, which is called after the superblock that names the new tail
//!   is durable (`crate::checkpoint`).

/// Space bookkeeping of one log.
#[derive(Clone, Debug)]
pub(crate) struct LogSpace {
    first: u32,
    /// One past the last ordinary log block.
    end: u32,
    head: u32,
    tail: u32,
    free: u32,
}

impl LogSpace {
    /// An empty log that starts at `head`. `first < end` must hold.
    pub fn empty(first: u32, end: u32) -> Self {
        debug_assert!(first < end);
        Self { first, end, head: first, tail: first, free: end - first }
    }

    /// Blocks of the ordinary log.
    pub fn len(&self) -> u32 {
        self.end - self.first
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    pub fn head(&self) -> u32 {
        self.head
    }

    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Takes `n` blocks at the head; `None` if that would fill the log.
    pub fn take(&mut self, n: u32) -> Option<LogRun> {
        if n >= self.free {
            return None;
        }
        let run = LogRun { at: self.head, left: n, first: self.first, end: self.end };
        self.head = self.wrap(u64::from(self.head) + u64::from(n));
        self.free -= n;
        Some(run)
    }

    fn wrap(&self, at: u64) -> u32 {
        let offset = (at - u64::from(self.first)) % u64::from(self.len());
        self.first + offset as u32
    }

    /// Gives everything before `block` back: there begins the oldest transaction still needed.
    pub fn move_tail(&mut self, block: u32) {
        debug_assert!((self.first..self.end).contains(&block));
        let freed = if block >= self.tail { block - self.tail } else { self.len() - (self.tail - block) };
        self.tail = block;
        self.free += freed;
        debug_assert!(self.free <= self.len());
    }

    /// Nothing in the log is needed any more: all of it is free, the tail joins the head.
    pub fn set_empty(&mut self) {
        self.tail = self.head;
        self.free = self.len();
    }
}

/// A run of log blocks that wraps at the end of the log.
#[derive(Clone, Debug)]
pub(crate) struct LogRun {
    at: u32,
    left: u32,
    first: u32,
    end: u32,
}

impl LogRun {
    /// No blocks at all (a volume without a log).
    pub fn none() -> Self {
        Self { at: 0, left: 0, first: 0, end: 0 }
    }

    /// First block of the run.
    pub fn start(&self) -> u32 {
        self.at
    }
}

impl Iterator for LogRun {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.left == 0 {
            return None;
        }
        let at = self.at;
        self.left -= 1;
        self.at = if at + 1 == self.end { self.first } else { at + 1 };
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_wraps_and_free_is_exact() {
        let mut s = LogSpace::empty(1, 11);
        assert_eq!(s.free(), 10);
        let run: Vec<u32> = s.take(7).unwrap().collect();
        assert_eq!(run, [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(s.free(), 3);
        assert!(s.take(3).is_none(), "one block stays free");
        s.move_tail(6);
        assert_eq!(s.free(), 8);
        let run: Vec<u32> = s.take(5).unwrap().collect();
        assert_eq!(run, [8, 9, 10, 1, 2]);
        s.move_tail(2);
        assert_eq!(s.free(), 9);
        s.set_empty();
        assert_eq!((s.free(), s.head(), s.tail()), (10, 3, 3));
    }

    /// Against a model that knows every block, from every first block and with every length.
    #[test]
    fn runs_never_meet_what_is_live() {
        for (first, len) in [(1, 2), (1, 3), (3, 10), (1, 1023), (7, 64)] {
            let mut s = LogSpace::empty(first, first + len);
            let mut live: Vec<Vec<u32>> = Vec::new();
            let mut x = 1u32;
            for _ in 0..3000 {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let used: u32 = live.iter().map(|r| r.len() as u32).sum();
                assert_eq!(s.free(), len - used);
                if x >> 30 == 0 && !live.is_empty() {
                    live.drain(..1 + (x >> 8) as usize % live.len());
                    s.move_tail(live.first().map_or(s.head(), |r| r[0]));
                } else if x >> 24 == 0xFF {
                    live.clear();
                    s.set_empty();
                } else {
                    let n = 1 + (x >> 10) % len;
                    match s.take(n) {
                        None => assert!(n >= len - used, "{n} of {len} with {used} used"),
                        Some(run) => {
                            let run: Vec<u32> = run.collect();
                            assert_eq!(run.len() as u32, n);
                            assert!(run.iter().all(|b| (first..first + len).contains(b)));
                            assert!(
                                !live.iter().flatten().any(|b| run.contains(b)),
                                "a live block is used again"
                            );
                            live.push(run);
                        }
                    }
                }
            }
        }
    }
}
