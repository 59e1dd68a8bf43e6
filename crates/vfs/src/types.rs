//! Plain types that cross the line between a file system and its front ends.

/// A file that a front end can name again later: inode number and the generation that tells reuses
/// apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct FileId {
    /// Inode number.
    pub ino: u32,
    /// Generation of the inode.
    pub generation: u32,
}

/// A point in time with nanoseconds, seconds since 1970 (may be negative).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, 0..1_000_000_000.
    pub nsec: u32,
}

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Number of one open of a file, as a file system gives it ([`Mountable::opened`]). 0 is none in
/// particular.
///
/// [`Mountable::opened`]: crate::Mountable::opened
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpenNr(pub u64);

/// Attributes, as stat(2) gives them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Which file.
    pub id: FileId,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky bits (07777).
    pub perm: u16,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in 512-byte units.
    pub blocks: u64,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number (Linux encoding: major and minor) of device files.
    pub rdev: Rdev,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// Block size for I/O.
    pub blksize: u32,
    /// Inode flags (the `chattr` bits of the on-disk inode that users may see).
    pub flags: u32,
    /// Project id.
    pub project: u32,
}

impl FileKind {
    /// What Linux has in st_mode for it (S_IFREG and so on).
    #[must_use]
    pub fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }
}

impl Attr {
    /// Kind and permission bits as Linux has them in st_mode.
    #[must_use]
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | u32::from(self.perm)
    }

    /// True for a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// True for a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::Regular
    }

    /// True for a symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind == FileKind::Symlink
    }

    /// Those of an inode that is made now and holds nothing: one link (a directory has two), blocks
    /// of 4 KiB.
    #[must_use]
    pub fn fresh(id: FileId, kind: FileKind, perm: u16, creds: Creds, now: Timestamp) -> Self {
        Self {
            id,
            kind,
            perm,
            size: 0,
            blocks: 0,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            uid: creds.uid,
            gid: creds.gid,
            rdev: Rdev::default(),
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            blksize: 4096,
            flags: 0,
            project: 0,
        }
    }
}

/// Device number of a character or block device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rdev {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// A timestamp to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The present moment.
    Now,
    /// This moment.
    At(Timestamp),
}

/// What setattr changes; `None` leaves a field alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (a front end with a write-back cache has the newer one).
    pub ctime: Option<SetTime>,
    /// `chattr` flags.
    pub flags: Option<u32>,
    /// Project id.
    pub project: Option<u32>,
}

/// User and group of the caller, for new files. (Permission checks are the front end's.)
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Creds {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The author of a change to the contents of a file. It decides about reserved blocks and about
/// `chattr` flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Author {
    /// The owner of the file, as far as reserved blocks are concerned: the process is not known.
    #[default]
    Owner,
    /// A process with these ids, which waits for the result.
    Process(Creds),
    /// A cache of the front end brings home what it has accepted before. Flags of the file refuse
    /// none of it: they may be newer than the data.
    Cache,
}

impl Author {
    /// The process, if it is known.
    #[must_use]
    pub fn process(self) -> Option<Creds> {
        match self {
            Self::Process(creds) => Some(creds),
            Self::Owner | Self::Cache => None,
        }
    }
}

/// What a new inode is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewNode {
    /// An empty regular file.
    Regular,
    /// An empty directory.
    Directory,
    /// A symbolic link to these bytes.
    Symlink(Vec<u8>),
    /// A character device.
    CharDevice(Rdev),
    /// A block device.
    BlockDevice(Rdev),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl NewNode {
    /// What mknod(2) makes of this mode, of whose kind (S_IFREG and so on) none is a regular file.
    /// `None`: it makes no such file.
    #[must_use]
    pub fn of_mode(mode: u32, rdev: Rdev) -> Option<Self> {
        const KIND: u32 = 0o170_000;
        let is = |kind: FileKind| mode & KIND == kind.mode_bits();
        Some(match () {
            () if mode & KIND == 0 || is(FileKind::Regular) => Self::Regular,
            () if is(FileKind::Fifo) => Self::Fifo,
            () if is(FileKind::Socket) => Self::Socket,
            () if is(FileKind::CharDevice) => Self::CharDevice(rdev),
            () if is(FileKind::BlockDevice) => Self::BlockDevice(rdev),
            () => return None,
        })
    }
}

/// One entry that readdir found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Inode number.
    pub ino: u32,
    /// Position *behind* this entry: pass it to the next readdir to go on. Stable while the
    /// directory changes.
    pub cookie: u64,
    /// Kind, if the directory records it.
    pub kind: Option<FileKind>,
    /// Name without NUL or slash.
    pub name: Vec<u8>,
}

bitflags::bitflags! {
    /// How rename treats an existing target.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct RenameFlags: u32 {
        /// Fail with [`FsError::Exists`](crate::FsError::Exists) if the new name exists.
        const NOREPLACE = 1;
        /// Exchange the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0,0) under the old name.
        const WHITEOUT = 4;
    }
}

/// What fallocate(2) does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Allocate unwritten blocks; grow the file unless `keep_size`.
    Allocate {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Free the blocks of the range; the size stays.
    PunchHole,
    /// Make the range read as zeros, keeping blocks; grow the file unless `keep_size`.
    ZeroRange {
        /// FALLOC_FL_KEEP_SIZE.
        keep_size: bool,
    },
    /// Cut the range out of the file.
    CollapseRange,
    /// Insert a hole.
    InsertRange,
}

/// Where to seek.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// First data at or after the offset.
    Data,
    /// First hole at or after the offset (the end of the file counts as one).
    Hole,
}

/// setxattr(2) modes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrSet {
    /// Create or replace.
    #[default]
    Any,
    /// XATTR_CREATE: fail if it exists.
    Create,
    /// XATTR_REPLACE: fail if it does not.
    Replace,
}

/// One extent of fiemap, all in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// Offset in the file.
    pub logical: u64,
    /// Offset on the device (meaningless if `delayed` or `inline`).
    pub physical: u64,
    /// Length.
    pub len: u64,
    /// Allocated but reads as zeros.
    pub unwritten: bool,
    /// Only in memory yet.
    pub delayed: bool,
    /// Inside the inode.
    pub inline: bool,
}

/// statfs(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks for data (metadata overhead taken off, as ext4's default `minixdf` off does).
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for ordinary users.
    pub blocks_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name.
    pub name_max: u32,
}

/// What a volume is called.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The label, without the zeros behind it.
    pub label: Vec<u8>,
    /// The UUID.
    pub uuid: [u8; 16],
}

/// A change of what the superblock says about the volume; `None` leaves a field alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tune {
    /// The label, at most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// Which of [`values`](Self::values) are set.
    pub fields: TuneFields,
    /// What they become.
    pub values: Tunables,
}

bitflags::bitflags! {
    /// Which fields `EXT4_IOC_SET_TUNE_SB_PARAM` sets.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct TuneFields: u32 {
        /// [`Tunables::errors`].
        const ERRORS = 0x1;
        /// [`Tunables::mounts`].
        const MOUNTS = 0x2;
        /// [`Tunables::most_mounts`].
        const MOST_MOUNTS = 0x4;
        /// [`Tunables::check_interval`].
        const CHECK_INTERVAL = 0x8;
        /// [`Tunables::last_check`].
        const LAST_CHECK = 0x10;
        /// [`Tunables::reserved_blocks`].
        const RESERVED_BLOCKS = 0x20;
        /// [`Tunables::reserved_uid`].
        const RESERVED_UID = 0x40;
        /// [`Tunables::reserved_gid`].
        const RESERVED_GID = 0x80;
        /// [`Tunables::default_options`].
        const DEFAULT_OPTIONS = 0x100;
        /// [`Tunables::hash`].
        const HASH = 0x200;
        /// [`Tunables::raid_stride`].
        const RAID_STRIDE = 0x400;
        /// [`Tunables::raid_stripe_width`].
        const RAID_STRIPE_WIDTH = 0x800;
        /// [`Tunables::mount_options`].
        const MOUNT_OPTIONS = 0x1000;
        /// The volume is to be checked before the next mount.
        const FORCE_CHECK = 0x8000;
    }
}

/// Numbers of the superblock that tune2fs(8) changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tunables {
    /// What to do about errors: 1 continue, 2 remount read-only, 3 panic.
    pub errors: u16,
    /// Mounts since the last check.
    pub mounts: u16,
    /// Mounts after which to check.
    pub most_mounts: u16,
    /// Seconds between checks.
    pub check_interval: u32,
    /// When it was last checked, seconds since 1970.
    pub last_check: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
    /// Blocks of the volume. (Not to be set.)
    pub blocks: u64,
    /// User that may use reserved blocks.
    pub reserved_uid: u32,
    /// Group that may.
    pub reserved_gid: u32,
    /// Default mount options, as bits.
    pub default_options: u32,
    /// Hash of new directories.
    pub hash: u8,
    /// Blocks that are written to one disk of a RAID.
    pub raid_stride: u16,
    /// Blocks of a full stripe.
    pub raid_stripe_width: u32,
    /// Default mount options, as text that ends with a zero.
    pub mount_options: [u8; 64],
    /// Features: compatible, incompatible, read-only compatible. (Not to be set.)
    pub features: [u32; 3],
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            errors: 0,
            mounts: 0,
            most_mounts: 0,
            check_interval: 0,
            last_check: 0,
            reserved_blocks: 0,
            blocks: 0,
            reserved_uid: 0,
            reserved_gid: 0,
            default_options: 0,
            hash: 0,
            raid_stride: 0,
            raid_stripe_width: 0,
            mount_options: [0; 64],
            features: [0; 3],
        }
    }
}

bitflags::bitflags! {
    /// What `EXT4_IOC_CHECKPOINT` is asked for beside emptying the log.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct CheckpointFlags: u32 {
        /// Discard the log's blocks.
        const DISCARD = 1;
        /// Zero the log's blocks.
        const ZERO_OUT = 2;
        /// Only say whether it could be done.
        const DRY_RUN = 4;
    }
}

/// How a volume goes down at once (`EXT4_IOC_SHUTDOWN`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// 0: everything is written first.
    Sync,
    /// 1: the running transaction is committed first; file data that waits is lost.
    FlushLog,
    /// 2: nothing is written, as in a power cut.
    Now,
}

impl Shutdown {
    /// From the number of the ioctl.
    #[must_use]
    pub fn from_number(mode: u32) -> Option<Self> {
        [Self::Sync, Self::FlushLog, Self::Now].get(mode as usize).copied()
    }
}

/// How a file becomes one of fs-verity: the argument of `FS_IOC_ENABLE_VERITY`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EnableVerity {
    /// Number of the hash algorithm: 1 is SHA-256, 2 is SHA-512.
    pub algorithm: u8,
    /// Bytes of a block of the Merkle tree.
    pub block_size: u32,
    /// At most 32 bytes.
    pub salt: Vec<u8>,
    /// Stored with the file, and not checked.
    pub signature: Vec<u8>,
}

/// The digest of a file of fs-verity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerityDigest {
    /// Number of the hash algorithm.
    pub algorithm: u8,
    /// Its hash.
    pub bytes: Vec<u8>,
}

/// What a file of fs-verity has behind its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VerityPart {
    /// The Merkle tree.
    Tree,
    /// The descriptor, as it is hashed.
    Descriptor,
    /// The signature.
    Signature,
}
