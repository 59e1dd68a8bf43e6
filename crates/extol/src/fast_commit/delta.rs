//! Changes that operations note for fast commits, and what an fsync asks for.

use std::sync::Arc;

use extol_jbd2::Handle;
use extol_jbd2::fast::SyncKey;

use super::reason::Reason;

/// One change that an operation made. Everything is as it is behind the operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Delta {
    /// The inode was written into its slot.
    Inode {
        /// Inode.
        ino: u32,
        /// The bytes of the slot that a record carries: 128 and the extra size.
        image: Arc<[u8]>,
        /// The slot held no inode in use before.
        born: bool,
        /// fdatasync must make it durable, too.
        data: bool,
        /// Links that the image counts.
        links: u16,
    },
    /// A name came, went, or leads elsewhere.
    Name {
        /// Directory.
        dir: u32,
        /// Name.
        name: Arc<[u8]>,
        /// Inode that it led to before.
        was: Option<u32>,
        /// Inode that it leads to now.
        is: Option<u32>,
    },
    /// How a name is spelled that came, went, or leads elsewhere, in a casefolded directory.
    Spelling {
        /// Directory.
        dir: u32,
        /// What all spellings of the name have in common.
        folded: Arc<[u8]>,
        /// The one that the entry has, or had.
        name: Arc<[u8]>,
    },
    /// Blocks of a file are mapped (anew, or with another state) in one run.
    Mapped {
        /// Inode.
        ino: u32,
        /// First logical block.
        lblk: u32,
        /// Blocks.
        len: u32,
        /// First physical block.
        start: u64,
        /// They read as zeros.
        unwritten: bool,
    },
    /// Blocks of a file are a hole now.
    Unmapped {
        /// Inode.
        ino: u32,
        /// First logical block.
        lblk: u32,
        /// Blocks; `u32::MAX - lblk` means to the end.
        len: u32,
    },
    /// A directory block was touched that names share. Whether names fit into it when they are
    /// replayed is known only for the gaps that it had before the transaction.
    Room {
        /// Directory.
        dir: u32,
        /// Which of its blocks; 0 if all of them take any name.
        leaf: u64,
        /// The gaps between its names, in bytes, if the transaction has not touched it before.
        gaps: Option<Box<[u16]>>,
        /// Bytes that a new name needs; 0 if there is none.
        need: u32,
    },
    /// Names of a directory block are in another one now, too, which is new.
    Divided {
        /// Directory.
        dir: u32,
        /// Which of its blocks; 0 if all of them took any name.
        leaf: u64,
        /// The new one.
        into: u64,
    },
    /// The inode changed in a way that no record says: until its transaction is committed in full,
    /// whatever needs it is.
    Ineligible {
        /// Inode.
        ino: u32,
        /// Why.
        reason: Reason,
    },
    /// The volume changed in a way that no record says: no fast commit for the rest of the
    /// transaction.
    AllIneligible {
        /// Why.
        reason: Reason,
    },
}

/// The changes of one handle, in their order.
pub(crate) type Deltas = Vec<Delta>;

/// Notes a change for fast commits.
pub(crate) fn note(h: &mut Handle, delta: Delta) {
    if let Some(deltas) = h.notes::<Deltas>() {
        deltas.push(delta);
    }
}

/// What an fsync wants to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SyncTarget {
    /// A file, with all its names; or a directory, with all names in it.
    pub ino: u32,
    /// fdatasync: times do not matter.
    pub data_only: bool,
}

impl SyncTarget {
    /// What the journal knows it by.
    pub fn key(self) -> SyncKey {
        SyncKey(u64::from(self.ino) | u64::from(self.data_only) << 32)
    }

    /// The target of that key; none if it asks for nothing of the file system's.
    pub(super) fn of(key: SyncKey) -> Option<Self> {
        let data_only = match key.0 >> 32 {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Self { ino: key.0 as u32, data_only })
    }
}
