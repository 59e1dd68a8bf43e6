//! What an encrypted inode says of itself: its policy, and a nonce of its own.
//!
//! It is the value of the extended attribute with the index
//! 9 (`extol_ondisk::xattr::index::ENCRYPTION`) and the name [`Context::XATTR`].

use extol_ondisk::encryption::{self, DESCRIPTOR_LEN, IDENTIFIER_LEN, NONCE_LEN, V1_LEN, V2_LEN};

bitflags::bitflags! {
    /// Flags of a policy. The lowest two bits are [the padding of names](Policy::padding).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// How names are padded: 4, 8, 16 or 32 bytes.
        const PADDING = 0x03;
        /// All inodes share one key, and the nonce is part of the IVs.
        const DIRECT_KEY = 0x04;
        /// All inodes share one key; the number of the inode is the upper half of 64 bits of IV.
        const IV_INO_LBLK_64 = 0x08;
        /// All inodes share one key; a hash of the inode's number is added to 32 bits of IV.
        const IV_INO_LBLK_32 = 0x10;
        /// What this version does not know.
        const _ = !0;
    }
}

/// How a policy names its master key. It decides the version of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeySpec {
    /// Version 1: eight bytes that the maker of the policy chose.
    Descriptor([u8; DESCRIPTOR_LEN]),
    /// Version 2: [derived from the key](crate::MasterKey::identifier).
    Identifier([u8; IDENTIFIER_LEN]),
}

/// How files are encrypted. Inherited: a whole tree has the same.
///
/// The numbers are as they are on disk, and may be of a later version: policies are compared even
/// where they cannot be used. [`Policy::check`] makes it one that can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The master key.
    pub key: KeySpec,
    /// Number of the [mode](crate::Mode) of contents.
    pub contents: u8,
    /// Number of the [mode](crate::Mode) of names.
    pub names: u8,
    /// Flags.
    pub flags: Flags,
    /// Version 2: binary logarithm of the size of data units; 0: that of blocks.
    pub log2_data_unit: u8,
    /// Version 2: must be zero.
    pub reserved: [u8; 3],
}

impl Policy {
    /// Names are padded to a multiple of so many bytes.
    #[must_use]
    pub const fn padding(&self) -> usize {
        4 << (self.flags.bits() & Flags::PADDING.bits())
    }

    /// Its version: 1 or 2.
    #[must_use]
    pub const fn version(&self) -> u8 {
        match self.key {
            KeySpec::Descriptor(_) => 1,
            KeySpec::Identifier(_) => 2,
        }
    }
}

/// The policy of an inode, with its nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The policy.
    pub policy: Policy,
    /// Random bytes of this inode.
    pub nonce: [u8; NONCE_LEN],
}

/// A context that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadContext {
    /// A version that is not known.
    #[error("an encryption context of version {0}")]
    Version(u8),
    /// The length does not fit the version.
    #[error("an encryption context of {0} bytes")]
    Length(usize),
}

impl Context {
    /// Name of the extended attribute.
    pub const XATTR: &[u8] = encryption::XATTR;

    /// Reads a context.
    ///
    /// # Errors
    ///
    /// If version and length do not fit.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadContext> {
        let &version = bytes.first().ok_or(BadContext::Length(0))?;
        match version {
            1 => Self::parse_v1(bytes.try_into().map_err(|_| BadContext::Length(bytes.len()))?),
            2 => Self::parse_v2(bytes.try_into().map_err(|_| BadContext::Length(bytes.len()))?),
            _ => Err(BadContext::Version(version)),
        }
    }

    fn parse_v1(bytes: &[u8; V1_LEN]) -> Result<Self, BadContext> {
        let policy = Policy {
            key: KeySpec::Descriptor(part(bytes, 4)),
            contents: bytes[1],
            names: bytes[2],
            flags: Flags::from_bits_retain(bytes[3]),
            log2_data_unit: 0,
            reserved: [0; 3],
        };
        Ok(Self { policy, nonce: part(bytes, 4 + DESCRIPTOR_LEN) })
    }

    fn parse_v2(bytes: &[u8; V2_LEN]) -> Result<Self, BadContext> {
        let policy = Policy {
            key: KeySpec::Identifier(part(bytes, 8)),
            contents: bytes[1],
            names: bytes[2],
            flags: Flags::from_bits_retain(bytes[3]),
            log2_data_unit: bytes[4],
            reserved: part(bytes, 5),
        };
        Ok(Self { policy, nonce: part(bytes, 8 + IDENTIFIER_LEN) })
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let policy = &self.policy;
        let mut out = Vec::with_capacity(V2_LEN);
        out.extend([policy.version(), policy.contents, policy.names, policy.flags.bits()]);
        match policy.key {
            KeySpec::Descriptor(descriptor) => out.extend(descriptor),
            KeySpec::Identifier(identifier) => {
                out.push(policy.log2_data_unit);
                out.extend(policy.reserved);
                out.extend(identifier);
            }
        }
        out.extend(self.nonce);
        out
    }
}

/// `N` bytes from `at` on. The callers' lengths are constants.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(version: u8, len: u8) -> Vec<u8> {
        std::iter::once(version).chain(1..len).collect()
    }

    #[test]
    fn a_context_of_version_1_has_28_bytes_in_this_order() {
        let bytes = numbered(1, 28);
        let context = Context::parse(&bytes).unwrap();
        assert_eq!((context.policy.contents, context.policy.names), (1, 2));
        assert_eq!(context.policy.flags.bits(), 3);
        assert_eq!(context.policy.key, KeySpec::Descriptor([4, 5, 6, 7, 8, 9, 10, 11]));
        assert_eq!(context.nonce, std::array::from_fn(|i| 12 + i as u8));
        assert_eq!(context.to_bytes(), bytes);
    }

    #[test]
    fn a_context_of_version_2_has_40_bytes_in_this_order() {
        let bytes = numbered(2, 40);
        let context = Context::parse(&bytes).unwrap();
        assert_eq!(context.policy.log2_data_unit, 4);
        assert_eq!(context.policy.reserved, [5, 6, 7]);
        assert_eq!(context.policy.key, KeySpec::Identifier(std::array::from_fn(|i| 8 + i as u8)));
        assert_eq!(context.nonce, std::array::from_fn(|i| 24 + i as u8));
        assert_eq!(context.to_bytes(), bytes);
    }

    #[test]
    fn versions_and_lengths_that_do_not_fit_are_told() {
        assert_eq!(Context::parse(&[]), Err(BadContext::Length(0)));
        assert_eq!(Context::parse(&numbered(0, 28)), Err(BadContext::Version(0)));
        assert_eq!(Context::parse(&numbered(3, 40)), Err(BadContext::Version(3)));
        for len in (1..60).filter(|&len| len != 28) {
            let got = Context::parse(&numbered(1, len));
            assert_eq!(got, Err(BadContext::Length(len.into())));
        }
        for len in (1..60).filter(|&len| len != 40) {
            let got = Context::parse(&numbered(2, len));
            assert_eq!(got, Err(BadContext::Length(len.into())));
        }
    }

    #[test]
    fn the_padding_of_names_is_4_to_32() {
        let mut policy = Context::parse(&numbered(2, 40)).unwrap().policy;
        for (bits, padding) in [(0, 4), (1, 8), (2, 16), (3, 32), (0xFC, 4), (0xFF, 32)] {
            policy.flags = Flags::from_bits_retain(bits);
            assert_eq!(policy.padding(), padding);
        }
    }
}
