//! File data: how bytes get from a caller to the device and back.
//!
//! ```text
//!   write()            writeback: fsync, memory pressure, age, unmount
//!      │ copy, reserve       │ 1. take free blocks in memory
//!      ▼                     │ 2. write the data to the device        (no handle, no other lock)
//!   dirty pages ────────────►│ 3. handle: bitmap bits, extents, size  (short)
//! ```
//!
//! *Map after write* (the order of data=ordered): a block is mapped only after its data was
//! written, so a commit never waits for file data, and the flush before its commit record makes the
//! data of all blocks that it maps durable. No stale bytes show in a file after a crash: unmapped
//! blocks read as zeros, and freed blocks are taken again only after the commit that freed them.
//!
//! Small new files go through step 2 in batches ([`batch`]). Large aligned writes skip the
//! pages and go through the same three steps at once.
//!
//! Invariants
//! - DA-1: a page in a hole holds a reserved cluster (`write::put_page`) unless the file has it or
//!   another page holds it, so step 1 does not fail for lack of space.
//! - DA-2: `disk_size` grows only in the transaction that maps the blocks below it
//!   (`BlockWriter::map_changes`); pages in front of a direct write go before it
//!   (`write::write_direct`).
//! - DA-3: bytes behind the end of the file are zero in every page (`write::put_page`) and on the
//!   device before the file grows over them (`write::zero_tail`).
//! - DA-4: a failed data write aborts the journal (`MountedFs::data_write_failed`): no fsync that
//!   covers it succeeds.
//!
//! Clean data stays in memory ([`cache`]). Encrypted files: [`encryption`].
//!
//! Locking: the inode's lock is held throughout; readers share it.

mod batch;
pub(crate) mod cache;
mod clusters;
pub(crate) mod delalloc;
pub(crate) mod dirty;
pub(crate) mod encryption;
pub(crate) mod fallocate;
pub(crate) mod flush;
pub(crate) mod order;
pub(crate) mod read;
pub(crate) mod readahead;
mod reserve;
pub(crate) mod seek;
pub(crate) mod truncate;
#[cfg(feature = "verity")]
pub(crate) mod verity;
#[cfg(not(feature = "verity"))]
#[path = "verity/without.rs"]
pub(crate) mod verity;
pub(crate) mod write;
pub(crate) mod writeback;
mod writepages;
pub(crate) mod zero_out;
