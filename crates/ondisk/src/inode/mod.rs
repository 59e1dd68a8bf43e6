//! Inodes: 128 bytes, and an extra area behind them in larger ones.
//!
//! ```text
//!  0            128        128 + extra_isize            inode_size
//!  ├─ old fields ─┼─ extra fields ─┼─ attributes (`tail`) ───────┤
//! ```
//!
//! * Times are 34 bits: the old signed 32-bit seconds, plus two bits of the extra word as an epoch.
//!   Without room for the extra word they are 32 bits and whole seconds.
//! * `blocks` is in units of 512 bytes here. On disk it may be in blocks (flag HUGE_FILE), which is
//!   undone when decoding and done again when encoding if the flag is set or the number needs it.
//! * An extra field exists only if `extra_isize` reaches over it. `extra_isize` 0 in a large inode
//!   (made before the field existed) means no extra fields and no attributes;
//!   [`Inode::expand_extra`] makes room as Linux does.
//! * An inode of zeros was never written and has no checksum. Everything else is verified.

mod codec;
mod flags;
mod kind;
mod time;

pub use flags::InodeFlags;
pub use kind::FileType;
pub use time::Time;

use crate::bytes::{get32, put32};
use crate::checksum::InodeSeed;
use crate::geometry::{GOOD_OLD_INODE_SIZE, Geometry};
use crate::ids::InodeNr;

/// Length of the old part.
const OLD: usize = GOOD_OLD_INODE_SIZE as usize;
/// Length of `i_block`.
pub const I_BLOCK_LEN: usize = 60;
/// An inode. Decode and encode need its number for the checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Type and permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last change of the contents.
    pub mtime: Time,
    /// Creation (zero if it cannot be stored).
    pub crtime: Time,
    /// Deletion time, or next inode of the orphan list.
    pub dtime: u32,
    /// Links; 1 in directories that have too many to count.
    pub links: u16,
    /// Space in use, in units of 512 bytes.
    pub blocks: u64,
    /// Flags.
    pub flags: InodeFlags,
    /// Version (of the contents), or part of an attribute inode's reference count.
    pub version: u64,
    /// Map, inline contents, fast symbolic link or device number.
    pub i_block: [u8; I_BLOCK_LEN],
    /// Generation: distinguishes inodes that had the same number.
    pub generation: u32,
    /// Block of extended attributes, 0 for none.
    pub file_acl: u64,
    /// Fragment address (never used).
    pub faddr: u32,
    /// Length of the extra fields.
    pub extra_isize: u16,
    /// Project.
    pub projid: u32,
    /// Bytes behind the extra fields: the attribute area.
    pub tail: Vec<u8>,
    /// Reserved field at 0x7E.
    pub reserved: u16,
    /// Extra bytes that have no name: those before `128 + extra_isize` that no whole field covers.
    pub raw_extra: Vec<u8>,
}

impl Inode {
    /// A zero inode with the extra size that new inodes get.
    #[must_use]
    pub fn new_empty(geo: &Geometry) -> Self {
        let room = geo.inode_size - GOOD_OLD_INODE_SIZE;
        let extra_isize = geo.want_extra_isize.min(room);
        Self {
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            atime: Time::default(),
            ctime: Time::default(),
            mtime: Time::default(),
            crtime: Time::default(),
            dtime: 0,
            links: 0,
            blocks: 0,
            flags: InodeFlags::empty(),
            version: 0,
            i_block: [0; I_BLOCK_LEN],
            generation: 0,
            file_acl: 0,
            faddr: 0,
            extra_isize,
            projid: 0,
            tail: vec![0; usize::from(room - extra_isize)],
            reserved: 0,
            raw_extra: vec![0; (OLD + usize::from(extra_isize)).saturating_sub(codec::NAMED_END)],
        }
    }

    /// Gives an inode that is large but has no extra fields (`extra_isize` 0) the full set, as
    /// Linux does when it first writes one. The space is unused by definition.
    pub fn expand_extra(&mut self, geo: &Geometry) {
        if geo.inode_size > GOOD_OLD_INODE_SIZE && self.extra_isize == 0 {
            let fresh = Self::new_empty(geo);
            self.extra_isize = fresh.extra_isize;
            self.raw_extra = fresh.raw_extra;
            self.tail = fresh.tail;
        }
    }

    /// The type in the mode; `None` for an invalid one.
    #[must_use]
    pub fn kind(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }

    /// True for directories.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// True for regular files.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        self.kind() == Some(FileType::Regular)
    }

    /// True for symbolic links.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.kind() == Some(FileType::Symlink)
    }

    /// True for a symbolic link whose target is in `i_block`.
    #[must_use]
    pub fn is_fast_symlink(&self) -> bool {
        self.is_symlink()
            && (1..I_BLOCK_LEN as u64).contains(&self.size)
            && !self.flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
    }

    /// True if `i_block` maps blocks (by extents or indirectly), rather than holding contents or a
    /// device number.
    #[must_use]
    pub fn maps_blocks(&self) -> bool {
        matches!(self.kind(), Some(FileType::Regular | FileType::Directory | FileType::Symlink))
            && !self.is_fast_symlink()
            && !self.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Seed of the checksums of this inode's blocks.
    #[must_use]
    pub fn seed(&self, ino: InodeNr, geo: &Geometry) -> InodeSeed {
        geo.fs_seed.inode(ino, self.generation)
    }

    /// Device number of a device inode: major and minor, from the old 16-bit or the new 32-bit
    /// form.
    #[must_use]
    pub fn rdev(&self) -> (u32, u32) {
        let old = get32(&self.i_block, 0);
        if old != 0 {
            ((old >> 8) & 0xFF, old & 0xFF)
        } else {
            let new = get32(&self.i_block, 4);
            ((new >> 8) & 0xFFF, (new & 0xFF) | ((new >> 12) & 0xF_FF00))
        }
    }

    /// Stores a device number, in the old form if it fits. Only 12 bits of major and 20 bits of
    /// minor can be stored.
    pub fn set_rdev(&mut self, major: u32, minor: u32) {
        self.i_block = [0; I_BLOCK_LEN];
        if major < 256 && minor < 256 {
            put32(&mut self.i_block, 0, major << 8 | minor);
        } else {
            let (major, minor) = (major & 0xFFF, minor & 0xF_FFFF);
            put32(&mut self.i_block, 4, (minor & 0xFF) | major << 8 | (minor & !0xFF) << 12);
        }
    }
}
