//! ext4 in user space: open a file, a disk or memory that holds an ext2, ext3 or ext4 volume, and
//! do everything that a mount can do, journaled like Linux. Nothing is mounted, and nothing needs
//! root.
//!
//! ```
//! use std::io::Write;
//!
//! use extol::device::{FileDevice, OpenOptions as Open};
//! use extol::mkfs::{MkfsOptions, mkfs};
//! use extol::{Ext4, MountOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! // An image of 64 MiB. (One that is there already needs no more than the next call.)
//! mkfs(&FileDevice::open(&image, &Open::read_write().create_size(64 << 20))?,
//!     &MkfsOptions::default(), &mut |_| {})?;
//!
//! let fs = Ext4::open_path(&image, &MountOptions::default())?;
//! fs.create_dir_all("/etc/app")?;
//! let mut file = fs.create_file("/etc/app/config")?;
//! file.write_all(b"answer = 42\n")?;
//! file.sync_all()?; // From here on a crash cannot take it away.
//! drop(file);
//!
//! assert_eq!(fs.read_file("/etc/app/config")?, b"answer = 42\n");
//! for entry in fs.walk("/etc")? {
//!     println!("{}", entry?.path().display());
//! }
//! fs.unmount()?; // The volume is marked clean. Linux and e2fsck accept it.
//! # Ok(())
//! # }
//! ```
//!
//! # Pick your layer
//!
//! | what you have | what you use |
//! | --- | --- |
//! | paths, as with [`std::fs`] | the methods of [`Ext4`] (module [`path`]): [`File`] with `Read`, `Write` and `Seek`, [`OpenOptions`], [`Metadata`], [`ReadDir`] |
//! | numbers of inodes: a front end, a server | the trait [`FileSystem`], which [`Ext4`] implements (module [`vfs`]) |
//! | a directory, an archive, a container image | `extol::image`: a volume that is planned as a whole and written once; `extol::mkfs`: an empty one |
//! | a volume that may be damaged | `extol::check`, as `e2fsck -fn`; [`replay`] recovers one |
//! | a disk of your own | [`BlockDevice`](device::BlockDevice): five methods |
//! | programs that need a directory | `extol::fuse`: the volume as a mount, served by your process |
//!
//! Options are those of mount(8): [`MountOptions`]. An error is an [`FsError`] with the errno that
//! Linux would give, and becomes a [`std::io::Error`] with `?`.
//!
//! # Features
//!
//! Without any of them the crate opens, reads and writes all volumes but for what the table says,
//! with the fewest crates of others.
//!
//! | feature | default | with it | without it |
//! | --- | --- | --- | --- |
//! | `check` | yes | `extol::check` | |
//! | `encryption` | yes | encrypted files, given their keys | no key is accepted; encrypted directories and files are refused (EOPNOTSUPP) |
//! | `image` | yes | `extol::mkfs`, `extol::image` | |
//! | `io-uring` | yes | a disk gets batches of writes at once | one by one |
//! | `json` | yes | [`stats_json`](vfs::VolumeControl::stats_json) | [`Ext4::stats`] alone |
//! | `verity` | yes | files of fs-verity: enabled, read, measured | they are refused (EOPNOTSUPP) |
//! | `formats` | no | images in qcow2, VMDK and VHDX | |
//! | `fuse` | no | `extol::fuse` | |
//! | `network` | no | volumes of other hosts, over NBD | |
//!
//! # Inside
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
//!   look                        what other programs change in the superblock
//!   mounted  inodes  orphan     the state of the mount, inodes in memory, orphans
//!     (verity, dirs_moved, error_state/record, maintenance/requests, services/lazy_init/state …)
//!   volume  dir  encrypted  xattr  inline  map  quota  fast_commit   what is on the device
//!   alloc                       free blocks and inodes
//!   throttle guard freeze_gate  each write passes: throttle, check for other writers, freeze
//!   keys  encryption  name_keys  runtime_options  fast_commit_support
//!   superblock  node  options  error  sys
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
pub(crate) mod look;
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
mod sys;
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
#[doc(inline)]
pub use extol_block as device;
#[cfg(feature = "image")]
#[doc(inline)]
pub use extol_image as image;
#[cfg(feature = "image")]
pub use extol_image::mkfs;
pub use extol_jbd2::fast::FuaPolicy;
#[doc(inline)]
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
