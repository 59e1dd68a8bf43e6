//! The volume's own blocks. A damaged mapping may name the inode table or the journal, and file
//! data must never go there, so every write to a mapped place checks.
//!
//! A group's zones are its fixed metadata (`Table::zones`). *Strays* are the blocks that no
//! group's zones have: the journal's, and metadata that a descriptor places outside its flexible
//! group (known once the descriptor was read).
//!
//! Descriptors that claim the same blocks, or blocks of a superblock copy, are all bad: nothing
//! shows which one is right.

use extol_block::BlockNr;
use extol_ondisk::{Geometry, GroupDesc, GroupNr};
use extol_sync::plain::RwLock;
use extol_vfs::{FsError, Result};

use super::bits::{Span, split};

/// Runs that are sorted and do not touch each other.
#[derive(Debug, Default)]
pub(super) struct Strays {
    runs: RwLock<Vec<(u64, u64)>>,
}

impl Strays {
    /// Adds a run.
    pub fn add(&self, start: u64, len: u64) {
        let mut runs = self.runs.write();
        let (mut from, mut to) = (start, start.saturating_add(len));
        let first = runs.partition_point(|r| r.1 < from);
        let behind = runs.partition_point(|r| r.0 <= to);
        for run in runs.drain(first..behind.max(first)) {
            from = from.min(run.0);
            to = to.max(run.1);
        }
        runs.insert(first, (from, to));
    }

    /// Takes a run out.
    pub fn remove(&self, start: u64, len: u64) {
        let (from, to) = (start, start.saturating_add(len));
        let mut runs = self.runs.write();
        let cut = |run: &(u64, u64)| {
            let before = (run.0, run.1.min(from));
            let behind = (run.0.max(to), run.1);
            [before, behind].into_iter().filter(|part| part.0 < part.1)
        };
        let left = runs.iter().flat_map(cut).collect();
        *runs = left;
    }

    /// True if any of the blocks is in it.
    pub fn touches(&self, start: u64, len: u64) -> bool {
        let runs = self.runs.read();
        let at = runs.partition_point(|r| r.1 <= start);
        runs.get(at).is_some_and(|r| r.0 < start.saturating_add(len))
    }
}

/// The three places that a descriptor names.
pub(super) fn places(geo: &Geometry, desc: &GroupDesc) -> [(u64, u64); 3] {
    [
        (desc.block_bitmap, 1),
        (desc.inode_bitmap, 1),
        (desc.inode_table, u64::from(geo.inode_table_blocks)),
    ]
}

/// Makes descriptors bad that claim the same blocks, or a superblock copy's.
pub(super) fn reject_overlaps(geo: &Geometry, descs: &mut [(GroupNr, Result<GroupDesc>)]) {
    let mut claims: Vec<(u64, u64, usize)> = Vec::with_capacity(descs.len() * 3);
    let mut bad = Vec::new();
    for (i, (_, desc)) in descs.iter().enumerate() {
        let Ok(desc) = desc else { continue };
        for (start, len) in places(geo, desc) {
            claims.push((start, start.saturating_add(len), i));
            let on_copy = |(group, _): (GroupNr, Span)| {
                let first = geo.group_first_block(group).0;
                start.max(first) - first < u64::from(geo.base_meta_blocks(group))
            };
            if split(geo, BlockNr(start), len).any(on_copy) {
                bad.push(i);
            }
        }
    }
    claims.sort_unstable();
    // The end of the claim that reaches farthest so far, and its descriptor.
    let mut reach: Option<(u64, usize)> = None;
    for (start, end, i) in claims {
        if let Some((to, other)) = reach
            && start < to
        {
            bad.extend([i, other]);
        }
        if reach.is_none_or(|(to, _)| end > to) {
            reach = Some((end, i));
        }
    }
    for i in bad {
        if let Some((nr, desc)) = descs.get_mut(i)
            && desc.is_ok()
        {
            *desc = Err(FsError::corrupt(format!(
                "metadata of block group {} overlaps other metadata",
                nr.0
            )));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strays_join() {
        let strays = Strays::default();
        for (start, len) in [(50, 10), (10, 5), (15, 5), (58, 10), (100, 1), (0, 2)] {
            strays.add(start, len);
        }
        assert_eq!(*strays.runs.read(), [(0, 2), (10, 20), (50, 68), (100, 101)]);
        strays.add(19, 40);
        assert_eq!(*strays.runs.read(), [(0, 2), (10, 68), (100, 101)]);
        let other = Strays::default();
        other.add(5, 20);
        other.remove(8, 2);
        other.remove(20, 10);
        assert_eq!(*other.runs.read(), [(5, 8), (10, 20)]);
        for (start, len, hit) in [
            (2, 8, false),
            (2, 9, true),
            (67, 1, true),
            (68, 32, false),
            (68, 33, true),
            (101, 9, false),
        ] {
            assert_eq!(strays.touches(start, len), hit, "{start}+{len}");
        }
    }
}
