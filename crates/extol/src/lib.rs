//! ext4 in user space: open a file, a disk or memory that holds an ext2, ext3 or ext4 volume, and
//! do everything that a mount can do, journaled like Linux.
//!
//! # Layers
//!
//! A module uses only modules below it (`tests/layers.rs` checks that and lists the order in full).
//! The four things that could be called "the file system":
//!
//! * [`Ext4`], the public handle: one entry for every operation;
//! * `MountedFs` (`mounted`), the state that all operations share;
//! * `Volume` (`volume`), the device with its journal, geometry and allocator;
//! * `Maintenance`, requests about the whole volume (sync, checkpoint, freeze).
//!
//! ```text
//!   path  fuse                  by path; as a mount                              lib
//!   ext4                        handle for programs, by inode
//!   check                       comparing a volume with itself
//!   info  stats                 properties, counters
//!   remount                     options change while the volume is open
//!   tune                        properties of a volume that is not in use
//!   mount                       open, recover, close
//!   quotas                      usage and limits, for administrators
//!   resize                      the volume grows; blocks of files move to other places
//!   find_journal                where the log is: an inode's blocks, or another device
//!   maintenance                 sync, checkpoint, freeze, thaw, shutdown
//!   ops                         names, inodes, attributes: lock inodes, start a handle, work
//!   data                        file bytes: dirty pages, map after write
//!   services  error_state       background threads, and the state after an error
//!   mounted  inodes  orphan     the state of the mount, inodes in memory, orphans
//!     (verity, dirs_moved, error_state/record, maintenance/requests, services/lazy_init/state …)
//!   volume  dir  encrypted  xattr  inline  map  quota  fast_commit   what is on the device
//!   alloc                       free blocks and inodes
//!   throttle guard freeze_gate  each write passes: throttle, check for other writers, freeze
//!   keys  encryption  name_keys  runtime_options  fast_commit_support
//!   superblock  node  options  error
//!   ────────────────────────────────────────────────────────────────────────────────────────
//!   extol_jbd2: block cache, transactions, log, checkpoint   extol_ondisk: bytes and types
//! ```
//!
//! # Lock order
//!
//! docs/design/lock-order.md lists all locks, outer first; debug builds check the order
//! ([`extol_sync::rank`]).

pub(crate) mod alloc;
#[cfg(feature = "check")]
pub mod check;
pub(crate) mod data;
pub(crate) mod dir;
pub(crate) mod dirs_moved;
pub(crate) mod encrypted;
pub mod encryption;
pub(crate) mod error;
pub(crate) mod error_state;
mod ext4;
pub(crate) mod fast_commit;
pub(crate) mod fast_commit_support;
pub(crate) mod find_journal;
pub(crate) mod freeze_gate;
#[cfg(feature = "fuse")]
pub mod fuse;
pub(crate) mod guard;
mod info;
pub(crate) mod inline;
pub(crate) mod inodes;
pub(crate) mod keys;
pub(crate) mod maintenance;
pub(crate) mod map;
pub(crate) mod mount;
pub(crate) mod mounted;
pub(crate) mod name_keys;
pub(crate) mod node;
pub(crate) mod ops;
pub mod options;
pub(crate) mod orphan;
pub mod path;
pub(crate) mod quota;
pub mod quotas;
pub(crate) mod remount;
pub mod resize;
pub(crate) mod runtime_options;
pub(crate) mod services;
mod stats;
pub(crate) mod superblock;
pub(crate) mod throttle;
pub mod tune;
#[cfg(feature = "verity")]
pub(crate) mod verity;
#[cfg(not(feature = "verity"))]
#[path = "verity/without.rs"]
pub(crate) mod verity;
pub(crate) mod volume;
pub(crate) mod xattr;

pub use data::cache::DataCacheStats;
pub use data::readahead::ReadaheadStats;
pub use error::{OpenError, OpenResult};
pub use ext4::{Batch, Ext4};
pub use extol_block as device;
#[cfg(feature = "image")]
pub use extol_image as image;
#[cfg(feature = "image")]
pub use extol_image::mkfs;
pub use extol_jbd2::fast::FuaPolicy;
pub use extol_vfs as vfs;
pub use extol_vfs::Attr as Metadata;
pub use extol_vfs::{FileSystem, FsError};
pub use fast_commit::Reason as FullCommitReason;
pub use info::{
    Header, Info, group_descriptors, header, info, info_with, inspect_journal, recovered, replay,
};
pub use mount::Replayed;
pub use options::MountOptions;
pub use path::{File, OpenOptions, ReadDir};
pub use services::lazy_init::LazyInitStats;
pub use stats::Stats;
pub use throttle::ThrottleStats;
