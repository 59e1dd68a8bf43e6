//! ext4 in user space: open a file, a disk or memory that holds an ext2, ext3 or ext4 volume, and
//! do everything that a mount can do, journaled like Linux.
//!
//! ```text
//!   Ext4 (FileSystem)            one entry for every operation
//!     ops/      names, inodes, attributes: lock inodes, start a handle, work
//!     data/     file bytes: dirty pages, map after write
//!     dir/      entries, hashed directories        map/    extents, indirect blocks
//!     xattr/    attributes, ACLs                    inline.rs  contents inside the inode
//!     alloc/    free blocks and inodes              orphan.rs  what recovery must finish
//!     services/ what happens without being asked
//!     whole/    sync, checkpoint, freeze, shutdown
//!     pace/     heavy writers leave room for fsyncs
//!     inodes.rs who is known, decoded, locked       mount/  open, recover, close
//!   mount/, remount/, live.rs   options, and how they change while it is open
//!   journal: block cache, transactions, log, checkpoint          ondisk: bytes and types
//! ```
//!
//! # Lock order
//!
//! Outer first; a thread may skip levels and never goes back.
//!
//! 0. the gate, which every change passes; a freeze and a remount close it (`whole/gate.rs`)
//! 1. the rename lock (renames between directories; whoever locks a directory below another)
//! 2. inode locks: parent before child; two directories, ancestor first; two files, smaller number
//!    first
//! 3. the journal handle (`start` may sleep until a commit ends or the log has room)
//! 4. the orphan lock
//! 5. an allocator group's lock (one at a time)
//! 6. the superblock's lock
//! 7. leaves: buffers, cache shards, counters, the journal's state
//!
//! No inode lock is taken while a handle is open. Commit callbacks run without a handle and take 5
//! to 7 only.

pub(crate) mod alloc;
pub(crate) mod data;
pub(crate) mod dir;
pub(crate) mod dirs_moved;
pub(crate) mod error;
mod ext4;
pub(crate) mod fast_commit;
pub(crate) mod fs;
pub(crate) mod guard;
mod info;
pub(crate) mod inline;
pub(crate) mod inodes;
pub(crate) mod live;
pub(crate) mod map;
pub mod mkfs;
pub(crate) mod mount;
pub(crate) mod node;
pub(crate) mod ops;
pub mod options;
pub(crate) mod orphan;
pub(crate) mod pace;
pub mod path;
pub(crate) mod remount;
pub(crate) mod services;
mod stats;
pub(crate) mod trouble;
pub(crate) mod volume;
pub(crate) mod whole;
pub(crate) mod xattr;

pub use data::ahead::AheadStats;
pub use data::cache::DataCacheStats;
pub use ext4::Ext4;
pub use extol_block as device;
pub use extol_jbd2::fast::FuaPolicy;
pub use extol_vfs as vfs;
pub use extol_vfs::{FileSystem, FsError};
pub use fast_commit::Reason as FullCommitReason;
pub use info::{Info, Replayed, info, inspect_journal, recovered, replay};
pub use mount::{OpenError, OpenResult};
pub use options::MountOptions;
pub use pace::PaceStats;
pub use path::{File, OpenOptions};
pub use services::lazy_init::LazyInitStats;
pub use stats::Stats;
