//! Where the extended attributes of files go: into the inode while they fit, the others into a
//! block. Inodes with equal attributes share the block, as many as a block may have users. With the
//! feature ea_inode, the longest values of those that do not fit get inodes of their own, one for
//! equal ones.

use extol_ondisk::acl::Acl;
use extol_ondisk::xattr::{self, MAX_REFCOUNT, XattrEntry, index};
use extol_ondisk::{FsSeed, Geometry, Incompat, Inode, InodeNr};
use std::collections::HashMap;

/// The attributes of one set, as they are stored.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Those in the inode.
    inside: Vec<XattrEntry>,
    /// Those in a block.
    pub(super) in_block: Vec<XattrEntry>,
    /// Inodes that have the set.
    pub(super) users: u64,
}

/// Values in inodes of their own, which are behind those of all files.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// The inode of the first one.
    first: u32,
    all: Vec<Vec<u8>>,
    by_value: HashMap<Vec<u8>, u32>,
}

/// Longest value that Linux sets.
const LONGEST: usize = 65_536;

impl Values {
    /// None yet. `last`: the inode behind which they begin.
    pub(super) fn behind(last: u32) -> Self {
        Self { first: last.saturating_add(1), ..Self::default() }
    }

    /// Their number.
    pub(super) fn len(&self) -> u32 {
        self.all.len() as u32
    }

    /// All of them, with their inodes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (InodeNr, &[u8])> {
        (self.first..).map(InodeNr).zip(self.all.iter().map(|value| &value[..]))
    }

    /// The inode of a value.
    fn ino(&mut self, value: &[u8]) -> Option<InodeNr> {
        if let Some(nr) = self.by_value.get(value) {
            return Some(InodeNr(*nr));
        }
        let nr = self.first.checked_add(self.len())?;
        self.all.push(value.to_vec());
        self.by_value.insert(value.to_vec(), nr);
        Some(InodeNr(nr))
    }

    /// The value that an entry names.
    fn of(&self, entry: &XattrEntry) -> &[u8] {
        let at = entry.value_inum.wrapping_sub(self.first) as usize;
        self.all.get(at).map_or(&[], |value| value)
    }

    /// Gives the hashes that come from the volume's seed to entries that name values.
    fn hash(&self, entries: &mut [XattrEntry], seed: FsSeed) {
        for entry in entries.iter_mut().filter(|entry| entry.has_inode()) {
            let hash = xattr::value_hash(self.of(entry), seed);
            entry.hash = xattr::value_entry_hash(&entry.name, hash);
        }
    }
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
    /// Divides the attributes of a set between inode, block, and values in inodes of their own.
    pub(super) fn new(
        geo: &Geometry,
        mut all: Vec<XattrEntry>,
        values: &mut Values,
    ) -> Result<Self, Refused> {
        all.sort_by(|a, b| (a.index, &a.name).cmp(&(b.index, &b.name)));
        loop {
            match Self::divided(geo, all.clone()) {
                Err(Refused::Size) if geo.incompat().contains(Incompat::EA_INODE) => {}
                divided => return divided,
            }
            let longest = all.iter_mut().max_by_key(|entry| entry.value.len());
            let longest = longest.filter(|entry| (1..=LONGEST).contains(&entry.value.len()));
            let Some(entry) = longest else { return Err(Refused::Size) };
            let ino = values.ino(&entry.value).ok_or(Refused::Size)?;
            let size = entry.value_size;
            *entry = XattrEntry::in_inode(entry.index, &entry.name, ino, size, 0);
        }
    }

    fn divided(geo: &Geometry, all: Vec<XattrEntry>) -> Result<Self, Refused> {
        let room = room(geo);
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
        Ok(Self { inside, in_block, users: 0 })
    }

    /// The area in the inode; `None` if it is empty.
    pub(super) fn tail(&self, geo: &Geometry, values: &Values) -> Option<Vec<u8>> {
        let mut entries = self.inside.clone();
        values.hash(&mut entries, geo.fs_seed);
        if entries.is_empty() { None } else { xattr::build_ibody(&entries, room(geo)) }
    }

    /// Bytes for which the values in inodes of their own count in a file that has the set.
    pub(super) fn charged(&self, geo: &Geometry) -> u64 {
        let all = self.inside.iter().chain(&self.in_block).filter(|entry| entry.has_inode());
        let cluster = geo.cluster_blocks(1) * geo.block_len() as u64;
        all.map(|entry| u64::from(entry.value_size).next_multiple_of(cluster)).sum()
    }

    /// How many values in inodes of their own a file pays for that has the set.
    pub(super) fn values(&self) -> u64 {
        let all = self.inside.iter().chain(&self.in_block);
        all.filter(|entry| entry.has_inode()).count() as u64
    }

    /// Adds up the users of each value: entries of inodes, and of blocks.
    pub(super) fn count_users(&self, counts: &mut HashMap<InodeNr, u64>) {
        let blocks = self.users.div_ceil(u64::from(MAX_REFCOUNT));
        let named = self.inside.iter().map(|entry| (entry, self.users));
        for (entry, users) in named.chain(self.in_block.iter().map(|entry| (entry, blocks))) {
            if entry.has_inode() {
                *counts.entry(InodeNr(entry.value_inum)).or_default() += users;
            }
        }
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
    pub(super) fn block(&self, geo: &Geometry, nr: usize, values: &Values) -> Vec<u8> {
        let before = nr as u64 * u64::from(MAX_REFCOUNT);
        let users = self.users.saturating_sub(before).min(u64::from(MAX_REFCOUNT)) as u32;
        let mut entries = self.in_block.clone();
        values.hash(&mut entries, geo.fs_seed);
        xattr::build_block(&mut entries, geo.block_len(), users)
            .unwrap_or_else(|| vec![0; geo.block_len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::tests::{geometry, geometry_of};

    fn stored(geo: &Geometry, all: Vec<XattrEntry>) -> Result<Stored, Refused> {
        Stored::new(geo, all, &mut Values::default())
    }

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
        let none = Values::default();
        let small = stored(&geo, set(&[10, 20])).expect("stored");
        assert_eq!(small.tail(&geo, &none).map(|tail| tail.len()), Some(96));
        assert!(small.in_block.is_empty());
        let mut both = stored(&geo, set(&[10, 2000, 20])).expect("stored");
        assert_eq!(both.in_block.len(), 1);
        let tail = both.tail(&geo, &none).expect("attributes in the inode");
        assert_eq!(xattr::parse_ibody(&tail).expect("inode").len(), 2);
        both.users = 2500;
        let firsts: Vec<u64> = (0..2500).filter(|user| both.needs_block(*user)).collect();
        assert_eq!(firsts, [0, 1024, 2048]);
        assert_eq!([1023, 1024, 2499].map(Stored::block_of), [0, 1, 2]);
        assert!(!small.needs_block(0));
        let counts: Vec<u32> = (0..3)
            .map(|nr| xattr::parse_block(&both.block(&geo, nr, &none)).expect("block").0.refcount)
            .collect();
        assert_eq!(counts, [1024, 1024, 452]);
        assert_eq!(stored(&geo, set(&[2000, 2100])).err(), Some(Refused::Size));
        let old = geometry_of("-I 128 -b 1024", 1 << 20);
        assert_eq!(stored(&old, set(&[10])).expect("stored").in_block.len(), 1);
    }

    #[test]
    fn the_longest_get_inodes_and_equal_ones_share_them() {
        let geo = geometry_of("-b 1024 -O ea_inode", 1 << 20);
        let entry = |name: &[u8], len| XattrEntry::new(index::USER, name, &vec![7; len]);
        let mut values = Values::behind(20);
        let set = vec![entry(b"a", 3000), entry(b"b", 500), entry(b"c", 3000), entry(b"d", 600)];
        let mut first = Stored::new(&geo, set, &mut values).expect("stored");
        let second = vec![entry(b"x", 600), entry(b"y", 3000), entry(b"z", 65_536)];
        let mut second = Stored::new(&geo, second, &mut values).expect("stored");
        let found: Vec<_> = values.iter().map(|(ino, value)| (ino.0, value.len())).collect();
        // (600 bytes and 500 do not fit into one block.)
        assert_eq!(found, [(21, 3000), (22, 600), (23, 65_536)]);
        assert_eq!((first.charged(&geo), second.charged(&geo)), (7 << 10, 67 << 10));
        (first.users, second.users) = (1, 2000);
        let mut counts = HashMap::new();
        first.count_users(&mut counts);
        second.count_users(&mut counts);
        let inside =
            |set: &Stored, ino| set.inside.iter().filter(|e| e.value_inum == ino).count() as u64;
        assert!(inside(&second, 21) == 1 && inside(&first, 21) == 2, "{first:?} {second:?}");
        assert_eq!(counts[&InodeNr(21)], 2 + 2000);
        let too_long = vec![entry(b"z", 65_537)];
        assert_eq!(Stored::new(&geo, too_long, &mut values).err(), Some(Refused::Size));
    }
}
