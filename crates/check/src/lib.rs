//! A read-only checker for ext2, ext3 and ext4 volumes: is everything on it consistent, and if not,
//! what is wrong with which inode and which block?
//!
//! ```no_run
//! use std::sync::Arc;
//! use extol_check::{CheckOptions, check};
//! use extol_block::{FileDevice, OpenOptions};
//!
//! let device = Arc::new(FileDevice::open("disk.img", &OpenOptions::read_only())?);
//! let report = check(device, &CheckOptions::default(), &mut |_| {})?;
//! println!("{report}");
//! assert!(report.is_clean());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! It shares no code with the part of Extol that writes volumes, only the decoders of single
//! structures, checksums and hashes, and the replay of a log into memory. Its result is that of
//! `e2fsck -fn` (exit code 0 or not), against which it is tested on mutated images: against two
//! versions, and what either of them calls damaged is damaged.
//!
//! ```text
//!  open       superblock or a copy of it, group descriptors; a volume that needs recovery is
//!             recovered in memory
//!  pass 1     every inode in use: fields, attributes, map; every block is claimed once
//!  pass 2     every directory: chains, names, types, hashed structure; names are counted
//!  pass 3, 4  every directory is reachable, `..` leads back; link counts
//!  pass 5     bitmaps, padding and counts against what was found
//!  last       journal, orphans, reserved descriptors, multiple-mount protection
//! ```
//!
//! Passes 1, 2 and 5 run on several threads where that pays. Nothing is written, nothing panics on
//! any bytes, and the work is bounded by the size of the volume: a block that was claimed before is
//! read only a limited number of times. Memory: two bits per block, twelve bytes per inode
//! up to the last one in use of each group, the map of each directory, and one directory's names at
//! a time (8 bytes each).
//!
//! # After a crash
//!
//! By default a volume that needs recovery is checked as it will be after the recovery
//! ([`Report::replayed`]). In that view orphans (open but unlinked files, unfinished truncations)
//! belong to a sound volume. With [`Recovery::Ignore`] the volume is checked as it is, as `e2fsck
//! -fn` does.
//!
//! # Where the result differs from e2fsck's
//!
//! Notes are no errors. e2fsck -fn mentions most of them and exits with 0, too: totals of the
//! superblock that lag behind the groups, odd fields of the superblock, state flags, bad backup
//! superblocks, a journal with contents on a volume that does not need recovery, a last group of
//! full length whose block bitmap was never written (as Linux leaves it when it grows). So is an
//! impossible attribute block of an inode without a name (a reserved inode, the journal): where an
//! inode table was overwritten, e2fsck leaves that field as it is, and nothing reads it.
//!
//! These errors, marked [`beyond_e2fsck`](Finding::beyond_e2fsck), do not make `e2fsck -fn` fail:
//!
//! - `group_checksum`, `group_flags`, `group_unused`, `resize_inode`: e2fsck checks these before
//!   pass 1, whose start resets its result; Linux refuses to mount, to use the group, or to grow
//!   the volume.
//! - `dir_duplicate`: a name that is in two blocks of a directory. e2fsck compares the names of one
//!   block; the second file cannot be reached.
//! - `extent_node`: a node that states a wrong depth, or a root of depth 1 and more without
//!   entries. Linux refuses the file.
//! - `inline_data`: the attribute's name has a zero byte behind it, so Linux does not find it.
//! - `journal_superblock`: a log that is too short or begins outside of itself. Linux refuses the
//!   mount.
//! - `orphan_list`: a list of orphans that leads to impossible inodes.
//! - `quota_file`: a tree that leads to no entry (e2fsck takes the entries of all data blocks),
//!   another magic number (it passes over the file), lists of free blocks that begin outside of the
//!   file, a last block that is cut short. Linux does not turn these quotas on.
//! - `verity`: contents of a file of fs-verity that have changed, or its tree or descriptor. Linux
//!   refuses to read them.
//! - `block_bitmap`, its checksum, `group_count`: an inode table or bitmap of a group whose own
//!   bitmap was never written, not marked in the bitmap of the group where it lies. e2fsck takes it
//!   for marked, Linux would allocate the block.
//!
//! The reverse, errors of `e2fsck -fn` that are none here:
//!
//! - hashes of names in directories that are encrypted and case-insensitive: not computed;
//! - directory blocks whose fake entries hide an old index: checked by their entries only.
//!
//! Volumes with features that neither Linux nor e2fsprogs has today are refused
//! ([`CheckError::Unsupported`]).

mod bitmaps;
mod bits;
mod bytes;
mod claims;
mod connect;
mod dirs;
mod error;
mod htree;
mod inode;
mod inodes;
mod itables;
mod journal;
mod kind;
mod map;
mod mmp;
mod open;
mod orphans;
mod owners;
mod passes;
mod paths;
mod policies;
mod quota;
mod raw;
mod report;
mod resize_inode;
mod scan;
mod vol;
mod work;
mod xattr;

use extol_block::SharedDevice;

pub use error::CheckError;
pub use itables::{InodeTables, inode_tables};
pub use report::{Counts, Finding, Kind, Replayed, Report, Severity};

use report::Findings;

/// What to do with a volume that needs recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Recovery {
    /// Replay its journal in memory and check the result.
    #[default]
    InMemory,
    /// Check it as it is.
    Ignore,
}

/// How to check.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// What to do with a volume that needs recovery.
    pub recovery: Recovery,
    /// Where the superblock to use begins, in bytes, in place of the first one: one of its copies.
    pub superblock: Option<u64>,
    /// The external journal, for a volume that has one and needs recovery.
    pub journal: Option<SharedDevice>,
    /// Threads; 0 chooses by the size of the volume.
    pub threads: usize,
    /// Findings that are kept with their text; all are counted.
    pub max_findings: usize,
    /// Look for the paths of inodes that findings are about.
    pub paths: bool,
    /// Recovers a volume with fast commits, whose records this checker does not replay itself.
    pub fast_commits: Option<Recoverer>,
}

/// Gives a volume and its external journal as they will be after recovery, without changing them;
/// or why that cannot be.
#[derive(Clone)]
pub struct Recoverer(pub RecoverFn);

/// See [`Recoverer`].
pub type RecoverFn =
    fn(&SharedDevice, Option<&SharedDevice>) -> std::result::Result<SharedDevice, String>;

impl std::fmt::Debug for Recoverer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recoverer")
    }
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            recovery: Recovery::InMemory,
            superblock: None,
            journal: None,
            threads: 0,
            max_findings: 1000,
            paths: true,
            fast_commits: None,
        }
    }
}

/// A part of the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Pass {
    /// Reading superblock and descriptors, recovering.
    Open,
    /// Inodes and their blocks.
    Inodes,
    /// Directories.
    Directories,
    /// Connectivity and link counts.
    Links,
    /// Bitmaps and counts.
    Bitmaps,
}

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Progress {
    /// The part.
    pub pass: Pass,
    /// Steps of it that are done.
    pub done: u64,
    /// Steps of it.
    pub total: u64,
}

impl Progress {
    /// `done` of `total` steps of a pass.
    #[must_use]
    pub fn new(pass: Pass, done: u64, total: u64) -> Self {
        Self { pass, done, total }
    }
}

/// Checks a volume. `progress` is called from this thread, now and then.
///
/// # Errors
/// The device cannot be read, holds no such file system, or one that cannot be checked. What is
/// wrong with a volume is no error but a finding.
pub fn check(
    device: SharedDevice,
    opts: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> std::result::Result<Report, CheckError> {
    let mut out = Findings::new(opts.max_findings);
    progress(Progress::new(Pass::Open, 0, 1));
    let Some(open::Opened { vol, replayed }) = open::open(device, opts, &mut out)? else {
        return Ok(report(out, None, Counts::default()));
    };
    progress(Progress::new(Pass::Open, 1, 1));
    let counts = passes::run(&vol, opts, &mut out, progress)?;
    Ok(report(out, replayed, counts))
}

fn report(out: Findings, replayed: Option<Replayed>, counts: Counts) -> Report {
    let (findings, errors, notes, errors_of_e2fsck) = out.into_parts();
    Report { clean: errors == 0, errors, notes, errors_of_e2fsck, replayed, counts, findings }
}
