//! From a superblock to a [`Geometry`]: every number is checked, alone, against the others and
//! against the device.

use std::sync::Arc;

use super::size::{DescBlocks, Size, SizeCell};
use super::{FULL_EXTRA_ISIZE, GOOD_OLD_INODE_SIZE, Geometry};
use crate::block_size::BlockSize;
use crate::error::{OnDiskError, Result, ensure};
use crate::features::{Incompat, RoCompat};
use crate::ids::{GroupNr, InodeNr};
use crate::superblock::{CREATOR_LINUX, SuperFlags, Superblock};

impl Geometry {
    /// Takes the geometry from a superblock and checks it.
    ///
    /// # Errors
    /// A number that is zero, out of range, in contradiction to another, or beyond the device.
    pub fn new(sb: &Superblock, device_bytes: Option<u64>) -> Result<Self> {
        ensure(
            !sb.feature_incompat.contains(Incompat::JOURNAL_DEV),
            "this is an external journal, not a file system",
        )?;
        ensure(sb.log_block_size <= 6, "block size is out of range")?;
        let block_size = BlockSize::new(sb.block_bytes())
            .ok_or(OnDiskError::bad("block size is out of range"))?;
        let clusters = Clusters::new(sb, block_size)?;
        let groups = groups(sb, block_size, clusters.ratio, device_bytes)?;
        let inodes = Inodes::new(sb, block_size, groups)?;
        let descs = Descriptors::new(sb, block_size, groups)?;
        ensure(sb.r_blocks_count <= sb.blocks_count, "more reserved blocks than blocks")?;
        let (min_extra_isize, want_extra_isize) =
            extra_sizes(sb, inodes.size - GOOD_OLD_INODE_SIZE);
        let size = Size {
            blocks: sb.blocks_count,
            inodes: sb.inodes_count,
            groups,
            descs: DescBlocks {
                first_meta_bg: descs.first_meta_bg,
                reserved: u32::from(sb.reserved_gdt_blocks),
            },
            backup_bgs: sb.backup_bgs,
            compat: sb.feature_compat,
            incompat: sb.feature_incompat,
        };
        let geo = Self {
            block_size,
            first_data_block: u64::from(sb.first_data_block),
            blocks_per_group: sb.blocks_per_group,
            clusters_per_group: clusters.per_group,
            cluster_ratio: clusters.ratio,
            inodes_per_group: sb.inodes_per_group,
            inode_size: inodes.size,
            desc_size: descs.size,
            ro_compat: sb.feature_ro_compat,
            fs_seed: sb.fs_seed(),
            uuid: sb.uuid,
            is_of_linux: sb.creator_os == CREATOR_LINUX,
            hash_seed: sb.hash_seed,
            hash_unsigned: sb.flags.contains(SuperFlags::UNSIGNED_HASH),
            def_hash_version: sb.def_hash_version,
            strict_encoding: sb.encoding_flags & Superblock::STRICT_ENCODING != 0,
            has_other_folding: sb.encoding_flags & Superblock::NO_COMPAT_FALLBACK == 0,
            first_ino: inodes.first,
            inode_table_blocks: inodes.table_blocks,
            log_groups_per_flex: descs.log_groups_per_flex,
            min_extra_isize,
            want_extra_isize,
            size: Arc::new(SizeCell::new(size)),
        };
        // Group 0 holds the descriptors of all groups.
        let needed = u64::from(geo.base_meta_blocks(GroupNr(0)));
        ensure(
            needed < u64::from(geo.group_blocks(GroupNr(0))),
            "descriptors do not fit into the first group",
        )?;
        Ok(geo)
    }
}

/// Clusters: as large as blocks without bigalloc.
struct Clusters {
    /// Blocks per cluster.
    ratio: u32,
    per_group: u32,
}

impl Clusters {
    fn new(sb: &Superblock, block_size: BlockSize) -> Result<Self> {
        let bigalloc = sb.feature_ro_compat.contains(RoCompat::BIGALLOC);
        let ratio = if bigalloc {
            let extra = sb.log_cluster_size.checked_sub(sb.log_block_size);
            let extra = extra.ok_or(OnDiskError::bad("cluster smaller than a block"))?;
            ensure(sb.log_cluster_size <= 30, "cluster size is out of range")?;
            1u32 << extra
        } else {
            1
        };
        let per_group = if bigalloc { sb.clusters_per_group } else { sb.blocks_per_group };
        ensure(
            (8..=bits_per_block(block_size)).contains(&per_group) && per_group.is_multiple_of(8),
            "blocks per group are out of range",
        )?;
        ensure(
            u64::from(per_group) * u64::from(ratio) == u64::from(sb.blocks_per_group),
            "blocks and clusters per group disagree",
        )?;
        Ok(Self { ratio, per_group })
    }
}

/// What a bitmap of one block can count.
fn bits_per_block(block_size: BlockSize) -> u32 {
    block_size.bytes() * 8
}

/// Number of groups; checks the first block and the number of blocks. Blocks per group are checked.
fn groups(
    sb: &Superblock,
    block_size: BlockSize,
    cluster_ratio: u32,
    device_bytes: Option<u64>,
) -> Result<u32> {
    let first_data_block = u64::from(sb.first_data_block);
    let first_ok = match (block_size.bytes(), cluster_ratio) {
        (1024, 1) => first_data_block == 1,
        (1024, _) => first_data_block <= 1,
        _ => first_data_block == 0,
    };
    ensure(first_ok, "first data block is wrong for the block size")?;
    let blocks = sb.blocks_count;
    ensure(blocks > first_data_block, "volume without blocks")?;
    if let Some(bytes) = device_bytes {
        let room = bytes / u64::from(block_size.bytes());
        ensure(blocks <= room, "volume is larger than its device")?;
    }
    ensure(blocks <= u64::MAX >> 16, "block count is out of range")?;
    let groups = (blocks - first_data_block).div_ceil(u64::from(sb.blocks_per_group));
    u32::try_from(groups).map_err(|_| OnDiskError::bad("too many groups"))
}

/// Size and number of inodes.
struct Inodes {
    size: u16,
    first: InodeNr,
    table_blocks: u32,
}

impl Inodes {
    fn new(sb: &Superblock, block_size: BlockSize, groups: u32) -> Result<Self> {
        let bs = block_size.bytes();
        let (size, first) = if sb.rev_level == 0 {
            (GOOD_OLD_INODE_SIZE, InodeNr::GOOD_OLD_FIRST.0)
        } else {
            (sb.inode_size, sb.first_ino)
        };
        ensure(
            size.is_power_of_two() && size >= GOOD_OLD_INODE_SIZE && u32::from(size) <= bs,
            "inode size is out of range",
        )?;
        let per_group = sb.inodes_per_group;
        ensure(
            (8..=bits_per_block(block_size)).contains(&per_group)
                && per_group.is_multiple_of(8)
                && per_group >= bs / u32::from(size),
            "inodes per group are out of range",
        )?;
        ensure(
            u64::from(groups) * u64::from(per_group) == u64::from(sb.inodes_count),
            "inode count does not match the groups",
        )?;
        ensure(
            first >= InodeNr::GOOD_OLD_FIRST.0 && first <= sb.inodes_count,
            "first inode is out of range",
        )?;
        let table_blocks = per_group.saturating_mul(u32::from(size)).div_ceil(bs);
        ensure(table_blocks < sb.blocks_per_group.max(2), "inode table does not fit into a group")?;
        Ok(Self { size, first: InodeNr(first), table_blocks })
    }
}

/// Size and placement of group descriptors.
struct Descriptors {
    size: u16,
    first_meta_bg: u32,
    log_groups_per_flex: u8,
}

impl Descriptors {
    fn new(sb: &Superblock, block_size: BlockSize, groups: u32) -> Result<Self> {
        let (bs, incompat) = (block_size.bytes(), sb.feature_incompat);
        let size = if incompat.contains(Incompat::BIT64) { sb.desc_size } else { 32 };
        ensure(
            size.is_power_of_two()
                && size <= 1024
                && (size >= 64 || !incompat.contains(Incompat::BIT64)),
            "descriptor size is out of range",
        )?;
        let desc_blocks = groups.div_ceil(bs / u32::from(size));
        let first_meta_bg =
            if incompat.contains(Incompat::META_BG) { sb.first_meta_bg } else { desc_blocks };
        ensure(first_meta_bg <= desc_blocks, "first meta group is out of range")?;
        ensure(u32::from(sb.reserved_gdt_blocks) <= bs / 4, "too many reserved descriptor blocks")?;
        let log_groups_per_flex =
            if incompat.contains(Incompat::FLEX_BG) { sb.log_groups_per_flex } else { 0 };
        ensure(log_groups_per_flex <= 31, "flexible group size is out of range")?;
        Ok(Self { size, first_meta_bg, log_groups_per_flex })
    }
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
