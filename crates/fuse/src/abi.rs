//! Numbers of the FUSE protocol (version 7) as Linux has it: opcodes, flags, sizes. All fields have
//! the byte order of the machine.

/// Bytes of the header before every request.
pub(crate) const IN_HEADER: usize = 40;
/// Bytes of the header before every reply and notification.
pub(crate) const OUT_HEADER: usize = 16;
/// Bytes of a WRITE between its header and its data.
pub(crate) const WRITE_HEADER: usize = 40;
/// Largest fixed part of a request that carries data, with its header (a write).
pub(crate) const MAX_FIXED: usize = 4096;
/// Protocol version.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version whose structures are known.
pub(crate) const MINOR: u32 = 44;
/// Oldest minor version that is accepted: from it on the structures in use have their present size.
pub(crate) const MIN_MINOR: u32 = 23;
/// Node id of the root.
pub(crate) const ROOT_NODE: u64 = 1;

macro_rules! numbers {
    ($(#[$doc:meta])* $module:ident: $type:ty { $($name:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[allow(dead_code)]
        pub(crate) mod $module {
            $(pub(crate) const $name: $type = $value;)*
        }
    };
}

macro_rules! requests {
    ($($name:ident = $value:expr,)*) => {
        numbers! {
            /// Requests.
            op: u32 { $($name = $value,)* }
        }

        /// The name of a request in messages and statistics.
        pub(crate) fn request_name(opcode: u32) -> String {
            let name = match opcode {
                $(op::$name => stringify!($name),)*
                _ => return "other".to_owned(),
            };
            name.to_ascii_lowercase()
        }
    };
}

requests! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8,
    MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16,
    STATFS = 17, RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23,
    REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29,
    FSYNCDIR = 30, CREATE = 35, INTERRUPT = 36, BMAP = 37, DESTROY = 38, IOCTL = 39,
    BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46, SYNCFS = 50,
    TMPFILE = 51, STATX = 52,
}

numbers! {
    /// Capabilities offered and asked for in INIT.
    cap: u64 {
        ASYNC_READ = 1, EXPORT_SUPPORT = 1 << 4, BIG_WRITES = 1 << 5, DONT_MASK = 1 << 6,
        DO_READDIRPLUS = 1 << 13, READDIRPLUS_AUTO = 1 << 14, ASYNC_DIO = 1 << 15,
        WRITEBACK_CACHE = 1 << 16, NO_OPEN_SUPPORT = 1 << 17, PARALLEL_DIROPS = 1 << 18,
        HANDLE_KILLPRIV = 1 << 19, POSIX_ACL = 1 << 20, MAX_PAGES = 1 << 22,
        CACHE_SYMLINKS = 1 << 23, NO_OPENDIR_SUPPORT = 1 << 24, HANDLE_KILLPRIV_V2 = 1 << 28,
        SETXATTR_EXT = 1 << 29, INIT_EXT = 1 << 30, ALLOW_IDMAP = 1 << 40,
        OVER_IO_URING = 1 << 41,
    }
}

numbers! {
    /// Fields that a SETATTR changes.
    fattr: u32 {
        MODE = 1, UID = 1 << 1, GID = 1 << 2, SIZE = 1 << 3, ATIME = 1 << 4, MTIME = 1 << 5,
        FH = 1 << 6, ATIME_NOW = 1 << 7, MTIME_NOW = 1 << 8, CTIME = 1 << 10,
        KILL_SUIDGID = 1 << 11,
    }
}

numbers! {
    /// Flags in the reply to OPEN and CREATE.
    fopen: u32 {
        DIRECT_IO = 1, KEEP_CACHE = 1 << 1, CACHE_DIR = 1 << 3, PARALLEL_DIRECT_WRITES = 1 << 6,
    }
}

/// WRITE: the kernel's page cache is being written back; no process waits for the count.
pub(crate) const WRITE_CACHE: u32 = 1;
/// WRITE: clear set-id bits and file capabilities.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// SETXATTR of an access ACL: clear set-group-id.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
/// FSYNC: data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
/// IOCTL: arguments are described by the caller, not by the number.
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// IOCTL: by a 32-bit program on a 64-bit kernel.
pub(crate) const IOCTL_COMPAT: u32 = 1;
/// IOCTL: by a 32-bit program, or by a 32-bit kernel.
pub(crate) const IOCTL_32BIT: u32 = 1 << 2;
/// Notification: forget attributes and pages of an inode.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Notification: no name that the kernel has cached is valid any more (Linux 6.16).
pub(crate) const NOTIFY_INC_EPOCH: i32 = 8;

/// Bytes of a directory entry before its name.
pub(crate) const DIRENT: usize = 24;
/// Bytes of the entry part of a reply.
pub(crate) const ENTRY_OUT: usize = 128;
