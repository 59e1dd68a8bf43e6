//! With sparse_super2 the second copy of the superblock lies in the last group, as mke2fs and
//! resize2fs put it. It follows the end of a volume that nothing else uses.
//!
//! ```text
//!   larger    the step that adds the last group: the copy is written with the group, and its
//!             transaction names it and frees the old one
//!   smaller   the cut names one copy less; then the start of the last group is emptied
//!             ─► in place, in free blocks: superblock, descriptors, reserved blocks ─► flush
//!             ─► one transaction: they are in use, and superblock and resize inode name them
//! ```
//!
//! The copies that the superblock names are valid at any time. Nothing has to be finished after a
//! crash: the copy stays where it is, or there is one less, until the next resize. So it is, too,
//! where the start of the group holds metadata, or the old copy lies in front of some (meta_bg).
//!
//! Then the volume is closed, or opened again: what is in memory takes the new copy for blocks of
//! files, or the old one for metadata. So a volume that is in use keeps its copies where they are.

use extol_block::BlockNr;
use extol_ondisk::{Compat, Geometry, GroupNr, Superblock};
use extol_vfs::FsError;

use super::reserved::{self, Reserved};
use super::shrink::{clear, handle, settle};
use super::{ResizeError, backups, plan};
use crate::alloc::Run;
use crate::error;
use crate::fast_commit::{self, Delta, Reason};
use crate::mounted::MountedFs;

type Result<T> = std::result::Result<T, ResizeError>;

/// True if there is a second copy.
pub(super) fn has_one(geo: &Geometry) -> bool {
    geo.compat().contains(Compat::SPARSE_SUPER2) && geo.backup_bgs()[1] != 0
}

/// The same for a volume.
pub(crate) fn has_second_copy(fs: &MountedFs) -> bool {
    has_one(&fs.vol.geo)
}

/// The superblock of a volume that becomes larger names its new last group, if it may. `geo` is the
/// volume before.
pub(super) fn put_into_last(geo: &Geometry, after: &mut Superblock, last: GroupNr) -> Result<()> {
    let before = after.backup_bgs;
    if has_one(geo) && !before.contains(&last.0) {
        after.backup_bgs[1] = last.0;
        if plan::geometry(after)?.base_meta_blocks(GroupNr(before[1])) > 0 {
            // (Metadata that meta_bg places lies behind the old copy.)
            after.backup_bgs = before;
        }
    }
    Ok(())
}

/// The group whose copy becomes free on the way from one volume to the other, and its blocks.
pub(super) fn left(before: &Geometry, after: &Geometry) -> Option<(GroupNr, Run)> {
    let old = GroupNr(before.backup_bgs()[1]);
    let moves = has_one(before) && before.backup_bgs() != after.backup_bgs();
    moves.then(|| (old, start_of(before, old)))
}

/// Puts the second copy into the last group of a volume that has only the first one; true if it is
/// there now.
///
/// The caller keeps all other users of the volume out.
pub(crate) fn place_second_copy(fs: &MountedFs) -> Result<bool> {
    let geo = &fs.vol.geo;
    let [first, second] = geo.backup_bgs();
    let last = GroupNr(geo.groups() - 1);
    if second != 0 || last.0 < 2 || first == last.0 || geo.base_meta_blocks(last) > 0 {
        return Ok(false);
    }
    let mut after = fs.sb.read(Superblock::clone);
    after.backup_bgs[1] = last.0;
    let with = plan::geometry(&after)?;
    let reserved = Reserved::read(&fs.vol)?.filter(|_| geo.reserved_gdt() > 0);
    if reserved.is_some() && !reserved::has_room(&with, &[last]) {
        return Ok(false);
    }
    let Some(taken) = clear(fs, start_of(&with, last))? else { return Ok(false) };
    let done = place(fs, (&after, &with), last, reserved, &taken);
    if !matches!(done, Ok(true)) {
        // (If the transaction has begun, the journal has failed.)
        taken.iter().for_each(|run| fs.vol.alloc.give_back(*run));
    }
    settle(fs)?;
    done
}

/// Writes the copy into blocks that were taken, and names it. False: the log is too small.
fn place(
    fs: &MountedFs,
    (after, geo): (&Superblock, &Geometry),
    last: GroupNr,
    reserved: Option<Reserved>,
    taken: &[Run],
) -> Result<bool> {
    let lists = reserved.map_or(0, |_| geo.reserved_gdt());
    let credits = 1 + 2 + reserved::CREDITS + lists;
    if credits > fs.vol.journal.max_credits_alone() {
        return Ok(false);
    }
    write(fs, after, geo, last)?;
    let mut h = handle(fs, credits, "a copy of the superblock")?;
    fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::Resize });
    taken.iter().try_for_each(|run| fs.vol.alloc.commit_take(&mut h, *run))?;
    if let Some(reserved) = reserved {
        let before = fs.vol.geo.backup_groups().count();
        reserved.add_copies(&fs.vol, &mut h, geo, (before, &[last]))?;
    }
    fs.sb.update(&mut h, |sb| sb.backup_bgs = after.backup_bgs)?;
    fs.vol.alloc.flush_super(&mut h, &fs.sb)?;
    h.stop().map_err(error::journal)?;
    Ok(true)
}

/// Superblock copy, descriptors and reserved blocks.
fn start_of(geo: &Geometry, group: GroupNr) -> Run {
    Run { start: geo.group_first_block(group), len: geo.base_meta_blocks(group) }
}

/// Writes what a group with a copy begins with, durably.
fn write(
    fs: &MountedFs,
    sb: &Superblock,
    geo: &Geometry,
    group: GroupNr,
) -> std::result::Result<(), FsError> {
    let vol = &fs.vol;
    let size = vol.geo.block_size;
    let put =
        |to: BlockNr, bytes: &[u8]| vol.dev.write_at(bytes, to.offset(size)).map_err(error::device);
    let run = start_of(geo, group);
    vol.journal.forget_clean(run.start, run.len.into());
    let len = u64::from(run.len) << size.bits();
    vol.dev.zero_range(run.start.offset(size), len).map_err(error::device)?;
    put(run.start, &backups::superblock_copy(sb, geo, group))?;
    for copy in backups::desc_copies(geo, group) {
        let (primary, _) = geo.desc_block(GroupNr(copy.index * geo.descs_per_block()));
        put(copy.to, &vol.journal.read(primary).map_err(error::journal)?.data())?;
    }
    vol.dev.flush().map_err(error::device)
}
