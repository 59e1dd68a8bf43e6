//! Moves what belongs to the block groups that stay: bitmaps and inode tables behind the limit, and
//! the double indirect block of the resize inode.
//!
//! ```text
//!   table    take blocks ─► copied through the log ─► transaction: taken, descriptor,
//!                           (they are free still)      old ones freed
//!   bitmap   take a block ─► the same transaction, with the copy
//! ```
//!
//! An inode table may be too large for one transaction. Its copy goes through the log in pieces,
//! into blocks that are free on disk: a crash in between leaves free blocks with some bytes in
//! them.

use extol_block::BlockNr;
use extol_ondisk::{GroupFlags, GroupNr, InodeFlags, InodeNr};
use extol_vfs::FsError;

use super::super::relocate::is_quota_file;
use super::super::reserved::{self, Reserved};
use super::super::{ResizeError, refuse};
use super::map::{behind, take};
use super::mover::settle;
use crate::alloc::{Allocator, Borders, Fixed, Run};
use crate::error;
use crate::map;
use crate::mounted::MountedFs;
use crate::node::Node;

type Result<T> = std::result::Result<T, ResizeError>;

/// Most blocks of a table that one handle copies.
const PIECE: u32 = 64;

/// Refuses if an inode that nothing moves has blocks at or behind the limit: the journal, or what
/// else has a reserved number.
pub(super) fn check_reserved_inodes(fs: &MountedFs, limit: BlockNr) -> Result<()> {
    let vol = &fs.vol;
    let journal = InodeNr(fs.sb.read(|sb| sb.journal_inum));
    let orphans = fs.orphans.file_inode().map_or(0, |ino| ino.0);
    for ino in (1..vol.geo.first_ino.0).map(InodeNr) {
        let moves = [InodeNr::ROOT, InodeNr::RESIZE, InodeNr(orphans), journal].contains(&ino);
        if moves || is_quota_file(fs, ino) || !vol.alloc.is_inode_used(ino)? {
            continue;
        }
        let node = Node { ino, raw: vol.read_inode(ino)? };
        let unused = node.raw.links == 0 && node.raw.blocks == 0;
        // (The list of bad blocks has no kind.)
        if unused || !node.raw.maps_blocks() && ino != InodeNr::BAD_BLOCKS {
            continue;
        }
        let map_blocks = node.raw.i_block.as_chunks::<4>().0.iter().skip(12);
        let mut map_blocks = map_blocks.map(|word| u64::from(u32::from_le_bytes(*word)));
        let by_blocks = !node.raw.flags.contains(InodeFlags::EXTENTS);
        let mut found = by_blocks && map_blocks.any(|nr| nr >= limit.0);
        map::iterate(vol, &node, 0, u32::MAX, &mut |run| {
            found |= behind(run, limit).is_some();
            !found
        })?;
        if found && ino == InodeNr::BAD_BLOCKS {
            let what = "the list of bad blocks (inode 1) names blocks that cannot be";
            return Err(ResizeError::NoRoom { what, blocks: limit.0 });
        }
        if found {
            return refuse(format!(
                "the reserved inode {} has blocks behind block {}: take a larger size",
                ino.0, limit.0
            ));
        }
    }
    Ok(())
}

/// Refuses if a group from this one on has inodes in use, though all that have numbers there have
/// moved: its descriptor counts others than its bitmap.
pub(super) fn check_inodes_moved(fs: &MountedFs, groups: u32) -> Result<()> {
    match fs.vol.alloc.groups_with_inodes(groups)?.first() {
        None => Ok(()),
        Some(nr) => refuse(format!(
            "block group {} counts inodes in use that its bitmap has not: run e2fsck -f and try \
             again",
            nr.0
        )),
    }
}

/// Moves bitmaps and inode tables of the first `groups` groups in front of the limit.
pub(super) fn move_tables(fs: &MountedFs, limit: BlockNr, groups: u32) -> Result<()> {
    let (alloc, geo) = (&fs.vol.alloc, &fs.vol.geo);
    let mut moved = false;
    let mut borders = Borders::of(alloc, geo, 0..geo.groups())?;
    // Tables first: they need a run of free blocks.
    for what in Fixed::ALL {
        for nr in (0..groups).map(GroupNr) {
            let run = what.run(geo, &alloc.group_desc(nr)?);
            if run.end() > limit {
                move_one(fs, limit, nr, what, &mut borders)?;
                moved = true;
            }
        }
    }
    // The descriptors are in place from now on.
    if moved { Ok(settle(fs)?) } else { Ok(()) }
}

fn move_one(
    fs: &MountedFs,
    limit: BlockNr,
    nr: GroupNr,
    what: Fixed,
    borders: &mut Borders,
) -> Result<()> {
    let (alloc, geo) = (&fs.vol.alloc, &fs.vol.geo);
    let desc = alloc.group_desc(nr)?;
    let old = what.run(geo, &desc);
    let to = match take(fs, geo.group_first_block(nr), old.len, old.len) {
        Err(FsError::NoSpace) => {
            let what = "an inode table finds no room (it takes neighbouring blocks)";
            return Err(ResizeError::NoRoom { what, blocks: limit.0 });
        }
        to => to?,
    };
    if geo.groups_per_flex() == 1 && geo.group_of_block(to.start) != nr {
        alloc.give_back(to);
        return refuse(format!("block group {} has no room for its own metadata", nr.0));
    }
    let done = match what {
        Fixed::InodeTable => {
            let zeroed = desc.flags.contains(GroupFlags::INODE_ZEROED);
            let used = what.used(geo, &desc);
            copy(fs, old, to, (used, zeroed || !geo.has_gdt_csum()))
        }
        Fixed::BlockBitmap | Fixed::InodeBitmap => Ok(()),
    };
    let done = done.and_then(|()| {
        let credits = Allocator::MOVE_FIXED_CREDITS;
        let left = borders.left(geo, old, 1);
        fs.transact(credits, |h| alloc.move_fixed(h, nr, what, (left, to)))
    });
    borders.remove(geo, old);
    borders.add(geo, to);
    if done.is_err() {
        // (If the transaction has begun, the journal has failed.)
        alloc.give_back(to);
    }
    Ok(done?)
}

/// Copies the blocks of a table that are in use; `zero`: the others are to be zeros.
fn copy(
    fs: &MountedFs,
    old: Run,
    to: Run,
    (used, zero): (u32, bool),
) -> std::result::Result<(), FsError> {
    let journal = &fs.vol.journal;
    let blocks: Vec<_> = (0..if zero { old.len } else { used }).collect();
    for some in blocks.chunks(journal.max_credits().clamp(1, PIECE) as usize) {
        fs.transact(some.len() as u32, |h| {
            for at in some.iter().map(|at| u64::from(*at)) {
                let data = match at < u64::from(used) {
                    true => Some(journal.read(old.start.plus(at)).map_err(error::journal)?.data()),
                    false => None,
                };
                let new = h.create(to.start.plus(at)).map_err(error::journal)?;
                h.modify(&new, |bytes| match &data {
                    Some(data) => bytes.copy_from_slice(data),
                    None => bytes.fill(0),
                })
                .map_err(error::journal)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Moves the double indirect block of the resize inode.
pub(super) fn move_root(fs: &MountedFs, reserved: Reserved) -> Result<Option<Reserved>> {
    let to = take(fs, BlockNr(fs.vol.geo.first_data_block), 1, 1)?;
    fs.transact(reserved::CREDITS + 4, |h| reserved.move_root(&fs.vol, h, to))?;
    Reserved::read(&fs.vol)
}
