//! The next step of growing, from the superblock alone.

pub(super) mod groups;
pub(super) mod smaller;

use extol_ondisk::{Compat, Geometry, GroupNr, Incompat, Superblock};

use super::{ResizeError, refuse, second_copy};
use groups::NewGroup;

/// A last group with fewer blocks left for files than this is not made.
const MIN_LAST_GROUP: u64 = 50;
/// Blocks that 48 bits of an extent can name.
const MOST_BLOCKS: u64 = 1 << 48;

/// A step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The last group gets so many more blocks.
    LastGroup(u32),
    /// Descriptor blocks are placed by meta_bg from the next one on; the resize inode goes.
    ToMetaBg,
    /// These groups are added.
    Groups {
        groups: Vec<NewGroup>,
        /// Their descriptors come into a block that the resize inode has reserved.
        takes_reserved: bool,
    },
}

/// A step, and the volume behind it.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub step: Step,
    /// The numbers of the layout as they are behind the step; other fields are of no matter.
    pub sb: Superblock,
    pub geo: Geometry,
}

/// How many of the blocks are kept for root, whatever the size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    reserved: u64,
    of: u64,
}

impl Share {
    pub fn of(sb: &Superblock) -> Self {
        Self { reserved: sb.r_blocks_count, of: sb.blocks_count.max(1) }
    }

    fn at(self, blocks: u64) -> u64 {
        let kept = u128::from(self.reserved) * u128::from(blocks) / u128::from(self.of);
        u64::try_from(kept).unwrap_or(u64::MAX).min(blocks / 2)
    }
}

/// How many blocks are kept for root in a volume of so many, if their share stays.
pub(super) fn kept_for_root(sb: &Superblock, blocks: u64) -> u64 {
    Share::of(sb).at(blocks)
}

pub(super) fn geometry(sb: &Superblock) -> Result<Geometry, ResizeError> {
    Geometry::new(sb, None).or_else(|e| refuse(format!("a volume of that size is impossible: {e}")))
}

/// The most blocks that the volume can have.
pub(super) fn most(sb: &Superblock, geo: &Geometry) -> u64 {
    let wide = geo.incompat().contains(Incompat::BIT64);
    let by_number = if wide { MOST_BLOCKS } else { u64::from(u32::MAX) };
    let groups = u32::MAX / geo.inodes_per_group;
    // The superblock of revision 0 has no room for the feature that places more descriptors.
    let groups = if sb.rev_level == 0 {
        geo.desc_blocks().saturating_add(geo.reserved_gdt()).saturating_mul(geo.descs_per_block())
    } else {
        groups
    };
    let by_groups = u64::from(groups).saturating_mul(u64::from(geo.blocks_per_group));
    by_number.min(geo.first_data_block.saturating_add(by_groups))
}

/// The size to aim at: `wish`, without a last group that is not worth its metadata.
pub(super) fn worthwhile(geo: &Geometry, wish: u64) -> u64 {
    let wish = wish / u64::from(geo.cluster_ratio) * u64::from(geo.cluster_ratio);
    let in_groups = wish.saturating_sub(geo.first_data_block);
    let (groups, rest) =
        (in_groups / u64::from(geo.blocks_per_group), in_groups % u64::from(geo.blocks_per_group));
    let Ok(last) = u32::try_from(groups).map(GroupNr) else { return wish };
    if rest == 0 || last.0 < geo.groups() {
        return wish;
    }
    let descs = geo.descs();
    let has_copy = geo.has_super(last) || second_copy::has_one(geo);
    let copies = if has_copy { 1 + descs.first_meta_bg + descs.reserved } else { 0 };
    let needed = u64::from(copies) + 3 + u64::from(geo.inode_table_blocks) + MIN_LAST_GROUP;
    if rest < needed { wish - rest } else { wish }
}

/// The next step towards `target`; `None`: the volume is as large. `moves_copy`: the second copy of
/// the superblock (sparse_super2) may move into the last group.
pub(super) fn next(
    sb: &Superblock,
    share: Share,
    moves_copy: bool,
    target: u64,
) -> Result<Option<Planned>, ResizeError> {
    let geo = geometry(sb)?;
    if geo.blocks() >= target {
        return Ok(None);
    }
    let mut after = sb.clone();
    let full = geo.group_first_block(GroupNr(geo.groups())).0;
    let step = if geo.blocks() < full {
        after.blocks_count = full.min(target);
        // Less than a group.
        Step::LastGroup((after.blocks_count - geo.blocks()) as u32)
    } else {
        match descriptors(&geo)? {
            Descriptors::ToMetaBg => {
                after.feature_compat.remove(Compat::RESIZE_INODE);
                after.feature_incompat.insert(Incompat::META_BG);
                after.first_meta_bg = geo.desc_blocks();
                return Ok(Some(Planned {
                    step: Step::ToMetaBg,
                    geo: geometry(&after)?,
                    sb: after,
                }));
            }
            Descriptors::Here => add_groups(&geo, &mut after, target, (false, moves_copy))?,
            Descriptors::Reserved => add_groups(&geo, &mut after, target, (true, moves_copy))?,
        }
    };
    after.r_blocks_count = share.at(after.blocks_count);
    Ok(Some(Planned { step, geo: geometry(&after)?, sb: after }))
}

/// Where the next descriptor finds room.
enum Descriptors {
    /// In a block that has some, or in one that meta_bg places among the new groups.
    Here,
    /// In a block that is reserved.
    Reserved,
    /// Nowhere, unless meta_bg places it.
    ToMetaBg,
}

fn descriptors(geo: &Geometry) -> Result<Descriptors, ResizeError> {
    let begins_a_block = geo.groups().is_multiple_of(geo.descs_per_block());
    if !begins_a_block || geo.incompat().contains(Incompat::META_BG) {
        return Ok(Descriptors::Here);
    }
    match (geo.reserved_gdt(), geo.compat().contains(Compat::RESIZE_INODE)) {
        (0, _) => Ok(Descriptors::ToMetaBg),
        (_, true) => Ok(Descriptors::Reserved),
        (_, false) => refuse(
            "blocks are reserved for descriptors, but there is no resize inode: \
             run e2fsck",
        ),
    }
}

/// Groups up to the target, the end of a flexible group, or that of a descriptor block. `after`
/// becomes the superblock with them.
fn add_groups(
    geo: &Geometry,
    after: &mut Superblock,
    target: u64,
    (takes_reserved, moves_copy): (bool, bool),
) -> Result<Step, ResizeError> {
    let first = geo.groups();
    let per = u64::from(geo.blocks_per_group);
    let wished = (target - geo.first_data_block).div_ceil(per);
    let block_end = u64::from((first / geo.descs_per_block() + 1) * geo.descs_per_block());
    let flex = u64::from(geo.groups_per_flex());
    let flex_end = (u64::from(first) / flex + 1) * flex;
    // At most the end of a descriptor block.
    let end = wished.min(block_end).min(flex_end) as u32;
    after.blocks_count = geo.group_first_block(GroupNr(end)).0.min(target);
    let inodes = end.checked_mul(geo.inodes_per_group);
    after.inodes_count = inodes.ok_or(ResizeError::TooLarge { most: most(after, geo) })?;
    if takes_reserved {
        after.reserved_gdt_blocks -= 1;
    }
    if moves_copy && u64::from(end) == wished {
        second_copy::put_into_last(geo, after, GroupNr(end - 1))?;
    }
    let larger = geometry(after)?;
    let groups = groups::lay_out(&larger, first..end)?;
    if after.overhead_clusters != 0 {
        let fixed: u32 = groups.iter().map(|group| group.used_clusters(&larger)).sum();
        let left = second_copy::left(geo, &larger).map_or(0, |(_, run)| run.len);
        after.overhead_clusters =
            after.overhead_clusters.saturating_add(fixed).saturating_sub(left);
    }
    Ok(Step::Groups { groups, takes_reserved })
}

/// Takes over what a step changes in the superblock.
pub(super) fn apply(sb: &mut Superblock, planned: &Superblock) {
    sb.blocks_count = planned.blocks_count;
    sb.inodes_count = planned.inodes_count;
    sb.r_blocks_count = planned.r_blocks_count;
    sb.overhead_clusters = planned.overhead_clusters;
    sb.reserved_gdt_blocks = planned.reserved_gdt_blocks;
    sb.first_meta_bg = planned.first_meta_bg;
    sb.backup_bgs = planned.backup_bgs;
    sb.feature_compat
        .set(Compat::RESIZE_INODE, planned.feature_compat.contains(Compat::RESIZE_INODE));
    sb.feature_incompat
        .set(Incompat::META_BG, planned.feature_incompat.contains(Incompat::META_BG));
}
