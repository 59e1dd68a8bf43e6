//! The FUSE front end: any [`Mountable`](extol_vfs::Mountable) file system as a mount.
//!
//! ```text
//!   kernel ── /dev/fuse ──► device.rs   workers read requests and write replies
//!                              │  pool.rs  which of them read
//!   kernel ── io_uring ───► uring/      a thread per entry of a queue
//!                              │
//!                              ▼
//!                           handle.rs   panics, frozen volumes, references
//!                              │
//!                              ▼
//!                           ops/        one function per request; they see vfs types only
//!                              │
//!                              ▼
//!                        dyn Mountable
//!
//!   session.rs  a mount from beginning to end    mount.rs   mount(2), umount(2), fusermount3
//!   init.rs     what we ask the kernel for       config.rs  mount options
//!   wire.rs     bytes of requests and replies    abi.rs     numbers of the protocol
//!   control.rs  remount, freeze ...              rights.rs  rights over the mount
//!   counts.rs   requests by kind                 errno.rs   FsError -> errno, here alone
//! ```
//!
//! The protocol is spoken here directly, in safe code, instead of through a binding crate. `fuser`
//! 0.18 does not know `FUSE_TMPFILE` (so `O_TMPFILE` fails on a mount) nor `FUSE_STATX`; it drops
//! the flags that say when set-id bits must go; it decodes times before 1970 wrongly; on mounts of
//! ordinary users it refuses the time stamps that the kernel's write-back flushes as root; and a
//! panic in its own decoding (there is one, with overflow checks on) costs a thread for good.
//!
//! # What the kernel is told
//!
//! The daemon is the only writer of the volume, so names and attributes are valid for a day,
//! missing names too, pages stay cached across opens, symbolic links and directory listings are
//! cached, and `opendir` and `flush` are no requests at all after the first one. Where we change
//! attributes on our own (set-id bits cleared by a write, `chattr`) the kernel's copy is
//! invalidated with a notification. With the write-back cache the kernel owns size, mtime and ctime
//! of files that it caches and tells us by `SETATTR`.
//!
//! # References
//!
//! Every reply that names an inode (lookup, create and its kin, each entry of readdirplus) carries
//! one reference that the kernel gives back by `FORGET`. If the reply cannot be delivered (the
//! caller was interrupted), it never counted: the session gives the reference back itself. At the
//! end of a mount the kernel forgets nothing; closing the volume drops all references.
//!
//! # Inode numbers
//!
//! FUSE calls the root 1, ext4 calls it 2 and never shows inode 1. Node id 1 is the root of the
//! file system, every other node id is the inode number, and `st_ino` is always the file system's
//! own number.

mod abi;
mod buffer;
mod config;
pub mod control;
mod counts;
mod device;
pub mod direct;
mod errno;
mod handle;
mod init;
mod mount;
mod ops;
mod pool;
mod rights;
mod session;
mod uring;
mod wire;

pub use config::{BlockMount, Claim, Confinement, MountConfig, MountFlag, Transport};
pub use errno::errno;
pub use mount::{MountError, check, undo, unmount, write_back};
pub use session::{Mount, Stopper, serve};

/// Extended attribute of the root whose value is
/// [`stats_json`](extol_vfs::VolumeControl::stats_json). It is served by the front end, is not
/// listed, and cannot be set.
pub const STATS_XATTR: &str = "user.extol.stats";

/// Extended attribute of the root that names the process that serves the mount: a decimal process
/// id.
pub const DAEMON_XATTR: &str = "user.extol.daemon";
