//! Copies of the superblock and of descriptors in other groups.
//!
//! They are read only if the primary ones are lost. Each superblock copy says which group it lies
//! in, and none claims to be of a volume that was closed cleanly.

use extol_block::BlockNr;
use extol_jbd2::Handle;
use extol_ondisk::superblock::State;
use extol_ondisk::{Geometry, GroupNr, Incompat, RoCompat, Superblock};
use extol_vfs::Result;

use crate::error;
use crate::mounted::MountedFs;

/// A copy to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DescCopy {
    /// The descriptor block: its place in the table.
    pub index: u32,
    pub to: BlockNr,
}

/// The superblock as a copy in `group` holds it, a whole block.
pub(super) fn superblock_copy(sb: &Superblock, geo: &Geometry, group: GroupNr) -> Vec<u8> {
    let mut copy = sb.clone();
    // The field has 16 bits.
    copy.block_group_nr = u16::try_from(group.0).unwrap_or(u16::MAX);
    copy.state.remove(State::VALID);
    copy.feature_incompat.remove(Incompat::NEEDS_RECOVERY);
    copy.feature_ro_compat.remove(RoCompat::ORPHAN_PRESENT);
    let mut block = vec![0; geo.block_len()];
    let bytes = copy.encode();
    if let Some(place) = block.get_mut(..bytes.len()) {
        place.copy_from_slice(&bytes);
    }
    block
}

/// The descriptor blocks at the start of a group, beside the primary ones.
pub(super) fn desc_copies(geo: &Geometry, group: GroupNr) -> impl Iterator<Item = DescCopy> + '_ {
    let per = geo.descs_per_block();
    let own = group.0 / per;
    let by_meta_bg = own >= geo.first_meta_bg();
    let first = geo.group_first_block(group).plus(u64::from(geo.has_super(group)));
    let count = geo.group_desc_blocks(group);
    (0..count).filter_map(move |at| {
        let index = if by_meta_bg { own } else { at };
        let to = first.plus(u64::from(at));
        let is_primary = geo.desc_block(GroupNr(index * per)).0 == to;
        (!is_primary).then_some(DescCopy { index, to })
    })
}

/// Brings all copies up to date: superblocks, and descriptor blocks from `changed` on.
pub(crate) fn update(fs: &MountedFs, changed: u32) -> Result<()> {
    let geo = &fs.vol.geo;
    for group in (1..geo.groups()).map(GroupNr) {
        let has_super = geo.has_super(group);
        let copies: Vec<_> = desc_copies(geo, group).filter(|copy| copy.index >= changed).collect();
        if !has_super && copies.is_empty() {
            continue;
        }
        if has_super {
            fs.transact(1, |h| {
                let sb = fs.sb.read(Superblock::clone);
                put(h, geo.group_first_block(group), &superblock_copy(&sb, geo, group))
            })?;
        }
        for some in copies.chunks(fs.vol.journal.max_credits().clamp(1, 64) as usize) {
            fs.transact(some.len() as u32, |h| {
                some.iter().try_for_each(|copy| {
                    let (primary, _) = geo.desc_block(GroupNr(copy.index * geo.descs_per_block()));
                    let bytes = fs.vol.journal.read(primary).map_err(error::journal)?.data();
                    put(h, copy.to, &bytes)
                })
            })?;
        }
    }
    Ok(())
}

/// True if the last copy of the superblock, which follows last, is of a larger volume: a crash has
/// interrupted what comes behind a cut.
pub(crate) fn has_old(fs: &MountedFs) -> Result<bool> {
    let geo = &fs.vol.geo;
    let Some(last) = (1..geo.groups()).rev().map(GroupNr).find(|group| geo.has_super(*group))
    else {
        return Ok(false);
    };
    let block = fs.vol.journal.read(geo.group_first_block(last)).map_err(error::journal)?;
    Ok(Superblock::decode(&block.data()).is_ok_and(|copy| copy.blocks_count > geo.blocks()))
}

/// Replaces a whole block.
fn put(h: &mut Handle, block: BlockNr, bytes: &[u8]) -> Result<()> {
    let buf = h.create(block).map_err(error::journal)?;
    h.modify(&buf, |to| to.copy_from_slice(bytes)).map_err(error::journal)
}
