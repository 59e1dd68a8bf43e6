//! Calls about attributes: modes, owners, times, flags, extended attributes.

use extol::path::Inode;
use extol::vfs::Mountable as _;
use extol::vfs::{Attr, FileKind, FileSystem, SetAttr, SetTime, Timestamp, XattrSet};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::access::{APPEND, IMMUTABLE, READ, WRITE};
use super::{Library, attr, errno};
use crate::posix::{Result, Time};

/// `chattr +j` is root's.
const JOURNAL_DATA: u32 = 0x4000;

/// Most bytes of a value and of a list of names.
const XATTR_MAX: usize = 65536;

impl Library {
    fn set(&self, node: &Inode, set: SetAttr) -> Result<()> {
        self.fs().setattr(node.ino(), &set).map(drop).map_err(errno)
    }

    fn must_own(&self, a: &Attr) -> Result<()> {
        // What cannot change at all says so first.
        if self.owns(a) || a.flags & (IMMUTABLE | APPEND) != 0 { Ok(()) } else { Err(Errno::PERM) }
    }

    pub(super) fn do_chmod(&self, node: &Inode, mode: u32) -> Result<()> {
        let a = attr(node)?;
        self.must_own(&a)?;
        let mut perm = (mode & 0o7777) as u16;
        if !self.is_root() && !self.in_group(a.gid) {
            perm &= !0o2000;
        }
        self.set(node, SetAttr { perm: Some(perm), ..SetAttr::default() })
    }

    pub(super) fn do_chown(&self, node: &Inode, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let a = attr(node)?;
        let marked = a.flags & (IMMUTABLE | APPEND) != 0;
        let mine = self.caller.uid == a.uid;
        let uid_ok = uid.is_none_or(|uid| mine && uid == a.uid);
        let gid_ok = gid.is_none_or(|gid| mine && (gid == a.gid || self.in_group(gid)));
        let allowed = marked || self.is_root() || (uid_ok && gid_ok);
        if !allowed {
            return Err(Errno::PERM);
        }
        if !marked && a.kind != FileKind::Directory {
            self.fs().kill_privileges(node.ino(), self.is_outsider(&a)).map_err(errno)?;
        }
        // Even a change to nothing is one.
        let ctime = (uid.is_none() && gid.is_none()).then_some(SetTime::Now);
        self.set(node, SetAttr { uid, gid, ctime, ..SetAttr::default() })
    }

    pub(super) fn do_utimens(&self, path: &str, atime: Time, mtime: Time) -> Result<()> {
        let valid = |t| !matches!(t, Time::At(_, 1_000_000_000..));
        if !valid(atime) || !valid(mtime) {
            return Err(Errno::INVAL);
        }
        if (atime, mtime) == (Time::Omit, Time::Omit) {
            return Ok(());
        }
        let node = self.walk(path, true)?;
        let a = attr(&node)?;
        if (atime, mtime) == (Time::Now, Time::Now) {
            if a.flags & IMMUTABLE == 0 && !self.owns(&a) {
                self.permit(&a, WRITE)?;
            }
        } else {
            self.must_own(&a)?;
        }
        let time = |t| match t {
            Time::Now => Some(SetTime::Now),
            Time::Omit => None,
            Time::At(sec, nsec) => Some(SetTime::At(Timestamp { sec, nsec })),
        };
        self.set(&node, SetAttr { atime: time(atime), mtime: time(mtime), ..SetAttr::default() })
    }

    pub(super) fn do_set_flags(&self, node: &Inode, flags: u32) -> Result<()> {
        let a = attr(node)?;
        if !self.owns(&a) {
            return Err(Errno::PERM);
        }
        if (flags ^ a.flags) & (IMMUTABLE | APPEND) != 0 && !self.is_root() {
            return Err(Errno::PERM);
        }
        if (flags ^ a.flags) & JOURNAL_DATA != 0 && !self.is_root() {
            return Err(Errno::PERM);
        }
        self.set(node, SetAttr { flags: Some(flags), ..SetAttr::default() })
    }

    /// Whether the caller may see and change attributes of a name's class; the same table as in the
    /// kernel.
    fn xattr_permitted(&self, node: &Inode, name: &str, wanted: u32) -> Result<()> {
        let a = attr(node)?;
        let write = wanted == WRITE;
        if write && a.flags & (IMMUTABLE | APPEND) != 0 {
            return Err(Errno::PERM);
        }
        let denied = if write { Errno::PERM } else { Errno::NODATA };
        if name.starts_with("system.posix_acl_") {
            return if write && !self.owns(&a) && a.kind != FileKind::Symlink {
                Err(Errno::PERM)
            } else {
                Ok(())
            };
        }
        if name.starts_with("security.") {
            return if write && !self.is_root() { Err(Errno::PERM) } else { Ok(()) };
        }
        if name.starts_with("trusted.") {
            return if self.is_root() { Ok(()) } else { Err(denied) };
        }
        if name.starts_with("user.") {
            match a.kind {
                FileKind::Regular => {}
                FileKind::Directory if write && a.perm & 0o1000 != 0 && !self.owns(&a) => {
                    return Err(Errno::PERM);
                }
                FileKind::Directory => {}
                _ => return Err(denied),
            }
        }
        self.permit(&a, wanted)
    }

    pub(super) fn do_setxattr(
        &self,
        node: &Inode,
        name: &str,
        value: &[u8],
        how: XattrFlags,
    ) -> Result<()> {
        check_name(name)?;
        let how = match how {
            h if h.is_empty() => XattrSet::Any,
            XattrFlags::CREATE => XattrSet::Create,
            XattrFlags::REPLACE => XattrSet::Replace,
            h if h == XattrFlags::CREATE | XattrFlags::REPLACE => {
                self.do_getxattr(node, name, 0)?;
                return Err(Errno::EXIST);
            }
            _ => return Err(Errno::INVAL),
        };
        if value.len() > XATTR_MAX {
            return Err(Errno::TOOBIG);
        }
        self.xattr_permitted(node, name, WRITE)?;
        self.fs().setxattr(node.ino(), name.as_bytes(), value, how).map_err(errno)?;
        let a = attr(node)?;
        let keeps_group = self.is_root() || self.in_group(a.gid);
        if name == "system.posix_acl_access" && a.perm & 0o2000 != 0 && !keeps_group {
            self.set(node, SetAttr { perm: Some(a.perm & !0o2000), ..SetAttr::default() })?;
        }
        Ok(())
    }

    pub(super) fn do_getxattr(&self, node: &Inode, name: &str, room: usize) -> Result<Vec<u8>> {
        check_name(name)?;
        self.xattr_permitted(node, name, READ)?;
        let value = self.fs().getxattr(node.ino(), name.as_bytes()).map_err(errno)?;
        match room {
            0 => Ok(vec![0; value.len()]),
            room if value.len() > room => Err(Errno::RANGE),
            _ => Ok(value),
        }
    }

    pub(super) fn do_listxattr(&self, node: &Inode, room: usize) -> Result<Vec<String>> {
        let mut names: Vec<String> = self
            .fs()
            .listxattr(node.ino())
            .map_err(errno)?
            .iter()
            .map(|n| String::from_utf8_lossy(n).into_owned())
            .filter(|n| self.is_root() || !n.starts_with("trusted."))
            .collect();
        let len: usize = names.iter().map(|n| n.len() + 1).sum();
        if room > 0 && len > room {
            return Err(Errno::RANGE);
        }
        if room == 0 {
            return Ok(Vec::new());
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn do_removexattr(&self, node: &Inode, name: &str) -> Result<()> {
        check_name(name)?;
        self.xattr_permitted(node, name, WRITE)?;
        self.fs().removexattr(node.ino(), name.as_bytes()).map_err(errno)
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 255 { Err(Errno::RANGE) } else { Ok(()) }
}
