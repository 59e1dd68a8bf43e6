//! The contents of a value, checked: its inode must be marked as holding a value, be as long as the
//! entry says, and match its checksum.

use extol_block::BlockNr;
use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_ondisk::{InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use crate::error;
use crate::map::{self, MappedRun};
use crate::node::Node;
use crate::volume::Volume;

/// The value that an entry of `owner` refers to.
pub(crate) fn read(vol: &Volume, owner: &Node, entry: &XattrEntry) -> Result<Vec<u8>> {
    let ino = InodeNr(entry.value_inum);
    let corrupt = |what: &str| FsError::corrupt(what).in_inode(ino.0.into());
    if !vol.geo.is_valid_inode(ino) {
        return Err(corrupt("attribute value in an inode that does not exist"));
    }
    let node = Node { ino, raw: vol.read_inode(ino)? };
    if !node.raw.flags.contains(InodeFlags::EA_INODE) || !node.raw.is_regular() {
        return Err(corrupt("attribute value in an inode that holds none"));
    }
    if node.raw.size != u64::from(entry.value_size) || entry.value_size > format::MAX_INODE_VALUE {
        return Err(corrupt("attribute value of another length"));
    }
    let value = contents(vol, &node, entry.value_size as usize)?;
    if format::is_old_form(&node.raw, entry, owner.ino, owner.raw.generation) {
        return Ok(value);
    }
    format::verify_inode_value(&value, &node.raw, entry, vol.geo.fs_seed)
        .map_err(|e| error::ondisk(e).in_inode(ino.0.into()))?;
    if super::is_value(&node.raw) {
        vol.sharing.values.lock().insert(format::stated_hash(&node.raw), ino);
    }
    Ok(value)
}

/// The first bytes of a value inode.
pub(super) fn contents(vol: &Volume, node: &Node, len: usize) -> Result<Vec<u8>> {
    let corrupt = |what: &str| FsError::corrupt(what).in_inode(node.ino.0.into());
    let bs = vol.geo.block_len();
    let blocks = len.div_ceil(bs);
    let mut value = vec![0; blocks * bs];
    let mut filled = 0;
    let mut failed = None;
    map::iterate(vol, node, 0, blocks as u32, &mut |run: MappedRun| {
        let from = run.lblk as usize * bs;
        let part = value.get_mut(from..from + run.len as usize * bs);
        match part {
            Some(part) if !run.unwritten => {
                filled += run.len as usize;
                failed = read_blocks(vol, run.pblk, part).err();
            }
            _ => failed = Some(corrupt("attribute value with a hole")),
        }
        failed.is_none()
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    if filled != blocks {
        return Err(corrupt("attribute value with a hole"));
    }
    value.truncate(len);
    Ok(value)
}

/// Reads through the buffer cache, where values that were written lately are, and the blocks of a
/// journal that was recovered in memory only.
fn read_blocks(vol: &Volume, first: BlockNr, out: &mut [u8]) -> Result<()> {
    for (i, part) in out.chunks_mut(vol.geo.block_len()).enumerate() {
        let buf = vol.journal.read(first.plus(i as u64)).map_err(error::journal)?;
        let data = buf.data();
        part.copy_from_slice(data.get(..part.len()).unwrap_or_default());
    }
    Ok(())
}
