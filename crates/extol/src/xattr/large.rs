//! Attribute values in inodes of their own (feature ea_inode). Volumes with that feature are
//! mounted read-only, so the values are only read: the inode must be marked as holding a value, be
//! as long as the entry says, and match its checksum, which is where other inodes have their access
//! time.

use extol_block::BlockNr;
use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_ondisk::{InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use crate::error;
use crate::map::{self, MappedRun};
use crate::node::Node;
use crate::volume::Volume;

/// The value that an entry refers to.
pub(super) fn read(vol: &Volume, entry: &XattrEntry) -> Result<Vec<u8>> {
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
    let len = entry.value_size as usize;
    let bs = vol.geo.block_len();
    let blocks = len.div_ceil(bs);
    let mut value = vec![0; blocks * bs];
    let mut filled = 0;
    let mut failed = None;
    map::iterate(vol, &node, 0, blocks as u32, &mut |run: MappedRun| {
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
    // Seconds are stored in 32 bits; the decoded time may have an epoch on top.
    let stored = node.raw.atime.sec as u32;
    format::verify_inode_value(&value, stored, vol.geo.fs_seed)
        .map_err(|e| error::ondisk(e).in_inode(ino.0.into()))?;
    Ok(value)
}

/// Reads through the buffer cache, which has the blocks of a journal that was recovered in memory
/// only.
fn read_blocks(vol: &Volume, first: BlockNr, out: &mut [u8]) -> Result<()> {
    for (i, part) in out.chunks_mut(vol.geo.block_len()).enumerate() {
        let buf = vol.journal.read(first.plus(i as u64)).map_err(error::journal)?;
        let data = buf.data();
        part.copy_from_slice(data.get(..part.len()).unwrap_or_default());
    }
    Ok(())
}
