//! What Linux says in `/proc` and `/sys` about mounts, processes, locks and loop devices; and its
//! random numbers.
//!
//! ```text
//!   text.rs       a file of the kernel as bytes; fields and numbers in them
//!   mounts.rs     mountinfo: what is mounted where
//!   process.rs    a process: its name, its state, its mount namespace
//!   locks.rs      /proc/locks: which process holds the lock of a file
//!   loops.rs      loop devices and the files below them
//!   users.rs      which processes use a mount, or a block device
//!   connections.rs  which process serves a mount of FUSE
//!   holders.rs    what keeps a file system that was taken off its directory
//!   shown.rs      names in messages
//!   random.rs     random bytes and numbers
//!   names.rs      names of files as bytes
//!   sys/          calls of Linux, and what other systems have instead
//! ```
//!
//! These files hold names that any user can choose: mount points, sources, names of programs. They
//! are bytes, and need not be UTF-8. One such name must not hide all the others, so nothing here
//! reads a file as text: fields are split as bytes, names stay an `OsString`, and only a field that
//! is a number becomes one.
//!
//! Other systems have no such files: there are no mounts, no users and no loop devices there.
//! Random numbers, names, and names in messages work everywhere; Windows has nothing else.

#![forbid(unsafe_code)]

#[cfg(unix)]
mod connections;
#[cfg(unix)]
mod holders;
#[cfg(unix)]
mod locks;
#[cfg(unix)]
mod loops;
#[cfg(unix)]
mod mounts;
mod names;
#[cfg(unix)]
mod process;
mod random;
mod shown;
mod sys;
mod text;
#[cfg(unix)]
mod users;

#[cfg(unix)]
pub use connections::{OtherServer, daemons_of, other_server_over, served_by};
#[cfg(unix)]
pub use holders::{Holder, bounded, holder_of, volume_holders};
#[cfg(unix)]
pub use locks::lock_holders;
#[cfg(unix)]
pub use loops::{LoopDevice, loop_devices_over};
#[cfg(unix)]
pub use mounts::{DeviceNumber, Mount, MountTable, unescape};
pub use names::{below, bytes_of, image_of, os_str, os_string, split_part};
#[cfg(unix)]
pub use process::{Process, processes};
pub use random::{random, random_id, random_number};
pub use shown::{Shown, ShownName};
pub use text::{field, number, read, read_number, words};
#[cfg(unix)]
pub use users::{Target, Usage, User, Users, device_users, loops_below, users_of};
