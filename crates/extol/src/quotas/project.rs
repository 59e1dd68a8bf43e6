//! What statfs says of a directory whose project has a limit.

use extol_ondisk::InodeFlags;
use extol_ondisk::quota::LIMIT_UNIT;
use extol_vfs::{Result, StatFs};

use crate::mounted::MountedFs;

/// What a directory that hands down its project has of the volume: as much as limits of the project
/// leave, if they are enforced. The rules are those of Linux: the lower one of two limits counts,
/// whether it is soft or hard.
pub(crate) fn within_project(fs: &MountedFs, ino: u32, all: StatFs) -> Result<StatFs> {
    let Some(quotas) = fs.quotas.get() else { return Ok(all) };
    let raw = fs.cell(ino)?.read()?.node.raw.clone();
    if !raw.flags.contains(InodeFlags::PROJINHERIT) {
        return Ok(all);
    }
    let Some(entry) = quotas.enforced_project(&fs.vol, raw.projid)? else { return Ok(all) };
    let block = u64::from(all.block_size);
    let space = lower(entry.space_soft, entry.space_hard);
    let space = space.map(|limit| limit.saturating_mul(LIMIT_UNIT) / block);
    let (blocks, left) = share(space, entry.space / block);
    let (inodes, inodes_left) = share(lower(entry.inode_soft, entry.inode_hard), entry.inodes);
    Ok(StatFs {
        blocks: all.blocks.min(blocks),
        blocks_free: all.blocks_free.min(left),
        blocks_available: all.blocks_available.min(left),
        inodes: all.inodes.min(inodes),
        inodes_free: all.inodes_free.min(inodes_left),
        ..all
    })
}

/// The lower one of two limits; 0 is none.
fn lower(one: u64, other: u64) -> Option<u64> {
    [one, other].into_iter().filter(|limit| *limit != 0).min()
}

/// All that a limit allows, and what is left of it.
fn share(limit: Option<u64>, used: u64) -> (u64, u64) {
    match limit {
        Some(limit) if limit > 0 => (limit, limit.saturating_sub(used)),
        _ => (u64::MAX, u64::MAX),
    }
}
