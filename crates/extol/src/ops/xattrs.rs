//! Extended attributes.

use extol_ondisk::{FileType, InodeFlags};
use extol_vfs::{FsError, Result, XattrSet};

use super::reserve::Reservation;
use super::{values, with_space};
use crate::error;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;
use crate::xattr;

fn check(fs: &MountedFs, st: &InodeState, name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > xattr::MAX_NAME {
        return Err(FsError::Range);
    }
    if name.starts_with(b"user.") {
        if !fs.fixed.user_xattr {
            return Err(FsError::NotSupported("user attributes (nouser_xattr)"));
        }
        if !matches!(st.kind(), Some(FileType::Regular | FileType::Directory)) {
            return Err(FsError::NotPermitted);
        }
    }
    if name.starts_with(b"system.posix_acl_")
        && (!fs.fixed.acl || st.kind() == Some(FileType::Symlink))
    {
        return Err(FsError::NotSupported("access control lists here"));
    }
    Ok(())
}

/// Value of an attribute.
pub(crate) fn get(fs: &MountedFs, ino: u32, name: &[u8]) -> Result<Vec<u8>> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    if name.starts_with(b"user.")
        && !matches!(st.kind(), Some(FileType::Regular | FileType::Directory))
    {
        return Err(FsError::NoAttribute);
    }
    check(fs, &st, name)?;
    xattr::get(&fs.vol, &st.node, name)
}

/// Names of all attributes.
pub(crate) fn list(fs: &MountedFs, ino: u32) -> Result<Vec<Vec<u8>>> {
    let cell = fs.cell(ino)?;
    let st = cell.read()?;
    let mut names = xattr::list(&fs.vol, &st.node)?;
    names.retain(|n| {
        (fs.fixed.acl || !n.starts_with(b"system.posix_acl_"))
            && (fs.fixed.user_xattr || !n.starts_with(b"user."))
    });
    Ok(names)
}

/// Sets (or with `None` removes) an attribute.
pub(crate) fn set(
    fs: &MountedFs,
    ino: u32,
    name: &[u8],
    value: Option<&[u8]>,
    how: XattrSet,
) -> Result<()> {
    fs.check_writable()?;
    if value.is_some_and(|v| v.len() > xattr::MAX_VALUE) {
        return Err(FsError::TooBig);
    }
    let cell = fs.cell(ino)?;
    with_space(fs, || {
        let mut st = cell.write()?;
        check(fs, &st, name)?;
        if st.node.raw.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(FsError::NotPermitted);
        }
        // Setting the present value is no change.
        let same = match (value, how) {
            (Some(value), XattrSet::Any | XattrSet::Replace) => {
                xattr::get(&fs.vol, &st.node, name).is_ok_and(|old| old == value)
            }
            _ => false,
        };
        let len = value.map_or(0, <[u8]>::len);
        if value.is_some() {
            fs.need_attributes()?;
        }
        let reserved = Reservation::make(fs, 2 + xattr::blocks(&fs.vol, len))?;
        let mut h = fs.start(xattr::credits(&fs.vol, &st.node, len) + 1)?;
        let mut large = fs.values();
        let result = xattr::set(&fs.vol, &mut h, &mut st.node, &mut large, name, value, how);
        values::end(fs, &mut h, &mut st, large)?;
        if result.is_ok() && !same {
            st.node.raw.ctime = fs.now();
        }
        st.store(fs, &mut h, true)?;
        fs.settle(&st);
        h.stop().map_err(error::journal)?;
        drop(reserved);
        values::delete_left(fs);
        result
    })
}
