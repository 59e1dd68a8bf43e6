//! What changes when a volume grows, behind atomics: readers take no lock.
//!
//! The order of publishing ([`Geometry::grow_to`]): first where descriptors lie, then blocks and
//! inodes, last the groups. So a group that exists has its blocks, its inodes and a place for its
//! descriptor. What is kept per group elsewhere grows before the geometry does. A number that was
//! read may be out of date at once: it is too small then, never too large.
//!
//! Invariants
//! - GE-1: blocks, inodes and groups never shrink while the volume is open.
//! - GE-2: the blocks for descriptors in use and those reserved for more are read together: their
//!   sum, where other metadata of a group begins, stays as it is when a reserved one comes into
//!   use.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Geometry;
use crate::features::{Compat, Incompat};

/// The changing numbers of a volume.
#[derive(Debug)]
pub(super) struct SizeCell {
    blocks: AtomicU64,
    inodes: AtomicU32,
    groups: AtomicU32,
    descs: AtomicU64,
    backup_bgs: AtomicU64,
    compat: AtomicU32,
    incompat: AtomicU32,
}

/// The changing numbers at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    pub blocks: u64,
    pub inodes: u32,
    pub groups: u32,
    pub descs: DescBlocks,
    pub backup_bgs: [u32; 2],
    pub compat: Compat,
    pub incompat: Incompat,
}

/// Descriptor blocks behind each superblock copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescBlocks {
    /// First descriptor block that is placed by meta_bg; without meta_bg, all of them are before
    /// it.
    pub first_meta_bg: u32,
    /// Reserved for growing.
    pub reserved: u32,
}

impl DescBlocks {
    fn pack(self) -> u64 {
        u64::from(self.reserved) << 32 | u64::from(self.first_meta_bg)
    }

    fn unpack(word: u64) -> Self {
        Self { first_meta_bg: word as u32, reserved: (word >> 32) as u32 }
    }
}

fn pack(pair: [u32; 2]) -> u64 {
    u64::from(pair[1]) << 32 | u64::from(pair[0])
}

impl SizeCell {
    pub fn new(size: Size) -> Self {
        Self {
            blocks: size.blocks.into(),
            inodes: size.inodes.into(),
            groups: size.groups.into(),
            descs: size.descs.pack().into(),
            backup_bgs: pack(size.backup_bgs).into(),
            compat: size.compat.bits().into(),
            incompat: size.incompat.bits().into(),
        }
    }

    fn load(&self) -> Size {
        // Read in the reverse order of writing.
        let groups = self.groups.load(Ordering::Acquire);
        let inodes = self.inodes.load(Ordering::Acquire);
        let blocks = self.blocks.load(Ordering::Acquire);
        let pair = self.backup_bgs.load(Ordering::Acquire);
        Size {
            blocks,
            inodes,
            groups,
            descs: DescBlocks::unpack(self.descs.load(Ordering::Acquire)),
            backup_bgs: [pair as u32, (pair >> 32) as u32],
            compat: Compat::from_bits_retain(self.compat.load(Ordering::Acquire)),
            incompat: Incompat::from_bits_retain(self.incompat.load(Ordering::Acquire)),
        }
    }

    fn store(&self, size: Size) {
        self.compat.store(size.compat.bits(), Ordering::Release);
        self.incompat.store(size.incompat.bits(), Ordering::Release);
        self.backup_bgs.store(pack(size.backup_bgs), Ordering::Release);
        self.descs.store(size.descs.pack(), Ordering::Release);
        self.blocks.store(size.blocks, Ordering::Release);
        self.inodes.store(size.inodes, Ordering::Release);
        self.groups.store(size.groups, Ordering::Release);
    }
}

impl PartialEq for SizeCell {
    fn eq(&self, other: &Self) -> bool {
        self.load() == other.load()
    }
}

impl Eq for SizeCell {}

impl Geometry {
    /// Blocks on the volume.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.size.blocks.load(Ordering::Acquire)
    }

    /// Inodes on the volume.
    #[must_use]
    pub fn inodes(&self) -> u32 {
        self.size.inodes.load(Ordering::Acquire)
    }

    /// Number of groups.
    #[must_use]
    pub fn groups(&self) -> u32 {
        self.size.groups.load(Ordering::Acquire)
    }

    /// Descriptor blocks in use and reserved.
    #[must_use]
    pub fn descs(&self) -> DescBlocks {
        DescBlocks::unpack(self.size.descs.load(Ordering::Acquire))
    }

    /// First descriptor block that is placed by meta_bg; without meta_bg, all of them are before
    /// it.
    #[must_use]
    pub fn first_meta_bg(&self) -> u32 {
        self.descs().first_meta_bg
    }

    /// Descriptor blocks per superblock copy reserved for growing.
    #[must_use]
    pub fn reserved_gdt(&self) -> u32 {
        self.descs().reserved
    }

    /// Groups with superblock copies under sparse_super2.
    #[must_use]
    pub fn backup_bgs(&self) -> [u32; 2] {
        let pair = self.size.backup_bgs.load(Ordering::Acquire);
        [pair as u32, (pair >> 32) as u32]
    }

    /// Compatible features, as when the geometry was made or grew.
    #[must_use]
    pub fn compat(&self) -> Compat {
        Compat::from_bits_retain(self.size.compat.load(Ordering::Acquire))
    }

    /// Incompatible features.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(self.size.incompat.load(Ordering::Acquire))
    }

    /// Takes over the size of `larger`, which describes the same volume (GE-1). All clones see it.
    pub fn grow_to(&self, larger: &Self) {
        let (now, then) = (self.size.load(), larger.size.load());
        debug_assert!(then.blocks >= now.blocks && then.groups >= now.groups);
        self.size.store(then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::RoCompat;
    use crate::ids::GroupNr;
    use crate::superblock::Superblock;

    fn volume(blocks: u64, reserved: u16) -> Geometry {
        let groups = u32::try_from((blocks - 1).div_ceil(8192)).expect("few");
        let sb = Superblock {
            rev_level: 1,
            first_data_block: 1,
            blocks_per_group: 8192,
            inodes_per_group: 64,
            inodes_count: groups * 64,
            inode_size: 256,
            first_ino: 11,
            blocks_count: blocks,
            reserved_gdt_blocks: reserved,
            feature_ro_compat: RoCompat::SPARSE_SUPER,
            ..Superblock::new_empty()
        };
        Geometry::new(&sb, None).expect("a sound volume")
    }

    #[test]
    fn clones_grow_together() {
        let geo = volume(8193, 10);
        let clone = geo.clone();
        // 32 descriptors of 32 bytes fit into a block: the 33rd group takes a reserved one.
        let larger = volume(33 * 8192, 9);
        geo.grow_to(&larger);
        assert_eq!((clone.blocks(), clone.groups(), clone.inodes()), (33 * 8192, 33, 33 * 64));
        assert_eq!(clone, larger);
        assert_eq!(clone.group_of_block(crate::BlockNr(u64::MAX)), GroupNr(32));
        assert_eq!(clone.descs(), DescBlocks { first_meta_bg: 2, reserved: 9 });
        assert_ne!(geo, volume(33 * 8192, 8));
    }

    #[test]
    fn a_reserved_block_in_use_moves_nothing() {
        let (small, large) = (volume(8193, 10), volume(33 * 8192, 9));
        assert_eq!(small.base_meta_blocks(GroupNr(0)), 12);
        assert_eq!(large.base_meta_blocks(GroupNr(0)), 12);
        assert_eq!(large.base_meta_blocks(GroupNr(2)), 0);
    }
}
