//! Encrypted files: their keys and policies, their targets and sizes, and what is refused. (Names
//! in directories: `dir/names.rs`. Contents: `data/encryption.rs`.)

use extol_fscrypt::{Checked, Context, FileKey, MasterKey, NoKeyName, Policy, symlink};
use extol_jbd2::Handle;
use extol_ondisk::xattr::index;
use extol_ondisk::{Compat, FileType, InodeFlags, RoCompat};
use extol_vfs::{FsError, Result, XattrSet};
use rand::TryRngCore as _;
use rand::rngs::OsRng;

use crate::error;
use crate::inline;
use crate::map::{self, Mapping};
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

/// The key of the names in a directory, or of the target of a symbolic link: if it is encrypted and
/// the key is there.
pub(crate) fn names_key(vol: &Volume, node: &Node) -> Result<Option<FileKey>> {
    with_key(vol, node, |master, policy, context| {
        FileKey::names(master, policy, context, node.ino.0).ok()
    })
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
    let key = with_key(vol, node, |master, policy, context| {
        FileKey::contents(master, policy, context, node.ino.0).ok()
    })?;
    key.ok_or(FsError::NoKey)
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
    let Some(bytes) = stored_context(vol, node)? else {
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

fn stored_context(vol: &Volume, node: &Node) -> Result<Option<Vec<u8>>> {
    xattr::get_stored(vol, node, index::ENCRYPTION, Context::XATTR)
}

/// The policy of an encrypted inode. None: there is none, or one of a later version.
pub(crate) fn policy(vol: &Volume, node: &Node) -> Result<Option<Policy>> {
    let context = stored_context(vol, node)?.and_then(|bytes| Context::parse(&bytes).ok());
    Ok(context.map(|context| context.policy))
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
    if dir.raw.flags.contains(InodeFlags::CASEFOLD) {
        return Err(FsError::NotSupported("new names in an encrypted case-insensitive directory"));
    }
    names_key(vol, dir)?.map(drop).ok_or(FsError::NoKey)
}

/// The context of an inode of this kind that is about to be made in a directory, with a nonce of
/// its own; none if it is not encrypted. [`check_add`] has let the directory pass.
pub(crate) fn inherit(vol: &Volume, dir: &Node, kind: FileType) -> Result<Option<Context>> {
    if !is_encrypted(dir) || !is_encryptable(Some(kind)) {
        return Ok(None);
    }
    let policy = policy(vol, dir)?.ok_or(FsError::NoKey)?;
    let mut nonce = [0; extol_fscrypt::NONCE_LEN];
    OsRng.try_fill_bytes(&mut nonce).map_err(|e| FsError::Io(format!("random bytes: {e}")))?;
    Ok(Some(Context { policy, nonce }))
}

/// Makes a new inode an encrypted one, before anything is put into it. Credits and blocks: those of
/// an attribute of [`CONTEXT_LEN`] bytes.
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
    node.raw.flags.insert(InodeFlags::ENCRYPT);
    let name = (index::ENCRYPTION, Context::XATTR);
    xattr::set_stored(vol, h, node, values, name, Some(&context.to_bytes()), XattrSet::Create)?;
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
