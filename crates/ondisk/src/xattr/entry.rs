//! One extended attribute.

/// An entry without its name.
pub const ENTRY_LEN: usize = 16;

/// An attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XattrEntry {
    /// Name space.
    pub index: u8,
    /// Name without the prefix of its name space.
    pub name: Vec<u8>,
    /// Value; empty if it is in an inode of its own.
    pub value: Vec<u8>,
    /// Inode of the value, 0 if it is here.
    pub value_inum: u32,
    /// Length of the value.
    pub value_size: u32,
    /// Hash as stored. Built anew for values that are here.
    pub hash: u32,
}

impl XattrEntry {
    /// An attribute with its value here.
    #[must_use]
    pub fn new(index: u8, name: &[u8], value: &[u8]) -> Self {
        let value_size = u32::try_from(value.len()).unwrap_or(u32::MAX);
        Self {
            index,
            name: name.to_vec(),
            value: value.to_vec(),
            value_inum: 0,
            value_size,
            hash: 0,
        }
    }

    /// Bytes it needs in an area.
    #[must_use]
    pub fn space(&self) -> usize {
        entry_space(self.name.len()) + self.value.len().next_multiple_of(4)
    }

    /// True for this attribute.
    #[must_use]
    pub fn is(&self, index: u8, name: &[u8]) -> bool {
        self.index == index && self.name == name
    }

    pub(super) fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.index, self.name.len(), &self.name)
    }
}

/// Bytes that an entry takes with its padded name.
pub(super) fn entry_space(name_len: usize) -> usize {
    ENTRY_LEN + name_len.next_multiple_of(4)
}

/// Hash of an entry whose value is here.
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash(name, value, u32::from)
}

/// The hash that old kernels give: the bytes of the name are signed.
#[must_use]
pub fn signed_entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash(name, value, |c| i32::from(c.cast_signed()).cast_unsigned())
}

fn hash(name: &[u8], value: &[u8], wide: impl Fn(u8) -> u32) -> u32 {
    let named = name.iter().fold(0u32, |h, &c| h.rotate_left(5) ^ wide(c));
    value.chunks(4).fold(named, |h, chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        h.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}
