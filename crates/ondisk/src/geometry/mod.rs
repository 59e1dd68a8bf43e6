//! Sizes, counts, features and seeds of a volume, and where its fixed metadata lies.
//!
//! Most of it never changes while a volume is open. What a growing volume changes is in
//! `size`, shared by all clones.
//!
//! ```text
//!  group with a superblock copy          other groups      meta_bg (1st, 2nd, last of meta group)
//!  ┌────┬─────────────┬──────────────┐   ┌────────┐        ┌──────┬────────────┬──────
//!  │ sb │ descriptors │ reserved gdt │…  │ …      │        │ (sb) │ 1 desc blk │ …
//!  └────┴─────────────┴──────────────┘   └────────┘        └──────┴────────────┴──────
//!  ╰──── base_meta_blocks ───────────╯   (none)
//! ```
//!
//! [`Geometry::new`] is the gate for hostile superblocks: behind it no count is zero, no size is
//! odd, groups and inodes multiply without overflow and lie inside the device. All arithmetic here
//! relies on that.

mod clusters;
mod layout;
mod size;
mod validate;

use std::sync::Arc;

use crate::checksum::FsSeed;
use crate::features::RoCompat;
use crate::ids::{GroupNr, InodeNr};
use crate::{BlockNr, BlockSize};
pub use size::DescBlocks;
use size::SizeCell;

/// Size of an inode in revision 0, and the smallest one.
pub const GOOD_OLD_INODE_SIZE: u16 = 128;
/// Extra bytes of the inode fields that are defined today.
pub const FULL_EXTRA_ISIZE: u16 = 32;

/// The numbers of a volume, validated. Clones see the same size when the volume grows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Block size.
    pub block_size: BlockSize,
    /// First block of group 0: 1 for blocks of 1 KiB without bigalloc, else 0.
    pub first_data_block: u64,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Clusters per group: what a block bitmap counts. Equals `blocks_per_group` without bigalloc.
    pub clusters_per_group: u32,
    /// Blocks per cluster: 1 without bigalloc.
    pub cluster_ratio: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Bytes per inode, a power of two of at least 128.
    pub inode_size: u16,
    /// Bytes per group descriptor, a power of two of at least 32.
    pub desc_size: u16,
    /// Read-only compatible features.
    pub ro_compat: RoCompat,
    /// Seed of metadata checksums.
    pub fs_seed: FsSeed,
    /// UUID (the seed of crc16 descriptor checksums).
    pub uuid: [u8; 16],
    /// Made by Linux, or by what says so.
    pub is_of_linux: bool,
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Directory hashes treat characters as unsigned.
    pub hash_unsigned: bool,
    /// Hash version of new directories, as on disk.
    pub def_hash_version: u8,
    /// Casefolded directories take only names in valid UTF-8.
    pub strict_encoding: bool,
    /// Casefolded directories may have names that an index has by another folding.
    pub has_other_folding: bool,
    /// First inode for ordinary files.
    pub first_ino: InodeNr,
    /// Blocks of one group's inode table.
    pub inode_table_blocks: u32,
    /// log2 of the groups per flexible group; 0 without flex_bg.
    pub log_groups_per_flex: u8,
    /// Extra bytes every inode has.
    pub min_extra_isize: u16,
    /// Extra bytes a new inode gets; 0 if inodes are 128 bytes.
    pub want_extra_isize: u16,
    /// What changes when the volume grows.
    size: Arc<SizeCell>,
}

impl Geometry {
    /// metadata_csum: all metadata has crc32c checksums.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// The checksums of inodes are verified: with metadata_csum, on volumes of Linux. On others
    /// Linux neither writes nor verifies them; e2fsck wants them there as well.
    #[must_use]
    pub fn verifies_inodes(&self) -> bool {
        self.has_metadata_csum() && self.is_of_linux
    }

    /// uninit_bg or metadata_csum: descriptors have checksums and the UNINIT flags mean something.
    #[must_use]
    pub fn has_gdt_csum(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM | RoCompat::UNINIT_BG)
    }

    /// Block size in bytes, as a `usize`.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_size.len()
    }

    /// True if the volume has such a block (block 0 of a 1 KiB volume, the boot block, is none).
    #[must_use]
    pub fn is_valid_block(&self, nr: BlockNr) -> bool {
        (self.first_data_block..self.blocks()).contains(&nr.0)
    }

    /// True if all of `len` blocks from `nr` exist and `len` is not zero.
    #[must_use]
    pub fn is_valid_range(&self, nr: BlockNr, len: u64) -> bool {
        let end = nr.0.checked_add(len);
        len > 0 && nr.0 >= self.first_data_block && end.is_some_and(|end| end <= self.blocks())
    }

    /// True for the numbers that inodes have.
    #[must_use]
    pub fn is_valid_inode(&self, ino: InodeNr) -> bool {
        (1..=self.inodes()).contains(&ino.0)
    }

    /// True for the numbers that groups have.
    #[must_use]
    pub fn is_valid_group(&self, group: GroupNr) -> bool {
        group.0 < self.groups()
    }

    /// The group that a block lies in. Blocks outside the volume give the nearest group.
    #[must_use]
    pub fn group_of_block(&self, nr: BlockNr) -> GroupNr {
        let nr = nr.0.min(self.blocks() - 1);
        let group = nr.saturating_sub(self.first_data_block) / u64::from(self.blocks_per_group);
        GroupNr(u32::try_from(group).unwrap_or(u32::MAX))
    }

    /// First block of a group.
    #[must_use]
    pub fn group_first_block(&self, group: GroupNr) -> BlockNr {
        BlockNr(self.first_data_block + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Blocks in a group: fewer in the last one, none in groups that do not exist.
    #[must_use]
    pub fn group_blocks(&self, group: GroupNr) -> u32 {
        let left = self.blocks().saturating_sub(self.group_first_block(group).0);
        u32::try_from(left).unwrap_or(u32::MAX).min(self.blocks_per_group)
    }

    /// Clusters in a group: as many bits of its bitmap mean something.
    #[must_use]
    pub fn group_clusters(&self, group: GroupNr) -> u32 {
        self.group_blocks(group).div_ceil(self.cluster_ratio)
    }

    /// Group of an inode and its index there. Inode 0 gives the place of inode 1; check with
    /// [`is_valid_inode`](Self::is_valid_inode) first.
    #[must_use]
    pub fn group_of_inode(&self, ino: InodeNr) -> (GroupNr, u32) {
        let n = ino.0.saturating_sub(1);
        (GroupNr(n / self.inodes_per_group), n % self.inodes_per_group)
    }

    /// The inode at an index of a group.
    #[must_use]
    pub fn inode_at(&self, group: GroupNr, index: u32) -> InodeNr {
        InodeNr(group.0.wrapping_mul(self.inodes_per_group).wrapping_add(index).wrapping_add(1))
    }

    /// Inodes per block of the inode table.
    #[must_use]
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.inode_size)
    }

    /// Descriptors per block.
    #[must_use]
    pub fn descs_per_block(&self) -> u32 {
        self.block_size.bytes() / u32::from(self.desc_size)
    }

    /// Blocks of the whole descriptor table.
    #[must_use]
    pub fn desc_blocks(&self) -> u32 {
        self.groups().div_ceil(self.descs_per_block())
    }

    /// Groups per flexible group.
    #[must_use]
    pub fn groups_per_flex(&self) -> u32 {
        1 << self.log_groups_per_flex.min(31)
    }
}
