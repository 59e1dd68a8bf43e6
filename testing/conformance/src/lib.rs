//! Does Extol behave like Linux? One suite and two random testers that run unchanged on three
//! subjects.
//!
//! ```text
//!   cases/     what a program can see, call by call     fsx/  one file     tree/  a tree, random
//!      └──────────────────────┬──────────────────────────────┴─────────────────┘
//!                        trait Posix              the calls that a test needs; errnos as results
//!          ┌──────────────────┼─────────────────────┐
//!      Mounted (Linux)   Mounted (Extol, FUSE)   Library (extol::Ext4, no kernel)
//! ```
//!
//! A *case* is a function that makes calls and writes down what came back, line by line
//! ([`Transcript`]). It runs on Linux's own ext4 and on the other subjects in the same run; every
//! line that differs is a failure, unless the short table in [`known`] names it and says why. A
//! case does not know what runs it.
//!
//! What the library lacks to be a POSIX file system is what Linux's VFS does above every file
//! system. [`Library`] does that part, and only that; the head of its module says exactly what, so
//! that it cannot hide a difference.

pub mod cases;
pub mod fsx;
mod history;
pub mod known;
mod library;
mod mounted;
mod place;
mod posix;
mod reduce;
mod secret;
mod suite;
mod transcript;
pub mod tree;

pub use library::Library;
pub use mounted::Mounted;
pub use place::Place;
pub use posix::{Caller, Entry, Fd, Posix, Remount, Result, Space, Stat, Time};
pub use suite::{Counts, Volume, run};
pub use transcript::{Outcome, Transcript};
