//! The parts of a tree: what is said of a file.

use extol_ondisk::Time;
use extol_verity::{Algorithm, Salt};
use extol_vfs::Rdev;

/// A file of a tree. In a finished tree numbers ascend in the order in which files are laid out;
/// the root directory is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: Self = Self(0);

    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Bytes that a tree keeps: a name, or the target of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameRef {
    pub(super) at: u32,
    pub(super) len: u16,
}

/// A set of extended attributes that a tree keeps once for all files that have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct XattrSetId(pub(super) u32);

impl XattrSetId {
    /// No attributes.
    pub const NONE: Self = Self(0);
}

/// Extended attributes, by ascending name.
pub type XattrSet = Vec<(Box<[u8]>, Box<[u8]>)>;

/// The times of a file beside the one that it was changed last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OtherTimes {
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the inode.
    pub ctime: Option<Time>,
    /// Creation.
    pub crtime: Option<Time>,
}

/// [`OtherTimes`] that a tree keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TimesId(pub(super) u32);

impl TimesId {
    /// The source says nothing of them.
    pub const NONE: Self = Self(0);
}

/// What is said of every file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    /// Permission bits (07777).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the contents.
    pub mtime: Time,
    /// The other times: [`Tree::times`](super::Tree::times).
    pub times: TimesId,
    /// Extended attributes: [`Tree::xattrs`](super::Tree::xattrs).
    pub xattrs: XattrSetId,
    /// The source does not say this: a directory that an archive names only as a parent.
    pub implied: bool,
    /// Of a regular file: it becomes one of fs-verity.
    pub verity: bool,
}

impl Meta {
    /// A directory of root that the source does not describe.
    pub(super) fn implied_dir(mtime: Time) -> Self {
        Self { mode: 0o755, mtime, implied: true, ..Self::default() }
    }
}

/// How the trees of files of fs-verity are made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerityTrees {
    /// What hashes.
    pub algorithm: Algorithm,
    /// Bytes of a block of a tree. Default: 4096, or those of a block of the volume if that is
    /// smaller.
    pub block_size: Option<u32>,
    /// Before each block that is hashed.
    pub salt: Salt,
}

impl Default for VerityTrees {
    fn default() -> Self {
        Self { algorithm: Algorithm::Sha256, block_size: None, salt: Salt::default() }
    }
}

/// Where a source has the contents of a file. Only the source knows what the number means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataRef(pub u64);

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
        /// Where the source has its contents.
        data: DataRef,
    },
    /// A symbolic link to this target: [`Tree::bytes`](super::Tree::bytes).
    Symlink(NameRef),
    /// A character device.
    Char(Rdev),
    /// A block device.
    Block(Rdev),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// True for a directory.
    #[must_use]
    pub fn is_dir(self) -> bool {
        matches!(self, Self::Dir)
    }
}

/// A file.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// What is said of it.
    pub meta: Meta,
    /// What it is.
    pub kind: Kind,
    /// How many names it has; of a directory, as `stat` counts: 2, and one for each directory in
    /// it. (Set when the tree is finished.)
    pub nlink: u32,
    /// Of a directory: its first entry.
    pub(super) first: u32,
}

/// A remark about the source: something was taken in another way than it says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The entry, fit to be printed.
    pub entry: String,
    /// What was done.
    pub what: String,
}
