//! What never changes while a volume is open: sizes, counts, features, seeds, and where the fixed
//! metadata lies.
//!
//! ```text
//!  group with a superblock copy          other groups        meta_bg group (1st, 2nd, last of its meta group)
//!  ┌────┬─────────────┬──────────────┐   ┌─────────────┐     ┌──────┬────────────┬──────
//!  │ sb │ descriptors │ reserved gdt │…  │ …           │     │ (sb) │ 1 desc blk │ …
//!  └────┴─────────────┴──────────────┘   └─────────────┘     └──────┴────────────┴──────
//!  ╰──── base_meta_blocks ───────────╯   (none)
//! ```
//!
//! [`Geometry::new`] is the gate for hostile superblocks: behind it no count is zero, no size is
//! odd, groups and inodes multiply without overflow and lie inside the device. All arithmetic here
//! relies on that.

use crate::checksum::FsSeed;
use crate::error::{OnDiskError, Result, ensure};
use crate::features::{Compat, Incompat, RoCompat};
use crate::ids::{GroupNr, InodeNr};
use crate::superblock::{SuperFlags, Superblock};
use extol_block::{BlockNr, BlockSize};

/// Size of an inode in revision 0, and the smallest one.
pub const GOOD_OLD_INODE_SIZE: u16 = 128;
/// Extra bytes of the inode fields that are defined today.
pub const FULL_EXTRA_ISIZE: u16 = 32;

/// Immutable numbers of a volume, validated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Block size.
    pub block_size: BlockSize,
    /// Blocks on the volume.
    pub blocks: u64,
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
    /// Inodes on the volume.
    pub inodes: u32,
    /// Bytes per inode, a power of two of at least 128.
    pub inode_size: u16,
    /// Bytes per group descriptor, a power of two of at least 32.
    pub desc_size: u16,
    /// Number of groups.
    pub groups: u32,
    /// Compatible features, as when the geometry was made.
    pub compat: Compat,
    /// Incompatible features.
    pub incompat: Incompat,
    /// Read-only compatible features.
    pub ro_compat: RoCompat,
    /// Seed of metadata checksums.
    pub fs_seed: FsSeed,
    /// UUID (the seed of crc16 descriptor checksums).
    pub uuid: [u8; 16],
    /// Seed of directory hashes.
    pub hash_seed: [u32; 4],
    /// Directory hashes treat characters as unsigned.
    pub hash_unsigned: bool,
    /// Hash version of new directories, as on disk.
    pub def_hash_version: u8,
    /// First inode for ordinary files.
    pub first_ino: InodeNr,
    /// Blocks of one group's inode table.
    pub inode_table_blocks: u32,
    /// Descriptor blocks per superblock copy reserved for growing.
    pub reserved_gdt: u32,
    /// First descriptor block that is placed by meta_bg; without meta_bg, all of them are before
    /// it.
    pub first_meta_bg: u32,
    /// log2 of the groups per flexible group; 0 without flex_bg.
    pub log_groups_per_flex: u8,
    /// Extra bytes every inode has.
    pub min_extra_isize: u16,
    /// Extra bytes a new inode gets; 0 if inodes are 128 bytes.
    pub want_extra_isize: u16,
    /// Groups with superblock copies under sparse_super2.
    pub backup_bgs: [u32; 2],
}

impl Geometry {
    /// Takes the geometry from a superblock and checks it.
    ///
    /// # Errors
    /// Any number that is zero, absurd, in contradiction to another, or beyond the device.
    pub fn new(sb: &Superblock, device_bytes: Option<u64>) -> Result<Self> {
        let (compat, incompat, ro_compat) =
            (sb.feature_compat, sb.feature_incompat, sb.feature_ro_compat);
        ensure(
            !incompat.contains(Incompat::JOURNAL_DEV),
            "this is an external journal, not a file system",
        )?;
        ensure(sb.creator_os != 1, "volumes made by the Hurd are not supported")?;
        ensure(sb.log_block_size <= 6, "block size is out of range")?;
        let block_size = BlockSize::new(sb.block_bytes())
            .ok_or(OnDiskError::bad("block size is out of range"))?;
        let bs = block_size.bytes();
        let bits_per_block = bs * 8;

        let bigalloc = ro_compat.contains(RoCompat::BIGALLOC);
        let cluster_ratio = if bigalloc {
            let extra = sb.log_cluster_size.checked_sub(sb.log_block_size);
            let extra = extra.ok_or(OnDiskError::bad("cluster smaller than a block"))?;
            ensure(sb.log_cluster_size <= 30, "cluster size is out of range")?;
            1u32 << extra
        } else {
            1
        };
        let blocks_per_group = sb.blocks_per_group;
        let clusters_per_group = if bigalloc { sb.clusters_per_group } else { blocks_per_group };
        ensure(
            (8..=bits_per_block).contains(&clusters_per_group)
                && clusters_per_group.is_multiple_of(8),
            "blocks per group are out of range",
        )?;
        ensure(
            u64::from(clusters_per_group) * u64::from(cluster_ratio) == u64::from(blocks_per_group),
            "blocks and clusters per group disagree",
        )?;

        let first_data_block = u64::from(sb.first_data_block);
        let first_ok = match (bs, cluster_ratio) {
            (1024, 1) => first_data_block == 1,
            (1024, _) => first_data_block <= 1,
            _ => first_data_block == 0,
        };
        ensure(first_ok, "first data block is wrong for the block size")?;
        let blocks = sb.blocks_count;
        ensure(blocks > first_data_block, "volume without blocks")?;
        if let Some(bytes) = device_bytes {
            ensure(blocks <= bytes / u64::from(bs), "volume is larger than its device")?;
        }
        ensure(blocks <= u64::MAX >> 16, "block count is out of range")?;
        let groups = (blocks - first_data_block).div_ceil(u64::from(blocks_per_group));
        let groups = u32::try_from(groups).map_err(|_| OnDiskError::bad("too many groups"))?;

        let (inode_size, first_ino) = if sb.rev_level == 0 {
            (GOOD_OLD_INODE_SIZE, 11)
        } else {
            (sb.inode_size, sb.first_ino)
        };
        ensure(
            inode_size.is_power_of_two()
                && inode_size >= GOOD_OLD_INODE_SIZE
                && u32::from(inode_size) <= bs,
            "inode size is out of range",
        )?;
        let inodes_per_group = sb.inodes_per_group;
        ensure(
            (8..=bits_per_block).contains(&inodes_per_group)
                && inodes_per_group.is_multiple_of(8)
                && inodes_per_group >= bs / u32::from(inode_size),
            "inodes per group are out of range",
        )?;
        ensure(
            u64::from(groups) * u64::from(inodes_per_group) == u64::from(sb.inodes_count),
            "inode count does not match the groups",
        )?;
        ensure(first_ino >= 11 && first_ino <= sb.inodes_count, "first inode is out of range")?;
        let inode_table_blocks =
            inodes_per_group.saturating_mul(u32::from(inode_size)).div_ceil(bs);
        ensure(
            inode_table_blocks < blocks_per_group.max(2),
            "inode table does not fit into a group",
        )?;

        let desc_size = if incompat.contains(Incompat::BIT64) { sb.desc_size } else { 32 };
        ensure(
            desc_size.is_power_of_two()
                && desc_size <= 1024
                && (desc_size >= 64 || !incompat.contains(Incompat::BIT64)),
            "descriptor size is out of range",
        )?;
        let desc_blocks = groups.div_ceil(bs / u32::from(desc_size));
        let first_meta_bg =
            if incompat.contains(Incompat::META_BG) { sb.first_meta_bg } else { desc_blocks };
        ensure(first_meta_bg <= desc_blocks, "first meta group is out of range")?;
        let reserved_gdt = u32::from(sb.reserved_gdt_blocks);
        ensure(reserved_gdt <= bs / 4, "too many reserved descriptor blocks")?;
        let log_groups_per_flex =
            if incompat.contains(Incompat::FLEX_BG) { sb.log_groups_per_flex } else { 0 };
        ensure(log_groups_per_flex <= 31, "flexible group size is out of range")?;
        ensure(sb.r_blocks_count <= blocks, "more reserved blocks than blocks")?;

        let room = inode_size - GOOD_OLD_INODE_SIZE;
        let (min_extra_isize, want_extra_isize) = extra_sizes(sb, room);
        let geo = Self {
            block_size,
            blocks,
            first_data_block,
            blocks_per_group,
            clusters_per_group,
            cluster_ratio,
            inodes_per_group,
            inodes: sb.inodes_count,
            inode_size,
            desc_size,
            groups,
            compat,
            incompat,
            ro_compat,
            fs_seed: sb.fs_seed(),
            uuid: sb.uuid,
            hash_seed: sb.hash_seed,
            hash_unsigned: sb.flags.contains(SuperFlags::UNSIGNED_HASH),
            def_hash_version: sb.def_hash_version,
            first_ino: InodeNr(first_ino),
            inode_table_blocks,
            reserved_gdt,
            first_meta_bg,
            log_groups_per_flex,
            min_extra_isize,
            want_extra_isize,
            backup_bgs: sb.backup_bgs,
        };
        // Group 0 holds the descriptors that everything starts from.
        let needed = u64::from(geo.base_meta_blocks(GroupNr(0)));
        ensure(
            needed < u64::from(geo.group_blocks(GroupNr(0))),
            "descriptors do not fit into the first group",
        )?;
        Ok(geo)
    }

    /// metadata_csum: all metadata has crc32c checksums.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
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
        (self.first_data_block..self.blocks).contains(&nr.0)
    }

    /// True if all of `len` blocks from `nr` exist and `len` is not zero.
    #[must_use]
    pub fn is_valid_range(&self, nr: BlockNr, len: u64) -> bool {
        let end = nr.0.checked_add(len);
        len > 0 && nr.0 >= self.first_data_block && end.is_some_and(|end| end <= self.blocks)
    }

    /// True for the numbers that inodes have.
    #[must_use]
    pub fn is_valid_inode(&self, ino: InodeNr) -> bool {
        (1..=self.inodes).contains(&ino.0)
    }

    /// True for the numbers that groups have.
    #[must_use]
    pub fn is_valid_group(&self, group: GroupNr) -> bool {
        group.0 < self.groups
    }

    /// The group that a block lies in. Blocks outside the volume give the nearest group.
    #[must_use]
    pub fn group_of_block(&self, nr: BlockNr) -> GroupNr {
        let group = nr.0.saturating_sub(self.first_data_block) / u64::from(self.blocks_per_group);
        GroupNr(u32::try_from(group).unwrap_or(u32::MAX).min(self.groups - 1))
    }

    /// First block of a group.
    #[must_use]
    pub fn group_first_block(&self, group: GroupNr) -> BlockNr {
        BlockNr(self.first_data_block + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Blocks in a group: fewer in the last one, none in groups that do not exist.
    #[must_use]
    pub fn group_blocks(&self, group: GroupNr) -> u32 {
        let left = self.blocks.saturating_sub(self.group_first_block(group).0);
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
        self.groups.div_ceil(self.descs_per_block())
    }

    /// Groups per flexible group.
    #[must_use]
    pub fn groups_per_flex(&self) -> u32 {
        1 << self.log_groups_per_flex.min(31)
    }

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
        if self.compat.contains(Compat::SPARSE_SUPER2) {
            return self.backup_bgs.contains(&g);
        }
        if g == 1 || !self.ro_compat.contains(RoCompat::SPARSE_SUPER) {
            return true;
        }
        g % 2 == 1 && [3, 5, 7].iter().any(|&base| is_power_of(g, base))
    }

    /// Groups that hold copies of the superblock, without group 0.
    pub fn backup_groups(&self) -> impl Iterator<Item = GroupNr> + '_ {
        (1..self.groups).map(GroupNr).filter(|&g| self.has_super(g))
    }

    /// True if the descriptor of `group` is placed by meta_bg.
    fn is_meta_placed(&self, group: GroupNr) -> bool {
        group.0 / self.descs_per_block() >= self.first_meta_bg
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
        let block = if index < self.first_meta_bg {
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
            self.first_meta_bg
        } else {
            0
        }
    }

    /// How many blocks at the start of `group` are superblock, descriptors and descriptors reserved
    /// for growing.
    #[must_use]
    pub fn base_meta_blocks(&self, group: GroupNr) -> u32 {
        let sb = u32::from(self.has_super(group));
        let reserved = if sb == 1 && !self.is_meta_placed(group) { self.reserved_gdt } else { 0 };
        self.boot_block(group) as u32 + sb + self.group_desc_blocks(group) + reserved
    }

    /// True if a kernel of today would not even read this volume for its unknown incompatible bits.
    #[must_use]
    pub fn unknown_incompat(&self) -> u32 {
        self.incompat.unknown()
    }
}

fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

/// Extra inode bytes that all inodes have and that new ones get, as Linux chooses them.
fn extra_sizes(sb: &Superblock, room: u16) -> (u16, u16) {
    if room == 0 {
        return (0, 0);
    }
    let usable = |n: u16| n <= room && n.is_multiple_of(4);
    let stated = sb.feature_ro_compat.contains(RoCompat::EXTRA_ISIZE);
    let min = if stated && usable(sb.min_extra_isize) { sb.min_extra_isize } else { 0 };
    let wanted = if stated { sb.want_extra_isize.max(sb.min_extra_isize) } else { 0 };
    let wanted = wanted.max(FULL_EXTRA_ISIZE);
    (min, if usable(wanted) { wanted } else { FULL_EXTRA_ISIZE })
}
