//! Records as the file system hands them over, before they are bytes ([`crate::format::FcTag`] is
//! the other way).

use std::sync::Arc;

/// One record of a fast commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FcRecord {
    /// A mapped range of a file.
    AddRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Blocks: at most 32768, or 32767 if unwritten.
        len: u32,
        /// First physical block.
        start: u64,
        /// The extent reads as zeros.
        unwritten: bool,
    },
    /// A range of a file that is a hole.
    DelRange {
        /// Inode.
        ino: u32,
        /// First logical block.
        block: u32,
        /// Blocks.
        len: u32,
    },
    /// A new inode's first name.
    Creat(FcEntry),
    /// A further name of an inode.
    Link(FcEntry),
    /// A name that is gone.
    Unlink(FcEntry),
    /// The image of an inode.
    Inode {
        /// Inode.
        ino: u32,
        /// First bytes of its on-disk form.
        image: Arc<[u8]>,
    },
}

/// A directory entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FcEntry {
    /// Directory.
    pub parent: u32,
    /// Inode.
    pub ino: u32,
    /// Name, 1 to 255 bytes.
    pub name: Arc<[u8]>,
}
