//! The FUSE front end: any [`Mountable`](extol_vfs::Mountable) file system as a mount.
//!
//! A module uses only modules below it (`tests/layers.rs`):
//!
//! ```text
//!   session.rs     a mount from beginning to end              direct.rs  requests without a kernel
//!      │
//!      ├── device.rs   requests over /dev/fuse: workers read them and write the replies
//!      ├── uring/      requests over io_uring: a thread for each entry of a queue
//!      │      │
//!      │      ▼
//!      │   handle.rs   one request: panics, frozen volumes, forgotten inodes
//!      │      │
//!      │      ▼
//!      │    ops/       one function for each kind of request ──► dyn Mountable (vfs)
//!      │      │
//!      ▼      ▼
//!   connection.rs      what the serving threads share, and the end
//!
//!   pool.rs     which workers read /dev/fuse      control.rs  remount, freeze … of a mount
//!   mount.rs    mount(2), umount(2), fusermount3  rights.rs   rights over the mount
//!   init.rs     capabilities of the kernel        counts.rs   requests by kind
//!   config.rs   mount options                     wire.rs     bytes of requests and replies
//!   buffer.rs   memory for them                   abi.rs      numbers of the protocol
//!   errno.rs    numbers for the kernel            writers.rs  files open for writing
//!   interrupts.rs  requests that a signal ends
//! ```
//!
//! The crate implements the protocol itself, in safe code, without a binding crate. `fuser` 0.18
//! has no `FUSE_TMPFILE` (so `O_TMPFILE` fails on a mount) and no `FUSE_STATX`; it drops the flags
//! that say when set-id bits must be cleared; it decodes times before 1970 wrongly; on mounts of
//! ordinary users it refuses the time stamps that the kernel's write-back flushes as root; and a
//! panic in its decoding (there is one, with overflow checks on) ends a thread.
//!
//! # Caching in the kernel
//!
//! The daemon is the only writer of the volume. So names, missing names and attributes are valid
//! for a day, pages stay cached across opens, symbolic links and directory listings are cached, and
//! the kernel sends no `opendir` and no `flush` after the first one. Where a request changes
//! attributes that the kernel does not expect (set-id bits cleared by a write, `chattr`), a
//! notification invalidates the kernel's copy. With the write-back cache the kernel owns size,
//! mtime and ctime of the files that it caches and sends them by `SETATTR`.
//!
//! On a volume with casefold the kernel asks for each name, and each missing one, every time
//! ([`Mountable::names_have_spellings`](extol_vfs::Mountable::names_have_spellings)). It knows
//! nothing of other spellings: when one is unlinked, the others would still lead to the file; when
//! one is made, the others would still be missing.
//!
//! # References
//!
//! Every reply that names an inode (lookup, create, mkdir, link …, each entry of readdirplus)
//! carries one reference, which the kernel returns by `FORGET`. If the reply cannot be delivered
//! (the caller was interrupted), the session drops the reference itself. At the end of a mount the
//! kernel sends no `FORGET`; closing the volume drops all references.
//!
//! # Inode numbers
//!
//! FUSE calls the root 1, ext4 calls it 2 and never shows inode 1. Node id 1 is the root of the
//! file system, every other node id is the inode number, and `st_ino` is always the file system's
//! own number.

mod abi;
mod buffer;
mod config;
mod connection;
pub mod control;
mod counts;
mod device;
pub mod direct;
mod errno;
mod handle;
mod init;
mod interrupts;
mod mount;
mod ops;
mod pool;
mod rights;
mod session;
mod uring;
mod wire;
mod writers;

pub use config::{BlockMount, Claim, Confinement, MountConfig, MountFlags, Shown, Transport};
pub use mount::{MountError, abort, check, is_dead, undo, unmount, unmount_by_force, write_back};
pub use ops::{DAEMON_XATTR, STATS_XATTR};
pub use session::{Mount, Requests, Stopper};
