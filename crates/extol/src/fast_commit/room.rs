//! Room for names in directories when they are replayed.
//!
//! A name that found room in a directory may find none in the replayed one: there, names are
//! missing that went before, others are still there, and the gaps are filled in another order. The
//! replay would then give the directory a block, and none of the readers gets that right. So each
//! block of the base that names go to has a budget: what its gaps hold for sure, whichever of the
//! transaction's names are replayed, in any order.
//!
//! What the directory looks like now does not matter. It may have been divided, or got an index:
//! names in a new block count against the block of the base that their part of the hashes belonged
//! to (`origin`), because that is where a replay puts them.
//!
//! **The budget.** Readers put a name into the first gap that holds it. Either all names together
//! are no longer than the largest gap; then any part of them fits there. Or: let `s` be the longest
//! of them. A name finds no room only if every gap has less than `s` bytes left, so a gap of `g`
//! bytes has taken at least `g / s` names by then: as many names as the sum of that over all gaps
//! fit. Names that go only make gaps larger.
//!
//! Invariants
//! - RB-1: a block's gaps are those of the base (`Rooms::note`: they are told before the
//!   transaction's first change of it; of a block that was changed without that, nothing is known,
//!   and no name fits).
//! - RB-2: a budget never grows within a transaction (`Room::take`).

use super::Map;

/// What a block of the base has left for names.
#[derive(Debug, Default)]
struct Room {
    gaps: Box<[u16]>,
    largest: u32,
    /// Names added, their bytes, and the longest of them.
    names: u32,
    bytes: u32,
    longest: u32,
    /// So many names of the longest length fit.
    places: u32,
}

impl Room {
    fn new(gaps: Box<[u16]>) -> Self {
        let largest = gaps.iter().max().map_or(0, |gap| u32::from(*gap));
        Self { gaps, largest, ..Self::default() }
    }

    /// Takes room for one more name; false if there may be none.
    fn take(&mut self, need: u32) -> bool {
        self.names += 1;
        self.bytes = self.bytes.saturating_add(need);
        if need > self.longest {
            self.longest = need;
            self.places = self.gaps.iter().map(|gap| u32::from(*gap) / need).sum();
        }
        self.bytes <= self.largest || self.names <= self.places
    }
}

/// The blocks of all directories that a transaction has touched.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    /// Directory, and block of the base (0: of a directory whose blocks all take any name).
    rooms: Map<(u32, u64), Room>,
    /// A new block: whose names it took.
    origin: Map<(u32, u64), u64>,
}

impl Rooms {
    fn base(&self, dir: u32, leaf: u64) -> u64 {
        self.origin.get(&(dir, leaf)).copied().unwrap_or(leaf)
    }

    /// A block is touched, and takes a name of `need` bytes (0: none). False if the name may not
    /// fit when it is replayed.
    pub fn note(&mut self, dir: u32, leaf: u64, gaps: Option<Box<[u16]>>, need: u32) -> bool {
        let base = self.base(dir, leaf);
        let room =
            self.rooms.entry((dir, base)).or_insert_with(|| Room::new(gaps.unwrap_or_default()));
        need == 0 || room.take(need)
    }

    /// Names of `leaf` go to the new block `into`.
    pub fn divide(&mut self, dir: u32, leaf: u64, into: u64) {
        let base = self.base(dir, leaf);
        self.origin.insert((dir, into), base);
    }

    /// Blocks remembered.
    pub fn len(&self) -> usize {
        self.rooms.len() + self.origin.len()
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn names_of_one_length_fill_every_gap() {
        let mut rooms = Rooms::default();
        assert!(rooms.note(12, 7, Some([40, 20, 85].into()), 0));
        let fits = (0..10).take_while(|_| rooms.note(12, 7, None, 20)).count();
        assert_eq!(fits, 2 + 1 + 4);
        // A longer one counts all as long.
        let mut room = Room::new([40, 40].into());
        assert!(room.take(12) && room.take(40) && !room.take(12));
    }

    #[test]
    fn a_new_block_counts_against_the_old_one() {
        let mut rooms = Rooms::default();
        assert!(rooms.note(12, 0, Some([100].into()), 0));
        rooms.divide(12, 0, 50);
        rooms.divide(12, 50, 51);
        assert!(rooms.note(12, 50, None, 60) && !rooms.note(12, 51, None, 60));
        assert!(rooms.note(13, 51, Some([60].into()), 60), "another directory");
        assert!(!rooms.note(12, 99, None, 12), "it is not known what was there");
    }

    /// Whatever part of the names is replayed, in any order, into the first gap that holds each:
    /// all of it fits.
    #[test]
    fn what_is_promised_fits() {
        let mut rng = SmallRng::seed_from_u64(6);
        let (mut all, mut refused) = (0, 0);
        for _ in 0..4000 {
            let gaps: Vec<u16> =
                (0..rng.random_range(1..6)).map(|_| rng.random_range(3..40) * 4).collect();
            let mut room = Room::new(gaps.clone().into());
            let longest = rng.random_range(3..14);
            let mut names = Vec::new();
            loop {
                let need = 4 * rng.random_range(3..=longest);
                if !room.take(need) {
                    break;
                }
                names.push(need);
            }
            all += gaps.iter().map(|gap| u32::from(*gap)).sum::<u32>();
            refused += names.iter().sum::<u32>();
            for _ in 0..4 {
                let mut left: Vec<u32> = gaps.iter().map(|gap| u32::from(*gap)).collect();
                let mut part: Vec<u32> =
                    names.iter().copied().filter(|_| rng.random_bool(0.8)).collect();
                for i in (1..part.len()).rev() {
                    part.swap(i, rng.random_range(0..=i));
                }
                for need in part {
                    let gap = left.iter_mut().find(|gap| **gap >= need);
                    *gap.expect("room was promised") -= need;
                }
            }
        }
        assert!(refused * 3 > all, "it promises {refused} of {all}");
    }
}
