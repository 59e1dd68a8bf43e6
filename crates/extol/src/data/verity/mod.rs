//! Files of fs-verity: contents that never change again, and a Merkle tree that proves it.
//!
//! ```text
//!   blocks of the file:  contents │ i_size … hole … │ tree, descriptor
//!                           ▲                          written by enable, and read
//!   read ── data::read ─────┤                          here only
//!                           ╰── Verifier ◄── tree blocks: verified before, or read and verified
//! ```
//!
//! *Enabling* writes the tree behind the end of the file, where nothing else reads, and sets the
//! inode's flag last. Until then the inode is an orphan: the next mount takes all behind the end
//! away, as it does after an interrupted truncate (so does Linux, and e2fsck).
//!
//! Invariants
//! - VE-1: no byte of a file with the flag is given out that was not verified (`read::read`, which
//!   `data::read` calls for each of them). A file without a usable descriptor cannot be read.
//! - VE-2: contents, tree and descriptor are on the device, or in the log, before the transaction
//!   that sets the flag, which also ends that the file is an orphan (`enable::set_flag`). So a file
//!   has the flag and all of its tree, or neither.
//! - VE-3: nothing changes the contents, the size or the map of a file with the flag
//!   (`ops::files::check_marks`, `ops::attrs::check_flags`), and nothing cuts off what is behind
//!   the end (`mount::orphans`).
//!
//! Locking: the inode's lock, shared while the contents are hashed (`enable`).

mod enable;
mod read;

pub(crate) use enable::{Enabling, Stop};
pub(crate) use read::{load, part, read};
