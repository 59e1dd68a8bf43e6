//! Resizing: a volume grows, while it is in use or not, or becomes smaller, while it is not; and
//! blocks of files move to other places on it: in front of a limit, or into one run (defrag).
//!
//! ```text
//!   target ─ plan/ ─► a batch of steps ─ behind.rs ─► in place, behind the old end ─ flush
//!            (pure)                    ─ grow.rs ──► a transaction each, published
//!                                      ─ backups.rs: copies of superblock and descriptors
//! ```
//!
//! A step makes the last group longer, adds groups of one flexible group that share a descriptor
//! block, or goes over to meta_bg where no more descriptor blocks are reserved. Between two steps
//! the volume is an ordinary volume of a size in between: nothing on the device says that it is
//! being resized, and a crash leaves nothing to be finished.
//!
//! ```text
//!   old end ┐                                  ┌ new end of this step
//!   … last  │ superblock copy, descriptors │ bitmaps │ inode tables │ free …
//!   ▲       ╰──── written in place and flushed, before anything names them ────╯
//!   └ the transaction: superblock, one descriptor block, resize inode
//! ```
//!
//! Where the resize inode has reserved descriptor blocks, a step that needs another one takes it
//! out of that inode's map, and one that adds a group with a superblock copy adds this group's
//! reserved blocks to the map (`reserved.rs`).
//!
//! Blocks of files move in three layers:
//!
//! | file | what |
//! | --- | --- |
//! | `relocate` | moves one mapped run: copy, then the transaction that maps the copy |
//! | `shrink` | moves all that lies behind a limit, and cuts the volume there |
//! | `defrag` | moves a file into as few runs as there can be |
//!
//! Odd cases: a last group too short to be worth its metadata is not made, so the volume may end
//! before the target. With sparse_super2 the second copy of the superblock follows the end, unless
//! the volume is in use (`second_copy.rs`).
//!
//! Invariants
//! - RZ-1: what lies behind the old end is written in place and durable before the transaction that
//!   names it. That transaction changes only blocks before the old end.
//! - RZ-2: the superblock goes home behind all else of its transaction (`Journal::set_home_last`,
//!   and recovery does the same): e2fsck and Linux read the descriptors that it counts before they
//!   replay the log. Where the last group becomes longer, its descriptor is the last one instead,
//!   and the log is emptied before the next step. At the end it is emptied, too.
//! - RZ-3: after every transaction the volume is a sound one of its size. Nothing on the disk says
//!   that it is being resized, or that blocks are being moved.
//! - RZ-4: the copy of a block is durable before the transaction that maps it. That transaction
//!   frees the old block, which is used again only when it is durable. (The commit flushes data
//!   that was written before, or `relocate` does where commits do not; and the allocator holds
//!   freed blocks back.)
//! - RZ-5: the cut is one transaction. Before it nothing in use, and nothing of a group that stays,
//!   is behind the new end; and all that the volume has is in place.
//! - RZ-6: the device is cut only when the log is empty and the superblock is in place, durably.
//! - RZ-7: the copies of superblock and descriptors are brought up to date in later transactions,
//!   behind the cut of the device. A crash before leaves old copies that are valid; those of a
//!   larger volume tell the next resize to cut the device (`backups::has_old`).
//! - RZ-8: a volume without a journal becomes smaller as one with a journal: a log is lent to it
//!   (`shrink/lend.rs`, LL-1 to LL-8).
//!
//! Locking: one resize at a time (`MountedFs::resizing`). A step takes the lock of the last group
//! under its handle, or no lock at all: nothing else uses the new groups before they are published
//! (`Geometry::grow_to`).

mod backups;
mod behind;
mod defrag;
mod grow;
mod plan;
mod relocate;
mod reserved;
mod second_copy;
mod shrink;

pub use shrink::Vacated;

pub(crate) use backups::{has_old as has_old_copy, update as update_copies};
pub(crate) use defrag::{defragment, fragments};
pub(crate) use grow::{Growth, aim, grow};
pub(crate) use reserved::{CREDITS as RESERVED_CREDITS, Reserved};
pub(crate) use second_copy::{has_second_copy, place_second_copy};
pub(crate) use shrink::journal_map;
pub(crate) use shrink::{
    Aim, Reached, clear_unused_journal, finish, has_unused_journal, is_lent, least, lend_log,
    move_inodes, move_journal, shrink, size_with_room, swallow, tail, take_back, vacate,
};

pub use extol_vfs::Resized;
use extol_vfs::{FsError, GrowError};

/// How large a volume is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Target {
    /// So many blocks.
    Blocks(u64),
    /// So many bytes, rounded down to blocks.
    Bytes(u64),
    /// As large as its device.
    Device,
    /// As small as what is in use allows.
    Minimum,
}

/// How far a resize is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ResizeProgress {
    /// Blocks of a growing volume now; blocks of files that were moved, if it becomes smaller.
    pub done: u64,
    /// Blocks that it will have; about how many are to be moved.
    pub all: u64,
}

/// How small a volume can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Minimum {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks now.
    pub blocks: u64,
    /// The fewest that it can have.
    pub minimum: u64,
    /// Something is left of a resize that was interrupted: the next one clears it.
    pub is_unfinished: bool,
}

/// Why a volume was not resized, or not as far as wished.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// It cannot be, for the reason said in one line.
    #[error("{0}")]
    Refused(String),
    /// The volume cannot become so large.
    #[error("the volume can have at most {most} blocks")]
    TooLarge {
        /// The most blocks that it can have.
        most: u64,
    },
    /// Another resize is under way.
    #[error("the volume is being resized already")]
    Busy,
    /// The volume cannot become so small.
    #[error("what is in use takes {minimum} blocks at least")]
    TooSmall {
        /// The blocks in use, and metadata for them: moving them may take more.
        minimum: u64,
    },
    /// Something cannot move in front of the new end, though there are as many blocks.
    #[error("{what} in front of block {blocks}: take a larger size")]
    NoRoom {
        /// What does not, in words.
        what: &'static str,
        /// The size that was tried.
        blocks: u64,
    },
    /// The volume has another size than before, but not the one that was wished.
    #[error("{error}; the volume went from {before} to {blocks} blocks")]
    Partly {
        /// What ended it.
        error: Box<Self>,
        /// The blocks that it had.
        before: u64,
        /// The blocks that it has.
        blocks: u64,
    },
    /// A change failed on the way: the volume has a size in between.
    #[error("{0}")]
    Fs(#[from] FsError),
}

impl ResizeError {
    /// What ended the resize, whatever size the volume has.
    #[must_use]
    pub fn cause(&self) -> &Self {
        let mut cause = self;
        while let Self::Partly { error, .. } = cause {
            cause = error;
        }
        cause
    }
}

impl From<ResizeError> for GrowError {
    fn from(error: ResizeError) -> Self {
        let line = error.to_string();
        let error = match error {
            ResizeError::Fs(error) => error,
            ResizeError::Busy => FsError::Busy,
            ResizeError::Partly { error, .. } => return Self { line, ..Self::from(*error) },
            ResizeError::Refused(_)
            | ResizeError::TooLarge { .. }
            | ResizeError::TooSmall { .. }
            | ResizeError::NoRoom { .. } => FsError::Invalid("the volume cannot have this size"),
        };
        Self { error, line }
    }
}

/// Refuses volumes with clusters: no log is lent to them.
pub(crate) fn refuse_clusters(fs: &crate::mounted::MountedFs) -> Result<(), ResizeError> {
    if fs.vol.geo.has_clusters() {
        return refuse(
            "the volume has clusters of several blocks (bigalloc) and no journal: give it one \
             (extol tune -j), and take it away afterwards (extol tune -O ^has_journal)",
        );
    }
    Ok(())
}

/// A refusal.
fn refuse<T>(why: impl Into<String>) -> Result<T, ResizeError> {
    Err(ResizeError::Refused(why.into()))
}
