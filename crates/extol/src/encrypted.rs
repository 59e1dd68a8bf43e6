//! Encrypted files: their keys, their targets and sizes, and what is refused without a key. (Names
//! in directories: `dir/names.rs`. Contents: `data/read.rs`.)

use extol_fscrypt::{Checked, Context, FileKey, MasterKey, NoKeyName, symlink};
use extol_ondisk::xattr::index;
use extol_ondisk::{Compat, InodeFlags, RoCompat};
use extol_vfs::{FsError, Result};

use crate::error;
use crate::inline;
use crate::map::{self, Mapping};
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr;

/// Bytes in front of an encrypted target.
const TARGET_HEAD: u64 = 2;

/// True for an inode whose names, target or contents are encrypted.
pub(crate) fn is_encrypted(node: &Node) -> bool {
    node.raw.flags.contains(InodeFlags::ENCRYPT)
}

/// The key of the names in a directory, or of the target of a symbolic link: if it is encrypted and
/// the key is there.
pub(crate) fn names_key(vol: &Volume, node: &Node) -> Result<Option<FileKey>> {
    with_key(vol, node, |master, policy, context| {
        FileKey::names(master, policy, context, node.ino.0).ok()
    })
}

/// The key of the contents of a regular file; none if they are not encrypted.
///
/// # Errors
/// [`FsError::NoKey`] if the key is not there.
pub(crate) fn contents_key(vol: &Volume, node: &Node) -> Result<Option<FileKey>> {
    if !is_encrypted(node) {
        return Ok(None);
    }
    let key = with_key(vol, node, |master, policy, context| {
        FileKey::contents(master, policy, context, node.ino.0).ok()
    })?;
    key.ok_or(FsError::NoKey).map(Some)
}

/// What `make` makes of a master key and the policy of an inode. None without the key, or with a
/// policy that cannot be used.
fn with_key(
    vol: &Volume,
    node: &Node,
    make: impl FnOnce(&MasterKey, &Checked, &Context) -> Option<FileKey>,
) -> Result<Option<FileKey>> {
    if vol.keys.is_empty() || !is_encrypted(node) {
        return Ok(None);
    }
    let Some(bytes) = xattr::get_stored(vol, node, index::ENCRYPTION, Context::XATTR)? else {
        return Err(
            FsError::corrupt("encrypted inode without a context").in_inode(node.ino.0.into())
        );
    };
    let Ok(context) = Context::parse(&bytes) else { return Ok(None) };
    let Some(master) = vol.keys.find(&context.policy.key) else { return Ok(None) };
    let volume = extol_fscrypt::Volume {
        block_bits: vol.geo.block_size.bits() as u8,
        huge_files: vol.geo.ro_compat.contains(RoCompat::HUGE_FILE),
        stable_inodes: vol.geo.compat().contains(Compat::STABLE_INODES),
        uuid: vol.geo.uuid,
    };
    let casefold = node.raw.flags.contains(InodeFlags::CASEFOLD);
    let Ok(policy) = context.policy.check(&volume, casefold) else { return Ok(None) };
    Ok(make(master, &policy, &context))
}

/// Refuses access to the contents of a regular file whose key is not there.
pub(crate) fn check_key(vol: &Volume, node: &Node) -> Result<()> {
    if node.raw.is_regular() { contents_key(vol, node).map(drop) } else { Ok(()) }
}

/// Refuses to add a name to an encrypted directory.
pub(crate) fn check_add(dir: &Node) -> Result<()> {
    if is_encrypted(dir) { Err(FsError::NoKey) } else { Ok(()) }
}

/// The target of a symbolic link: without the key under its no-key name.
pub(crate) fn target(vol: &Volume, node: &Node) -> Result<Vec<u8>> {
    let stored = stored_target(vol, node)?;
    if !is_encrypted(node) {
        return Ok(stored);
    }
    let target = match names_key(vol, node)? {
        Some(key) => symlink::target(&key, &stored),
        None => symlink::encrypted(&stored).and_then(|target| NoKeyName::shown([0; 2], target)),
    };
    target.map_err(|e| FsError::corrupt(e.to_string()).in_inode(node.ino.0.into()))
}

/// What is stored for the target of a symbolic link.
fn stored_target(vol: &Volume, node: &Node) -> Result<Vec<u8>> {
    let raw = &node.raw;
    let len = usize::try_from(raw.size).unwrap_or(usize::MAX);
    let bad =
        || FsError::corrupt("symbolic link has an impossible length").in_inode(node.ino.0.into());
    if raw.flags.contains(InodeFlags::INLINE_DATA) {
        return inline::read(node);
    }
    if raw.is_fast_symlink() {
        return Ok(raw.i_block.get(..len).ok_or_else(bad)?.to_vec());
    }
    let Mapping::Mapped { pblk, unwritten: false, .. } = map::lookup(vol, node, 0)? else {
        return Err(bad());
    };
    let data = vol.journal.read(pblk).map_err(error::journal)?.data();
    Ok(data.get(..len).ok_or_else(bad)?.to_vec())
}

/// The size of an inode as it is told: for a symbolic link the length of what is read from it.
pub(crate) fn size(vol: &Volume, node: &Node) -> u64 {
    let raw = &node.raw;
    if !raw.is_symlink() || !is_encrypted(node) {
        return raw.size;
    }
    if !vol.keys.is_empty()
        && let Ok(target) = target(vol, node)
    {
        return target.len() as u64;
    }
    usize::try_from(raw.size.saturating_sub(TARGET_HEAD))
        .map_or(raw.size, |len| NoKeyName::shown_len(len) as u64)
}
