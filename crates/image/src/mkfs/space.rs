//! Which blocks of the volume under construction are taken.
//!
//! A new volume's taken blocks are few long runs, whatever its size, so they are kept as disjoint
//! runs in a sorted map. Nothing here is proportional to the volume.

use std::collections::BTreeMap;
use std::ops::Range;

/// The taken blocks, and the search for free ones.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// Start → end of taken runs: disjoint, not touching.
    taken: BTreeMap<u64, u64>,
    volume: Range<u64>,
    /// Blocks are taken in units of so many.
    unit: u64,
}

impl Space {
    pub(crate) fn new(volume: Range<u64>) -> Self {
        Self { taken: BTreeMap::new(), volume, unit: 1 }
    }

    /// From now on whole clusters of `unit` blocks are taken; those taken in part are.
    pub(crate) fn take_clusters(&mut self, unit: u64) {
        self.unit = unit;
        let runs = std::mem::take(&mut self.taken);
        let mut last = 0..0;
        for (start, end) in runs {
            let whole = start / unit * unit..end.next_multiple_of(unit);
            if whole.start > last.end {
                self.taken.extend((last.end > 0).then_some((last.start, last.end)));
                last = whole;
            } else {
                last = last.start..whole.end;
            }
        }
        self.taken.extend((last.end > 0).then_some((last.start, last.end)));
    }

    /// Takes a range. Taking what is taken already is an own mistake.
    pub(crate) fn take(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut end = (start + len).next_multiple_of(self.unit).min(self.volume.end);
        let mut start = start / self.unit * self.unit;
        debug_assert!(self.is_free(start, end - start), "blocks {start}..{end} are taken already");
        if let Some((&before, &stop)) = self.taken.range(..start).next_back()
            && stop == start
        {
            self.taken.remove(&before);
            start = before;
        }
        if let Some(stop) = self.taken.remove(&end) {
            end = stop;
        }
        self.taken.insert(start, end);
    }

    /// True if the range lies on the volume and nothing in it is taken.
    pub(crate) fn is_free(&self, start: u64, len: u64) -> bool {
        let end = start.saturating_add(len);
        start >= self.volume.start && end <= self.volume.end && self.conflict(start..end).is_none()
    }

    /// End of the first taken run that overlaps the range.
    fn conflict(&self, range: Range<u64>) -> Option<u64> {
        let before = self
            .taken
            .range(..=range.start)
            .next_back()
            .map(|(_, e)| *e)
            .filter(|e| *e > range.start);
        before.or_else(|| self.taken.range(range).next().map(|(_, e)| *e))
    }

    /// The first place for `len` blocks in a row that begins in `starts`.
    pub(crate) fn find(&self, starts: Range<u64>, len: u64) -> Option<u64> {
        let mut at = starts.start.max(self.volume.start).next_multiple_of(self.unit);
        while at < starts.end && at.saturating_add(len) <= self.volume.end {
            match self.conflict(at..at + len) {
                None => return Some(at),
                Some(end) => at = end,
            }
        }
        None
    }

    /// Takes the first free block from `goal` on, else the first of all.
    pub(crate) fn take_one(&mut self, goal: u64) -> Option<u64> {
        let found =
            self.find(goal..self.volume.end, 1).or_else(|| self.find(self.volume.clone(), 1))?;
        self.take(found, 1);
        Some(found)
    }

    /// Takes the first free run from `goal` on, else the first of all, and of it at most `most`
    /// blocks.
    pub(crate) fn take_run(&mut self, goal: u64, most: u64) -> Option<Range<u64>> {
        let start =
            self.find(goal..self.volume.end, 1).or_else(|| self.find(self.volume.clone(), 1))?;
        let free_to = self.taken.range(start..).next().map_or(self.volume.end, |(s, _)| *s);
        let len = most.min(free_to - start);
        self.take(start, len);
        Some(start..start + len)
    }

    /// The first free run that begins at a block or behind it, as long as it is.
    pub(crate) fn next_free(&self, from: u64) -> Option<Range<u64>> {
        let start = self.find(from..self.volume.end, 1)?;
        let end = self.taken.range(start..).next().map_or(self.volume.end, |(s, _)| *s);
        Some(start..end)
    }

    /// The taken runs inside a range.
    pub(crate) fn taken_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first =
            self.taken.range(..range.start).next_back().map(|(s, _)| *s).unwrap_or(range.start);
        self.taken.range(first..range.end).filter_map(move |(s, e)| {
            let part = (*s).max(range.start)..(*e).min(range.end);
            (!part.is_empty()).then_some(part)
        })
    }

    /// How many blocks of a range are taken.
    pub(crate) fn count_in(&self, range: Range<u64>) -> u64 {
        self.taken_in(range).map(|r| r.end - r.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_gaps_are_found() {
        let mut s = Space::new(1..100);
        s.take(10, 5);
        s.take(20, 5);
        s.take(15, 5);
        assert_eq!(s.taken.len(), 1);
        assert_eq!(s.find(1..100, 9), Some(1));
        assert_eq!(s.find(1..100, 10), Some(25));
        assert_eq!(s.find(5..12, 6), None, "may not begin at 12 or later");
        assert_eq!(s.find(0..100, 76), None);
        assert_eq!(s.find(90..100, 10), Some(90));
        assert_eq!(s.find(91..100, 10), None);
        assert!(s.is_free(1, 9) && !s.is_free(1, 10) && !s.is_free(0, 1) && !s.is_free(99, 2));
        assert_eq!(s.count_in(0..100), 15);
        assert_eq!(s.count_in(12..22), 10);
        assert!(s.taken_in(24..90).eq(std::iter::once(24..25)));
    }

    #[test]
    fn runs_are_taken_as_they_come() {
        let mut s = Space::new(0..30);
        s.take(10, 2);
        assert_eq!(s.take_run(8, 5), Some(8..10));
        assert_eq!(s.take_run(10, 3), Some(12..15));
        assert_eq!(s.take_run(20, 50), Some(20..30));
        assert_eq!(s.take_run(20, 5), Some(0..5), "around the end");
        assert_eq!(s.take_one(25), Some(5));
        assert_eq!(s.take_run(7, 100), Some(7..8));
        assert_eq!(s.take_run(7, 100), Some(15..20));
        assert_eq!(s.take_run(7, 100), Some(6..7));
        assert_eq!(s.take_run(0, 1), None);
    }
}
