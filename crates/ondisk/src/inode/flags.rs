//! Flags of inodes, and the sets that Linux lets users see, change and inherit.

use bitflags::bitflags;

bitflags! {
    /// Inode flags.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (never used).
        const SECRM = 0x1;
        /// Undelete (never used).
        const UNRM = 0x2;
        /// Compressed (never used).
        const COMPR = 0x4;
        /// Synchronous updates.
        const SYNC = 0x8;
        /// Nothing may change.
        const IMMUTABLE = 0x10;
        /// Only appending writes.
        const APPEND = 0x20;
        /// Not dumped.
        const NODUMP = 0x40;
        /// Access times are not kept.
        const NOATIME = 0x80;
        /// Compression state (never used).
        const DIRTY = 0x100;
        /// Compression state (never used).
        const COMPRBLK = 0x200;
        /// Compression state (never used).
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// Hashed directory.
        const INDEX = 0x1000;
        /// AFS directory (never used).
        const IMAGIC = 0x2000;
        /// Contents go through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Tails are not merged (kept for others).
        const NOTAIL = 0x8000;
        /// Synchronous directory updates.
        const DIRSYNC = 0x1_0000;
        /// Top of a tree: subdirectories are spread.
        const TOPDIR = 0x2_0000;
        /// `blocks` on disk counts file-system blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Verity file.
        const VERITY = 0x10_0000;
        /// Holds the value of an attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks beyond the end (old).
        const EOFBLOCKS = 0x40_0000;
        /// Snapshot (never merged).
        const SNAPFILE = 0x100_0000;
        /// Direct access.
        const DAX = 0x200_0000;
        /// Snapshot being deleted (never merged).
        const SNAPFILE_DELETED = 0x400_0000;
        /// Shrunk snapshot (never merged).
        const SNAPFILE_SHRUNK = 0x800_0000;
        /// Contents inside the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Case-insensitive directory.
        const CASEFOLD = 0x4000_0000;
        /// Reserved for the library of e2fsprogs.
        const RESERVED = 0x8000_0000;
    }
}

impl InodeFlags {
    /// Flags that users may see.
    pub const USER_VISIBLE: Self = Self::from_bits_retain(0x725B_DFFF);
    /// Flags that users may change.
    pub const USER_MODIFIABLE: Self = Self::from_bits_retain(0x624B_C0FF);
    /// Flags of files that cannot have the DAX flag as well.
    pub const NOT_WITH_DAX: Self =
        Self::VERITY.union(Self::ENCRYPT).union(Self::JOURNAL_DATA).union(Self::INLINE_DATA);
    /// Flags that new files take from their directory.
    pub const INHERITED: Self = Self::SECRM
        .union(Self::UNRM)
        .union(Self::COMPR)
        .union(Self::SYNC)
        .union(Self::NODUMP)
        .union(Self::NOATIME)
        .union(Self::NOCOMPR)
        .union(Self::JOURNAL_DATA)
        .union(Self::NOTAIL)
        .union(Self::DIRSYNC)
        .union(Self::PROJINHERIT)
        .union(Self::CASEFOLD)
        .union(Self::DAX);
    /// Flags that files other than regular files and directories may have.
    pub const OTHER_MASK: Self = Self::NODUMP.union(Self::NOATIME);
    /// Flags that regular files may not have.
    pub const NOT_ON_REGULAR: Self =
        Self::DIRSYNC.union(Self::TOPDIR).union(Self::CASEFOLD).union(Self::PROJINHERIT);
}
