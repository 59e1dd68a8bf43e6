//! What fast commits need to know of the volume: which blocks e2fsck writes back, and where names
//! of deleted files are left.

use std::ops::Range;

use extol_block::BlockNr;
use extol_ondisk::{Geometry, GroupNr, InodeFlags, InodeNr, Superblock};
use extol_vfs::Result;

use crate::alloc::Allocator;
use crate::dir;
use crate::fast_commit::placeholder::{self, PlaceholderDir};
use crate::mounted::MountedFs;

/// What e2fsck reads before it replays the log, and writes back after the fast commits
/// ([`extol_jbd2::Journal::set_patched_blocks`]): the superblock, the group descriptors, and the
/// block of the inode table that holds the journal's inode (none if the journal has a device of its
/// own).
pub(crate) fn patched_blocks(
    geo: &Geometry,
    sb: &Superblock,
    alloc: &Allocator,
) -> Result<Vec<Range<BlockNr>>> {
    let superblock = BlockNr(1024 / u64::from(geo.block_size.bytes()));
    let mut ranges = vec![superblock..superblock.plus(1)];
    for first in (0..geo.groups()).step_by(geo.descs_per_block() as usize) {
        let (block, _) = geo.desc_block(GroupNr(first));
        match ranges.last_mut() {
            Some(last) if last.end == block => last.end = block.plus(1),
            _ => ranges.push(block..block.plus(1)),
        }
    }
    if sb.journal_inum != 0 {
        let (group, index) = geo.group_of_inode(InodeNr(sb.journal_inum));
        let block = alloc.inode_table(group)?.plus(u64::from(index / geo.inodes_per_block()));
        ranges.push(block..block.plus(1));
    }
    Ok(ranges)
}

/// Where fast commits leave a name of files that are deleted: `lost+found`, if it is an ordinary
/// directory with room.
pub(crate) fn placeholder_dir(fs: &MountedFs) -> Result<Option<PlaceholderDir>> {
    let found = {
        let root = fs.cell(InodeNr::ROOT.0)?;
        let root = root.read()?;
        dir::lookup(&fs.vol, &root.node, b"lost+found")?
    };
    let Some((ino, _)) =
        found.filter(|(ino, _)| *ino >= fs.vol.geo.first_ino && !fs.is_internal(ino.0))
    else {
        return Ok(None);
    };
    let cell = fs.cell(ino.0)?;
    let dir = cell.read()?;
    let odd = InodeFlags::ENCRYPT | InodeFlags::CASEFOLD | InodeFlags::IMMUTABLE;
    if !dir.is_dir() || dir.node.raw.links == 0 || dir.node.raw.flags.intersects(odd) {
        return Ok(None);
    }
    let places = dir::places(&fs.vol, &dir.node, placeholder::NAME_LEN, b'#')?;
    Ok(places.filter(|places| *places > 0).map(|places| PlaceholderDir { dir: ino.0, places }))
}
