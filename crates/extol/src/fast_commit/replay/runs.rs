//! Sets of blocks, as sorted runs.

use extol_block::BlockNr;

use crate::alloc::Run;

/// Blocks by number: sorted, disjoint, never touching each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Blocks(Vec<(u64, u64)>);

impl Blocks {
    /// All blocks of `runs`; `Err` with a block that is in two of them.
    pub fn disjoint(runs: &[Run]) -> Result<Self, BlockNr> {
        let mut all: Vec<(u64, u64)> = runs.iter().map(|run| (run.start.0, run.end().0)).collect();
        all.sort_unstable();
        let mut out: Vec<(u64, u64)> = Vec::with_capacity(all.len());
        for (start, end) in all {
            match out.last_mut() {
                Some(last) if start < last.1 => return Err(BlockNr(start)),
                Some(last) if start == last.1 => last.1 = end,
                _ => out.push((start, end)),
            }
        }
        Ok(Self(out))
    }

    /// Those that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        let mut out = Vec::new();
        let mut next = 0;
        for &(mut start, end) in &self.0 {
            while other.0.get(next).is_some_and(|b| b.1 <= start) {
                next += 1;
            }
            let mut at = next;
            while let Some(&(from, to)) = other.0.get(at).filter(|b| b.0 < end) {
                if start < from {
                    out.push((start, from));
                }
                start = to;
                at += 1;
            }
            if start < end {
                out.push((start, end));
            }
        }
        Self(out)
    }

    /// The first of them.
    pub fn first(&self) -> Option<BlockNr> {
        self.0.first().map(|b| BlockNr(b.0))
    }

    /// As runs.
    pub fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.0.iter().flat_map(|&(start, end)| {
            (start..end)
                .step_by(1 << 30)
                .map(move |at| Run { start: BlockNr(at), len: (end - at).min(1 << 30) as u32 })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u64, len: u32) -> Run {
        Run { start: BlockNr(start), len }
    }

    /// Against sets of single blocks.
    #[test]
    fn like_sets() {
        let mut x = 1u32;
        let mut random = |n: u32| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x >> 16 & (n - 1)
        };
        for _ in 0..500 {
            let mut make = || {
                let mut used = [false; 64];
                let mut runs = Vec::new();
                for _ in 0..random(16) {
                    let (start, len) = (random(64) as usize, 1 + random(8) as usize);
                    let free =
                        used.get_mut(start..start + len).filter(|range| !range.contains(&true));
                    if let Some(range) = free {
                        range.fill(true);
                        runs.push(run(start as u64, len as u32));
                    }
                }
                (used, Blocks::disjoint(&runs).unwrap())
            };
            let ((in_a, a), (in_b, b)) = (make(), make());
            let mut left = [false; 64];
            for run in a.without(&b).runs() {
                left[run.start.0 as usize..run.end().0 as usize].fill(true);
            }
            for i in 0..64 {
                assert_eq!(left[i], in_a[i] && !in_b[i], "{a:?} without {b:?}");
            }
            assert_eq!(a.without(&a).first(), None);
        }
    }

    #[test]
    fn a_block_in_two_runs_is_found() {
        assert_eq!(Blocks::disjoint(&[run(10, 5), run(2, 8), run(14, 1)]), Err(BlockNr(14)));
        assert_eq!(Blocks::disjoint(&[run(10, 5), run(2, 8)]).unwrap(), Blocks(vec![(2, 15)]));
    }
}
