//! fs-verity: a file whose contents never change again, with a Merkle tree of their hashes. No I/O,
//! no panic on any bytes.
//!
//! ```text
//!   Descriptor: algorithm, block size, salt, size of the file, root hash
//!        │                            its hash is the file's digest ([`Digest`])
//!        ▼
//!   level 2   [ hash hash ]                             the root level, first in the tree
//!   level 1   [ hash … hash ] [ hash … ]
//!   level 0   [ hash … hash ] …            [ hash … ]   hashes of data blocks, last in the tree
//!   data      block block block …                       the last one is padded with zeros
//! ```
//!
//! Every block, of data or of the tree, is hashed behind the salt, which zeros pad to the length
//! that the algorithm takes at once. A file of one block has no level: the root hash is the block's
//! own. An empty file's root hash is zero.
//!
//! * [`Builder`] makes a tree from contents in memory for one block per level.
//! * [`Verifier`] checks one data block against a tree; blocks of the tree that are checked already
//!   are kept in a [`Recent`].
//! * [`ext4`] says where ext4 keeps a tree and its descriptor.
//!
//! Invariants
//! - VT-1: a block of the tree is kept as checked only after its hash was found in a block that is
//!   checked, or in the descriptor ([`Verifier::verify`]).
//! - VT-2: what is hashed for the digest are the bytes of the descriptor as stored, but for the
//!   length of the signature ([`Descriptor::digest`]).

mod algorithm;
mod build;
mod descriptor;
mod digest;
mod error;
pub mod ext4;
mod params;
mod recent;
mod tree;
mod verify;

pub use algorithm::{Algorithm, MAX_HASH};
pub use build::Builder;
pub use descriptor::{DESCRIPTOR_LEN, Descriptor, MAX_SIGNATURE};
pub use digest::Digest;
pub use error::{Result, VerityError};
pub use params::{MAX_SALT, Params, Salt};
pub use recent::{Known, Recent};
pub use tree::{Level, MAX_LEVELS, Tree};
pub use verify::{Failed, Verifier};
