//! The volume becomes smaller: bitmaps and inode tables of the groups that stay move in front of
//! the new end, and the last groups go.
//!
//! ```text
//!   Fixed    one bitmap or table: new blocks taken, descriptor changed, old ones freed
//!   Cut      which bits change in the groups that stay: their last one ends earlier; what it and
//!            others held for groups that go, and descriptor blocks of no more use, are free
//! ```
//!
//! The caller keeps all other users of the volume out, and has set the limit. After [`Cut::apply`]
//! the groups in memory are of no more use: the volume is closed, and opened again with its new
//! size.

use std::collections::BTreeMap;
use std::sync::Arc;

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::{Geometry, GroupDesc, GroupFlags, GroupNr, bitmap};
use extol_vfs::{FsError, Result};

use super::bits::{Span, split};
use super::borders::Borders;
use super::{Allocator, Run};
use crate::error;

/// What a descriptor places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fixed {
    /// The bitmap of the blocks.
    BlockBitmap,
    /// The bitmap of the inodes.
    InodeBitmap,
    /// The inode table.
    InodeTable,
}

impl Fixed {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::InodeTable, Self::BlockBitmap, Self::InodeBitmap];

    /// Where it lies.
    pub fn run(self, geo: &Geometry, desc: &GroupDesc) -> Run {
        let (start, len) = match self {
            Self::BlockBitmap => (desc.block_bitmap, 1),
            Self::InodeBitmap => (desc.inode_bitmap, 1),
            Self::InodeTable => (desc.inode_table, geo.inode_table_blocks),
        };
        Run { start: BlockNr(start), len }
    }

    /// How many of its blocks hold something: no bitmap of a group that was never used, no inodes
    /// that were never used.
    pub fn used(self, geo: &Geometry, desc: &GroupDesc) -> u32 {
        let has = |flag| geo.has_gdt_csum() && desc.flags.contains(flag);
        match self {
            Self::BlockBitmap => u32::from(!has(GroupFlags::BLOCK_UNINIT)),
            Self::InodeBitmap => u32::from(!has(GroupFlags::INODE_UNINIT)),
            Self::InodeTable if has(GroupFlags::INODE_UNINIT) => 0,
            Self::InodeTable if geo.has_gdt_csum() => {
                let inodes = geo.inodes_per_group.saturating_sub(desc.itable_unused);
                inodes.div_ceil(geo.inodes_per_block()).min(geo.inode_table_blocks)
            }
            Self::InodeTable => geo.inode_table_blocks,
        }
    }

    fn put(self, desc: &mut GroupDesc, to: BlockNr) {
        match self {
            Self::BlockBitmap => desc.block_bitmap = to.0,
            Self::InodeBitmap => desc.inode_bitmap = to.0,
            Self::InodeTable => desc.inode_table = to.0,
        }
    }
}

/// Sees a group: its descriptor, its first block behind the limit, and what is the volume's own.
type Behind<'a> = dyn FnMut(GroupNr, &GroupDesc, u32, &[Span]) -> Result<bool> + 'a;

impl Allocator {
    /// Credits for [`move_fixed`](Self::move_fixed): bitmap and descriptor of the new place, the
    /// copy of a bitmap, own descriptor, and for each group that the old place touches.
    pub const MOVE_FIXED_CREDITS: u32 = 2 + 1 + 1 + 4;

    /// A bitmap or inode table of a group lies at `to` from now on, which was taken. A table was
    /// copied before. (This may change a bitmap.) `left`: the blocks that become free.
    pub fn move_fixed(
        self: &Arc<Self>,
        h: &mut Handle,
        nr: GroupNr,
        what: Fixed,
        (left, to): (Run, Run),
    ) -> Result<()> {
        self.commit_take(h, to)?;
        {
            let group = self.group(nr)?;
            let mut state = group.lock();
            let mut desc = *state.desc()?;
            let old = what.run(&self.geo, &desc);
            if what != Fixed::InodeTable && what.used(&self.geo, &desc) > 0 {
                let bytes = self.journal.read(old.start).map_err(error::journal)?.data();
                let new = h.create(to.start).map_err(error::journal)?;
                h.modify(&new, |place| place.copy_from_slice(&bytes)).map_err(error::journal)?;
                h.forget(old.start, true).map_err(error::journal)?;
            }
            what.put(&mut desc, to.start);
            self.write_desc(h, group, &desc)?;
            state.set_desc(desc);
            match what {
                Fixed::BlockBitmap => state.blocks.iter_mut().for_each(|map| map.home = None),
                Fixed::InodeBitmap => state.inodes.iter_mut().for_each(|map| map.home = None),
                Fixed::InodeTable => group.move_table(to.start),
            }
        }
        self.protect(to);
        if left.len == 0 {
            return Ok(());
        }
        self.unprotect(left);
        self.free(h, left)
    }

    /// The block bitmap of a group is on the device from now on, though nothing but its own
    /// metadata may be in use in it. Costs 2 credits.
    pub fn write_bitmap(&self, h: &mut Handle, nr: GroupNr) -> Result<()> {
        let group = self.group(nr)?;
        let mut state = group.lock();
        self.load_blocks(group, &mut state)?;
        let (mut desc, map) = state.parts()?;
        if self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT) {
            self.open_block_bitmap(h, group, &mut desc, &map.zones, &mut map.home)?;
            self.write_desc(h, group, &desc)?;
            state.set_desc(desc);
        }
        Ok(())
    }

    /// Groups of which an inode is in use, from `first` on.
    pub fn groups_with_inodes(&self, first: u32) -> Result<Vec<GroupNr>> {
        let mut found = Vec::new();
        for nr in (first..self.geo.groups()).map(GroupNr) {
            let desc = self.group_desc(nr)?;
            let unused = self.is_uninit(&desc, GroupFlags::INODE_UNINIT);
            if !unused && desc.free_inodes != self.geo.inodes_per_group {
                found.push(nr);
            }
        }
        Ok(found)
    }

    /// About how many blocks of files lie at or behind `limit`.
    pub fn used_behind(&self, limit: BlockNr) -> Result<u64> {
        let mut used = 0;
        self.behind(limit, &mut |nr, desc, from, zones| {
            let len = self.geo.group_clusters(nr);
            let own: u32 =
                zones.iter().map(|zone| zone.end().saturating_sub(zone.start.max(from))).sum();
            let all = if from == 0 {
                len.saturating_sub(desc.free_blocks)
            } else {
                let data =
                    self.journal.read(BlockNr(desc.block_bitmap)).map_err(error::journal)?.data();
                let free = bitmap::count_zeros(&data, len) - bitmap::count_zeros(&data, from);
                len.saturating_sub(from).saturating_sub(free)
            };
            used += u64::from(all.saturating_sub(own));
            Ok(true)
        })?;
        Ok(self.geo.cluster_blocks(used))
    }

    /// Calls `each` with every group that was used and reaches behind `limit`: its descriptor, its
    /// first cluster behind the limit, and what is the volume's own in it; until that gives false.
    fn behind(&self, limit: BlockNr, each: &mut Behind<'_>) -> Result<()> {
        for nr in (self.geo.group_of_block(limit).0..self.geo.groups()).map(GroupNr) {
            let desc = self.group_desc(nr)?;
            if self.is_uninit(&desc, GroupFlags::BLOCK_UNINIT) {
                continue;
            }
            let from = limit.0.saturating_sub(self.geo.group_first_block(nr).0);
            let from = u32::try_from(self.geo.clusters(from)).unwrap_or(u32::MAX);
            if !each(nr, &desc, from, &self.table.zones(&self.journal, nr, &desc))? {
                break;
            }
        }
        Ok(())
    }

    /// A block at or behind `limit` that is in use and is none of the volume's own. `None`: there
    /// is none.
    pub fn in_use_behind(&self, limit: BlockNr) -> Result<Option<BlockNr>> {
        let mut found = None;
        self.behind(limit, &mut |nr, desc, from, zones| {
            let clusters = self.geo.group_clusters(nr);
            let own: u32 = zones.iter().map(|zone| zone.len).sum();
            if from == 0 && desc.free_blocks.checked_add(own) == Some(clusters) {
                return Ok(true);
            }
            let bitmap = self.journal.read(BlockNr(desc.block_bitmap)).map_err(error::journal)?;
            let mut at = from;
            while let Some(bit) = bitmap::find_set(&bitmap.data(), at, clusters) {
                let zone = zones.iter().find(|zone| (zone.start..zone.end()).contains(&bit));
                let Some(zone) = zone else {
                    found = Some(self.run_of(nr, Span { start: bit, len: 1 }).start);
                    return Ok(false);
                };
                at = zone.end();
            }
            Ok(true)
        })?;
        Ok(found)
    }
}

/// What the end of the volume changes in the groups that stay.
#[derive(Debug)]
pub(crate) struct Cut {
    smaller: Geometry,
    /// What becomes free, by group. The last group is among them in any case.
    freed: BTreeMap<GroupNr, Vec<Span>>,
    /// Free blocks and inodes of the groups that go.
    gone: (u64, u64),
}

impl Cut {
    /// Decides it. `smaller` is the volume as it will be.
    pub fn plan(alloc: &Allocator, smaller: &Geometry) -> Result<Self> {
        let geo = &alloc.geo;
        let kept = smaller.groups();
        let shared = Borders::of(alloc, smaller, 0..kept)?;
        let mut freed: BTreeMap<GroupNr, Vec<Span>> = BTreeMap::new();
        freed.entry(GroupNr(kept.saturating_sub(1))).or_default();
        let mut gone = (0, 0);
        for nr in (kept..geo.groups()).map(GroupNr) {
            let desc = alloc.group_desc(nr)?;
            gone.0 += u64::from(desc.free_blocks);
            gone.1 += u64::from(desc.free_inodes);
            for what in Fixed::ALL {
                let run = shared.left(geo, what.run(geo, &desc), 0);
                let parts = split(geo, run.start, run.len.into());
                for (group, span) in parts.filter(|(group, _)| group.0 < kept) {
                    freed.entry(group).or_default().push(span);
                }
            }
        }
        for nr in (0..kept).map(GroupNr) {
            let (before, after) = (geo.base_meta_blocks(nr), smaller.base_meta_blocks(nr));
            if after < before {
                let start = geo.group_first_block(nr).plus(after.into());
                let run = shared.left(geo, Run { start, len: before - after }, 0);
                let parts = split(geo, run.start, run.len.into());
                freed.entry(nr).or_default().extend(parts.map(|(_, span)| span));
            }
        }
        Ok(Self { smaller: smaller.clone(), freed, gone })
    }

    /// What [`apply`](Self::apply) costs.
    pub fn credits(&self) -> u32 {
        u32::try_from(self.freed.len()).unwrap_or(u32::MAX).saturating_mul(2)
    }

    /// Changes the bitmaps and descriptors. Gives how many blocks and inodes are free then.
    pub fn apply(&self, alloc: &Allocator, h: &mut Handle) -> Result<(u64, u64)> {
        let before = alloc.counters();
        let mut free = before.free_on_disk.saturating_sub(self.gone.0);
        for (nr, spans) in &self.freed {
            let (was, is) = self.one(alloc, h, *nr, spans)?;
            free = free.saturating_sub(u64::from(was)).saturating_add(u64::from(is));
        }
        let inodes = before.free_inodes.saturating_sub(self.gone.1);
        alloc.space.cut(free, inodes);
        Ok((free, inodes))
    }

    /// Frees spans of a group, and ends it where it ends. Gives its free blocks before and after.
    fn one(
        &self,
        alloc: &Allocator,
        h: &mut Handle,
        nr: GroupNr,
        spans: &[Span],
    ) -> Result<(u32, u32)> {
        let group = alloc.group(nr)?;
        let mut state = group.lock();
        alloc.load_blocks(group, &mut state)?;
        let (mut desc, map) = state.parts()?;
        let was = desc.free_blocks;
        let len = self.smaller.group_clusters(nr);
        let buf = alloc.open_block_bitmap(h, group, &mut desc, &map.zones, &mut map.home)?;
        let changed = h.modify(buf, |bytes| {
            if spans.iter().any(|s| bitmap::find_zero(bytes, s.start, s.end()).is_some()) {
                return None;
            }
            spans.iter().for_each(|span| bitmap::clear_range(bytes, span.start, span.end()));
            bitmap::set_range(bytes, len, alloc.bits_per_block());
            Some((bitmap::count_zeros(bytes, len), bitmap::block_bitmap_csum(&alloc.geo, bytes)))
        });
        let Some((free, sum)) = changed.map_err(error::journal)? else {
            let what = format!("metadata is not marked as used in block group {}", nr.0);
            return Err(FsError::corrupt(what));
        };
        alloc.put_block_csum(&mut desc, sum);
        desc.free_blocks = free;
        alloc.write_desc(h, group, &desc)?;
        state.set_desc(desc);
        Ok((was, free))
    }
}
