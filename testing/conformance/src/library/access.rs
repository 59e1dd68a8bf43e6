//! Permissions: the VFS's part of them.

use extol::path::Inode;
use extol::vfs::{Attr, FileKind, FileSystem};
use rustix::io::Errno;

use super::{Library, attr};
use crate::posix::Result;

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

/// `chattr` flags.
pub(super) const IMMUTABLE: u32 = 0x10;
pub(super) const APPEND: u32 = 0x20;

/// Tags of ACL entries.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

impl Library {
    pub(super) fn is_root(&self) -> bool {
        self.caller.uid == 0
    }

    pub(super) fn owns(&self, a: &Attr) -> bool {
        self.is_root() || self.caller.uid == a.uid
    }

    pub(super) fn in_group(&self, gid: u32) -> bool {
        self.caller.gid == gid || self.caller.groups.contains(&gid)
    }

    /// True if a set-group-id bit without group execution does not survive a change by this user.
    pub(super) fn is_outsider(&self, a: &Attr) -> bool {
        !self.is_root() && !self.in_group(a.gid)
    }

    /// The permission check of a walk or an open.
    pub(super) fn permit(&self, a: &Attr, wanted: u32) -> Result<()> {
        if wanted & WRITE != 0 && a.flags & IMMUTABLE != 0 {
            return Err(Errno::PERM);
        }
        if self.granted(a)? & wanted == wanted {
            return Ok(());
        }
        let any_exec = a.kind == FileKind::Directory || a.perm & 0o111 != 0;
        if self.is_root() && (wanted & SEARCH == 0 || any_exec) {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    fn granted(&self, a: &Attr) -> Result<u32> {
        let mode = u32::from(a.perm);
        if self.caller.uid == a.uid {
            return Ok(mode >> 6 & 7);
        }
        if mode & 0o070 != 0
            && a.kind != FileKind::Symlink
            && let Ok(list) = self.fs().getxattr(a.id.ino, b"system.posix_acl_access")
        {
            return Ok(self.granted_by_acl(&list, a));
        }
        Ok(if self.in_group(a.gid) { mode >> 3 & 7 } else { mode & 7 })
    }

    /// What a list grants to a caller that is not the owner. (A group entry counts if it grants all
    /// that is asked; giving the union is the same for single bits, and cases ask for single bits.)
    fn granted_by_acl(&self, list: &[u8], a: &Attr) -> u32 {
        let number = |b: &[u8]| b.iter().rev().fold(0u32, |n, b| n << 8 | u32::from(*b));
        let entries: Vec<(u16, u32, u32)> = list
            .get(4..)
            .unwrap_or_default()
            .chunks_exact(8)
            .map(|e| (number(&e[..2]) as u16, number(&e[2..4]), number(&e[4..])))
            .collect();
        let find = |tag| entries.iter().find(|e| e.0 == tag).map(|e| e.1);
        let mask = find(MASK).unwrap_or(7);
        if let Some((_, perm, _)) = entries.iter().find(|e| e.0 == USER && e.2 == self.caller.uid) {
            return perm & mask;
        }
        let groups = entries.iter().filter(|(tag, _, id)| match *tag {
            GROUP_OBJ => self.in_group(a.gid),
            GROUP => self.in_group(*id),
            _ => false,
        });
        let mut grants = groups.map(|(_, perm, _)| *perm).peekable();
        if grants.peek().is_some() {
            return grants.fold(0, |all, perm| all | perm) & mask;
        }
        debug_assert!(find(USER_OBJ).is_some());
        find(OTHER).unwrap_or(0)
    }

    /// May a name be added to this directory?
    pub(super) fn may_create(&self, dir: &Inode) -> Result<()> {
        let a = attr(dir)?;
        if a.nlink == 0 {
            return Err(Errno::NOENT);
        }
        self.permit(&a, WRITE | SEARCH)
    }

    /// May this name be taken from its directory? Sticky directories protect what others own.
    pub(super) fn may_delete(&self, dir: &Inode, victim: &Inode) -> Result<()> {
        let d = attr(dir)?;
        self.permit(&d, WRITE | SEARCH)?;
        let v = attr(victim)?;
        let mine = self.is_root() || self.caller.uid == v.uid || self.caller.uid == d.uid;
        if d.flags & APPEND != 0 || (d.perm & 0o1000 != 0 && !mine) {
            return Err(Errno::PERM);
        }
        Ok(())
    }
}
