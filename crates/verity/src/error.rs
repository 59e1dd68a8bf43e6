//! The one error of this crate: bytes or parameters that may not be used.

/// Result of decoding, and of a choice of parameters.
pub type Result<T> = std::result::Result<T, VerityError>;

/// Bytes or parameters that may not be used: one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerityError {
    /// A hash algorithm that is not known.
    #[error("the hash algorithm is unknown")]
    Algorithm,
    /// A block size that no tree may have.
    #[error("the block size of the Merkle tree is no power of two from 1024 to 65536")]
    BlockSize,
    /// A salt that is too long.
    #[error("the salt has more than 32 bytes")]
    Salt,
    /// A signature that is too long.
    #[error("the signature is too long")]
    Signature,
    /// A file too large for a tree.
    #[error("the file is too large for a Merkle tree")]
    TooLarge,
    /// A descriptor that is damaged.
    #[error("the verity descriptor {0}")]
    Descriptor(&'static str),
    /// A place of the descriptor that cannot be.
    #[error("the verity descriptor cannot lie {0}")]
    Place(&'static str),
    /// Contents of another length than was said.
    #[error("the file changed its size while its Merkle tree was built")]
    Size,
}
