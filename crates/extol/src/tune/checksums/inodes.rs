//! All inodes: looking at them, and their checksums.

use extol_block::BlockNr;
use extol_ondisk::{Geometry, GroupNr, Inode, InodeNr};
use extol_vfs::Result;

use super::{broken, step, used_slots};
use crate::error;
use crate::inline;
use crate::mounted::MountedFs;
use crate::node::Node;

/// Bytes of an inode where its number of links is.
const LINKS: std::ops::Range<usize> = 0x1A..0x1C;
/// Blocks of inodes in one transaction.
const STEP: u64 = 64;

/// Calls `f` for each inode that has a name, or is one of the volume's own.
pub(super) fn each(fs: &MountedFs, f: &mut dyn FnMut(Node) -> Result<()>) -> Result<()> {
    let first = fs.vol.geo.first_ino.0;
    for nr in (0..fs.vol.geo.groups()).map(GroupNr) {
        for ino in used_slots(fs, nr)?.map(InodeNr) {
            match fs.vol.read_inode(ino) {
                Ok(raw) if raw.links > 0 || ino.0 < first => f(Node { ino, raw })?,
                Ok(_) => {}
                Err(error) if has_links(fs, ino)? => return Err(error),
                Err(_) => {}
            }
        }
    }
    Ok(())
}

fn has_links(fs: &MountedFs, ino: InodeNr) -> Result<bool> {
    let (buf, at) = fs.vol.inode_buf(ino)?;
    let links = at + LINKS.start..at + LINKS.end;
    Ok(buf.data().get(links).is_none_or(|links| links != [0, 0]))
}

/// The same for directories with blocks.
pub(super) fn each_directory(fs: &MountedFs, f: &mut dyn FnMut(&Node) -> Result<()>) -> Result<()> {
    each(fs, &mut |node| match node.raw.is_dir() && !inline::is_inline(&node) {
        true => f(&node),
        false => Ok(()),
    })
}

/// Gives all inodes their checksums. What cannot be an inode and is none is zeros from now on,
/// which have none.
pub(super) fn write(fs: &MountedFs, new: &Geometry) -> Result<()> {
    let geo = &fs.vol.geo;
    let per_block = geo.inodes_per_block();
    for nr in (0..geo.groups()).map(GroupNr) {
        let slots = used_slots(fs, nr)?;
        let table = fs.vol.alloc.inode_table(nr)?;
        let blocks = u64::from((slots.end - slots.start).div_ceil(per_block));
        let mut at = 0;
        while at < blocks {
            let end = blocks.min(at + STEP);
            step(fs, STEP as u32, |h| {
                for index in at..end {
                    let first = slots.start + index as u32 * per_block;
                    write_block(fs, h, table.plus(index), first, new)?;
                }
                Ok(())
            })?;
            at = end;
        }
    }
    Ok(())
}

fn write_block(
    fs: &MountedFs,
    h: &mut extol_jbd2::Handle,
    block: BlockNr,
    first: u32,
    new: &Geometry,
) -> Result<()> {
    let geo = &fs.vol.geo;
    let buf = fs.vol.journal.read(block).map_err(error::journal)?;
    if buf.data().iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    h.modify(&buf, |bytes| {
        for (slot, ino) in
            bytes.chunks_exact_mut(usize::from(geo.inode_size)).zip((first..).map(InodeNr))
        {
            if slot.iter().all(|byte| *byte == 0) {
                continue;
            }
            match Inode::decode(slot, ino, geo) {
                Ok(inode) => inode.encode_into(slot, ino, new),
                Err(_) if slot.get(LINKS).is_some_and(|links| links == [0, 0]) => slot.fill(0),
                Err(_) => return Err(broken(ino)),
            }
        }
        Ok(())
    })
    .map_err(error::journal)?
}
