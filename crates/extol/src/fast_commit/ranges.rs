//! Ranges of a file that changed: what is mapped there now.
//!
//! Disjoint and in order. What a later change covers is cut out of the earlier ones, so each block
//! is said once, as it is now, and the order in which the runs are replayed does not matter.
//!
//! e2fsck (1.47) is the exception: it keeps a file's extents in a list, an extent that a record
//! empties stays there with length 0, and those are thrown out only if the list has more than one.
//! The end of an empty extent at block 0 is 2^64 - 1, so the next record of that file in the same
//! fast commit falls into the middle of it, and makes two of it that cover all that is left of the
//! file. So a hole at block 0 must be all that is said of a file ([`Ranges::is_sayable`]); else the
//! commit is a full one.

use extol_ondisk::fast_commit::FcRecord;

/// Most runs of one inode. (A map without tree blocks has four extents, so more are the sign of a
/// file that is torn up.)
const MOST: usize = 64;
/// Longest extent.
const LONGEST: u32 = 32768;
/// Longest extent that reads as zeros.
const LONGEST_UNWRITTEN: u32 = 32767;

/// What a run is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Hole,
    Mapped { start: u64, unwritten: bool },
}

/// `lblk..end` of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    lblk: u32,
    end: u32,
    kind: Kind,
}

impl Run {
    /// The part from `lblk` on.
    fn from(self, lblk: u32) -> Self {
        let skip = u64::from(lblk.saturating_sub(self.lblk));
        let kind = match self.kind {
            Kind::Hole => Kind::Hole,
            Kind::Mapped { start, unwritten } => Kind::Mapped { start: start + skip, unwritten },
        };
        Self { lblk: lblk.max(self.lblk), end: self.end, kind }
    }

    /// True if `next` goes on where this one ends.
    fn goes_on(self, next: Self) -> bool {
        self.end == next.lblk && self.from(self.end).kind == next.kind
    }
}

/// The runs of one inode.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ranges {
    runs: Vec<Run>,
}

impl Ranges {
    /// `len` blocks from `lblk` on are `kind` now. False: there are too many runs.
    #[must_use]
    pub fn set(&mut self, lblk: u32, len: u32, kind: Kind) -> bool {
        let new = Run { lblk, end: lblk.saturating_add(len), kind };
        if new.lblk >= new.end {
            return true;
        }
        // An appending writer: the usual case.
        if let Some(last) = self.runs.last_mut()
            && last.goes_on(new)
        {
            last.end = new.end;
            return true;
        }
        let first = self.runs.partition_point(|r| r.end <= new.lblk);
        let behind = self.runs.partition_point(|r| r.lblk < new.end);
        let mut put = Vec::with_capacity(3);
        if let Some(head) = self.runs.get(first).filter(|r| r.lblk < new.lblk) {
            put.push(Run { end: new.lblk, ..*head });
        }
        put.push(new);
        if let Some(tail) =
            behind.checked_sub(1).and_then(|i| self.runs.get(i)).filter(|r| r.end > new.end)
        {
            put.push(tail.from(new.end));
        }
        self.runs.splice(first..behind.max(first), put);
        self.runs.dedup_by(|next, run| {
            let joined = run.goes_on(*next);
            if joined {
                run.end = next.end;
            }
            joined
        });
        self.runs.len() <= MOST
    }

    /// The first block behind all of them.
    pub fn end(&self) -> u32 {
        self.runs.last().map_or(0, |run| run.end)
    }

    /// False if e2fsck could not replay them on a file that had one piece; see the head of this
    /// file.
    pub fn is_sayable(&self) -> bool {
        let [first, _, ..] = self.runs[..] else { return true };
        first.kind != Kind::Hole || first.lblk > 0
    }

    /// The records: holes first, so that a replay that builds the map step by step needs the least
    /// room.
    pub fn records(&self, ino: u32, out: &mut Vec<FcRecord>) {
        for run in self.runs.iter().filter(|r| r.kind == Kind::Hole) {
            out.push(FcRecord::DelRange { ino, block: run.lblk, len: run.end - run.lblk });
        }
        for run in &self.runs {
            let Kind::Mapped { unwritten, .. } = run.kind else { continue };
            let most = if unwritten { LONGEST_UNWRITTEN } else { LONGEST };
            let mut at = run.lblk;
            while at < run.end {
                let Kind::Mapped { start, unwritten } = run.from(at).kind else { break };
                let len = most.min(run.end - at);
                out.push(FcRecord::AddRange { ino, block: at, len, start, unwritten });
                at += len;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    /// What the records say about each block.
    fn replay(ranges: &Ranges) -> BTreeMap<u32, Option<(u64, bool)>> {
        let mut records = Vec::new();
        ranges.records(7, &mut records);
        let mut said = BTreeMap::new();
        for record in records {
            let (block, len, at) = match record {
                FcRecord::AddRange { ino: 7, block, len, start, unwritten } => {
                    assert!(len <= if unwritten { 32767 } else { 32768 });
                    (block, len, Some((start, unwritten)))
                }
                FcRecord::DelRange { ino: 7, block, len } => (block, len, None),
                other => panic!("{other:?}"),
            };
            for i in 0..len {
                let new = at.map(|(start, unwritten)| (start + u64::from(i), unwritten));
                assert!(said.insert(block + i, new).is_none(), "a block said twice");
            }
        }
        said
    }

    #[test]
    fn each_block_is_said_once_as_it_is_now() {
        let mut rng = SmallRng::seed_from_u64(5);
        for _ in 0..300 {
            let mut ranges = Ranges::default();
            let mut model = BTreeMap::new();
            for _ in 0..rng.random_range(1..12) {
                let (lblk, len) = (rng.random_range(0..40), rng.random_range(1..12));
                let start = rng.random_range(1..5) * 100 + u64::from(lblk);
                let kind = match rng.random_range(0..3) {
                    0 => Kind::Hole,
                    n => Kind::Mapped { start, unwritten: n == 1 },
                };
                assert!(ranges.set(lblk, len, kind));
                for i in 0..len {
                    let at = match kind {
                        Kind::Hole => None,
                        Kind::Mapped { start, unwritten } => {
                            Some((start + u64::from(i), unwritten))
                        }
                    };
                    model.insert(lblk + i, at);
                }
            }
            assert_eq!(replay(&ranges), model);
        }
    }

    #[test]
    fn appends_join_and_long_runs_are_cut() {
        let mut ranges = Ranges::default();
        for i in 0..70_000 {
            assert!(ranges.set(
                i,
                1,
                Kind::Mapped { start: 1000 + u64::from(i), unwritten: false }
            ));
        }
        let mut records = Vec::new();
        ranges.records(1, &mut records);
        assert_eq!(records.len(), 3);
        assert!(ranges.set(5, u32::MAX - 5, Kind::Hole));
        assert_eq!(replay_lens(&ranges), [u32::MAX - 5, 5]);
    }

    fn replay_lens(ranges: &Ranges) -> Vec<u32> {
        let mut records = Vec::new();
        ranges.records(1, &mut records);
        let len = |r| match r {
            FcRecord::AddRange { len, .. } | FcRecord::DelRange { len, .. } => len,
            _ => 0,
        };
        records.into_iter().map(len).collect()
    }

    #[test]
    fn a_hole_at_the_beginning_goes_alone() {
        let mapped = |at: u32| (at, Kind::Mapped { start: 900, unwritten: false });
        let hole = |at: u32| (at, Kind::Hole);
        let sayable = |runs: &[(u32, Kind)]| {
            let mut ranges = Ranges::default();
            assert!(runs.iter().all(|(at, kind)| ranges.set(*at, 1, *kind)));
            ranges.is_sayable()
        };
        assert!(sayable(&[]) && sayable(&[hole(0)]) && sayable(&[hole(0), hole(1)]));
        assert!(sayable(&[hole(1), mapped(3)]) && sayable(&[mapped(0), hole(1), mapped(2)]));
        assert!(!sayable(&[hole(0), mapped(1)]) && !sayable(&[hole(0), hole(5)]));
    }

    #[test]
    fn a_torn_file_is_too_much() {
        let mut ranges = Ranges::default();
        let kind = Kind::Mapped { start: 9, unwritten: false };
        assert!((0..64).all(|i| ranges.set(2 * i, 1, kind)));
        assert!(!ranges.set(200, 1, kind));
    }
}
