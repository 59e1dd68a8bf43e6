//! Test helpers of Extol: images, loop devices, kernel mounts, Extol mounts, peers, and
//! comparisons.
//!
//! Used by tests only. Three ideas run through the crate:
//!
//! - **Nothing stays behind.** Every resource is a value whose `Drop` undoes it, also when a test
//!   panics. Tests that are killed leave directories named after their process; the next run sweeps
//!   them ([`Scratch`]).
//! - **Nothing hangs.** Commands and mounts have deadlines; a daemon that passes its own is killed,
//!   so that the threads blocked on it fail with an error instead of waiting for ever.
//! - **The kernel is the oracle.** A test takes a [`Subject`]: Extol, or Linux's own ext4. With
//!   `EXTOL_TEST_SUBJECT=kernel` the suite runs against Linux and thereby tests itself.
//!
//! With `EXTOL_TEST_TRANSPORT=io_uring` or `=device` mounts have their requests over io_uring or
//! through `/dev/fuse`, else as Extol decides on this machine.
//!
//! What a test needs from the machine is declared with [`require`]; a missing need skips the test
//! loudly, or fails it when `EXTOL_NO_SKIP=1` is set, as CI does.

mod command;
mod export;
mod extol;
mod fsck;
mod fscrypt;
mod image;
mod ioctl;
mod layers;
mod ledger;
mod loopdev;
mod make_tree;
mod mapped;
mod metrics;
mod mount;
mod nbd;
mod need;
mod program;
mod rig;
mod scratch;
mod subject;
mod told;
mod transport;
mod tree;
mod user;

pub use command::{Finished, find_tool, run, run_ok, tool};
pub use export::ExtolExport;
pub use extol::{ExtolMount, MountFailed};
pub use fsck::{FsckReport, debugfs, dump_super, e2fsck, e2fsck_fix, new_e2fsck};
pub use fscrypt::{add_encryption_key, encryption_nonce, encryption_policy, set_encryption_policy};
pub use image::Image;
pub use ioctl::{MountRequest, Shutdown, raw_ioctl, raw_ioctl_shared, shutdown, trim};
pub use layers::{assert_drawing, assert_layers};
pub use ledger::{CrashLoad, Promises};
pub use loopdev::LoopDevice;
pub use make_tree::{TreeSpec, acl, make_tree};
pub use mapped::{map_read, map_write, while_mapped};
pub use metrics::{metric_samples, metrics_of};
pub use mount::{Fuse2fsMount, KernelMount, mounted_type, sync_tree, sync_volume, unmount};
pub use nbd::{Cut, NbdServer};
pub use need::{Need, guest_kernel, require};
pub use program::{extol, extol_copy, extol_ok, extol_path, refused, run_extol, text};
pub use rig::{Rig, as_unprivileged, daemon_of};
pub use scratch::{Scratch, resize_small_disk};
pub use subject::{Mounted, Subject};
pub use told::fsync_told;
pub use transport::{offers_io_uring, over_io_uring, transport_option};
pub use tree::{Node, Tree};
pub use user::{as_user, without_capabilities};
