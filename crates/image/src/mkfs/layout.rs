//! The numbers of the layout: groups, inodes per group, reserved descriptors, reserved blocks.
//!
//! They hang together: the number of inodes per group must fill whole blocks of the table; a group
//! needs room for its table; the last group must be worth having, else the volume is cut short by
//! it, which changes everything else. So the numbers are tried until they hold. Each try either
//! ends or shrinks the blocks per group or the volume.

use super::config::Config;
use super::{Result, refuse};
use extol_ondisk::{Compat, Geometry, GroupNr, Incompat, Superblock};

/// Groups and inodes may not be counted past 16 bits in a descriptor of 32 bytes.
const MAX_PER_GROUP: u32 = 65536 - 8;
/// A last group with fewer blocks left for files than this is cut off.
const MIN_LAST_GROUP: u64 = 50;

/// Fills in all numbers of the layout. `sb` has its features, block size, inode size and UUID
/// already.
pub(super) fn lay_out(sb: &mut Superblock, config: &Config) -> Result<Geometry> {
    let bs = config.block_size;
    let ratio = config.cluster_size / bs;
    sb.first_data_block = u32::from(bs == 1024 && ratio == 1);
    // (The bitmap counts clusters, and the group's blocks are a number of 32 bits.)
    let most = MAX_PER_GROUP.min(u32::MAX / ratio / 8 * 8);
    sb.blocks_per_group = config.blocks_per_group.unwrap_or(bs * 8).min(most) * ratio;
    sb.blocks_count = config.blocks;
    sb.log_groups_per_flex = config.log_groups_per_flex;
    sb.desc_size = config.desc_size;
    loop {
        let in_groups = sb.blocks_count.saturating_sub(u64::from(sb.first_data_block));
        let groups = in_groups.div_ceil(u64::from(sb.blocks_per_group));
        let groups = match u32::try_from(groups) {
            Ok(0) => return too_small(config),
            Ok(n) => n,
            Err(_) => return refuse("the volume has too many groups: use larger blocks"),
        };
        let Some(per_group) = inodes_per_group(sb, config, groups)? else {
            sb.blocks_per_group -= 8 * ratio;
            sb.blocks_count = config.blocks;
            continue;
        };
        sb.inodes_per_group = per_group;
        sb.inodes_count = per_group * groups;
        sb.clusters_per_group = sb.blocks_per_group / ratio;
        reserve_descriptors(sb, config, groups);
        sb.r_blocks_count = reserved_blocks(config.reserved_percent, sb.blocks_count);
        place_backups(sb, groups);

        let geo = Geometry::new(sb, None).or_else(|e| {
            // All that can be wrong by now is room.
            if groups == 1 { too_small(config) } else { refuse(format!("impossible layout: {e}")) }
        })?;
        let table = u64::from(geo.inode_table_blocks);
        let descriptors =
            if sb.feature_incompat.contains(Incompat::META_BG) { 1 } else { geo.desc_blocks() };
        let most = 3 + table + u64::from(geo.reserved_gdt()) + u64::from(descriptors);
        if most > u64::from(sb.blocks_per_group) {
            return refuse("the inode tables leave no room in the groups: ask for fewer inodes");
        }
        let last = GroupNr(groups - 1);
        let mut needed = 2 + table;
        if geo.has_super(last) {
            needed += 1 + u64::from(geo.desc_blocks()) + u64::from(geo.reserved_gdt());
        }
        let needed = needed.next_multiple_of(u64::from(ratio));
        let least = needed + MIN_LAST_GROUP * u64::from(ratio);
        let rest = in_groups % u64::from(sb.blocks_per_group);
        if rest == 0 || rest >= least || (groups == 1 && rest >= needed) {
            return Ok(geo);
        }
        if groups == 1 {
            return too_small(config);
        }
        sb.blocks_count -= rest;
    }
}

fn too_small<T>(config: &Config) -> Result<T> {
    super::config::too_small(config.bytes(), config.block_size)
}

/// The share of blocks that only the super-user may take.
fn reserved_blocks(percent: f64, blocks: u64) -> u64 {
    ((percent * blocks as f64 / 100.0) as u64).min(blocks / 2)
}

/// Inodes per group: enough for what was asked, filling whole blocks, a multiple of 8. `None`: a
/// bitmap block cannot count so many; smaller groups may do.
fn inodes_per_group(sb: &Superblock, config: &Config, groups: u32) -> Result<Option<u32>> {
    let bs = config.block_size;
    let size = u32::from(config.inode_size);
    let per_block = bs / size;
    let wanted = config.inodes.max(u64::from(sb.first_ino) + 1);
    let fill = |n: u64| -> u64 {
        (n.div_ceil(u64::from(per_block)) * u64::from(per_block)).max(8) / 8 * 8
    };
    let mut per_group = wanted.div_ceil(u64::from(groups));
    if per_group > u64::from(bs * 8) {
        if sb.blocks_per_group < 256 {
            return refuse(format!("{} inodes are too many for the volume", config.inodes));
        }
        return Ok(None);
    }
    per_group = per_group.min(u64::from(65536 - per_block.max(8)));
    while fill(per_group) * u64::from(groups) > u64::from(u32::MAX) && per_group > 1 {
        per_group -= 1;
    }
    // Rounding to multiples of 8 may lose inodes; the reserved ones and lost+found must fit.
    if fill(per_group) * u64::from(groups) <= u64::from(sb.first_ino) {
        per_group = per_group.next_multiple_of(8);
    }
    match u32::try_from(fill(per_group)) {
        Ok(n) if n <= bs * 8 => Ok(Some(n)),
        _ => refuse(format!("{} inodes are too many for the volume", config.inodes)),
    }
}

/// Reserves descriptor blocks for growing, to 1024 times the size unless asked otherwise; goes over
/// to meta_bg if descriptors would fill most of a group.
fn reserve_descriptors(sb: &mut Superblock, config: &Config, groups: u32) {
    let bs = config.block_size;
    let per_block = u64::from(bs / u32::from(config.desc_size.max(32)));
    let desc_blocks = u64::from(groups).div_ceil(per_block);
    let mut reserved = 0;
    if sb.feature_compat.contains(Compat::RESIZE_INODE) {
        let limit = u64::from(u32::MAX);
        let most = if sb.blocks_count < limit / 1024 { sb.blocks_count * 1024 } else { limit };
        let most_groups =
            (most - u64::from(sb.first_data_block)).div_ceil(u64::from(sb.blocks_per_group));
        reserved =
            most_groups.div_ceil(per_block).saturating_sub(desc_blocks).min(u64::from(bs / 4));
    }
    if let Some(asked) = config.reserved_gdt.filter(|n| *n > 0) {
        reserved = u64::from(asked);
    }
    if reserved + desc_blocks > u64::from(sb.blocks_per_group) * 3 / 4 {
        sb.feature_incompat.insert(Incompat::META_BG);
        sb.feature_compat.remove(Compat::RESIZE_INODE);
        reserved = 0;
    }
    // At most a quarter of a block's bytes: fits.
    sb.reserved_gdt_blocks = reserved as u16;
}

/// Which groups hold copies of the superblock with sparse_super2: as many as `backup_bgs` has
/// numbers that are not 0.
fn place_backups(sb: &mut Superblock, groups: u32) {
    if !sb.feature_compat.contains(Compat::SPARSE_SUPER2) {
        return;
    }
    let last = groups - 1;
    let wanted = sb.backup_bgs.iter().filter(|g| **g != 0).count();
    let first = if wanted >= 1 { last.min(1) } else { 0 };
    let second = if wanted >= 2 && last != first { last } else { 0 };
    sb.backup_bgs = if second == 0 { [0, first] } else { [first, second] };
}
