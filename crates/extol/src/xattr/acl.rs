//! Access control lists and the mode.
//!
//! The nine bits of the mode and the access list say the same: owner and others are in both, and
//! the group bits are the list's mask (or the owning group, if there is no mask). So setting one
//! changes the other:
//!
//! * setting an access list writes its owner, mask and others into the mode; a list that says no
//!   more than the mode is not stored;
//! * chmod writes the new bits into the list;
//! * a new file takes its directory's default list as access list, cut down by the mode it is
//!   created with (the umask does not count then); a new directory takes it as default list too.

use extol_jbd2::Handle;
use extol_ondisk::acl::{Acl, AclTag};
use extol_ondisk::xattr::index;
use extol_vfs::{FsError, Result, XattrSet};

use super::store::{Areas, CREDITS, credits, get_raw, has_any, set_raw};
use super::value::Values;
use crate::node::Node;
use crate::volume::Volume;

/// Which list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// The permissions of this file.
    Access,
    /// The list that new files in this directory get.
    Default,
}

impl Which {
    fn index(self) -> u8 {
        match self {
            Self::Access => index::ACL_ACCESS,
            Self::Default => index::ACL_DEFAULT,
        }
    }
}

/// A list of the inode, checked.
fn load(vol: &Volume, node: &Node, which: Which) -> Result<Option<Acl>> {
    if !has_any(node) {
        return Ok(None);
    }
    let Some(bytes) = get_raw(vol, node, which.index(), b"")? else { return Ok(None) };
    let acl =
        Acl::from_disk(&bytes).map_err(|e| crate::error::ondisk(e).in_inode(node.ino.0.into()))?;
    Ok((!acl.entries.is_empty()).then_some(acl))
}

fn store(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    which: Which,
    acl: Option<&Acl>,
) -> Result<()> {
    let bytes = acl.map(Acl::to_disk);
    set_raw(vol, h, node, values, (which.index(), b""), bytes.as_deref(), XattrSet::Any)
}

/// A list in the form of Linux's API.
pub(super) fn get(vol: &Volume, node: &Node, which: Which) -> Result<Vec<u8>> {
    if node.raw.is_symlink() {
        return Err(FsError::NotSupported("access control lists of symbolic links"));
    }
    load(vol, node, which)?.map(|acl| acl.to_xattr()).ok_or(FsError::NoAttribute)
}

/// Sets a list from the form of Linux's API, or removes it (`None`, or a list without entries).
/// Removing one that is not there is no error.
pub(super) fn set(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
    which: Which,
    value: Option<&[u8]>,
) -> Result<()> {
    if node.raw.is_symlink() {
        return Err(FsError::NotSupported("access control lists of symbolic links"));
    }
    let acl = parse(value)?;
    match (which, acl) {
        (Which::Default, Some(_)) if !node.raw.is_dir() => Err(FsError::AccessDenied),
        (Which::Default, acl) => store(vol, h, node, values, which, acl.as_ref()),
        (Which::Access, None) => store(vol, h, node, values, which, None),
        (Which::Access, Some(acl)) => {
            let (bits, extended) = to_mode(&acl);
            store(vol, h, node, values, which, extended.then_some(&acl))?;
            node.raw.mode = node.raw.mode & !0o777 | bits;
            Ok(())
        }
    }
}

/// A valid list from the form of Linux's API; `None` for none.
fn parse(value: Option<&[u8]>) -> Result<Option<Acl>> {
    let Some(bytes) = value.filter(|v| !v.is_empty()) else { return Ok(None) };
    if bytes.len() < 4 {
        return Err(FsError::Invalid("access control list"));
    }
    if bytes[..4] != 2u32.to_le_bytes() {
        return Err(FsError::NotSupported("access control list of this version"));
    }
    let acl = Acl::from_xattr(bytes).map_err(|_| FsError::Invalid("access control list"))?;
    if acl.entries.is_empty() {
        return Ok(None);
    }
    if !acl.is_valid() {
        return Err(FsError::Invalid("access control list"));
    }
    Ok(Some(acl))
}

/// The mode bits that a list stands for, and whether it says more than they can.
fn to_mode(acl: &Acl) -> (u16, bool) {
    let (mut bits, mut mask, mut extended) = (0, None, false);
    for e in &acl.entries {
        match e.tag {
            AclTag::UserObj => bits |= e.perm << 6,
            AclTag::GroupObj => bits |= e.perm << 3,
            AclTag::Other => bits |= e.perm,
            AclTag::Mask => mask = Some(e.perm),
            AclTag::User(_) | AclTag::Group(_) => extended = true,
        }
    }
    match mask {
        Some(mask) => (bits & !0o070 | mask << 3, true),
        None => (bits, extended),
    }
}

/// Applies `f(permission of the entry, bits of the class)` to the entries that the mode's classes
/// are: owner, others, and the mask or, without one, the owning group.
fn for_classes(acl: &mut Acl, mode: u16, f: impl Fn(&mut u16, u16)) {
    let masked = acl.entries.iter().any(|e| e.tag == AclTag::Mask);
    for e in &mut acl.entries {
        match e.tag {
            AclTag::UserObj => f(&mut e.perm, mode >> 6 & 7),
            AclTag::Other => f(&mut e.perm, mode & 7),
            AclTag::Mask => f(&mut e.perm, mode >> 3 & 7),
            AclTag::GroupObj if !masked => f(&mut e.perm, mode >> 3 & 7),
            _ => {}
        }
    }
}

/// Makes the access list, if there is one, follow the mode, whose new value is in `node.raw.mode`.
///
/// Credits: [`credits`] of the list's [length](len).
pub(crate) fn chmod(
    vol: &Volume,
    h: &mut Handle,
    node: &mut Node,
    values: &mut Values<'_>,
) -> Result<()> {
    if node.raw.is_symlink() {
        return Ok(());
    }
    let Some(mut acl) = load(vol, node, Which::Access)? else { return Ok(()) };
    for_classes(&mut acl, node.raw.mode, |perm, bits| *perm = bits);
    store(vol, h, node, values, Which::Access, Some(&acl))
}

/// Credits for [`Inherited::store`] of a new inode in `parent`, the inode not included.
pub(crate) fn credits_to_inherit(vol: &Volume, parent: &Node) -> u32 {
    // (Two lists, neither longer than that one. A new inode has no other attributes.)
    let one = match len(vol, parent, Which::Default) {
        0 => CREDITS,
        len => credits(vol, parent, len),
    };
    one.saturating_mul(2)
}

/// Length of a list as it is stored; 0 if there is none that can be read.
pub(crate) fn len(vol: &Volume, node: &Node, which: Which) -> usize {
    if !has_any(node) {
        return 0;
    }
    let areas = Areas::load(vol, node);
    areas.map_or(0, |areas| {
        let found = areas.all().find(|e| e.is(which.index(), b""));
        found.map_or(0, |e| e.value_size as usize)
    })
}

/// What a new file gets from its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inherited {
    /// Mode to create it with: type and permissions.
    pub mode: u16,
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Inherited {
    /// True if there is nothing to store: no credits are needed.
    pub fn is_plain(&self) -> bool {
        self.access.is_none() && self.default.is_none()
    }

    /// Stores the lists in the new inode. Credits: [`credits_to_inherit`].
    pub fn store(
        &self,
        vol: &Volume,
        h: &mut Handle,
        node: &mut Node,
        values: &mut Values<'_>,
    ) -> Result<()> {
        if let Some(acl) = &self.default {
            store(vol, h, node, values, Which::Default, Some(acl))?;
        }
        if let Some(acl) = &self.access {
            store(vol, h, node, values, Which::Access, Some(acl))?;
        }
        Ok(())
    }
}

/// What a file made in `parent` with `mode` (type included, umask not applied) gets.
pub(crate) fn inherit(vol: &Volume, parent: &Node, mode: u16, umask: u16) -> Result<Inherited> {
    use extol_ondisk::FileType;
    let plain = |mode| Inherited { mode, access: None, default: None };
    let kind = FileType::from_mode(mode);
    if kind == Some(FileType::Symlink) {
        return Ok(plain(mode));
    }
    let Some(default) = load(vol, parent, Which::Default)? else {
        return Ok(plain(mode & !(umask & 0o777)));
    };
    Ok(from_default(default, mode, kind == Some(FileType::Directory)))
}

fn from_default(default: Acl, mode: u16, is_dir: bool) -> Inherited {
    let mut acl = default.clone();
    for_classes(&mut acl, mode, |perm, bits| *perm &= bits);
    let (bits, extended) = to_mode(&acl);
    Inherited {
        mode: mode & !0o777 | bits,
        access: extended.then_some(acl),
        default: is_dir.then_some(default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_ondisk::acl::AclEntry;

    fn acl(entries: &[(AclTag, u16)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect() }
    }

    fn named() -> Acl {
        acl(&[
            (AclTag::UserObj, 7),
            (AclTag::User(1000), 6),
            (AclTag::GroupObj, 5),
            (AclTag::Mask, 7),
            (AclTag::Other, 1),
        ])
    }

    #[test]
    fn modes() {
        let minimal = acl(&[(AclTag::UserObj, 6), (AclTag::GroupObj, 4), (AclTag::Other, 0)]);
        assert_eq!(to_mode(&minimal), (0o640, false));
        assert_eq!(to_mode(&named()), (0o771, true));
        let masked = acl(&[
            (AclTag::UserObj, 6),
            (AclTag::GroupObj, 7),
            (AclTag::Mask, 4),
            (AclTag::Other, 0),
        ]);
        assert_eq!(to_mode(&masked), (0o640, true));
    }

    #[test]
    fn chmod_changes_the_mask() {
        let mut a = named();
        for_classes(&mut a, 0o100_640, |perm, bits| *perm = bits);
        assert_eq!(
            a,
            acl(&[
                (AclTag::UserObj, 6),
                (AclTag::User(1000), 6),
                (AclTag::GroupObj, 5),
                (AclTag::Mask, 4),
                (AclTag::Other, 0),
            ])
        );
    }

    #[test]
    fn inheritance() {
        let file = from_default(named(), 0o100_666, false);
        assert_eq!(file.mode, 0o100_660);
        assert_eq!(
            file.access,
            Some(acl(&[
                (AclTag::UserObj, 6),
                (AclTag::User(1000), 6),
                (AclTag::GroupObj, 5),
                (AclTag::Mask, 6),
                (AclTag::Other, 0),
            ]))
        );
        assert_eq!(file.default, None);
        let dir = from_default(named(), 0o040_777, true);
        assert_eq!((dir.mode, dir.default), (0o040_771, Some(named())));
        // A default list that a mode can say is not stored as access list.
        let minimal = acl(&[(AclTag::UserObj, 7), (AclTag::GroupObj, 5), (AclTag::Other, 5)]);
        let file = from_default(minimal.clone(), 0o100_664, false);
        assert_eq!((file.mode, file.is_plain()), (0o100_644, true));
        assert_eq!(from_default(minimal.clone(), 0o042_777, true).default, Some(minimal));
    }

    #[test]
    fn parsing() {
        assert_eq!(parse(None), Ok(None));
        assert_eq!(parse(Some(&[])), Ok(None));
        assert_eq!(parse(Some(&[2, 0, 0, 0])), Ok(None));
        assert_eq!(parse(Some(&named().to_xattr())), Ok(Some(named())));
        assert!(matches!(parse(Some(&[1, 0, 0, 0])), Err(FsError::NotSupported(_))));
        assert!(matches!(parse(Some(&[2, 0])), Err(FsError::Invalid(_))));
        assert!(matches!(parse(Some(&named().to_xattr()[..12])), Err(FsError::Invalid(_))));
    }
}
