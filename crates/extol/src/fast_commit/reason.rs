//! Reasons for full commits, by the names of Linux's `fc_info`, and some of our own.

/// The reason why something cannot be in a fast commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// Extended attributes changed.
    Xattr,
    /// Two names were exchanged, or no order of records says the names.
    CrossRename,
    /// chattr +j or -j.
    JournalFlag,
    /// Too much changed to be kept in memory.
    Memory,
    /// The boot loader's inode (never here).
    SwapBoot,
    /// The volume was resized.
    Resize,
    /// A directory was renamed.
    DirRename,
    /// Collapse or insert range.
    FallocRange,
    /// Data goes through the log; every symlink, device, fifo and socket counts as such.
    DataJournalling,
    /// A name in an encrypted directory.
    EncryptedName,
    /// A directory was made or removed.
    Directory,
    /// The last name of an inode went, or it never had one.
    Deleted,
    /// A directory needed another block.
    DirectoryGrew,
    /// The extent tree has blocks of its own, or the file has no extents.
    ExtentTree,
    /// Inline data.
    InlineData,
    /// The slot of a new inode held remains that records do not overwrite.
    UsedSlot,
    /// Attributes that no record says (of a directory; flags that change what the file is).
    Attributes,
    /// A file lost the blocks of its beginning, and got or lost others.
    HoleInFront,
    /// An operation failed half-way.
    Failed,
    /// Much changed while no fsync had come for long.
    Quiet,
    /// Blocks of a file were moved on the volume.
    BlocksMoved,
    /// The usage of an id changed, which no record says.
    Quota,
    /// In a casefolded directory: a name that is malformed, or had two spellings.
    Spelling,
}

impl Reason {
    /// All, in order.
    pub const ALL: [Self; 23] = [
        Self::Xattr,
        Self::CrossRename,
        Self::JournalFlag,
        Self::Memory,
        Self::SwapBoot,
        Self::Resize,
        Self::DirRename,
        Self::FallocRange,
        Self::DataJournalling,
        Self::EncryptedName,
        Self::Directory,
        Self::Deleted,
        Self::DirectoryGrew,
        Self::ExtentTree,
        Self::InlineData,
        Self::UsedSlot,
        Self::Attributes,
        Self::HoleInFront,
        Self::Failed,
        Self::Quiet,
        Self::BlocksMoved,
        Self::Quota,
        Self::Spelling,
    ];

    /// The names of all, by number.
    pub(crate) const NAMES: [&'static str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::ALL[at].name();
            at += 1;
        }
        names
    };

    /// Its text: the first ten exactly as Linux's `fc_info` has them.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xattr => "Extended attributes changed",
            Self::CrossRename => "Cross rename",
            Self::JournalFlag => "Journal flag changed",
            Self::Memory => "Insufficient memory",
            Self::SwapBoot => "Swap boot",
            Self::Resize => "Resize",
            Self::DirRename => "Dir renamed",
            Self::FallocRange => "Falloc range op",
            Self::DataJournalling => "Data journalling",
            Self::EncryptedName => "Encrypted filename",
            Self::Directory => "Directory created or removed",
            Self::Deleted => "Inode without a name",
            Self::DirectoryGrew => "Directory grew",
            Self::ExtentTree => "Extent tree",
            Self::InlineData => "Inline data",
            Self::UsedSlot => "Used inode slot",
            Self::Attributes => "Attributes changed",
            Self::HoleInFront => "Hole in front",
            Self::Failed => "Operation failed",
            Self::Quiet => "No recent fsync",
            Self::BlocksMoved => "Blocks moved",
            Self::Quota => "Quota usage changed",
            Self::Spelling => "Name spelled anew",
        }
    }
}
