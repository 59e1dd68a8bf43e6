//! The inode that reserves blocks for group descriptors.

use extol_ondisk::{Compat, Incompat, InodeNr};

use crate::bytes::le32;
use crate::error::Result;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// The inode that keeps room for descriptors: its double indirect block names the reserved blocks
/// of group 0, and each of those names its copies in the other groups.
pub(crate) fn check(vol: &Vol, out: &mut Findings) -> Result<()> {
    let ino = InodeNr::RESIZE.0;
    let Some(bytes) = vol.inode(ino)? else { return Ok(()) };
    let raw = Raw { b: &bytes, ino };
    if !vol.compat(Compat::RESIZE_INODE) {
        if vol.sb.reserved_gdt_blocks != 0 {
            let what =
                "blocks are reserved for descriptors, but the feature resize_inode is not set";
            out.push(Finding::note(Kind::ResizeInode, what));
        }
        if (0..15).any(|n| raw.word(n) != 0) {
            let what = "the inode has contents, but the feature resize_inode is not set";
            out.push(Finding::note(Kind::ResizeInode, what).inode(ino));
        }
        return Ok(());
    }
    if vol.incompat(Incompat::META_BG) {
        out.push(Finding::note(Kind::ResizeInode, "resize_inode and meta_bg are both set"));
        return Ok(());
    }
    let mut bad =
        |what: String| out.push(Finding::error(Kind::ResizeInode, what).inode(ino).beyond());
    let dind = u64::from(raw.word(13));
    let only = (0..15).all(|n| n == 13 || raw.word(n) == 0);
    if !only || !vol.is_block(dind) || raw.links() == 0 || raw.mode() & 0x8000 == 0 {
        bad("the inode is not of the form that reserves descriptors".into());
        return Ok(());
    }
    let map = vol.block(dind)?;
    let per_block = vol.geo.block_len() / 4;
    let boot = u64::from(vol.geo.block_len() == 1024 && vol.geo.first_data_block == 0);
    let reserved = vol.geo.first_data_block + 1 + u64::from(vol.geo.desc_blocks()) + boot;
    // As many as e2fsck checks: the contents behind those depend on the tool that made them.
    for i in 0..usize::from(vol.sb.reserved_gdt_blocks) / 4 {
        let slot = (vol.geo.desc_blocks() as usize + i) % per_block;
        let wanted = reserved + i as u64;
        if u64::from(le32(&map, slot * 4)) != wanted || !vol.is_block(wanted) {
            bad(format!("entry {slot} does not name reserved block {wanted}"));
            return Ok(());
        }
        let copies = vol.block(wanted)?;
        for (n, group) in vol.geo.backup_groups().enumerate() {
            let copy = wanted + u64::from(group.0) * u64::from(vol.geo.blocks_per_group);
            if n < per_block && u64::from(le32(&copies, n * 4)) != copy {
                bad(format!("reserved block {wanted} does not name its copy {copy}"));
                return Ok(());
            }
        }
    }
    Ok(())
}
