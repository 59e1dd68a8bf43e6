//! Where superblocks and group descriptors lie.

use super::Geometry;
use crate::features::{Compat, RoCompat};
use crate::ids::{BlockNr, GroupNr};

impl Geometry {
    /// The block that the primary superblock lies in (with larger blocks, 1024 bytes into block 0).
    #[must_use]
    pub fn super_block(&self) -> (BlockNr, usize) {
        if self.block_size.bytes() == 1024 { (BlockNr(1), 0) } else { (BlockNr(0), 1024) }
    }

    /// True if the group begins with a copy of the superblock.
    #[must_use]
    pub fn has_super(&self, group: GroupNr) -> bool {
        let g = group.0;
        if g == 0 {
            return true;
        }
        if self.compat().contains(Compat::SPARSE_SUPER2) {
            return self.backup_bgs().contains(&g);
        }
        if g == 1 || !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            return true;
        }
        g % 2 == 1 && [3, 5, 7].iter().any(|&base| is_power_of(g, base))
    }

    /// Groups that hold copies of the superblock, without group 0.
    pub fn backup_groups(&self) -> impl Iterator<Item = GroupNr> + '_ {
        (1..self.groups()).map(GroupNr).filter(|&g| self.has_super(g))
    }

    /// True if the descriptor of `group` is placed by meta_bg.
    fn is_meta_placed(&self, group: GroupNr) -> bool {
        group.0 / self.descs_per_block() >= self.first_meta_bg()
    }

    /// With bigalloc and blocks of 1 KiB, group 0 starts with the boot block, before the
    /// superblock.
    fn boot_block(&self, group: GroupNr) -> u64 {
        u64::from(group.0 == 0 && self.block_size.bytes() == 1024 && self.first_data_block == 0)
    }

    /// Where the primary descriptor of a group lies: block, and byte offset in it.
    #[must_use]
    pub fn desc_block(&self, group: GroupNr) -> (BlockNr, usize) {
        let per_block = self.descs_per_block();
        let index = group.0 / per_block;
        let offset = (group.0 % per_block) as usize * usize::from(self.desc_size);
        let block = if index < self.first_meta_bg() {
            self.super_block().0.plus(1 + u64::from(index))
        } else {
            let first = GroupNr(index * per_block);
            let skip = u64::from(self.has_super(first)) + self.boot_block(first);
            self.group_first_block(first).plus(skip)
        };
        (block, offset)
    }

    /// The blocks at the start of `group` that hold descriptors (primary or copies), without the
    /// reserved ones.
    #[must_use]
    pub fn group_desc_blocks(&self, group: GroupNr) -> u32 {
        if self.is_meta_placed(group) {
            let per_block = self.descs_per_block();
            let place = group.0 % per_block;
            u32::from(place <= 1 || place == per_block - 1)
        } else if self.has_super(group) {
            self.first_meta_bg()
        } else {
            0
        }
    }

    /// How many blocks at the start of `group` are superblock, descriptors and descriptors reserved
    /// for growing.
    #[must_use]
    pub fn base_meta_blocks(&self, group: GroupNr) -> u32 {
        let descs = self.descs();
        let sb = u32::from(self.has_super(group));
        let placed = group.0 / self.descs_per_block() >= descs.first_meta_bg;
        let blocks = match (placed, sb) {
            (true, _) => self.group_desc_blocks(group),
            (false, 0) => 0,
            (false, _) => descs.first_meta_bg + descs.reserved,
        };
        self.boot_block(group) as u32 + sb + blocks
    }
}

fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}
