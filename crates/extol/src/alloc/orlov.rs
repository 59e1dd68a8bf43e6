//! Where a new inode goes (the Orlov allocator): directories spread, files near their parent.
//!
//! The volume is cut into *units*: flexible groups, or groups where there are none. Inodes are
//! packed at the beginning of a unit, because the inode tables of its groups lie side by side
//! there.
//!
//! - A directory at top level starts a tree of its own: it goes to the unit with the fewest
//!   directories among those with at least average free inodes and blocks, looked at from a random
//!   place.
//! - Another directory stays in its parent's unit, unless that is crowded: clearly more directories
//!   or clearly fewer free inodes or blocks than average. Then the next unit that is not.
//! - A file goes to its parent's group, then its unit, then by quadratic hashing from the parent
//!   (so that files of one directory meet again elsewhere), at last to any group with a free inode.

/// A group's counts. All zeros: unusable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub free_blocks: u64,
    pub free_inodes: u64,
    pub dirs: u64,
}

/// The groups of a volume.
pub(super) trait View {
    fn summary(&self, group: u32) -> Summary;

    /// The first of the groups `from..to` that may have a free inode.
    fn with_inodes(&self, from: u32, to: u32) -> Option<u32>;
}

/// All groups of `from..to` that may have a free inode.
fn having_inodes(view: &impl View, from: u32, to: u32) -> impl Iterator<Item = u32> {
    let mut at = from;
    std::iter::from_fn(move || {
        let found = view.with_inodes(at, to)?;
        at = found.saturating_add(1);
        Some(found)
    })
}

/// How groups form units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    pub groups: u32,
    pub size: u32,
    pub inodes_per_group: u32,
    pub blocks_per_group: u32,
}

/// Larger flexible groups are treated as several units: looking at a unit must stay cheap.
const MAX_UNIT: u32 = 64;
/// How many units are looked at for a directory.
const MAX_COMPARED: u32 = 256;

impl Units {
    pub fn new(groups: u32, flex: u32, inodes_per_group: u32, blocks_per_group: u32) -> Self {
        Self { groups, size: flex.clamp(1, MAX_UNIT), inodes_per_group, blocks_per_group }
    }

    pub fn count(self) -> u32 {
        self.groups.div_ceil(self.size)
    }

    pub fn of(self, group: u32) -> u32 {
        group / self.size
    }

    /// Groups of a unit.
    pub fn members(self, unit: u32) -> std::ops::Range<u32> {
        let first = unit.saturating_mul(self.size).min(self.groups);
        first..first.saturating_add(self.size).min(self.groups)
    }

    /// All units from `start` on, round.
    fn from(self, start: u32) -> impl Iterator<Item = u32> {
        let count = self.count();
        (start..count).chain(0..start.min(count))
    }

    fn sum(self, view: &impl View, unit: u32) -> Summary {
        self.members(unit).map(|g| view.summary(g)).fold(Summary::default(), |a, b| Summary {
            free_blocks: a.free_blocks + b.free_blocks,
            free_inodes: a.free_inodes + b.free_inodes,
            dirs: a.dirs + b.dirs,
        })
    }
}

/// The unit for a directory at top level. `average`: of a unit. `start`: one of them, spread.
pub(super) fn top_level(
    view: &impl View,
    units: Units,
    average: Summary,
    start: u32,
) -> Option<u32> {
    units
        .from(start)
        .take(MAX_COMPARED as usize)
        .map(|unit| (units.sum(view, unit), unit))
        .filter(|(s, _)| s.free_inodes > 0 && s.free_inodes >= average.free_inodes)
        .filter(|(s, _)| s.free_blocks >= average.free_blocks)
        .min_by_key(|(s, _)| s.dirs)
        .map(|(_, unit)| unit)
}

/// The unit for any other directory.
pub(super) fn near_parent(
    view: &impl View,
    units: Units,
    average: Summary,
    parent: u32,
) -> Option<u32> {
    let (inodes, blocks) = (u64::from(units.inodes_per_group), u64::from(units.blocks_per_group));
    let size = u64::from(units.size);
    let max_dirs = average.dirs + (inodes * size / 16).max(1);
    let min_inodes = average.free_inodes.saturating_sub(inodes * size / 4).max(1);
    let min_blocks = average.free_blocks.saturating_sub(blocks * size / 4);
    units.from(units.of(parent)).take(MAX_COMPARED as usize).find(|&unit| {
        let sum = units.sum(view, unit);
        sum.dirs < max_dirs && sum.free_inodes >= min_inodes && sum.free_blocks >= min_blocks
    })
}

/// The groups of a unit, then all others round: where to look for a directory's inode.
pub(super) fn dir_groups(view: &impl View, units: Units, unit: u32) -> impl Iterator<Item = u32> {
    let home = units.members(unit);
    let (start, end) = (home.start, home.end);
    home.chain(having_inodes(view, end, units.groups)).chain(having_inodes(view, 0, start))
}

/// Where to look for a file's inode. Groups may come twice.
pub(super) fn file_groups(
    view: &impl View,
    units: Units,
    parent: u32,
    hash: u32,
) -> impl Iterator<Item = u32> {
    let groups = units.groups.max(1);
    let parent = parent % groups;
    let jumps = (0..32).map(|i| 1u32 << i).take_while(move |&i| i < groups);
    let hashed = jumps
        .scan(u64::from(parent) + u64::from(hash), move |at, step| {
            *at += u64::from(step);
            Some((*at % u64::from(groups)) as u32)
        })
        .filter(|&g| view.summary(g).free_blocks > 0);
    std::iter::once(parent)
        .chain(units.members(units.of(parent)))
        .chain(hashed)
        .chain(having_inodes(view, parent, groups))
        .chain(having_inodes(view, 0, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(Vec<Summary>);

    impl View for Fake {
        fn summary(&self, group: u32) -> Summary {
            self.0[group as usize]
        }

        fn with_inodes(&self, from: u32, to: u32) -> Option<u32> {
            (from..to).find(|g| self.0[*g as usize].free_inodes > 0)
        }
    }

    fn group(free_blocks: u64, free_inodes: u64, dirs: u64) -> Summary {
        Summary { free_blocks, free_inodes, dirs }
    }

    fn units(groups: u32, flex: u32) -> Units {
        Units::new(groups, flex, 1000, 8000)
    }

    #[test]
    fn top_level_takes_the_emptiest() {
        let fake = Fake(vec![
            group(4000, 500, 50),
            group(4000, 500, 3),
            group(100, 900, 0), // few blocks
            group(7000, 20, 0), // few inodes
            group(5000, 600, 9),
        ]);
        let average = group(4000, 500, 12);
        for start in 0..5 {
            assert_eq!(top_level(&fake, units(5, 1), average, start), Some(1));
        }
        assert_eq!(top_level(&fake, units(5, 1), group(9000, 0, 0), 0), None);
    }

    #[test]
    fn directories_stay_until_it_is_crowded() {
        let mut fake = Fake((0..8).map(|_| group(4000, 500, 10)).collect());
        let average = group(4000, 500, 10);
        assert_eq!(near_parent(&fake, units(8, 1), average, 5), Some(5));
        fake.0[5].dirs = 10 + 1000 / 16;
        assert_eq!(near_parent(&fake, units(8, 1), average, 5), Some(6));
        fake.0[6].free_inodes = 249;
        fake.0[7].free_blocks = 1999;
        assert_eq!(near_parent(&fake, units(8, 1), average, 5), Some(0));
    }

    #[test]
    fn flexible_groups_count_together() {
        let mut fake = Fake((0..8).map(|_| group(4000, 500, 0)).collect());
        fake.0[0] = group(0, 0, 900);
        let average = group(4 * 4000, 4 * 500, 0);
        assert_eq!(
            near_parent(&fake, units(8, 4), average, 2),
            Some(1),
            "900 directories are too many"
        );
        let order: Vec<u32> = dir_groups(&fake, units(8, 4), 1).collect();
        assert_eq!(order, [4, 5, 6, 7, 1, 2, 3], "group 0 has no inode");
        assert_eq!(units(10, 4).members(2), 8..10);
        assert_eq!(units(10, 1 << 31).size, 64);
    }

    #[test]
    fn files_near_their_parent_and_everywhere_in_the_end() {
        let fake = Fake((0..20).map(|_| group(1, 1, 0)).collect());
        let order: Vec<u32> = file_groups(&fake, units(20, 4), 6, 77).collect();
        assert_eq!(order[..5], [6, 4, 5, 6, 7]);
        for g in 0..20 {
            assert!(order.contains(&g), "group {g} is never tried");
        }
        let full = Fake((0..20).map(|_| group(0, 1, 0)).collect());
        let without_blocks: Vec<u32> = file_groups(&full, units(20, 4), 6, 77).collect();
        assert_eq!(without_blocks[5], 6, "hashing only to groups with blocks");
    }
}
