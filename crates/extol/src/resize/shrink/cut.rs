//! The transaction that cuts the end off.
//!
//! It changes the superblock, the resize inode, and in groups that stay the bitmaps and descriptors
//! of what the others had there. Nothing behind the new end is written, now or later; what is there
//! stays as it is.
//!
//! Everything is in place before, and the superblock goes home first
//! (`Journal::set_home_first`, and recovery does the same): descriptors that stay name nothing
//! behind the new end, before and after the cut. A block of descriptors that go may be used
//! otherwise by the same transaction (for the map of the resize inode), which a superblock of the
//! old size must not find: e2fsck would take the copies of both instead, without a replay.

use extol_block::BlockNr;
use extol_jbd2::planted;
use extol_ondisk::GroupNr;

use super::super::plan::{self, smaller::Smaller};
use super::super::reserved::{self, Reserved};
use super::super::{ResizeError, refuse};
use super::fixed::check_inodes_moved;
use super::mover::{handle, settle};
use crate::alloc::{Cut, Fixed};
use crate::error;
use crate::fast_commit::{self, Delta, Reason};
use crate::mounted::MountedFs;
use crate::volume::Volume;

/// Cuts the volume. Nothing is left behind its new end, or this is refused.
pub(super) fn cut(
    fs: &MountedFs,
    plan: &Smaller,
    reserved: Option<Reserved>,
) -> Result<(), ResizeError> {
    settle(fs)?;
    check_empty(fs, plan)?;
    let vol = &fs.vol;
    let cut = Cut::plan(&vol.alloc, &plan.geo)?;
    let credits = credits(fs, plan, reserved, &cut);
    let mut h = handle(fs, credits, "cutting the end off")?;
    vol.journal.set_home_first(Some(vol.geo.super_block().0));
    fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::Resize });
    if let Some(reserved) = reserved {
        reserved.cut(vol, &mut h, (&vol.geo, &plan.geo))?;
    }
    let (free, inodes) = cut.apply(&vol.alloc, &mut h)?;
    fs.sb.update(&mut h, |sb| {
        plan::apply(sb, &plan.sb);
        sb.free_blocks_count = vol.geo.cluster_blocks(free);
        sb.free_inodes_count = u32::try_from(inodes).unwrap_or(u32::MAX);
    })?;
    vol.alloc.keep_for_root(plan.sb.r_blocks_count);
    h.stop().map_err(error::journal)?;
    if planted::has(planted::Bug::DeviceCutEarly) {
        let bytes = plan.geo.blocks() << vol.geo.block_size.bits();
        vol.dev.set_size(bytes).map_err(error::device)?;
    }
    vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
    vol.journal.set_home_first(None);
    Ok(())
}

/// What the transaction costs.
fn credits(fs: &MountedFs, plan: &Smaller, reserved: Option<Reserved>, cut: &Cut) -> u32 {
    let lists = reserved.map_or(0, |_| Reserved::lists_cut(&fs.vol.geo, &plan.geo));
    1 + reserved::CREDITS + lists + cut.credits()
}

/// The most that any cut costs.
pub(super) fn most_credits(vol: &Volume) -> Result<u32, ResizeError> {
    let geo = &vol.geo;
    let lists = Reserved::read(vol)?.map_or(0, |_| geo.desc_blocks() + geo.reserved_gdt());
    Ok((1 + reserved::CREDITS + lists).saturating_add(geo.groups().saturating_mul(2)))
}

/// What the cut will cost, before anything has moved.
pub(super) fn expected_credits(
    fs: &MountedFs,
    plan: &Smaller,
    reserved: Option<Reserved>,
) -> Result<u32, ResizeError> {
    Ok(credits(fs, plan, reserved, &Cut::plan(&fs.vol.alloc, &plan.geo)?))
}

/// Nothing in use is behind the new end, and groups that stay have nothing there.
fn check_empty(fs: &MountedFs, plan: &Smaller) -> Result<(), ResizeError> {
    let (alloc, geo) = (&fs.vol.alloc, &fs.vol.geo);
    let limit = BlockNr(plan.geo.blocks());
    if let Some(block) = alloc.in_use_behind(limit)? {
        return refuse(format!(
            "block {} is in use and no file has it: run e2fsck and try again",
            block.0
        ));
    }
    for nr in (0..plan.geo.groups()).map(GroupNr) {
        let desc = alloc.group_desc(nr)?;
        if Fixed::ALL.iter().any(|what| what.run(geo, &desc).end() > limit) {
            return refuse(format!("metadata of block group {} lies behind the new end", nr.0));
        }
    }
    check_inodes_moved(fs, plan.geo.groups())
}
