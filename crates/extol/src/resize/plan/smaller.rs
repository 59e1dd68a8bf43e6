//! A smaller volume, from the superblock alone: its numbers, and how small it can be at least.

use extol_ondisk::{Compat, Geometry, GroupNr, Incompat, Superblock};

use super::super::{ResizeError, refuse};
use super::{MIN_LAST_GROUP, Share, geometry};

/// The volume with so many blocks.
#[derive(Clone, Debug)]
pub(in crate::resize) struct Smaller {
    /// The numbers of the layout; other fields are of no matter.
    pub sb: Superblock,
    pub geo: Geometry,
}

/// The size to aim at: `wish`, without a last group that has fewer blocks than make sense.
pub(in crate::resize) fn worthwhile(geo: &Geometry, wish: u64) -> u64 {
    let wish = wish / u64::from(geo.cluster_ratio) * u64::from(geo.cluster_ratio);
    let per = u64::from(geo.blocks_per_group);
    let in_groups = wish.saturating_sub(geo.first_data_block);
    let (groups, rest) = (in_groups / per, in_groups % per);
    let Ok(last) = u32::try_from(groups).map(GroupNr) else { return wish };
    let needed = u64::from(geo.base_meta_blocks(last) + 2 + geo.inode_table_blocks);
    if rest > 0 && rest < needed + MIN_LAST_GROUP { wish - rest } else { wish }
}

/// The volume with `blocks` blocks, fewer than it has.
pub(in crate::resize) fn smaller(
    sb: &Superblock,
    geo: &Geometry,
    blocks: u64,
) -> Result<Smaller, ResizeError> {
    let share = Share::of(sb);
    let mut after = sb.clone();
    after.blocks_count = blocks;
    after.r_blocks_count = share.at(blocks);
    let groups = blocks.saturating_sub(geo.first_data_block).div_ceil(geo.blocks_per_group.into());
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    if groups == 0 {
        return refuse("a volume has one block group at least");
    }
    after.inodes_count = groups.saturating_mul(geo.inodes_per_group);
    let descs = groups.div_ceil(geo.descs_per_block());
    if geo.incompat().contains(Incompat::META_BG) {
        after.first_meta_bg = geo.first_meta_bg().min(descs);
    } else if geo.compat().contains(Compat::RESIZE_INODE) {
        let reserved = geo.reserved_gdt() + geo.desc_blocks().saturating_sub(descs);
        let most = geo.block_size.bytes() / 4;
        after.reserved_gdt_blocks = u16::try_from(reserved.min(most)).unwrap_or(u16::MAX);
    }
    if geo.compat().contains(Compat::SPARSE_SUPER2) {
        for group in &mut after.backup_bgs {
            *group = if *group < groups { *group } else { 0 };
        }
    }
    // The journal may become shorter, too: Linux counts by itself, as behind resize2fs.
    after.overhead_clusters = 0;
    let smaller = geometry(&after)?;
    Ok(Smaller { sb: after, geo: smaller })
}

/// Blocks that never hold files: superblock copies, descriptors, bitmaps, inode tables.
pub(in crate::resize) fn overhead(geo: &Geometry) -> u64 {
    let fixed = 2 + u64::from(geo.inode_table_blocks);
    let of = |nr| fixed + u64::from(geo.base_meta_blocks(GroupNr(nr)));
    (0..geo.groups()).map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_ondisk::RoCompat;

    fn volume(blocks: u64) -> (Superblock, Geometry) {
        let groups = u32::try_from((blocks - 1).div_ceil(8192)).unwrap();
        let sb = Superblock {
            rev_level: 1,
            first_data_block: 1,
            blocks_per_group: 8192,
            inodes_per_group: 64,
            inodes_count: groups * 64,
            inode_size: 256,
            first_ino: 11,
            blocks_count: blocks,
            r_blocks_count: blocks / 20,
            reserved_gdt_blocks: 10,
            feature_compat: Compat::RESIZE_INODE,
            feature_ro_compat: RoCompat::SPARSE_SUPER,
            ..Superblock::new_empty()
        };
        let geo = geometry(&sb).unwrap();
        (sb, geo)
    }

    #[test]
    fn descriptor_blocks_become_reserved_ones() {
        // 32 descriptors of 32 bytes fit into a block.
        let (sb, geo) = volume(70 * 8192 + 1);
        assert_eq!(geo.desc_blocks(), 3);
        let small = smaller(&sb, &geo, 30 * 8192 + 1).unwrap();
        assert_eq!((small.geo.desc_blocks(), small.geo.reserved_gdt()), (1, 12));
        assert_eq!(small.geo.base_meta_blocks(GroupNr(3)), geo.base_meta_blocks(GroupNr(3)));
        assert_eq!(small.sb.r_blocks_count, (30 * 8192 + 1) * sb.r_blocks_count / sb.blocks_count);
        // There are no more than a quarter of what a block can name.
        let full = Superblock { reserved_gdt_blocks: 255, ..sb };
        let small = smaller(&full, &geometry(&full).unwrap(), 8193).unwrap();
        assert_eq!(small.geo.reserved_gdt(), 256);
    }

    #[test]
    fn a_last_group_that_makes_no_sense() {
        let (_, geo) = volume(70 * 8192 + 1);
        let group = 12 * 8192 + 1;
        let needed = 2 + u64::from(geo.inode_table_blocks) + 50;
        assert_eq!(worthwhile(&geo, group + needed), group + needed);
        assert_eq!(worthwhile(&geo, group + needed - 1), group);
        assert_eq!(worthwhile(&geo, group), group);
    }
}
