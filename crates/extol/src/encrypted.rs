//! Encrypted files, as long as their key is not there: contents cannot be read, and the targets of
//! symbolic links are shown under no-key names. (Names in directories: `dir/nokey.rs`.)

use extol_fscrypt::{NoKeyName, symlink};
use extol_ondisk::InodeFlags;
use extol_vfs::{FsError, Result};

use crate::node::Node;

/// Bytes in front of an encrypted target.
const TARGET_HEAD: u64 = 2;

/// Refuses access to the contents of a regular file whose key is not there.
pub(crate) fn check_key(node: &Node) -> Result<()> {
    if node.raw.is_regular() && node.raw.flags.contains(InodeFlags::ENCRYPT) {
        return Err(FsError::NoKey);
    }
    Ok(())
}

/// Refuses to add a name to a directory whose key is not there.
pub(crate) fn check_add(dir: &Node) -> Result<()> {
    if dir.raw.flags.contains(InodeFlags::ENCRYPT) { Err(FsError::NoKey) } else { Ok(()) }
}

/// The target of a symbolic link, of which `stored` is in the inode or its block.
pub(crate) fn target(node: &Node, stored: Vec<u8>) -> Result<Vec<u8>> {
    if !node.raw.flags.contains(InodeFlags::ENCRYPT) {
        return Ok(stored);
    }
    symlink::encrypted(&stored)
        .and_then(|encrypted| NoKeyName::shown([0; 2], encrypted))
        .map_err(|e| FsError::corrupt(e.to_string()).in_inode(node.ino.0.into()))
}

/// The size of an inode as it is told: for a symbolic link the length of what is read from it.
pub(crate) fn size(node: &Node) -> u64 {
    let raw = &node.raw;
    if !raw.is_symlink() || !raw.flags.contains(InodeFlags::ENCRYPT) {
        return raw.size;
    }
    usize::try_from(raw.size.saturating_sub(TARGET_HEAD))
        .map_or(raw.size, |len| NoKeyName::shown_len(len) as u64)
}
