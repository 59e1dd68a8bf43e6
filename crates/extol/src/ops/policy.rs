//! Encryption policies: what an inode has, and a new one for an empty directory, by the rules of
//! `FS_IOC_SET_ENCRYPTION_POLICY`.

use extol_fscrypt::{Context, Policy, Unsupported};
use extol_ondisk::{Incompat, InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use super::reserve::Reservation;
use super::{values, with_space};
use crate::dir;
use crate::encrypted;
use crate::error;
use crate::inline;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;
use crate::xattr;

/// The context of an encrypted inode.
///
/// # Errors
/// `NoAttribute` if it is not encrypted; `Invalid` if the context is one of a later version.
pub(crate) fn context(fs: &MountedFs, ino: u32) -> Result<Context> {
    check_feature(fs)?;
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    if !encrypted::is_encrypted(&st.node) {
        return Err(FsError::NoAttribute);
    }
    encrypted::context(&fs.vol, &st.node)?
        .ok_or(FsError::Invalid("the encryption context is of an unknown version"))
}

/// Makes an empty directory an encrypted one. The second time it does nothing.
///
/// # Errors
/// As Linux: `Exists` with another policy, `NotADirectory`, `NotEmpty`, `NotFound` if it is
/// removed, `Invalid` if the policy cannot be used there, `NotPermitted` for the root. (That the
/// key is there Linux asks of processes without CAP_FOWNER alone.)
pub(crate) fn set(fs: &MountedFs, ino: u32, policy: &Policy) -> Result<()> {
    fs.check_writable()?;
    check_feature(fs)?;
    let cell = fs.cell(ino)?;
    with_space(fs, || {
        let mut st = cell.write()?;
        if encrypted::is_encrypted(&st.node) {
            let same = encrypted::policy(&fs.vol, &st.node)? == Some(*policy);
            return if same { Ok(()) } else { Err(FsError::Exists) };
        }
        check_may_encrypt(fs, &st, policy)?;
        encrypt(fs, &mut st, policy)
    })
}

fn check_feature(fs: &MountedFs) -> Result<()> {
    encrypted::check_built()?;
    match fs.vol.geo.incompat().contains(Incompat::ENCRYPT) {
        true => Ok(()),
        false => Err(FsError::NotSupported("the volume has no feature encrypt")),
    }
}

fn check_may_encrypt(fs: &MountedFs, st: &InodeState, policy: &Policy) -> Result<()> {
    let (vol, node) = (&fs.vol, &st.node);
    let has = |flag| node.raw.flags.contains(flag);
    if !st.is_dir() {
        return Err(FsError::NotADirectory);
    }
    if node.raw.links == 0 {
        return Err(FsError::NotFound);
    }
    if !dir::is_empty(vol, node)? {
        return Err(FsError::NotEmpty);
    }
    encrypted::check(vol, node, policy).map_err(|why| FsError::Invalid(words(why)))?;
    // (e2fsck expects lost+found in it.)
    if node.ino == InodeNr::ROOT {
        return Err(FsError::NotPermitted);
    }
    if has(InodeFlags::DAX) {
        return Err(FsError::NotSupported("encryption beside DAX"));
    }
    // (Its index says by which hashes it is sorted, and they become others.)
    if has(InodeFlags::CASEFOLD) && has(InodeFlags::INDEX) {
        return Err(FsError::NotSupported(
            "encryption of a case-insensitive directory that has an index: make a new one",
        ));
    }
    Ok(())
}

fn encrypt(fs: &MountedFs, st: &mut InodeState, policy: &Policy) -> Result<()> {
    let vol = &fs.vol;
    let context = encrypted::new_context(*policy)?;
    let is_inline = inline::is_inline(&st.node);
    let blocks = 1 + xattr::blocks(vol, encrypted::CONTEXT_LEN) + u64::from(is_inline);
    let reserved = Reservation::make(fs, blocks)?;
    let credits = xattr::credits(vol, &st.node, encrypted::CONTEXT_LEN)
        + if is_inline { dir::credits_add(vol, &st.node) } else { 0 };
    let mut h = fs.start(credits + 1)?;
    // As in Linux, names that are encrypted are never inside the inode.
    let moved = if is_inline { dir::leave_inode(vol, &mut h, &mut st.node) } else { Ok(()) };
    let mut large = fs.values();
    let done =
        moved.and_then(|()| encrypted::mark(vol, &mut h, &mut st.node, &mut large, &context));
    values::end(fs, &mut h, st, large)?;
    if done.is_ok() {
        st.node.raw.ctime = fs.now();
    }
    st.disk_size = st.node.raw.size;
    st.store(fs, &mut h, true)?;
    fs.settle(st);
    h.stop().map_err(error::journal)?;
    drop(reserved);
    values::delete_left(fs);
    done
}

/// The rule that a policy breaks.
fn words(why: Unsupported) -> &'static str {
    match why {
        Unsupported::Modes { .. } => "encryption modes that are unknown, or do not go together",
        Unsupported::Flags(_) => "flags of the policy that are unknown, or exclude each other",
        Unsupported::DirectKey => "direct keys need one mode with long IVs (Adiantum) for all",
        Unsupported::InodeIvMode => "IVs of inode numbers need contents in AES-256-XTS",
        Unsupported::UnstableInodes => {
            "IVs of inode numbers need a volume with the feature stable_inodes"
        }
        Unsupported::LongFiles => "IVs of inode numbers need files of at most 2^32 data units",
        Unsupported::DataUnit(_) => "data units have 512 bytes to those of a block",
        Unsupported::Reserved => "reserved bytes of the policy are not zero",
        Unsupported::CasefoldV1 => {
            "policies of version 1 cannot be used in a case-insensitive directory"
        }
    }
}
