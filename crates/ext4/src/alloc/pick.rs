//! Which group gets a request for blocks: the search, apart from how a group is looked at.
//!
//! 1. the goal's group: a run that begins exactly at the goal, else the first run ≥ `want` behind (then
//!    before) it;
//! 2. the following groups, those whose summary says that a run ≥ `want` may exist;
//! 3. nothing found: the longest run anywhere, if it is ≥ `min`. Groups are looked at in order of their
//!    summaries; a group's run is taken as soon as no other group can have a longer one.
//!
//! A summary is an upper bound: groups never looked at say their free count, others the longest run at the
//! last look. Bitmaps that must be read from the device for this are limited by a budget; when it is used up,
//! step 3 takes the first run ≥ `min` that it meets.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::bits::Span;

/// What a group is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A run of `min..=want` at `bit`, else one of `want` anywhere.
    Near { bit: u32, want: u32, min: u32 },
    /// A run of `want`.
    Whole { want: u32 },
    /// The longest run, cut to `want`, if it has at least `floor`.
    Longest { want: u32, floor: u32 },
}

/// A group's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Taken.
    Run(Span),
    /// No such run; the longest has this length. `read`: the bitmap was not in memory before.
    No { longest: u32, read: bool },
}

/// Groups, as the search sees them.
pub(super) trait Groups {
    /// How many.
    fn count(&self) -> u32;
    /// Upper bound for the longest free run.
    fn bound(&self, group: u32) -> u32;
    /// Looks into a group and takes what is asked for.
    fn ask(&self, group: u32, ask: Ask) -> Answer;
}

/// Finds and takes a run of `min..=want` blocks (`1 <= min <= want`), best near `bit` of `home`.
pub(super) fn search<G: Groups>(
    groups: &G,
    home: u32,
    bit: u32,
    want: u32,
    min: u32,
    mut reads: u32,
) -> Option<(u32, Span)> {
    if let Answer::Run(run) = groups.ask(home, Ask::Near { bit, want, min }) {
        return Some((home, run));
    }
    let count = groups.count();
    let others = (home.saturating_add(1)..count).chain(0..home);
    for group in others.clone() {
        if groups.bound(group) < want {
            continue;
        }
        match groups.ask(group, Ask::Whole { want }) {
            Answer::Run(run) => return Some((group, run)),
            Answer::No { read, .. } => {
                reads = reads.saturating_sub(u32::from(read));
                if reads == 0 && min < want {
                    break;
                }
            }
        }
    }
    if min == want {
        return None;
    }
    let mut heap: BinaryHeap<(u32, Reverse<u32>, u32)> = std::iter::once(home)
        .chain(others)
        .zip(0u32..)
        .map(|(group, distance)| (groups.bound(group), Reverse(distance), group))
        .filter(|&(bound, ..)| bound >= min)
        .collect();
    while let Some((_, distance, group)) = heap.pop() {
        let next = heap.peek().map_or(0, |top| top.0);
        let floor = if reads == 0 { min } else { next.clamp(min, want) };
        match groups.ask(group, Ask::Longest { want, floor }) {
            Answer::Run(run) => return Some((group, run)),
            Answer::No { longest, read } => {
                reads = reads.saturating_sub(u32::from(read));
                // Strictly shorter than the floor, so this comes to an end.
                if longest >= min && longest < floor {
                    heap.push((longest, distance, group));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::bits::Bits;
    use super::*;
    use std::cell::RefCell;

    /// Groups of 100 bits; `known` ones have an exact bound.
    struct Fake {
        bits: RefCell<Vec<Bits>>,
        bounds: RefCell<Vec<u32>>,
        asked: RefCell<Vec<u32>>,
    }

    impl Fake {
        /// Each group is given by its free runs.
        fn new(groups: &[&[(u32, u32)]]) -> Self {
            let bits: Vec<Bits> = groups
                .iter()
                .map(|runs| {
                    let mut bits = Bits::zeros(100);
                    bits.set(Span { start: 0, len: 100 });
                    for &(start, len) in *runs {
                        bits.clear(Span { start, len });
                    }
                    bits
                })
                .collect();
            let bounds = bits.iter().map(Bits::count_zeros).collect();
            Self { bits: RefCell::new(bits), bounds: RefCell::new(bounds), asked: RefCell::default() }
        }
    }

    impl Groups for Fake {
        fn count(&self) -> u32 {
            self.bits.borrow().len() as u32
        }
        fn bound(&self, group: u32) -> u32 {
            self.bounds.borrow()[group as usize]
        }
        fn ask(&self, group: u32, ask: Ask) -> Answer {
            self.asked.borrow_mut().push(group);
            let bits = &mut self.bits.borrow_mut()[group as usize];
            match super::super::group::choose(bits, 0, ask) {
                Ok(span) => {
                    bits.set(span);
                    Answer::Run(span)
                }
                Err(longest) => {
                    self.bounds.borrow_mut()[group as usize] = longest;
                    Answer::No { longest, read: true }
                }
            }
        }
    }

    fn span(start: u32, len: u32) -> Span {
        Span { start, len }
    }

    #[test]
    fn exactly_at_the_goal_even_if_short() {
        let fake = Fake::new(&[&[(10, 5), (50, 40)]]);
        assert_eq!(search(&fake, 0, 10, 20, 1, 9), Some((0, span(10, 5))));
        assert_eq!(search(&fake, 0, 60, 20, 1, 9), Some((0, span(60, 20))));
        assert_eq!(search(&fake, 0, 0, 10, 1, 9), Some((0, span(50, 10))), "first run that has all of it");
    }

    #[test]
    fn behind_the_goal_before_in_front_of_it() {
        let fake = Fake::new(&[&[(10, 20), (70, 20)]]);
        assert_eq!(search(&fake, 0, 50, 8, 1, 9), Some((0, span(70, 8))));
        assert_eq!(search(&fake, 0, 95, 8, 1, 9), Some((0, span(10, 8))));
    }

    #[test]
    fn whole_run_in_a_later_group_before_pieces_in_this_one() {
        let fake = Fake::new(&[&[(0, 10)], &[(3, 9)], &[(5, 60)]]);
        assert_eq!(search(&fake, 0, 50, 30, 1, 9), Some((2, span(5, 30))));
        assert_eq!(fake.asked.borrow().as_slice(), [0, 2], "group 1 cannot have it: not looked at");
        assert_eq!(search(&fake, 2, 0, 10, 1, 9), Some((2, span(35, 10))));
        assert_eq!(search(&fake, 1, 90, 10, 1, 9), Some((2, span(45, 10))));
    }

    #[test]
    fn wraps_around() {
        let fake = Fake::new(&[&[(0, 100)], &[], &[]]);
        assert_eq!(search(&fake, 1, 0, 30, 30, 9), Some((0, span(0, 30))));
    }

    #[test]
    fn longest_when_nothing_is_whole() {
        let fake = Fake::new(&[&[(0, 10), (20, 11)], &[(3, 9), (40, 15)], &[(5, 4), (10, 4), (20, 4)]]);
        assert_eq!(search(&fake, 0, 50, 30, 5, 9), Some((1, span(40, 15))));
        assert_eq!(search(&fake, 0, 50, 30, 5, 9), Some((0, span(20, 11))));
        assert_eq!(search(&fake, 0, 50, 30, 5, 9), Some((0, span(0, 10))));
        assert_eq!(search(&fake, 0, 50, 30, 5, 9), Some((1, span(3, 9))));
        assert_eq!(search(&fake, 0, 50, 30, 5, 9), None);
        assert_eq!(search(&fake, 0, 50, 30, 4, 9), Some((2, span(5, 4))));
    }

    #[test]
    fn every_last_block_is_found() {
        for reads in [0, 1, 100] {
            let fake = Fake::new(&[&[(7, 3), (99, 1)], &[(0, 1), (2, 1)], &[], &[(50, 2)]]);
            let mut got = 0;
            while let Some((_, run)) = search(&fake, 2, 3, 64, 1, reads) {
                got += run.len;
            }
            assert_eq!(got, 8);
        }
    }

    #[test]
    fn little_is_read_when_the_budget_is_used_up() {
        let pieces: Vec<(u32, u32)> = (0..50).map(|i| (i * 2, 1)).collect();
        let groups: Vec<&[(u32, u32)]> = (0..1000).map(|_| pieces.as_slice()).collect();
        let fake = Fake::new(&groups);
        assert_eq!(search(&fake, 500, 1, 40, 1, 16).map(|f| f.1.len), Some(1));
        assert!(fake.asked.borrow().len() <= 18, "{} groups looked at", fake.asked.borrow().len());
    }
}
