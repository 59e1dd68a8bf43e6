//! The hash algorithms, and hashing behind a salt.

use sha2::{Digest as _, Sha256, Sha512};

use crate::params::Salt;

/// Length of the longest hash.
pub const MAX_HASH: usize = 64;

/// A hash algorithm of fs-verity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// By its number in a descriptor.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.id() == id)
    }

    /// By its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Its number in a descriptor, and in the ioctls.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// Its name in the text of a digest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Length of a hash.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "the length of what it makes")]
    pub fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Bytes that the algorithm takes at once.
    pub(crate) fn input_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    /// The hash of `bytes` alone.
    pub(crate) fn hash(self, bytes: &[u8]) -> Hash {
        match self {
            Self::Sha256 => Hash::new(&Sha256::digest(bytes)),
            Self::Sha512 => Hash::new(&Sha512::digest(bytes)),
        }
    }
}

/// A hash: as many bytes as its algorithm makes, and zeros behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hash(pub [u8; MAX_HASH]);

impl Hash {
    fn new(bytes: &[u8]) -> Self {
        let mut hash = [0; MAX_HASH];
        hash.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self(hash)
    }

    /// True if `bytes` begin with this hash of that algorithm.
    pub fn is(&self, algorithm: Algorithm, bytes: &[u8]) -> bool {
        bytes.get(..algorithm.len()) == self.0.get(..algorithm.len())
    }
}

/// Hashes blocks behind a salt.
#[derive(Clone, Debug)]
pub(crate) enum Salted {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Salted {
    pub fn new(algorithm: Algorithm, salt: &Salt) -> Self {
        let mut padded = salt.bytes().to_vec();
        if !padded.is_empty() {
            padded.resize(padded.len().next_multiple_of(algorithm.input_len()), 0);
        }
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new_with_prefix(padded)),
            Algorithm::Sha512 => Self::Sha512(Sha512::new_with_prefix(padded)),
        }
    }

    /// The hash of salt and block.
    pub fn hash(&self, block: &[u8]) -> Hash {
        match self {
            Self::Sha256(state) => Hash::new(&state.clone().chain_update(block).finalize()),
            Self::Sha512(state) => Hash::new(&state.clone().chain_update(block).finalize()),
        }
    }
}
