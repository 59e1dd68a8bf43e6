//! The rights of a caller. The file system checks none of them: that is its front ends' work.

use extol_vfs::{Attr, Creds, FileKind, FsError, Mountable};

use crate::config::{Config, Squash};
use crate::rpc::Credentials;
use crate::status::{Result, Status};

pub(crate) const READ: u16 = 4;
pub(crate) const WRITE: u16 = 2;
pub(crate) const EXECUTE: u16 = 1;

/// The number that stands for no user and no group.
pub(crate) const NO_ID: u32 = u32::MAX;

const STICKY: u16 = 0o1000;
const SET_GID: u16 = 0o2000;
const ACL: &[u8] = b"system.posix_acl_access";

/// The caller, as the export takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    groups: Vec<u32>,
}

impl Caller {
    /// The caller that the export makes of credentials. The id that stands for none becomes the
    /// anonymous one, and no group, as with Linux's nfsd.
    pub(crate) fn of(config: &Config, credentials: &Credentials) -> Self {
        let (anonymous_uid, anonymous_gid) = (config.anonymous_uid, config.anonymous_gid);
        match credentials {
            Credentials::Unix { uid, gid, groups } if config.squash != Squash::All => {
                let squashes = config.squash == Squash::Root;
                let of = |id: u32, anonymous: u32| match id {
                    NO_ID => anonymous,
                    0 if squashes => anonymous,
                    id => id,
                };
                let groups = groups.iter().filter(|id| **id != NO_ID);
                Self {
                    uid: of(*uid, anonymous_uid),
                    gid: of(*gid, anonymous_gid),
                    groups: groups.map(|id| of(*id, anonymous_gid)).collect(),
                }
            }
            _ => Self { uid: anonymous_uid, gid: anonymous_gid, groups: Vec::new() },
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    pub(crate) fn creds(&self) -> Creds {
        Creds { uid: self.uid, gid: self.gid }
    }

    /// True if it owns the file, or owns everything.
    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        self.is_root() || self.uid == attr.uid
    }

    /// True if it has all of the rights `wanted` to a file.
    pub(crate) fn may(&self, fs: &dyn Mountable, attr: &Attr, wanted: u16) -> Result<bool> {
        if self.is_root() {
            let executes = attr.kind == FileKind::Directory || attr.perm & 0o111 != 0;
            return Ok(wanted & EXECUTE == 0 || executes);
        }
        let has = |bits: u16| bits & wanted == wanted;
        if self.uid == attr.uid {
            return Ok(has(attr.perm >> 6));
        }
        let list = match fs.getxattr(attr.id.ino, ACL) {
            Ok(list) => list,
            Err(FsError::NoAttribute | FsError::NotSupported(_)) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        if let Some(allowed) = self.may_by_list(&list, attr, wanted) {
            return Ok(allowed);
        }
        let bits = if self.is_in(attr.gid) { attr.perm >> 3 } else { attr.perm };
        Ok(has(bits))
    }

    /// Err unless it has these rights to a file.
    pub(crate) fn check(&self, fs: &dyn Mountable, attr: &Attr, wanted: u16) -> Result<()> {
        if self.may(fs, attr, wanted)? { Ok(()) } else { Err(Status::ACCESS) }
    }

    /// The same for the contents of a file, which its owner may always read and write: a client has
    /// checked rights when the file was opened, and they may have changed since.
    pub(crate) fn check_open(&self, fs: &dyn Mountable, attr: &Attr, wanted: u16) -> Result<()> {
        if self.uid == attr.uid { Ok(()) } else { self.check(fs, attr, wanted) }
    }

    /// Err if the sticky bit of a directory keeps a name from it.
    pub(crate) fn check_sticky(&self, dir: &Attr, target: &Attr) -> Result<()> {
        let kept = dir.perm & STICKY != 0 && !self.owns(dir) && !self.owns(target);
        if kept { Err(Status::PERMISSION) } else { Ok(()) }
    }

    /// Permission bits that it may give to a file: set-group-id only to groups it is in.
    pub(crate) fn allowed_bits(&self, perm: u16, group: u32) -> u16 {
        if self.is_root() || self.is_in(group) { perm } else { perm & !SET_GID }
    }

    /// What an access list says, which has more than permission bits. `None`: it is none.
    fn may_by_list(&self, list: &[u8], attr: &Attr, wanted: u16) -> Option<bool> {
        let entries = Entries::of(list)?;
        let mask = entries.clone().find(|entry| entry.tag == Tag::MASK)?.perm;
        let has = |bits: u16| bits & wanted == wanted;
        let mut users = entries.clone().filter(|e| e.tag == Tag::USER && e.id == self.uid);
        if let Some(entry) = users.next() {
            return Some(has(entry.perm & mask));
        }
        let is_ours = |entry: &Entry| match entry.tag {
            Tag::GROUP_OBJ => self.is_in(attr.gid),
            Tag::GROUP => self.is_in(entry.id),
            _ => false,
        };
        let mut groups = entries.filter(is_ours).peekable();
        if groups.peek().is_some() {
            return Some(groups.any(|entry| has(entry.perm & mask)));
        }
        Some(has(attr.perm))
    }
}

/// Tags of entries.
struct Tag;

impl Tag {
    const USER: u16 = 0x02;
    const GROUP_OBJ: u16 = 0x04;
    const GROUP: u16 = 0x08;
    const MASK: u16 = 0x10;
}

/// An entry of an access list.
#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// The entries of an access list as an extended attribute has it.
#[derive(Clone)]
struct Entries<'a>(std::slice::ChunksExact<'a, u8>);

impl<'a> Entries<'a> {
    const VERSION: [u8; 4] = 2u32.to_le_bytes();
    const ENTRY: usize = 8;

    fn of(list: &'a [u8]) -> Option<Self> {
        let entries = list.strip_prefix(&Self::VERSION)?;
        Some(Self(entries.chunks_exact(Self::ENTRY)))
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let &[tag_low, tag_high, low, high, a, b, c, d] = self.0.next()? else { return None };
        Some(Entry {
            tag: u16::from_le_bytes([tag_low, tag_high]),
            perm: u16::from_le_bytes([low, high]) & 7,
            id: u32::from_le_bytes([a, b, c, d]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_vfs::{FileId, Timestamp};

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec() }
    }

    fn file(perm: u16) -> Attr {
        let id = FileId { ino: 12, generation: 1 };
        let owner = Creds { uid: 1000, gid: 100 };
        Attr::fresh(id, FileKind::Regular, perm, owner, Timestamp::default())
    }

    #[test]
    fn squashing() {
        let ids = |uid, gid| Credentials::Unix { uid, gid, groups: vec![0, 5] };
        let of = |squash, credentials: &Credentials| {
            let config =
                Config { squash, anonymous_uid: 70, anonymous_gid: 71, ..Config::default() };
            Caller::of(&config, credentials)
        };
        assert_eq!(of(Squash::Root, &ids(0, 0)), caller(70, 71, &[71, 5]));
        assert_eq!(of(Squash::Root, &ids(9, 8)), caller(9, 8, &[71, 5]));
        assert_eq!(of(Squash::None, &ids(0, 0)), caller(0, 0, &[0, 5]));
        assert_eq!(of(Squash::All, &ids(9, 8)), caller(70, 71, &[]));
        for squash in [Squash::None, Squash::Root] {
            let none = Credentials::Unix { uid: NO_ID, gid: NO_ID, groups: vec![NO_ID, 5] };
            assert_eq!(of(squash, &none), caller(70, 71, &[5]));
        }
        for credentials in [Credentials::None, Credentials::Unknown] {
            assert_eq!(of(Squash::None, &credentials), caller(70, 71, &[]));
        }
    }

    #[test]
    fn access_lists_decide_as_in_posix() {
        let list: Vec<u8> = [
            (0x01, 6, u32::MAX),
            (Tag::USER, 7, 2000),
            (Tag::GROUP_OBJ, 4, u32::MAX),
            (Tag::GROUP, 2, 300),
            (Tag::MASK, 6, u32::MAX),
            (0x20, 0, u32::MAX),
        ]
        .into_iter()
        .flat_map(|(tag, perm, id): (u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
        })
        .collect();
        let list = [&Entries::VERSION[..], &list].concat();
        let attr = file(0o660);
        let may = |caller: &Caller, wanted| caller.may_by_list(&list, &attr, wanted);
        let named = caller(2000, 1, &[]);
        assert_eq!(may(&named, READ | WRITE), Some(true));
        // The mask takes it.
        assert_eq!(may(&named, EXECUTE), Some(false));
        // No single entry has both.
        let both = caller(3000, 100, &[300]);
        assert_eq!(may(&both, READ), Some(true));
        assert_eq!(may(&both, WRITE), Some(true));
        assert_eq!(may(&both, READ | WRITE), Some(false));
        assert_eq!(may(&caller(3000, 1, &[]), READ), Some(false));
        // Without a mask it says no more than the permission bits.
        assert_eq!(both.may_by_list(b"", &attr, READ), None);
        assert_eq!(both.may_by_list(&list[..12], &attr, READ), None);
    }

    #[test]
    fn the_sticky_bit_keeps_names() {
        let mut dir = file(0o1777);
        dir.uid = 1;
        let target = file(0o644);
        assert_eq!(caller(5, 5, &[]).check_sticky(&dir, &target), Err(Status::PERMISSION));
        for uid in [0, 1, 1000] {
            assert_eq!(caller(uid, 5, &[]).check_sticky(&dir, &target), Ok(()), "{uid}");
        }
        dir.perm = 0o777;
        assert_eq!(caller(5, 5, &[]).check_sticky(&dir, &target), Ok(()));
    }
}
