//! Where superblock copies, descriptors, bitmaps and inode tables lie.
//!
//! Without flex_bg (or with flexible groups of one) each group has its own at its start:
//!
//! ```text
//!  │ superblock, descriptors (some groups) │ block bitmap │ inode bitmap │ inode table │ data …
//! ```
//!
//! With flex_bg the first group of a flexible group holds those of all its groups, each kind in a
//! row, so that they are read and written together:
//!
//! ```text
//!  │ superblock, descriptors │ block bitmaps │ inode bitmaps │ table 0 │ table 1 │ … │ data …
//! ```
//!
//! Rows flow around what is in their way (copies of the superblock in later groups) and over into
//! the next groups. The choices are mke2fs's, so that both make the same volume.

use super::space::Space;
use super::{Result, refuse};
use extol_ondisk::{Geometry, GroupNr, Incompat};
use std::ops::Range;

/// Where a group's metadata lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: u64,
}

/// Takes the blocks of superblock copies, descriptors and reserved descriptors in all groups.
pub(crate) fn take_base(space: &mut Space, geo: &Geometry) {
    for group in (0..geo.groups()).map(GroupNr) {
        space.take(geo.group_first_block(group).0, u64::from(geo.base_meta_blocks(group)));
    }
}

/// Places and takes bitmaps and tables of all groups. `stride`: with RAID and without flex_bg,
/// bitmaps move on by so many blocks from group to group, to lie on different disks.
pub(crate) fn place_all(
    space: &mut Space,
    geo: &Geometry,
    stride: u16,
    packed: bool,
) -> Result<Vec<Place>> {
    let flexible = geo.incompat().contains(Incompat::FLEX_BG) && geo.log_groups_per_flex > 0;
    let places = if packed && geo.incompat().contains(Incompat::FLEX_BG) {
        place_packed(space, geo)
    } else if flexible {
        place_flexible(space, geo)
    } else {
        (0..geo.groups()).map(|g| place_single(space, geo, GroupNr(g), stride)).collect()
    };
    match places {
        Some(places) => Ok(places),
        None => {
            refuse("the inode tables and bitmaps do not fit into the volume: ask for fewer inodes")
        }
    }
}

fn group_range(geo: &Geometry, group: GroupNr) -> Range<u64> {
    let first = geo.group_first_block(group).0;
    first..first + u64::from(geo.group_blocks(group))
}

fn take_found(space: &mut Space, starts: Range<u64>, len: u64) -> Option<u64> {
    let found = space.find(starts, len)?;
    space.take(found, len);
    Some(found)
}

/// A group that keeps its own.
fn place_single(space: &mut Space, geo: &Geometry, group: GroupNr, stride: u16) -> Option<Place> {
    let all = group_range(geo, group);
    let table_len = u64::from(geo.inode_table_blocks);
    let mut from = all.start;
    if stride > 0 {
        let last = all.end - 1;
        from = space.find(all.clone(), 1)? + table_len;
        if from <= last {
            from += u64::from(stride) * u64::from(group.0) % (last - from + 1);
        }
        if from >= last {
            from = all.start;
        }
    }
    let mut bitmap =
        || take_found(space, from..all.end, 1).or_else(|| take_found(space, all.clone(), 1));
    let (block_bitmap, inode_bitmap) = (bitmap()?, bitmap()?);
    let inode_table = take_found(space, all, table_len)?;
    Some(Place { block_bitmap, inode_bitmap, inode_table })
}

/// All groups, flexible group by flexible group.
fn place_flexible(space: &mut Space, geo: &Geometry) -> Option<Vec<Place>> {
    let size = u64::from(geo.groups_per_flex());
    let table_len = u64::from(geo.inode_table_blocks);
    let mut places: Vec<Place> = Vec::new();
    for group in 0..geo.groups() {
        let first = GroupNr(group & !(geo.groups_per_flex() - 1));
        let end = u64::from(first.0).saturating_add(size).min(u64::from(geo.groups()));
        let last = GroupNr((end - 1) as u32);
        let row = Row {
            volume: geo.blocks(),
            area: geo.group_first_block(first).0..group_range(geo, last).end,
            remaining: end - u64::from(group),
            longest: u64::from(geo.blocks_per_group / 4),
        };
        let previous = if group == first.0 { None } else { places.last().copied() };
        // Rows of bitmaps are as long as a flexible group has groups. In the last one they are only
        // as long as needed, unless it is a single group: then there is room for more groups if the
        // volume grows.
        let members = match end - u64::from(first.0) {
            n if last.0 == geo.groups() - 1 && n > 1 => n,
            _ => size,
        };

        let block_bitmap = row.take(space, previous.map(|p| p.block_bitmap + 1), 1)?;
        let next = previous.map_or(block_bitmap + members, |p| p.inode_bitmap + 1);
        let inode_bitmap = row.take(space, Some(next), 1)?;
        let next = previous.map_or(inode_bitmap + members, |p| p.inode_table + table_len);
        let inode_table = row.take(space, Some(next), table_len)?;
        places.push(Place { block_bitmap, inode_bitmap, inode_table });
    }
    Some(places)
}

/// The next element of a row in a flexible group.
struct Row {
    volume: u64,
    area: Range<u64>,
    /// Groups whose elements are still to come, this one included.
    remaining: u64,
    /// Do not insist on more blocks in one piece.
    longest: u64,
}

impl Row {
    /// Takes `len` blocks: behind the previous element if there is room close by, else where the
    /// rest of the row has room in one piece, else anywhere.
    fn take(&self, space: &mut Space, next: Option<u64>, len: u64) -> Option<u64> {
        let whole = (self.remaining * len).min(self.longest);
        let close = next.filter(|n| *n < self.volume).and_then(|n| space.find(n..n + whole, len));
        let found = close
            .or_else(|| space.find(self.area.clone(), whole.max(len)))
            .or_else(|| space.find(self.area.clone(), len))
            .or_else(|| space.find(0..self.area.end, len))?;
        space.take(found, len);
        Some(found)
    }
}

/// Everything at the start of the volume.
fn place_packed(space: &mut Space, geo: &Geometry) -> Option<Vec<Place>> {
    let groups = geo.groups() as usize;
    let table_len = u64::from(geo.inode_table_blocks);
    let mut goal = 0;
    let mut row = |len: u64| -> Option<Vec<u64>> {
        let mut places = Vec::new();
        for _ in 0..groups {
            goal = take_found(space, goal..geo.blocks(), len)?;
            places.push(goal);
        }
        Some(places)
    };
    let (block_bitmaps, inode_bitmaps, tables) = (row(1)?, row(1)?, row(table_len)?);
    let bitmaps = block_bitmaps.into_iter().zip(inode_bitmaps);
    let place = |((block_bitmap, inode_bitmap), inode_table)| Place {
        block_bitmap,
        inode_bitmap,
        inode_table,
    };
    Some(bitmaps.zip(tables).map(place).collect())
}
