//! The kinds of findings and their stable names.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $kind:ident = $name:literal,)+) => {
        /// What kind of thing is wrong. The names are stable: scripts may compare them.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[doc = $doc])+ $kind,)+
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// The name in JSON and text.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }
        }
    };
}

kinds! {
    /// The superblock cannot be used: magic, checksum, impossible numbers.
    SuperblockBad = "superblock_bad",
    /// A field of the superblock is odd, without harm.
    SuperblockField = "superblock_field",
    /// The superblock's totals of free blocks and inodes lag behind the groups.
    SuperblockTotals = "superblock_totals",
    /// The volume was not closed cleanly, or is marked as damaged.
    State = "state",
    /// A copy of the superblock differs where it should not.
    BackupSuperblock = "backup_superblock",
    /// A feature that files on the volume use is not set.
    FeatureMissing = "feature_missing",
    /// A group descriptor has a wrong checksum.
    GroupChecksum = "group_checksum",
    /// A group's bitmap or inode table is at an impossible place.
    GroupPlace = "group_place",
    /// Two pieces of fixed metadata overlap.
    GroupOverlap = "group_overlap",
    /// Flags of a group contradict its contents.
    GroupFlags = "group_flags",
    /// A group's count of never-used inodes is wrong.
    GroupUnused = "group_unused",
    /// A group's count of free blocks, free inodes or directories is wrong.
    GroupCount = "group_count",
    /// A block bitmap disagrees with what files and metadata use.
    BlockBitmap = "block_bitmap",
    /// A block bitmap has a wrong checksum.
    BlockBitmapChecksum = "block_bitmap_checksum",
    /// The bits behind the end of a block bitmap are not set.
    BlockBitmapPadding = "block_bitmap_padding",
    /// An inode bitmap disagrees with the inodes.
    InodeBitmap = "inode_bitmap",
    /// An inode bitmap has a wrong checksum.
    InodeBitmapChecksum = "inode_bitmap_checksum",
    /// The bits behind the end of an inode bitmap are not set.
    InodeBitmapPadding = "inode_bitmap_padding",
    /// Most of a block of the inode table is garbage.
    InodeGarbage = "inode_garbage",
    /// An inode has a wrong checksum.
    InodeChecksum = "inode_checksum",
    /// A deletion time contradicts the link count, or is a leftover of the orphan list.
    InodeDeletion = "inode_deletion",
    /// A reserved inode holds what it should not.
    InodeReserved = "inode_reserved",
    /// An inode's flags contradict its type, each other or the features.
    InodeFlags = "inode_flags",
    /// An inode has no valid type.
    InodeMode = "inode_mode",
    /// A field that should be zero or in range is not.
    InodeField = "inode_field",
    /// The size contradicts the contents.
    InodeSize = "inode_size",
    /// The count of blocks is wrong.
    InodeBlocks = "inode_blocks",
    /// A device, socket or pipe that cannot be one.
    SpecialFile = "special_file",
    /// A symbolic link without a sensible target.
    Symlink = "symlink",
    /// An extent tree has a bad node.
    ExtentNode = "extent_node",
    /// A node of an extent tree has a wrong checksum.
    ExtentChecksum = "extent_checksum",
    /// Extents overlap, are out of order, or go beyond the range of their parent.
    ExtentOrder = "extent_order",
    /// An extent lies outside of the volume or has no length.
    ExtentRange = "extent_range",
    /// A block map points outside of the volume or is too large.
    BlockMap = "block_map",
    /// A block is claimed twice.
    BlockShared = "block_shared",
    /// A file claims a block of the volume's own metadata.
    BlockOnMetadata = "block_on_metadata",
    /// An attribute block is bad.
    XattrBlock = "xattr_block",
    /// An attribute entry or value is bad.
    XattrEntry = "xattr_entry",
    /// An attribute's hash is wrong.
    XattrHash = "xattr_hash",
    /// An attribute block has a wrong checksum.
    XattrChecksum = "xattr_checksum",
    /// An attribute block's count of users is wrong.
    XattrRefcount = "xattr_refcount",
    /// An attribute inode is bad or has a wrong count of users.
    XattrInode = "xattr_inode",
    /// Inline contents are bad.
    InlineData = "inline_data",
    /// An encrypted inode without a usable context; a name or a policy that does not fit the
    /// encrypted directory.
    Encryption = "encryption",
    /// A file of fs-verity whose contents, tree or descriptor have changed.
    Verity = "verity",
    /// A directory has no contents at all.
    DirEmpty = "dir_empty",
    /// A directory has a hole or unwritten blocks.
    DirHole = "dir_hole",
    /// The chain of entries in a directory block is broken.
    DirCorrupt = "dir_corrupt",
    /// A directory block has a wrong checksum.
    DirChecksum = "dir_checksum",
    /// `.` or `..` is missing, wrong or in a wrong place.
    DirDots = "dir_dots",
    /// A name that cannot be.
    DirName = "dir_name",
    /// A name that exists twice in a directory.
    DirDuplicate = "dir_duplicate",
    /// The type in an entry is not that of the inode.
    DirType = "dir_type",
    /// An entry names an inode number that cannot be.
    DirBadInode = "dir_bad_inode",
    /// An entry names an inode that is not in use.
    DirUnusedInode = "dir_unused_inode",
    /// A directory has more than one name.
    DirLinked = "dir_linked",
    /// The root of a hashed directory is bad.
    HtreeRoot = "htree_root",
    /// A node of a hashed directory is bad.
    HtreeNode = "htree_node",
    /// Names are in the wrong leaf of a hashed directory.
    HtreeHash = "htree_hash",
    /// A block of a hashed directory is not referenced, or twice.
    HtreeReference = "htree_reference",
    /// An index block of a hashed directory has a wrong checksum.
    HtreeChecksum = "htree_checksum",
    /// There is no root directory.
    RootMissing = "root_missing",
    /// An inode in use has no name.
    Unattached = "unattached",
    /// `..` does not lead to the directory's parent.
    DotDot = "dot_dot",
    /// Directories contain each other.
    DirLoop = "dir_loop",
    /// A link count is wrong.
    LinkCount = "link_count",
    /// The list of orphans is broken, or there are orphans.
    OrphanList = "orphan_list",
    /// The file of orphans is bad or not empty.
    OrphanFile = "orphan_file",
    /// The journal's inode is bad.
    JournalInode = "journal_inode",
    /// The journal's superblock is bad.
    JournalSuperblock = "journal_superblock",
    /// The journal was not empty.
    JournalDirty = "journal_dirty",
    /// The journal could not be replayed.
    JournalReplay = "journal_replay",
    /// The inode that reserves space for descriptors is bad.
    ResizeInode = "resize_inode",
    /// The multiple-mount protection is bad, or shows that the volume is in use.
    Mmp = "mmp",
    /// A quota file cannot be read.
    QuotaFile = "quota_file",
    /// A quota file states another usage than the inodes have.
    QuotaUsage = "quota_usage",
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
