//! Encrypted files: their keys and policies, their targets and sizes, and what is refused. (Names
//! in directories: `dir/names.rs`. Contents: `data/encryption.rs`.)

use std::sync::Arc;

use extol_fscrypt::{
    Checked, Context, FileKey, MasterKey, NoKeyName, Policy, Unsupported, symlink,
};
use extol_jbd2::Handle;
use extol_ondisk::xattr::index;
use extol_ondisk::{Compat, FileType, InodeFlags, RoCompat};
use extol_vfs::{FsError, Result, XattrSet};

use crate::error;
use crate::inline;
use crate::map::{self, Mapping};
use crate::name_keys::Of;
use crate::node::Node;
use crate::volume::Volume;
use crate::xattr::{self, Values};

/// Longest context.
pub(crate) const CONTEXT_LEN: usize = 40;
/// Bytes in front of an encrypted target.
const TARGET_HEAD: u64 = 2;

/// True for an inode whose names, target or contents are encrypted.
pub(crate) fn is_encrypted(node: &Node) -> bool {
    node.raw.flags.contains(InodeFlags::ENCRYPT)
}

/// Refuses what needs encryption in a build without the feature.
pub(crate) fn check_built() -> Result<()> {
    match extol_fscrypt::HAS_CIPHERS {
        true => Ok(()),
        false => Err(FsError::NotSupported("this program is built without encryption")),
    }
}

/// The key of the names in a directory, or of the target of a symbolic link: if it is encrypted and
/// the key is there.
pub(crate) fn names_key(vol: &Volume, node: &Node) -> Result<Option<Arc<FileKey>>> {
    let Some(context) = keyed_context(vol, node)? else { return Ok(None) };
    let casefold = node.raw.flags.contains(InodeFlags::CASEFOLD);
    let of = Of { ino: node.ino.0, casefold, context };
    Ok(vol.name_keys.get(of, |of| {
        with_key(vol, node, &of.context, |master, policy, context| {
            FileKey::names(master, policy, context, node.ino.0).ok()
        })
    }))
}

/// The key of the contents of an encrypted regular file.
///
/// # Errors
/// [`FsError::NoKey`] if the key is not there.
pub(crate) fn contents_key(vol: &Volume, node: &Node) -> Result<FileKey> {
    if inline::is_inline(node) {
        // (Linux never makes one.)
        let what = "encrypted contents inside an inode";
        return Err(FsError::corrupt(what).in_inode(node.ino.0.into()));
    }
    let Some(context) = keyed_context(vol, node)? else { return Err(FsError::NoKey) };
    let key = with_key(vol, node, &context, |master, policy, context| {
        FileKey::contents(master, policy, context, node.ino.0).ok()
    });
    key.ok_or(FsError::NoKey)
}

/// The context of an encrypted inode, as it is stored, if the volume has keys.
///
/// # Errors
/// As Linux without `CONFIG_FS_ENCRYPTION`: [`FsError::NotSupported`] in a build without ciphers.
fn keyed_context(vol: &Volume, node: &Node) -> Result<Option<Vec<u8>>> {
    if !is_encrypted(node) {
        return Ok(None);
    }
    check_built()?;
    if vol.keys.is_empty() {
        return Ok(None);
    }
    let missing =
        || FsError::corrupt("encrypted inode without a context").in_inode(node.ino.0.into());
    stored_context(vol, node)?.map(Some).ok_or_else(missing)
}

/// What `make` makes of a master key and the policy of an inode with this context. None without the
/// key, or with a policy that cannot be used.
fn with_key(
    vol: &Volume,
    node: &Node,
    context: &[u8],
    make: impl FnOnce(&MasterKey, &Checked, &Context) -> Option<FileKey>,
) -> Option<FileKey> {
    let context = Context::parse(context).ok()?;
    let master = vol.keys.find(&context.policy.key)?;
    let policy = check(vol, node, &context.policy).ok()?;
    make(&master, &policy, &context)
}

/// A policy as one that can be used for an inode of this volume.
pub(crate) fn check(
    vol: &Volume,
    node: &Node,
    policy: &Policy,
) -> std::result::Result<Checked, Unsupported> {
    let volume = extol_fscrypt::Volume {
        block_bits: vol.geo.block_size.bits() as u8,
        huge_files: vol.geo.ro_compat.contains(RoCompat::HUGE_FILE),
        stable_inodes: vol.geo.compat().contains(Compat::STABLE_INODES),
        uuid: vol.geo.uuid,
    };
    policy.check(&volume, node.raw.flags.contains(InodeFlags::CASEFOLD))
}

fn stored_context(vol: &Volume, node: &Node) -> Result<Option<Vec<u8>>> {
    xattr::get_stored(vol, node, index::ENCRYPTION, Context::XATTR)
}

/// The context of an encrypted inode. None: there is none, or one of a later version.
pub(crate) fn context(vol: &Volume, node: &Node) -> Result<Option<Context>> {
    Ok(stored_context(vol, node)?.and_then(|bytes| Context::parse(&bytes).ok()))
}

/// The policy of an encrypted inode. None: there is none, or one of a later version.
pub(crate) fn policy(vol: &Volume, node: &Node) -> Result<Option<Policy>> {
    Ok(context(vol, node)?.map(|context| context.policy))
}

/// True for files that are encrypted in an encrypted directory: all but devices, pipes and sockets.
fn is_encryptable(kind: Option<FileType>) -> bool {
    matches!(kind, Some(FileType::Regular | FileType::Directory | FileType::Symlink))
}

/// True if a directory may have a name for an inode: an encrypted one has none for what is
/// encrypted by another policy, or not at all.
pub(crate) fn may_name(vol: &Volume, dir: &Node, node: &Node) -> Result<bool> {
    if !is_encrypted(dir) {
        return Ok(true);
    }
    fits(vol, policy(vol, dir)?, node)
}

/// As [`may_name`], in a directory of this policy.
pub(crate) fn fits(vol: &Volume, its: Option<Policy>, node: &Node) -> Result<bool> {
    if !is_encryptable(node.raw.kind()) {
        return Ok(true);
    }
    Ok(is_encrypted(node) && its.is_some() && policy(vol, node)? == its)
}

/// Refuses to add a name to an encrypted directory whose key is not there.
pub(crate) fn check_add(vol: &Volume, dir: &Node) -> Result<()> {
    if !is_encrypted(dir) {
        return Ok(());
    }
    names_key(vol, dir)?.map(drop).ok_or(FsError::NoKey)
}

/// Refuses to let an encrypted directory fold names whose hashes it has no key for: one of another
/// version than 2, or any without its key.
pub(crate) fn check_fold(vol: &Volume, dir: &Node) -> Result<()> {
    if !is_encrypted(dir) {
        return Ok(());
    }
    let key = names_key(vol, dir)?.ok_or(FsError::NoKey)?;
    match key.dir_hash() {
        Some(_) => Ok(()),
        None => Err(FsError::Invalid("case folding needs an encryption policy of version 2")),
    }
}

/// The context of an inode of this kind that is about to be made in a directory, with a nonce of
/// its own; none if it is not encrypted. [`check_add`] has let the directory pass.
pub(crate) fn inherit(vol: &Volume, dir: &Node, kind: FileType) -> Result<Option<Context>> {
    if !is_encrypted(dir) || !is_encryptable(Some(kind)) {
        return Ok(None);
    }
    let policy = policy(vol, dir)?.ok_or(FsError::NoKey)?;
    new_context(policy).map(Some)
}

/// A context with a nonce of its own.
pub(crate) fn new_context(policy: Policy) -> Result<Context> {
    let nonce = extol_proc::random().map_err(|e| FsError::Io(format!("random bytes: {e}")))?;
    Ok(Context { policy, nonce })
}

/// Makes an inode in which nothing is an encrypted one, whether its key is there or not. Credits
/// and blocks: those of an attribute of [`CONTEXT_LEN`] bytes.
pub(crate) fn mark(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    context: &Context,
) -> Result<()> {
    let name = (index::ENCRYPTION, Context::XATTR);
    xattr::set_stored(vol, h, node, values, name, Some(&context.to_bytes()), XattrSet::Create)?;
    node.raw.flags.insert(InodeFlags::ENCRYPT);
    Ok(())
}

/// [`mark`]s a new inode, before anything is put into it.
///
/// # Errors
/// [`FsError::NoKey`] if the key does not fit the kind of the inode.
pub(crate) fn store(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    context: &Context,
) -> Result<()> {
    mark(vol, h, node, values, context)?;
    match node.raw.is_regular() {
        true => contents_key(vol, node).map(drop),
        false => names_key(vol, node)?.map(drop).ok_or(FsError::NoKey),
    }
}

/// What is stored for the target of a new symbolic link.
pub(crate) fn stored_form(vol: &Volume, node: &Node, target: &[u8]) -> Result<Vec<u8>> {
    if !is_encrypted(node) {
        return Ok(target.to_vec());
    }
    let key = names_key(vol, node)?.ok_or(FsError::NoKey)?;
    symlink::stored(&key, target, vol.geo.block_len()).ok_or(FsError::NameTooLong)
}

/// Bytes that are stored for a target, in an inode of this context.
///
/// # Errors
/// [`FsError::NameTooLong`] if no inode has room for it.
pub(crate) fn stored_len(vol: &Volume, context: Option<&Context>, target: &[u8]) -> Result<usize> {
    let Some(context) = context else { return Ok(target.len()) };
    symlink::stored_len(context.policy.padding(), target.len(), vol.geo.block_len())
        .ok_or(FsError::NameTooLong)
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
