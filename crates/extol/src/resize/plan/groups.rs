//! New groups: where their bitmaps and inode tables lie, and what their descriptors say.
//!
//! With flex_bg the groups of a step keep theirs together: all block bitmaps, all inode bitmaps,
//! all tables, from the first of the new groups on, flowing around superblock copies. Old groups
//! hold nothing for new ones. Without flex_bg each group has its own.

use std::ops::Range;

use extol_ondisk::{Geometry, GroupDesc, GroupFlags, GroupNr, bitmap};

use super::super::{ResizeError, refuse};

/// A group to be added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NewGroup {
    pub nr: GroupNr,
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    /// Blocks in use, counted from the group's first.
    used: Vec<Range<u32>>,
    /// Bitmaps or tables of other groups are among them.
    is_host: bool,
    is_last: bool,
}

impl NewGroup {
    /// Clusters that no file can have.
    pub fn used_clusters(&self, geo: &Geometry) -> u32 {
        self.used_bits(geo).iter().map(|bits| bits.end - bits.start).sum()
    }

    /// Free clusters.
    pub fn free_clusters(&self, geo: &Geometry) -> u32 {
        geo.group_clusters(self.nr).saturating_sub(self.used_clusters(geo))
    }

    /// The bits of what is in use, in order: what lies in one cluster has one.
    fn used_bits(&self, geo: &Geometry) -> Vec<Range<u32>> {
        let ratio = geo.cluster_ratio;
        let of_run = |run: &Range<u32>| run.start / ratio..run.end.div_ceil(ratio);
        let mut bits: Vec<_> =
            self.used.iter().map(of_run).filter(|bits| !bits.is_empty()).collect();
        bits.sort_unstable_by_key(|bits| bits.start);
        bits.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        bits
    }

    /// The block bitmap needs not be written: only the group's own metadata is in use. (The last
    /// group's is written, since it is padded.)
    pub fn has_block_bitmap(&self, geo: &Geometry) -> bool {
        !geo.has_gdt_csum() || self.is_host || self.is_last
    }

    /// The inode bitmap must be written: nothing says that it was not.
    pub fn has_inode_bitmap(&self, geo: &Geometry) -> bool {
        !geo.has_gdt_csum()
    }

    /// The block bitmap.
    pub fn block_bits(&self, geo: &Geometry) -> Vec<u8> {
        let mut bits = vec![0xFF; geo.block_len()];
        bitmap::clear_range(&mut bits, 0, geo.group_clusters(self.nr));
        for used in self.used_bits(geo) {
            bitmap::set_range(&mut bits, used.start, used.end);
        }
        bits
    }

    /// The inode bitmap.
    pub fn inode_bits(&self, geo: &Geometry) -> Vec<u8> {
        let mut bits = vec![0xFF; geo.block_len()];
        bitmap::clear_range(&mut bits, 0, geo.inodes_per_group);
        bits
    }

    /// The descriptor. `zeroed`: the inode table reads as zeros.
    pub fn desc(&self, geo: &Geometry, zeroed: bool) -> GroupDesc {
        let mut desc = GroupDesc {
            block_bitmap: self.block_bitmap,
            inode_bitmap: self.inode_bitmap,
            inode_table: self.inode_table,
            free_blocks: self.free_clusters(geo),
            free_inodes: geo.inodes_per_group,
            ..GroupDesc::default()
        };
        if geo.has_gdt_csum() {
            desc.itable_unused = geo.inodes_per_group;
            desc.flags.insert(GroupFlags::INODE_UNINIT);
            desc.flags.set(GroupFlags::INODE_ZEROED, zeroed);
            desc.flags.set(GroupFlags::BLOCK_UNINIT, !self.has_block_bitmap(geo));
        }
        if geo.has_metadata_csum() && self.has_block_bitmap(geo) {
            desc.block_bitmap_csum = bitmap::block_bitmap_csum(geo, &self.block_bits(geo));
        }
        desc
    }
}

/// Lays out the groups of a step. `geo` is the volume with them.
pub(super) fn lay_out(geo: &Geometry, groups: Range<u32>) -> Result<Vec<NewGroup>, ResizeError> {
    let together = geo.groups_per_flex() > 1;
    let all = groups.clone();
    let placed = together.then(|| place(geo, &all, all.clone())).flatten().or_else(|| {
        let own = |nr: u32| place(geo, &(nr..nr + 1), nr..nr + 1);
        all.clone().map(own).collect::<Option<Vec<_>>>().map(|placed| placed.concat())
    });
    let Some(placed) = placed else {
        return refuse(format!(
            "block group {} has no room for its inode table",
            groups.end.saturating_sub(1)
        ));
    };
    let run = |start: u64, len: u32| (geo.group_of_block(extol_ondisk::BlockNr(start)), start, len);
    let runs: Vec<_> = placed
        .iter()
        .zip(groups.clone())
        .flat_map(|(places, owner)| {
            let lens = [1, 1, geo.inode_table_blocks];
            std::iter::zip(*places, lens).map(move |(at, len)| (GroupNr(owner), run(at, len)))
        })
        .collect();
    let make = |(places, nr): (&[u64; 3], u32)| {
        let nr = GroupNr(nr);
        let first = geo.group_first_block(nr).0;
        let inside = |start: u64, len: u32| {
            // Both lie in the group.
            let start = (start - first) as u32;
            start..start + len
        };
        let here = runs.iter().filter(|(_, (group, ..))| *group == nr);
        let base = geo.base_meta_blocks(nr);
        NewGroup {
            nr,
            block_bitmap: places[0],
            inode_bitmap: places[1],
            inode_table: places[2],
            used: std::iter::once(0..base)
                .chain(here.clone().map(|(_, (_, start, len))| inside(*start, *len)))
                .collect(),
            is_host: here.clone().any(|(owner, _)| *owner != nr),
            is_last: nr.0 == groups.end - 1,
        }
    };
    Ok(placed.iter().zip(groups.clone()).map(make).collect())
}

/// Bitmaps and tables of `groups`, one after the other in the free blocks of the groups `room`.
fn place(geo: &Geometry, groups: &Range<u32>, room: Range<u32>) -> Option<Vec<[u64; 3]>> {
    let mut cursor = Cursor::new(geo, room)?;
    let count = groups.len();
    let mut row = |len: u32| (0..count).map(|_| cursor.take(len)).collect::<Option<Vec<_>>>();
    let (blocks, inodes, tables) = (row(1)?, row(1)?, row(geo.inode_table_blocks)?);
    let pairs = blocks.into_iter().zip(inodes).zip(tables);
    Some(pairs.map(|((block, inode), table)| [block, inode, table]).collect())
}

/// Hands out blocks of groups in order; a run lies in one group.
struct Cursor<'a> {
    geo: &'a Geometry,
    groups: Range<u32>,
    /// The next one, in the first of `groups`.
    at: u32,
}

impl<'a> Cursor<'a> {
    fn new(geo: &'a Geometry, groups: Range<u32>) -> Option<Self> {
        let at = geo.base_meta_blocks(GroupNr(groups.start));
        (!groups.is_empty()).then_some(Self { geo, groups, at })
    }

    fn take(&mut self, len: u32) -> Option<u64> {
        loop {
            let group = GroupNr(self.groups.start);
            let end = self.at.checked_add(len)?;
            if end <= self.geo.group_blocks(group) {
                let start = self.geo.group_first_block(group).0 + u64::from(self.at);
                self.at = end;
                return Some(start);
            }
            self.groups.start += 1;
            if self.groups.is_empty() {
                return None;
            }
            self.at = self.geo.base_meta_blocks(GroupNr(self.groups.start));
        }
    }
}
