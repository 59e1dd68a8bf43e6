//! ext4's on-disk structures: bytes to types and back. No I/O, no state, no panic on any bytes.
//!
//! ```text
//!  Superblock ──► Geometry ──► GroupDesc, Inode, bitmaps, directory blocks, extent nodes …
//!  (1024 bytes)   (validated,   (each decodes with the geometry, which has sizes, features and the
//!                  immutable)    checksum seed, and verifies its own checksum)
//! ```
//!
//! Rules that hold for every module:
//!
//! * Everything ext4 is little-endian. (What belongs to jbd2 is big-endian and lives in the journal
//!   crate.)
//! * `decode` takes untrusted bytes. It checks magic numbers, checksums, lengths and ranges, and
//!   gives [`OnDiskError`] for anything that may not be used. What it returned is safe to index
//!   with.
//! * `encode` brings the checksum up to date and keeps bytes that this crate has no name for.
//! * Checksums are only computed and compared where the volume's features ask for them.

mod bytes;

pub mod acl;
pub mod bitmap;
pub mod block_size;
pub mod checksum;
pub mod dirent;
pub mod encryption;
pub mod error;
pub mod extent;
pub mod fast_commit;
pub mod features;
pub mod geometry;
pub mod group_desc;
pub mod htree;
pub mod ids;
pub mod indirect;
pub mod inode;
pub mod mmp;
pub mod orphan_file;
pub mod quota;
pub mod shared_super;
pub mod superblock;
pub mod xattr;

pub use block_size::BlockSize;
pub use checksum::{FsSeed, InodeSeed};
pub use error::{OnDiskError, Result};
pub use features::{Compat, Incompat, RoCompat};
pub use geometry::Geometry;
pub use group_desc::{GroupDesc, GroupFlags};
pub use ids::{BlockNr, GroupNr, InodeNr};
pub use inode::{FileType, Inode, InodeFlags, Time};
pub use superblock::Superblock;
