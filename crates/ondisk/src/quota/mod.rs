//! Quota files: usage and limits of users, groups or projects, in Linux's formats vfsv0 and vfsv1.
//!
//! ```text
//!  block 0         block 1 (root)    blocks of the tree      data blocks
//!  header, info    256 × le32 ──►    256 × le32 ──► … ──►    header, entries
//!                  by bits 24..32    … by bits 0..8          of some ids, in no order
//! ```
//!
//! A quota file is an array of blocks of 1 KiB, whatever the block size of the volume. An id is
//! looked up through four levels of tables, eight bits at each; the last one names the data block
//! that has the entry. Free blocks form a list, and so do the data blocks that have room for
//! another entry; block 0 has the heads of both.
//!
//! * [`Header`] and [`Info`]: block 0.
//! * [`Entry`]: usage and limits of one id.
//! * `tree`, `data`: the two kinds of other blocks.
//! * [`QuotaFile`]: looks up, changes, inserts and removes entries over a [`Blocks`].
//!
//! All input is hostile. A number of a block is used only inside the file, the tree has four
//! levels whatever it says, lists are followed for as many steps as the file has blocks. A change
//! is made on copies of the blocks and written when all of it is possible: what fails has changed
//! nothing.

mod change;
mod data;
mod entry;
mod file;
mod header;
mod info;
mod insert;
mod lists;
mod memory;
mod remove;
#[cfg(test)]
mod tests;
mod tree;
mod verify;
mod walk;

pub use entry::{Entry, LIMIT_UNIT};
pub use file::{Place, QuotaFile};
pub use header::{Header, Kind, Version};
pub use info::{DEFAULT_GRACE, Info};
pub use memory::InMemory;

use crate::error::OnDiskError;

/// Bytes of a block of a quota file.
pub const BLOCK_LEN: usize = 1024;
/// Blocks of a file with no entry: header and root.
pub const LEAST_BLOCKS: u32 = 2;
/// The block with the root of the tree.
const ROOT: u32 = 1;

/// A block of a quota file.
pub type Block = [u8; BLOCK_LEN];

/// What holds the blocks of a quota file.
pub trait Blocks {
    /// Why a block cannot be had; what is wrong in the file becomes one as well.
    type Error: From<OnDiskError>;

    /// Whole blocks that there are.
    fn count(&mut self) -> Result<u32, Self::Error>;

    /// Reads a block that is there.
    ///
    /// # Errors
    /// The block cannot be read.
    fn read(&mut self, nr: u32) -> Result<Block, Self::Error>;

    /// Writes a block. The block behind the last one makes the file longer; other blocks behind
    /// the end are never written.
    ///
    /// # Errors
    /// The block cannot be written, or the file cannot become longer.
    fn write(&mut self, nr: u32, block: &Block) -> Result<(), Self::Error>;
}
