//! Makes ext4 volumes, as a library: empty ones by mke2fs's rules, and filled ones from a tree of
//! files, without mounting anything and without root.
//!
//! ```text
//!   build     a volume with files in it: where everything goes, then one pass over the data
//!   mkfs      the options and the layout of a volume: pure plan, then write
//!   files     both in files of the host, which are made
//!   edits     what the command line changes of what a source says
//!   tar       the way back: an archive of the files of a volume
//!   source    where files come from: a directory of the host, an archive, a
//!             container image
//!   tree      what goes into an image, in memory
//!   sys       calls of Linux, and what other systems have instead
//! ```
//!
//! Nothing here prints, exits, or keeps state between two calls: progress comes through a callback
//! and each error is one line that says what to change.

pub mod build;
pub mod edits;
mod error;
mod files;
pub mod mkfs;
pub mod source;
mod sys;
pub mod tar;
pub mod tree;

pub use error::{BuildError, Result};
pub use files::{build_file, mkfs_file};
