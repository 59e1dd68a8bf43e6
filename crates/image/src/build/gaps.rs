//! Where the blocks of files go: the free space in order, as the data comes.
//!
//! Files are given places in the order in which they are written, from the start of the volume on.
//! What lies in the way (copies of the superblock, tables of later groups) divides the free space
//! into gaps:
//!
//! - A file that fits into the rest of the current gap goes there.
//! - Else, up to 64 MiB, it goes whole into the next gap that holds it. The rest left behind is
//!   filled by later files that fit: the first such rest, from its start.
//! - Else it is divided at what is in the way.
//!
//! How many blocks a file takes is known only when it was read (zeros are holes), so it is placed
//! by the most that it can take. The decisions depend on nothing but those numbers and the free
//! space: the same files give the same places.

use crate::mkfs::Space;
use std::collections::VecDeque;
use std::ops::Range;

/// Files of up to so many bytes are kept in one piece.
const WHOLE_BYTES: u64 = 64 << 20;
/// Rests that are remembered. Those before them stay free until everything else is full.
const MOST_RESTS: usize = 64;

/// Gives out blocks in order.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    space: Space,
    whole: u64,
    /// The free run that is being filled.
    now: Range<u64>,
    /// Rests of earlier gaps, in order.
    rests: VecDeque<Range<u64>>,
    /// The rest that the current file goes into, by its index; `None`: into `now`.
    rest: Option<usize>,
    /// The end of the volume was reached: blocks are taken wherever they are free.
    wrapped: bool,
}

impl Gaps {
    pub(super) fn new(space: Space, block_len: u64) -> Self {
        Self {
            space,
            whole: WHOLE_BYTES / block_len,
            now: 0..0,
            rests: VecDeque::new(),
            rest: None,
            wrapped: false,
        }
    }

    /// The blocks in use.
    pub(super) fn space(&self) -> &Space {
        &self.space
    }

    /// Chooses the place for what takes at most so many blocks.
    pub(super) fn begin(&mut self, most: u64) {
        self.rest = None;
        if most == 0 {
            return;
        }
        let fits = |r: &Range<u64>| r.end - r.start >= most;
        self.rest = self.rests.iter().position(fits);
        if self.rest.is_some() || fits(&self.now) {
            return;
        }
        if self.now.is_empty() {
            self.now = self.space.next_free(self.now.end).unwrap_or(self.now.end..self.now.end);
            if fits(&self.now) {
                return;
            }
        }
        if most > self.whole || self.wrapped {
            return;
        }
        let mut skipped = vec![self.now.clone()];
        let mut at = self.now.end;
        while let Some(gap) = self.space.next_free(at) {
            at = gap.end;
            if fits(&gap) {
                self.rests.extend(skipped.into_iter().filter(|r| !r.is_empty()));
                while self.rests.len() > MOST_RESTS {
                    self.rests.pop_front();
                }
                self.now = gap;
                return;
            }
            skipped.push(gap);
        }
    }

    /// Takes up to `most` blocks for the current file, as many as lie in one run. `None`: the
    /// volume is full.
    pub(super) fn take(&mut self, most: u64) -> Option<Range<u64>> {
        if let Some(nr) = self.rest
            && let Some(rest) = self.rests.get_mut(nr)
            && !rest.is_empty()
        {
            let got = cut(rest, most);
            self.space.take(got.start, got.end - got.start);
            return Some(got);
        }
        if self.now.is_empty() {
            let next = self.space.next_free(self.now.end);
            self.now = match next {
                Some(gap) => gap,
                None => {
                    // Only what was left behind remains.
                    self.wrapped = true;
                    self.rests.clear();
                    self.rest = None;
                    self.space.next_free(0)?
                }
            };
        }
        let got = cut(&mut self.now, most);
        self.space.take(got.start, got.end - got.start);
        Some(got)
    }
}

/// Takes up to `most` blocks from the start of a range.
fn cut(range: &mut Range<u64>, most: u64) -> Range<u64> {
    let end = range.end.min(range.start.saturating_add(most));
    let got = range.start..end;
    range.start = end;
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(gaps: &mut Gaps, most: u64, mut count: u64) -> Vec<(u64, u64)> {
        gaps.begin(most);
        let mut got = Vec::new();
        while count > 0 {
            let run = gaps.take(count).expect("room");
            count -= run.end - run.start;
            got.push((run.start, run.end));
        }
        got
    }

    #[test]
    fn files_stay_whole_and_rests_are_filled() {
        let mut space = Space::new(1..200_000);
        space.take(1, 9);
        space.take(100, 10);
        space.take(50_000, 10);
        let mut gaps = Gaps::new(space, 4096);
        let mut put = |most, count| all(&mut gaps, most, count);
        assert_eq!(put(50, 40), [(10, 50)], "by the most, but only what is needed");
        assert_eq!(put(60, 60), [(110, 170)], "does not fit into 50..100");
        assert_eq!(put(30, 30), [(50, 80)], "fills the rest");
        assert_eq!(put(30, 5), [(170, 175)]);
        assert_eq!(put(20, 20), [(80, 100)]);
        assert_eq!(put(20_000, 20_000), [(175, 20_175)]);
        assert_eq!(
            put(50_000, 50_000),
            [(20_175, 50_000), (50_010, 70_185)],
            "too large for a rest"
        );
        assert!(put(0, 0).is_empty());
    }

    #[test]
    fn everything_can_be_taken() {
        for chunk in [1, 3, 7, 100] {
            let mut space = Space::new(0..5000);
            for i in 0..90 {
                space.take(i * 50, 7 + i % 30);
            }
            let free = 5000 - space.count_in(0..5000);
            let mut gaps = Gaps::new(space, 4096);
            let mut left = free;
            while left > 0 {
                let count = left.min(chunk);
                all(&mut gaps, count, count);
                left -= count;
            }
            gaps.begin(1);
            assert_eq!(gaps.take(1), None);
            assert_eq!(gaps.space().count_in(0..5000), 5000);
        }
    }
}
