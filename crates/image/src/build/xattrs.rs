//! Where the extended attributes of files go: into the inode while they fit, the others into a
//! block. Inodes with equal attributes share the block, as many as a block may have users.

use extol_ondisk::acl::Acl;
use extol_ondisk::xattr::{self, MAX_REFCOUNT, XattrEntry, index};
use extol_ondisk::{Geometry, Inode};

/// The attributes of one set, as they are stored.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// The area in the inode; empty for none.
    pub(super) tail: Vec<u8>,
    /// Those in a block.
    pub(super) in_block: Vec<XattrEntry>,
    /// Inodes that have the set.
    pub(super) users: u64,
}

/// Why an attribute is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    /// ext4 has no number for the beginning of its name.
    Namespace,
    /// The name, without its beginning, is empty or too long.
    Name,
    /// Not an access control list.
    Acl,
    /// The attributes of a file do not fit into one block.
    Size,
}

/// Name spaces and their numbers. The whole name stands for itself where nothing may follow.
const NAMESPACES: &[(&[u8], u8, bool)] = &[
    (b"system.posix_acl_access", index::ACL_ACCESS, true),
    (b"system.posix_acl_default", index::ACL_DEFAULT, true),
    (b"user.", index::USER, false),
    (b"trusted.", index::TRUSTED, false),
    (b"security.", index::SECURITY, false),
];

/// An attribute as it is stored. `None`: an access control list that says nothing.
pub(super) fn entry(name: &[u8], value: &[u8]) -> Result<Option<XattrEntry>, Refused> {
    let space = NAMESPACES.iter().find(|(prefix, _, whole)| match whole {
        true => name == *prefix,
        false => name.starts_with(prefix),
    });
    let Some((prefix, index, whole)) = space else { return Err(Refused::Namespace) };
    if *whole {
        let acl = Acl::from_xattr(value).map_err(|_| Refused::Acl)?;
        if acl.entries.is_empty() {
            return Ok(None);
        }
        if !acl.is_valid() {
            return Err(Refused::Acl);
        }
        return Ok(Some(XattrEntry::new(*index, b"", &acl.to_disk())));
    }
    let rest = name.get(prefix.len()..).unwrap_or_default();
    if rest.is_empty() || rest.len() > 255 || rest.contains(&0) {
        return Err(Refused::Name);
    }
    Ok(Some(XattrEntry::new(*index, rest, value)))
}

/// Bytes for attributes in an inode.
fn room(geo: &Geometry) -> usize {
    Inode::new_empty(geo).tail.len()
}

impl Stored {
    /// Divides the attributes of a set between inode and block.
    pub(super) fn new(geo: &Geometry, mut all: Vec<XattrEntry>) -> Result<Self, Refused> {
        let room = room(geo);
        all.sort_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
        let (mut inside, mut in_block) = (Vec::new(), Vec::new());
        // The smallest first would move most of them inside; what Linux looks for most often,
        // access control lists and labels, are the small ones, and come first by their numbers.
        for entry in all {
            inside.push(entry);
            if xattr::ibody_space(&inside) > room {
                in_block.extend(inside.pop());
            }
        }
        if xattr::block_space(&in_block) > geo.block_len() {
            return Err(Refused::Size);
        }
        let tail = match inside.is_empty() {
            true => Vec::new(),
            false => xattr::build_ibody(&inside, room).ok_or(Refused::Size)?,
        };
        Ok(Self { tail, in_block, users: 0 })
    }

    /// True if the inode with this number, in the order of those with the set, is the first user of
    /// a block.
    pub(super) fn needs_block(&self, user: u64) -> bool {
        !self.in_block.is_empty() && user.is_multiple_of(u64::from(MAX_REFCOUNT))
    }

    /// Which of the blocks a user has.
    pub(super) fn block_of(user: u64) -> usize {
        usize::try_from(user / u64::from(MAX_REFCOUNT)).unwrap_or(usize::MAX)
    }

    /// The contents of the block with this number, without its checksum.
    pub(super) fn block(&self, geo: &Geometry, nr: usize) -> Vec<u8> {
        let before = nr as u64 * u64::from(MAX_REFCOUNT);
        let users = self.users.saturating_sub(before).min(u64::from(MAX_REFCOUNT)) as u32;
        let mut entries = self.in_block.clone();
        xattr::build_block(&mut entries, geo.block_len(), users)
            .unwrap_or_else(|| vec![0; geo.block_len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::tests::{geometry, geometry_of};

    #[test]
    fn names_get_their_numbers() {
        let stored = |name: &str| entry(name.as_bytes(), b"v").map(|e| e.map(|e| e.index));
        assert_eq!(stored("user.a"), Ok(Some(index::USER)));
        assert_eq!(stored("security.selinux"), Ok(Some(index::SECURITY)));
        assert_eq!(stored("trusted.x"), Ok(Some(index::TRUSTED)));
        for (name, why) in [
            ("com.apple.quarantine", Refused::Namespace),
            ("system.nfs4_acl", Refused::Namespace),
            ("user.", Refused::Name),
            ("system.posix_acl_access", Refused::Acl),
        ] {
            assert_eq!(stored(name), Err(why), "{name}");
        }
        assert_eq!(entry(b"system.posix_acl_access", &2u32.to_le_bytes()), Ok(None));
        assert_eq!(stored(&format!("user.{}", "x".repeat(256))), Err(Refused::Name));
    }

    #[test]
    fn small_ones_in_the_inode_and_large_ones_in_a_shared_block() {
        let geo = geometry(4096, 1 << 20);
        let set = |sizes: &[usize]| {
            let all = sizes.iter().enumerate();
            all.map(|(i, len)| XattrEntry::new(index::USER, &[b'a' + i as u8], &vec![7; *len]))
                .collect::<Vec<_>>()
        };
        let small = Stored::new(&geo, set(&[10, 20])).expect("stored");
        assert_eq!((small.tail.len(), small.in_block.len()), (96, 0));
        let mut both = Stored::new(&geo, set(&[10, 2000, 20])).expect("stored");
        assert_eq!(both.in_block.len(), 1);
        assert_eq!(xattr::parse_ibody(&both.tail).expect("inode").len(), 2);
        both.users = 2500;
        let firsts: Vec<u64> = (0..2500).filter(|user| both.needs_block(*user)).collect();
        assert_eq!(firsts, [0, 1024, 2048]);
        assert_eq!([1023, 1024, 2499].map(Stored::block_of), [0, 1, 2]);
        assert!(!small.needs_block(0));
        let counts: Vec<u32> = (0..3)
            .map(|nr| xattr::parse_block(&both.block(&geo, nr)).expect("block").0.refcount)
            .collect();
        assert_eq!(counts, [1024, 1024, 452]);
        assert_eq!(Stored::new(&geo, set(&[2000, 2100])).err(), Some(Refused::Size));
        let old = geometry_of("-I 128 -b 1024", 1 << 20);
        assert_eq!(Stored::new(&old, set(&[10])).expect("stored").in_block.len(), 1);
    }
}
