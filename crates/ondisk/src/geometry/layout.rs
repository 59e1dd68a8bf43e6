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

    /// Where the descriptor of a group lies: block, and byte offset in it. The primary one, unless
    /// a copy is read ([`with_descriptors_of`](Self::with_descriptors_of)).
    #[must_use]
    pub fn desc_block(&self, group: GroupNr) -> (BlockNr, usize) {
        let per_block = self.descs_per_block();
        let index = group.0 / per_block;
        let offset = (group.0 % per_block) as usize * usize::from(self.desc_size);
        let block = match self.desc_copy {
            Some(copy) if index < self.first_meta_bg() => {
                self.group_first_block(copy).plus(1 + u64::from(index))
            }
            None if index < self.first_meta_bg() => self.super_block().0.plus(1 + u64::from(index)),
            copy => self.meta_placed(index, copy.is_some()),
        };
        (block, offset)
    }

    /// Where the descriptors of a meta group lie: at the start of its first group, or of its second
    /// one, if there is one.
    fn meta_placed(&self, index: u32, second: bool) -> BlockNr {
        let first = GroupNr(index * self.descs_per_block());
        let behind = GroupNr(first.0 + 1);
        let has_second = second && self.descs_per_block() > 1 && self.is_valid_group(behind);
        let group = if has_second { behind } else { first };
        let skip = u64::from(self.has_super(group)) + self.boot_block(group);
        self.group_first_block(group).plus(skip)
    }

    /// The same volume, whose descriptors are read from the copy behind the superblock that begins
    /// at byte `at`; for reading only. As it is if no copy lies there.
    #[must_use]
    pub fn with_descriptors_of(mut self, at: u64) -> Self {
        let block = BlockNr(at / u64::from(self.block_size.bytes()));
        let group = self.group_of_block(block);
        let begins = self.group_first_block(group) == block && at.is_multiple_of(1024);
        if group.0 != 0 && begins && self.has_super(group) {
            self.desc_copy = Some(group);
        }
        self
    }

    /// True if the descriptors are read from a copy: nothing may be written then.
    #[must_use]
    pub fn reads_copy(&self) -> bool {
        self.desc_copy.is_some()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{Incompat, RoCompat};
    use crate::superblock::Superblock;

    /// Five groups of 8192 blocks of 1024 bytes, with two descriptors in a block.
    fn volume(meta_bg: bool) -> Geometry {
        let mut sb = Superblock::new_empty();
        (sb.first_data_block, sb.blocks_per_group, sb.clusters_per_group) = (1, 8192, 8192);
        sb.blocks_count = 1 + 5 * 8192;
        (sb.inodes_per_group, sb.inodes_count, sb.first_ino, sb.inode_size) = (64, 320, 11, 128);
        sb.desc_size = 512;
        sb.feature_incompat = Incompat::BIT64;
        sb.feature_incompat.set(Incompat::META_BG, meta_bg);
        sb.feature_ro_compat = RoCompat::SPARSE_SUPER;
        Geometry::new(&sb, None).expect("a geometry")
    }

    fn blocks(geo: &Geometry) -> Vec<u64> {
        (0..5).map(|group| geo.desc_block(GroupNr(group)).0.0).collect()
    }

    #[test]
    fn descriptors_of_a_copy_lie_behind_it() {
        let geo = volume(false);
        assert_eq!(blocks(&geo), [2, 2, 3, 3, 4]);
        let at = |block: u64| block * 1024;
        let copy = volume(false).with_descriptors_of(at(8193));
        assert!(copy.reads_copy());
        assert_eq!(blocks(&copy), [8194, 8194, 8195, 8195, 8196]);
        let third = volume(false).with_descriptors_of(at(1 + 3 * 8192));
        assert_eq!(blocks(&third), [24_578, 24_578, 24_579, 24_579, 24_580]);
        // The first one, no start of a group, and a group without a copy.
        for block in [1, 8192, 8194, 1 + 2 * 8192, 1 << 50] {
            let geo = volume(false).with_descriptors_of(at(block));
            assert!(!geo.reads_copy(), "{block}");
        }
    }

    #[test]
    fn a_meta_group_has_its_copies_in_its_groups() {
        // Groups 1 and 3 have a superblock as well; the last meta group has one group.
        assert_eq!(blocks(&volume(true)), [2, 2, 16_385, 16_385, 32_769]);
        let copy = volume(true).with_descriptors_of(8193 * 1024);
        assert_eq!(blocks(&copy), [8194, 8194, 24_578, 24_578, 32_769]);
    }
}
