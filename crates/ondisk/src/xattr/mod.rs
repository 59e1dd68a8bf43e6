//! Extended attributes: in the inode behind its extra fields, and in one block that inodes with
//! equal attributes share.
//!
//! ```text
//!  in the inode:  magic │ entry │ entry │ … │ 0000 │   free   │ value │ value │
//!                         ╰ value offsets count from here
//!  in a block:    32-byte header │ entry │ … │ 0000 │  free   │ value │ value │
//!                 ╰ value offsets count from here
//! ```
//!
//! An entry is 16 bytes and its name, padded to 4; values are padded to 4 and fill the space from
//! its end. A value may instead be in an inode of its own (`value_inum`). Entries in a block are
//! sorted by (index, length of name, name) and have hashes, by which equal blocks are found.
//!
//! Both areas are rebuilt as a whole when they change: parse, edit the list, build.

mod area;
mod block;
mod entry;
mod ibody;
pub mod index;
#[cfg(test)]
mod tests;
mod value;

pub use block::{
    BLOCK_HEADER_LEN, BlockHeader, MAX_REFCOUNT, block_space, build_block, parse_block,
    renumber_block, set_csum, verify_csum,
};
pub use entry::{ENTRY_LEN, XattrEntry, entry_hash, signed_entry_hash};
pub use ibody::{
    IBODY_HEADER_LEN, build_ibody, ibody_names_inodes, ibody_space, parse_ibody, renumber_ibody,
};
pub use value::{
    MAX_INODE_VALUE, is_old_form, set_stated_hash, set_stated_users, stated_hash, stated_users,
    value_entry_hash, value_hash, verify_inode_value,
};

/// Magic number of both areas.
pub const MAGIC: u32 = 0xEA02_0000;
/// Length of the zeros that end the entries.
const END_LEN: usize = 4;
