//! File data: how bytes get from a caller to the device and back.
//!
//! ```text
//!   write()                     write-back: fsync, memory pressure, age, unmount
//!      │ copy, reserve                │ 1. take free blocks in memory
//!      ▼                              │ 2. write the data to the device       (no handle, no foreign lock)
//!   dirty pages ─────────────────────►│ 3. handle: bitmap bits, extents, size  (short)
//! ```
//!
//! *Map after write*: a block is mapped only after its data is on the device, so a commit never
//! waits for file data, and the flush before its commit record makes the data of everything it maps
//! durable. Nothing stale can show up in a file after a crash: what is not mapped reads as zeros,
//! and freed blocks are taken again only after their commit.
//!
//! Small new files go through step 2 many at a time (`together`). Large aligned writes skip the
//! pages and go through the same three steps at once; not so if a small file is written again and again (`write::is_rewritten`).
//!
//! Invariants
//! - D1: a page in a hole holds a reservation (`write::put_page`), so step 1 does not fail for want
//!   of space.
//! - D2: `disk_size` grows only in the transaction that maps the blocks below it (`place::apply`);
//!   pages before a large piece go before it (`write::write_direct`).
//! - D3: bytes behind the end of the file are zero in every page (`write::load`) and on the device
//!   before the file grows over them (`truncate::zero_tail`).
//! - D4: a failed data write aborts the journal: what it should have covered is never acknowledged.
//!
//! Clean data stays in memory for whoever reads it again ([`cache`]).
//!
//! The inode's lock is held throughout; readers share it.

pub(crate) mod ahead;
pub(crate) mod cache;
pub(crate) mod dirty;
pub(crate) mod fallocate;
pub(crate) mod order;
mod place;
pub(crate) mod read;
pub(crate) mod seek;
mod together;
pub(crate) mod truncate;
pub(crate) mod write;
pub(crate) mod writeback;
pub(crate) mod zero_out;
