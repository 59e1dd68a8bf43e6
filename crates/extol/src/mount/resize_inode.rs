//! A look at the resize inode before a volume is written.
//!
//! The resize inode keeps blocks behind the descriptors for more of them. No bit of a bitmap
//! protects other blocks that a damaged map of it names: a file would get them, and the next
//! growing would write descriptors there. `e2fsck -n` passes over such a map, so a mount looks
//! itself, at what costs two reads: the inode, and the block that names the reserved ones.

use extol_block::BlockNr;
use extol_ondisk::{InodeFlags, InodeNr};

use crate::alloc::Run;
use crate::error::{OpenResult, refuse};
use crate::volume::Volume;

/// The word of the inode that names the block of the reserved ones.
const ROOT: usize = 13;

/// Refuses a volume whose resize inode names a block that is free, with the feature or without.
pub(super) fn check(vol: &Volume) -> OpenResult<()> {
    // What cannot be read names nothing, and growing refuses it.
    let Ok(inode) = vol.read_inode(InodeNr::RESIZE) else { return Ok(()) };
    if inode.flags.contains(InodeFlags::EXTENTS) {
        return Ok(());
    }
    let words = numbers(&inode.i_block);
    // (0 names no block, though there is one where blocks have more than 1 KiB.)
    let root = words.get(ROOT).copied().filter(|nr| *nr != 0).map(BlockNr);
    let root = root.filter(|root| vol.geo.is_valid_block(*root));
    let others = words.iter().enumerate().filter(|(at, _)| *at != ROOT).map(|(_, nr)| *nr);
    let mut named: Vec<u64> = others.collect();
    if let Some(Ok(map)) = root.map(|root| vol.journal.read(root)) {
        named.extend(numbers(&map.data()));
    }
    let is_free = |nr: &u64| {
        let run = Run { start: BlockNr(*nr), len: 1 };
        let may_be = *nr != 0 && vol.geo.is_valid_block(run.start);
        may_be
            && vol.alloc.is_system(run).is_ok_and(|is| !is)
            && vol.alloc.is_free(run.start).is_ok_and(|is| is)
    };
    match named.into_iter().find(is_free) {
        Some(nr) => refuse(format!(
            "cannot mount read-write: the resize inode (7) names block {nr}, which is free; \
             mount with -o ro, or repair it: tune2fs -O ^resize_inode, then e2fsck -f"
        )),
        None => Ok(()),
    }
}

/// The numbers in a block of a map, or in the inode; 0 names no block.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word).into()).collect()
}
