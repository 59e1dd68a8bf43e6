//! The search for a group with free blocks; `group.rs` searches inside a group.
//!
//! 1. the goal's group: a run that begins exactly at the goal, else the first run ≥ `want` behind
//!    (then before) it;
//! 2. the following groups whose summary allows a run ≥ `want`;
//! 3. else the longest run anywhere, if it is ≥ `min`. Groups are searched in order of their
//!    summaries; a run is taken as soon as no other group can have a longer one.
//!
//! A summary is an upper bound: the free count of a group never searched, else the longest run at
//! the last search. A budget limits the bitmaps read from the device; when it is used up, step 3
//! takes the first run ≥ `min`.
//!
//! Rows of groups have bounds, too (`row.rs`): a row of full groups costs one look.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::bits::Span;

/// A request to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A run of `min..=want` at `bit`, else one of `want` anywhere.
    Near { bit: u32, want: u32, min: u32 },
    /// A run of `want`.
    Whole { want: u32 },
    /// The longest run, cut to `want`, if it has at least `floor`.
    Longest { want: u32, floor: u32 },
    /// `want` in the middle of the longest run, if that has at least `room`.
    Amid { want: u32, room: u32 },
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
    /// Groups in a row (see `row.rs`); not 0.
    fn row_len(&self) -> u32;
    /// Upper bound for the longest free run in a row.
    fn row_bound(&self, row: u32) -> u32;
    /// A row was looked at: its bound may be lowered to those of its groups.
    fn lower_row(&self, row: u32);
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
    'whole: for piece in pieces(groups, home) {
        let row = piece.start / groups.row_len();
        if groups.row_bound(row) < want {
            continue;
        }
        for group in piece {
            if groups.bound(group) < want {
                continue;
            }
            match groups.ask(group, Ask::Whole { want }) {
                Answer::Run(run) => return Some((group, run)),
                Answer::No { read, .. } => {
                    reads = reads.saturating_sub(u32::from(read));
                    if reads == 0 && min < want {
                        break 'whole;
                    }
                }
            }
        }
        groups.lower_row(row);
    }
    if min == want {
        return None;
    }
    longest(groups, home, want, min, reads)
}

/// Finds and takes `want` blocks in the middle of a run of at least `room` (`want <= room`): of the
/// group's longest, in `home` or the next group that may have one. Each such place halves the
/// largest free run.
pub(super) fn amid<G: Groups>(
    groups: &G,
    home: u32,
    want: u32,
    room: u32,
    mut reads: u32,
) -> Option<(u32, Span)> {
    let ask = |group| groups.ask(group, Ask::Amid { want, room });
    if groups.bound(home) >= room
        && let Answer::Run(run) = ask(home)
    {
        return Some((home, run));
    }
    for piece in pieces(groups, home) {
        let row = piece.start / groups.row_len();
        if groups.row_bound(row) < room {
            continue;
        }
        for group in piece.filter(|group| groups.bound(*group) >= room) {
            match ask(group) {
                Answer::Run(run) => return Some((group, run)),
                Answer::No { read, .. } => reads = reads.saturating_sub(u32::from(read)),
            }
            if reads == 0 {
                return None;
            }
        }
        groups.lower_row(row);
    }
    None
}

/// All groups but `home`, those behind it first, cut at the borders of rows.
fn pieces<G: Groups>(groups: &G, home: u32) -> impl Iterator<Item = Range<u32>> {
    let (count, len) = (groups.count(), groups.row_len());
    let cut = move |from: u32, to: u32| {
        let rows = from / len..to.div_ceil(len);
        rows.map(move |row| {
            (row * len).max(from)..row.saturating_add(1).saturating_mul(len).min(to)
        })
    };
    let behind = cut(home.saturating_add(1), count);
    behind.chain(cut(0, home)).filter(|piece| !piece.is_empty())
}

/// Groups that may have the longest run: at first whole rows, each as good as the best group that
/// it may have.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    bound: u32,
    distance: Reverse<u32>,
    first: u32,
    count: u32,
    is_row: bool,
}

fn longest<G: Groups>(
    groups: &G,
    home: u32,
    want: u32,
    min: u32,
    mut reads: u32,
) -> Option<(u32, Span)> {
    let count = groups.count();
    let distance =
        |group: u32| Reverse(if group < home { group + (count - home) } else { group - home });
    let one = |group: u32, bound: u32| Candidate {
        bound,
        distance: distance(group),
        first: group,
        count: 1,
        is_row: false,
    };
    let rows = pieces(groups, home).map(|piece| Candidate {
        bound: groups.row_bound(piece.start / groups.row_len()),
        distance: distance(piece.start),
        first: piece.start,
        count: piece.end - piece.start,
        is_row: true,
    });
    let mut heap: BinaryHeap<Candidate> =
        rows.chain([one(home, groups.bound(home))]).filter(|c| c.bound >= min).collect();
    while let Some(best) = heap.pop() {
        if best.is_row {
            let inside = best.first..best.first + best.count;
            heap.extend(
                inside.map(|group| one(group, groups.bound(group))).filter(|c| c.bound >= min),
            );
            groups.lower_row(best.first / groups.row_len());
            continue;
        }
        let group = best.first;
        let next = heap.peek().map_or(0, |top| top.bound);
        let floor = if reads == 0 { min } else { next.clamp(min, want) };
        match groups.ask(group, Ask::Longest { want, floor }) {
            Answer::Run(run) => return Some((group, run)),
            Answer::No { longest, read } => {
                reads = reads.saturating_sub(u32::from(read));
                // Strictly shorter than the floor, so this comes to an end.
                if longest >= min && longest < floor {
                    heap.push(Candidate { bound: longest, ..best });
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
    use std::cell::{Cell, RefCell};

    /// Groups of 100 bits; `known` ones have an exact bound.
    struct Fake {
        bits: RefCell<Vec<Bits>>,
        bounds: RefCell<Vec<u32>>,
        rows: RefCell<Vec<u32>>,
        asked: RefCell<Vec<u32>>,
        looked: Cell<u32>,
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
            let rows = vec![u32::MAX; groups.len().div_ceil(3)];
            Self {
                bits: RefCell::new(bits),
                bounds: RefCell::new(bounds),
                rows: RefCell::new(rows),
                asked: RefCell::default(),
                looked: Cell::new(0),
            }
        }
    }

    impl Groups for Fake {
        fn count(&self) -> u32 {
            self.bits.borrow().len() as u32
        }
        fn bound(&self, group: u32) -> u32 {
            self.looked.set(self.looked.get() + 1);
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
        fn row_len(&self) -> u32 {
            3
        }
        fn row_bound(&self, row: u32) -> u32 {
            self.rows.borrow()[row as usize]
        }
        fn lower_row(&self, row: u32) {
            let bounds = self.bounds.borrow();
            let inside = bounds.iter().skip(row as usize * 3).take(3);
            self.rows.borrow_mut()[row as usize] = inside.copied().max().unwrap_or(0);
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
        assert_eq!(
            search(&fake, 0, 0, 10, 1, 9),
            Some((0, span(50, 10))),
            "first run that has all of it"
        );
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
        let fake =
            Fake::new(&[&[(0, 10), (20, 11)], &[(3, 9), (40, 15)], &[(5, 4), (10, 4), (20, 4)]]);
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

    #[test]
    fn full_rows_are_passed_with_one_look() {
        let mut groups: Vec<&[(u32, u32)]> = vec![&[]; 3000];
        groups[2998] = &[(0, 50)];
        groups[7] = &[(20, 3)];
        let fake = Fake::new(&groups);
        assert_eq!(search(&fake, 10, 0, 10, 10, 9), Some((2998, span(0, 10))));
        assert!(fake.looked.get() > 2900, "nothing was known");
        fake.looked.set(0);
        assert_eq!(search(&fake, 10, 0, 10, 10, 9), Some((2998, span(10, 10))));
        assert_eq!(search(&fake, 10, 0, 40, 1, 9), Some((2998, span(20, 30))), "the longest");
        assert_eq!(search(&fake, 10, 0, 40, 1, 9), Some((7, span(20, 3))));
        assert!(fake.looked.get() < 100, "{} groups looked at", fake.looked.get());
    }
}
