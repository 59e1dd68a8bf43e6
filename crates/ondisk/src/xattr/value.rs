//! Values of attributes in inodes of their own (ea_inode).
//!
//! Such an inode uses three fields for something else: the access time is the checksum of the
//! value, change time and version are the two halves of its number of users. (Lustre made such
//! inodes before there was a checksum: theirs have one user, which they name in the modification
//! time.)

use super::entry::{XattrEntry, entry_hash, signed_entry_hash};
use crate::checksum::FsSeed;
use crate::error::{Result, ensure, ensure_csum};
use crate::ids::InodeNr;
use crate::inode::{Inode, Time};

/// Longest value that an attribute inode holds.
pub const MAX_INODE_VALUE: u32 = 1 << 24;

/// Checksum of a value.
#[must_use]
pub fn value_hash(value: &[u8], seed: FsSeed) -> u32 {
    seed.crc(value)
}

/// The checksum that an inode with a value states.
#[must_use]
pub fn stated_hash(inode: &Inode) -> u32 {
    inode.atime.sec as u32
}

/// The number of users that an inode with a value states: attributes of inodes, and of blocks.
#[must_use]
pub fn stated_users(inode: &Inode) -> u64 {
    u64::from(inode.ctime.sec as u32) << 32 | u64::from(inode.version as u32)
}

/// Sets the checksum that an inode with a value states.
pub fn set_stated_hash(inode: &mut Inode, hash: u32) {
    inode.atime = word(hash);
}

/// Sets the number of users that an inode with a value states.
pub fn set_stated_users(inode: &mut Inode, users: u64) {
    inode.ctime = word((users >> 32) as u32);
    inode.version = u64::from(users as u32);
}

/// The time whose seconds are stored as this word, in inodes of all sizes.
fn word(word: u32) -> Time {
    Time { sec: i64::from(word.cast_signed()), nsec: 0 }
}

/// True if the inode `value` is of the old form: it names the inode that has the attribute.
#[must_use]
pub fn is_old_form(
    value: &Inode,
    entry: &XattrEntry,
    owner: InodeNr,
    owner_generation: u32,
) -> bool {
    entry.hash != stated_hash(value)
        && value.mtime.sec as u32 == owner.0
        && value.generation == owner_generation
}

/// Hash of an entry whose value is in an inode: over the name and the checksum of the value.
#[must_use]
pub fn value_entry_hash(name: &[u8], value_hash: u32) -> u32 {
    entry_hash(name, &value_hash.to_le_bytes())
}

/// Checks a value that was read against the checksum that its inode states, and that against the
/// entry.
///
/// # Errors
/// A wrong checksum.
pub fn verify_inode_value(
    value: &[u8],
    inode: &Inode,
    entry: &XattrEntry,
    seed: FsSeed,
) -> Result<()> {
    let stated = stated_hash(inode);
    ensure_csum("attribute value", stated, value_hash(value, seed))?;
    let bytes = stated.to_le_bytes();
    let fits = entry.hash == entry_hash(&entry.name, &bytes)
        || entry.hash == signed_entry_hash(&entry.name, &bytes);
    ensure(fits, "attribute value of another attribute")
}

impl XattrEntry {
    /// An attribute whose value, of `size` bytes with that checksum, is in inode `ino`.
    #[must_use]
    pub fn in_inode(index: u8, name: &[u8], ino: InodeNr, size: u32, value_hash: u32) -> Self {
        Self {
            index,
            name: name.to_vec(),
            value: Vec::new(),
            value_inum: ino.0,
            value_size: size,
            hash: value_entry_hash(name, value_hash),
        }
    }

    /// True if the value is in an inode of its own.
    #[must_use]
    pub fn has_inode(&self) -> bool {
        self.value_inum != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_survives_in_inodes_of_all_sizes() {
        for n in [0, 1, 0x7FFF_FFFF, 0x8000_0000, 0xA983_FC1D, u32::MAX] {
            let time = word(n);
            let (low, extra) = time.to_words();
            assert_eq!((low, time.to_word()), (n, n));
            assert_eq!(Time::from_words(low, extra).sec as u32, n);
        }
    }

    #[test]
    fn both_hashes_of_a_name_are_right() {
        let seed = FsSeed(0);
        let value = b"some value";
        let hash = value_hash(value, seed);
        let entry = XattrEntry::in_inode(1, b"\xE4", InodeNr(15), 10, hash);
        assert_eq!(entry.hash, entry_hash(b"\xE4", &hash.to_le_bytes()));
        let signed = signed_entry_hash(b"\xE4", &hash.to_le_bytes());
        assert_ne!(signed, entry.hash);
        assert!(entry.has_inode() && entry.value_size == 10 && entry.value.is_empty());
        // 0xE4 as a signed number has all high bits set.
        assert_eq!(signed ^ entry.hash, 0xFFFF_FF00_u32.rotate_left(16));
        assert_eq!(value_entry_hash(b"big", 0x82D9_3241), entry_hash(b"big", b"\x41\x32\xD9\x82"));
        // Stored by Linux: the entry of a value with that checksum.
        assert_eq!(value_entry_hash(b"big", 0x82D9_3241), 0x079E_3240);
    }
}
