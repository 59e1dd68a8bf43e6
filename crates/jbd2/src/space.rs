//! Log space: where the head and the tail are, and how much is free. Arithmetic only.
//!
//! ```text
//!   first            tail                    head              end
//!     │  free …        │ oldest live … newest   │   free          │
//!     └────────────────┴────────────────────────┴─────────────────┘   (wraps from end to first)
//! ```
//!
//! With a fast-commit area behind it, a log does not wrap: e2fsck, and Linux before 6.6, go on at
//! the end of the *area* instead, and lose what is at the other end. Then only what lies before
//! `end` is free, and nothing comes free before nothing in the log is needed any more; head and
//! tail go back to `first` together.
//!
//! ```text
//!   first            tail                    head              end
//!     │  not needed     │ oldest live … newest   │   free          │   (area)
//!     └─ head and tail ◄┴─── all of it home ─────┘                 stop
//! ```
//!
//! Invariants
//! - LS-1: `first <= head < end`, `first <= tail < end` (every constructor, `wrap`, `take`).
//! - LS-2: `free` is the number of blocks from head (inclusive) forward to tail (exclusive), or
//!   without wrap to `end`; one block always stays free, so that a full log is never taken for an
//!   empty one (`take`).
//! - LS-3: blocks become free only through `move_tail` or `set_empty`, which are called after the
//!   superblock that names the new tail is durable (`crate::checkpoint`), or while it says that the
//!   log is empty.

/// Space bookkeeping of one log.
#[derive(Clone, Debug)]
pub(crate) struct LogSpace {
    first: u32,
    /// One past the last ordinary log block.
    end: u32,
    head: u32,
    tail: u32,
    free: u32,
    wraps: bool,
}

impl LogSpace {
    /// An empty log. `first < end` must hold.
    pub fn empty(first: u32, end: u32, wraps: bool) -> Self {
        debug_assert!(first < end);
        Self { first, end, head: first, tail: first, free: end - first, wraps }
    }

    /// Its end is followed by its beginning.
    pub fn wraps(&self) -> bool {
        self.wraps
    }

    /// Where a log that does not wrap begins again.
    pub fn first(&self) -> u32 {
        self.first
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
        debug_assert!(self.wraps && (self.first..self.end).contains(&block));
        let freed =
            if block >= self.tail { block - self.tail } else { self.len() - (self.tail - block) };
        self.tail = block;
        self.free += freed;
        debug_assert!(self.free <= self.len());
    }

    /// Nothing in the log is needed any more: all of it is free, the tail joins the head. A log
    /// that does not wrap goes back to its beginning.
    pub fn set_empty(&mut self) {
        if !self.wraps {
            self.head = self.first;
        }
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
        let mut s = LogSpace::empty(1, 11, true);
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

    #[test]
    fn without_wrap_an_empty_log_begins_anew() {
        let mut s = LogSpace::empty(1, 11, false);
        assert_eq!(s.take(7).unwrap().collect::<Vec<u32>>(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((s.free(), s.head(), s.tail()), (3, 8, 1));
        assert!(s.take(3).is_none(), "the head stays before the end");
        assert_eq!(s.take(2).unwrap().collect::<Vec<u32>>(), [8, 9]);
        assert!(s.take(1).is_none());
        s.set_empty();
        assert_eq!((s.free(), s.head(), s.tail()), (10, 1, 1));
    }

    /// Against a model that knows every block, from every first block and with every length.
    #[test]
    fn runs_never_meet_what_is_live() {
        for (first, len) in [(1, 2), (1, 3), (3, 10), (1, 1023), (7, 64)] {
            let mut s = LogSpace::empty(first, first + len, true);
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
