//! POSIX access control lists: Linux's attribute form and ext4's shorter one.
//!
//! ```text
//!  attribute (version 2):  le32 2 │ le16 tag, le16 perm, le32 id │ …      8 bytes per entry
//!  on disk   (version 1):  le32 1 │ le16 tag, le16 perm [, le32 id] │ …   id only for named ones
//! ```

use crate::bytes::{get16, get32};
use crate::error::{OnDiskError, Result, ensure};

const VERSION_XATTR: u32 = 2;
const VERSION_DISK: u32 = 1;
const NO_ID: u32 = u32::MAX;

/// The subject of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum AclTag {
    /// The owner.
    UserObj,
    /// A named user.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A named group.
    Group(u32),
    /// Upper bound for named entries and the owning group.
    Mask,
    /// All other users.
    Other,
}

impl AclTag {
    fn code(self) -> u16 {
        match self {
            Self::UserObj => 0x01,
            Self::User(_) => 0x02,
            Self::GroupObj => 0x04,
            Self::Group(_) => 0x08,
            Self::Mask => 0x10,
            Self::Other => 0x20,
        }
    }

    fn id(self) -> Option<u32> {
        match self {
            Self::User(id) | Self::Group(id) => Some(id),
            _ => None,
        }
    }

    fn from_code(code: u16, id: u32) -> Result<Self> {
        Ok(match code {
            0x01 => Self::UserObj,
            0x02 => Self::User(id),
            0x04 => Self::GroupObj,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return Err(OnDiskError::bad("ACL entry with an unknown tag")),
        })
    }
}

/// One entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEntry {
    /// Its subject.
    pub tag: AclTag,
    /// Permissions, 0 to 7.
    pub perm: u16,
}

/// An access control list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acl {
    /// Entries, in the order they are stored.
    pub entries: Vec<AclEntry>,
}

impl Acl {
    /// Decodes the attribute form. An empty list stands for "no ACL".
    ///
    /// # Errors
    /// Not this form.
    pub fn from_xattr(b: &[u8]) -> Result<Self> {
        ensure(b.len() >= 4 && get32(b, 0) == VERSION_XATTR, "ACL of an unknown version")?;
        ensure(b.len() % 8 == 4, "ACL with half an entry")?;
        let entries = (4..b.len()).step_by(8).map(|at| {
            Ok(AclEntry {
                tag: AclTag::from_code(get16(b, at), get32(b, at + 4))?,
                perm: get16(b, at + 2),
            })
        });
        Ok(Self { entries: entries.collect::<Result<_>>()? })
    }

    /// Encodes the attribute form.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = VERSION_XATTR.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend(e.tag.code().to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            out.extend(e.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        out
    }

    /// Decodes the form on disk.
    ///
    /// # Errors
    /// Not this form.
    pub fn from_disk(b: &[u8]) -> Result<Self> {
        ensure(b.len() >= 4 && get32(b, 0) == VERSION_DISK, "stored ACL of an unknown version")?;
        let mut entries = Vec::new();
        let mut at = 4;
        while at < b.len() {
            let named = matches!(get16(b, at), 0x02 | 0x08);
            let len = if named { 8 } else { 4 };
            ensure(at + len <= b.len(), "stored ACL with half an entry")?;
            let id = if named { get32(b, at + 4) } else { NO_ID };
            entries.push(AclEntry {
                tag: AclTag::from_code(get16(b, at), id)?,
                perm: get16(b, at + 2),
            });
            at += len;
        }
        Ok(Self { entries })
    }

    /// Encodes the form on disk.
    #[must_use]
    pub fn to_disk(&self) -> Vec<u8> {
        let mut out = VERSION_DISK.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend(e.tag.code().to_le_bytes());
            out.extend(e.perm.to_le_bytes());
            if let Some(id) = e.tag.id() {
                out.extend(id.to_le_bytes());
            }
        }
        out
    }

    /// True if the list is complete and in order: owner, named users, owning group, named groups,
    /// mask (needed if there are named entries), others.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let rank = |tag: AclTag| match tag {
            AclTag::UserObj => 0,
            AclTag::User(_) => 1,
            AclTag::GroupObj => 2,
            AclTag::Group(_) => 3,
            AclTag::Mask => 4,
            AclTag::Other => 5,
        };
        let count = |wanted: u8| self.entries.iter().filter(|e| rank(e.tag) == wanted).count();
        let ordered = self.entries.windows(2).all(|w| rank(w[0].tag) <= rank(w[1].tag));
        let single = count(0) == 1 && count(2) == 1 && count(5) == 1 && count(4) <= 1;
        let masked = count(4) == 1 || count(1) + count(3) == 0;
        let sane = self.entries.iter().all(|e| e.perm <= 7 && e.tag.id() != Some(NO_ID));
        ordered && single && masked && sane
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Acl {
        let e = |tag, perm| AclEntry { tag, perm };
        Acl {
            entries: vec![
                e(AclTag::UserObj, 6),
                e(AclTag::User(1000), 7),
                e(AclTag::GroupObj, 4),
                e(AclTag::Group(70000), 1),
                e(AclTag::Mask, 7),
                e(AclTag::Other, 0),
            ],
        }
    }

    #[test]
    fn both_forms() {
        let acl = sample();
        let disk = acl.to_disk();
        assert_eq!(
            disk,
            [
                1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 7, 0, 0xE8, 3, 0, 0, 4, 0, 4, 0, 8, 0, 1, 0, 0x70,
                0x11, 1, 0, 0x10, 0, 7, 0, 0x20, 0, 0, 0
            ]
        );
        assert_eq!(Acl::from_disk(&disk).unwrap(), acl);
        let xattr = acl.to_xattr();
        assert_eq!(xattr.len(), 4 + 6 * 8);
        assert_eq!(&xattr[..12], [2, 0, 0, 0, 1, 0, 6, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(Acl::from_xattr(&xattr).unwrap(), acl);
        for cut in [disk.len() - 2, 10, 3, 0] {
            assert!(Acl::from_disk(&disk[..cut]).is_err(), "{cut}");
        }
        assert!(Acl::from_xattr(&xattr[..20]).is_ok());
        assert!(Acl::from_xattr(&xattr[..21]).is_err());
        assert!(Acl::from_xattr(&disk).is_err());
    }

    #[test]
    fn validity() {
        assert!(sample().is_valid());
        let change = |f: &dyn Fn(&mut Vec<AclEntry>)| {
            let mut acl = sample();
            f(&mut acl.entries);
            acl.is_valid()
        };
        assert!(!change(&|e| e.swap(0, 1)));
        assert!(!change(&|e| e.truncate(4)));
        assert!(!change(&|e| e.truncate(5)));
        assert!(!change(&|e| e[1].perm = 8));
        assert!(!change(&|e| e[1].tag = AclTag::User(u32::MAX)));
        assert!(!change(&|e| e.push(AclEntry { tag: AclTag::Other, perm: 0 })));
        assert!(change(&|e| e.retain(|e| e.tag.id().is_none() && e.tag != AclTag::Mask)));
        assert!(!Acl::default().is_valid());
    }
}
