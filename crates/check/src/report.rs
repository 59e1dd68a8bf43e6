//! What a check found.

use std::fmt;

use serde::{Serialize, Serializer};

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Severity {
    /// The volume is damaged.
    Error,
    /// Worth knowing, but no damage: a counter that every mount brings up to date, an orphan that
    /// recovery finishes.
    Note,
}

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
    /// Extents overlap, are out of order, or go beyond what their parent says.
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
    /// An encrypted inode without a usable context.
    Encryption = "encryption",
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
    /// The multiple-mount protection is bad, or says that the volume is in use.
    Mmp = "mmp",
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

/// One thing that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What kind.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// What exactly, as a sentence.
    pub what: String,
    /// The inode that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    /// The block of the volume that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// The group that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// A path of the inode, if one was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// An error that `e2fsck -fn` does not count as one (see the crate's documentation).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub beyond_e2fsck: bool,
}

impl Finding {
    pub(crate) fn error(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            severity: Severity::Error,
            what: what.into(),
            inode: None,
            block: None,
            group: None,
            path: None,
            beyond_e2fsck: false,
        }
    }

    pub(crate) fn note(kind: Kind, what: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(kind, what) }
    }

    pub(crate) fn inode(self, ino: u32) -> Self {
        Self { inode: Some(ino), ..self }
    }

    pub(crate) fn block(self, nr: u64) -> Self {
        Self { block: Some(nr), ..self }
    }

    pub(crate) fn group(self, group: u32) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Marks an error that e2fsck passes over.
    pub(crate) fn beyond(self) -> Self {
        Self { beyond_e2fsck: true, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Note => "note",
        };
        write!(f, "{severity}: {}: ", self.kind)?;
        if let Some(ino) = self.inode {
            write!(f, "inode {ino}")?;
            if let Some(path) = &self.path {
                write!(f, " ({path})")?;
            }
            f.write_str(": ")?;
        }
        if let Some(group) = self.group {
            write!(f, "group {group}: ")?;
        }
        if let Some(block) = self.block {
            write!(f, "block {block}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Collects findings; keeps the first `max`, counts all.
#[derive(Debug)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    errors: u64,
    notes: u64,
    /// Errors that e2fsck counts, too.
    common: u64,
    max: usize,
}

impl Findings {
    pub(crate) fn new(max: usize) -> Self {
        Self { list: Vec::new(), errors: 0, notes: 0, common: 0, max }
    }

    pub(crate) fn push(&mut self, finding: Finding) {
        match finding.severity {
            Severity::Error => self.errors += 1,
            Severity::Note => self.notes += 1,
        }
        if finding.severity == Severity::Error && !finding.beyond_e2fsck {
            self.common += 1;
        }
        if self.list.len() < self.max {
            self.list.push(finding);
        }
    }

    /// True if another finding of this length would only be counted: its text need not be made.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.errors += other.errors;
        self.notes += other.notes;
        self.common += other.common;
        let room = self.max.saturating_sub(self.list.len());
        self.list.extend(other.list.into_iter().take(room));
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors
    }

    pub(crate) fn list_mut(&mut self) -> &mut Vec<Finding> {
        &mut self.list
    }

    pub(crate) fn into_parts(self) -> (Vec<Finding>, u64, u64, u64) {
        (self.list, self.errors, self.notes, self.common)
    }
}

/// What was replayed into memory before the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// Transactions in the log.
    pub transactions: u32,
    /// Blocks that they change.
    pub blocks: u32,
    /// Copies that a revoke record cancelled.
    pub revoked: u32,
}

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Inodes in use.
    pub inodes: u64,
    /// Directories.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub specials: u64,
    /// Names in directories, without `.` and `..`.
    pub names: u64,
    /// Blocks in use.
    pub blocks: u64,
    /// Blocks on the volume.
    pub blocks_total: u64,
    /// Inodes on the volume.
    pub inodes_total: u64,
    /// Orphans that the next mount deletes or truncates.
    pub orphans: u64,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// True if there are no errors.
    pub clean: bool,
    /// Number of errors, also those that are not in `findings`.
    pub errors: u64,
    /// Number of notes, also those that are not in `findings`.
    pub notes: u64,
    /// Errors that `e2fsck -fn` counts as errors, too.
    pub errors_of_e2fsck: u64,
    /// The journal was replayed into memory first: what was checked is the volume as it will be
    /// after recovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Replayed>,
    /// What was looked at.
    pub counts: Counts,
    /// The first findings, in the order of the passes.
    pub findings: Vec<Finding>,
}

impl Report {
    /// True if there are no errors.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// True if there are errors of this kind among the kept findings.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        self.findings.iter().any(|f| f.kind == kind && f.severity == Severity::Error)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        let kept = self.findings.len() as u64;
        let all = self.errors.saturating_add(self.notes);
        if all > kept {
            writeln!(f, "... and {} more", all - kept)?;
        }
        let c = &self.counts;
        write!(
            f,
            "{}: {} errors, {} notes; {} of {} inodes and {} of {} blocks in use",
            if self.clean { "clean" } else { "DAMAGED" },
            self.errors,
            self.notes,
            c.inodes,
            c.inodes_total,
            c.blocks,
            c.blocks_total
        )?;
        if let Some(replayed) = &self.replayed {
            write!(f, " (after replaying {} transactions in memory)", replayed.transactions)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_plain() {
        let mut names: Vec<&str> = Kind::ALL.iter().map(|k| k.name()).collect();
        assert!(names.iter().all(|n| n.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
    }

    #[test]
    fn findings_are_counted_beyond_the_limit() {
        let mut all = Findings::new(2);
        for n in 0..5 {
            all.push(Finding::error(Kind::LinkCount, "x").inode(n));
        }
        all.push(Finding::error(Kind::DirDuplicate, "y").beyond());
        all.push(Finding::note(Kind::State, "z"));
        let (list, errors, notes, common) = all.into_parts();
        assert_eq!((list.len(), errors, notes, common), (2, 6, 1, 5));
        let mut finding = list[1].clone().block(7);
        finding.path = Some("/a".into());
        assert_eq!(finding.to_string(), "error: link_count: inode 1 (/a): block 7: x");
    }
}
