//! What a tree is made with: algorithm, block size and salt.

use crate::algorithm::{Algorithm, Salted};
use crate::error::{Result, VerityError};

/// Bytes of the longest salt.
pub const MAX_SALT: usize = 32;

/// Bytes before each block that is hashed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Salt(Vec<u8>);

impl Salt {
    /// # Errors
    /// More than [`MAX_SALT`] bytes.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_SALT { Err(VerityError::Salt) } else { Ok(Self(bytes.to_vec())) }
    }

    /// Its bytes; none if there is no salt.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What a tree is made with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Params {
    algorithm: Algorithm,
    block_size: u32,
    salt: Salt,
}

impl Params {
    /// # Errors
    /// A block size that is no power of two from 1024 to 65536. (Linux takes none above the block
    /// size of the volume or the size of a page.)
    pub fn new(algorithm: Algorithm, block_size: u32, salt: Salt) -> Result<Self> {
        if !(1024..=65536).contains(&block_size) || !block_size.is_power_of_two() {
            return Err(VerityError::BlockSize);
        }
        Ok(Self { algorithm, block_size, salt })
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Bytes of a block, of data and of the tree.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The same as a length in memory.
    #[must_use]
    pub fn block_len(&self) -> usize {
        self.block_size as usize
    }

    /// The salt.
    #[must_use]
    pub fn salt(&self) -> &Salt {
        &self.salt
    }

    pub(crate) fn salted(&self) -> Salted {
        Salted::new(self.algorithm, &self.salt)
    }

    /// Hashes in a block of the tree.
    pub(crate) fn hashes_per_block(&self) -> u64 {
        u64::from(self.block_size) / self.algorithm.len() as u64
    }
}
