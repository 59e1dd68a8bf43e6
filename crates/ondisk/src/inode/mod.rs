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
//!   [`Inode::adopt_extra`] makes room as Linux does.
//! * An inode of zeros was never written and has no checksum. Everything else is verified.

mod flags;
mod kind;
mod time;

pub use flags::InodeFlags;
pub use kind::FileType;
pub use time::Time;

use crate::bytes::{
    array, get16, get32, hi16, hi32, join32, join64, lo16, lo32, put, put16, put32,
};
use crate::checksum::{InodeSeed, crc32c};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::{Incompat, RoCompat};
use crate::geometry::{GOOD_OLD_INODE_SIZE, Geometry};
use crate::ids::InodeNr;

/// Length of the old part.
const OLD: usize = GOOD_OLD_INODE_SIZE as usize;
/// Length of `i_block`.
pub const I_BLOCK_LEN: usize = 60;
const CHECKSUM_LO: usize = 0x7C;
const CHECKSUM_HI: usize = 0x82;
/// End of the extra fields that have names.
const NAMED_END: usize = 0xA0;

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

/// Offset and end of the extra fields; a field is there only if `128 + extra_isize` reaches its
/// end.
mod extra {
    pub const CTIME: usize = 0x84;
    pub const MTIME: usize = 0x88;
    pub const ATIME: usize = 0x8C;
    pub const CRTIME: usize = 0x90;
    pub const CRTIME_EXTRA: usize = 0x94;
    pub const VERSION_HI: usize = 0x98;
    pub const PROJID: usize = 0x9C;
}

impl Inode {
    /// Decodes an inode from `inode_size` bytes and verifies its checksum. An inode of zeros is
    /// accepted.
    ///
    /// # Errors
    /// A wrong checksum or an impossible extra size.
    pub fn decode(bytes: &[u8], ino: InodeNr, geo: &Geometry) -> Result<Self> {
        let size = usize::from(geo.inode_size);
        let b = bytes.get(..size).ok_or(OnDiskError::bad("inode is cut short"))?;
        let extra_isize = if size > OLD { get16(b, 0x80) } else { 0 };
        let end = OLD + usize::from(extra_isize);
        ensure(end <= size && end.is_multiple_of(4), "inode has an impossible extra size")?;
        if geo.has_metadata_csum() && b.iter().any(|&x| x != 0) {
            let (found, wanted) = stored_and_computed(b, end, ino, geo);
            ensure_csum("inode", found, wanted)?;
        }

        let fits = |at: usize| at + 4 <= end;
        let word = |at: usize| if fits(at) { get32(b, at) } else { 0 };
        let mode = get16(b, 0);
        let flags = InodeFlags::from_bits_retain(get32(b, 0x20));
        let wide_size = FileType::from_mode(mode) == Some(FileType::Regular)
            || geo.incompat.contains(Incompat::LARGE_DIR);
        let wide_blocks = geo.ro_compat.contains(RoCompat::HUGE_FILE);
        let blocks =
            join64(get32(b, 0x1C), if wide_blocks { u32::from(get16(b, 0x74)) } else { 0 });
        let in_blocks = wide_blocks && flags.contains(InodeFlags::HUGE_FILE);
        Ok(Self {
            mode,
            uid: join32(get16(b, 0x02), get16(b, 0x78)),
            gid: join32(get16(b, 0x18), get16(b, 0x7A)),
            size: join64(get32(b, 0x04), if wide_size { get32(b, 0x6C) } else { 0 }),
            atime: Time::from_words(get32(b, 0x08), word(extra::ATIME)),
            ctime: Time::from_words(get32(b, 0x0C), word(extra::CTIME)),
            mtime: Time::from_words(get32(b, 0x10), word(extra::MTIME)),
            crtime: Time::from_words(word(extra::CRTIME), word(extra::CRTIME_EXTRA)),
            dtime: get32(b, 0x14),
            links: get16(b, 0x1A),
            blocks: if in_blocks { blocks << (geo.block_size.bits() - 9) } else { blocks },
            flags,
            version: join64(get32(b, 0x24), word(extra::VERSION_HI)),
            i_block: array(b, 0x28),
            generation: get32(b, 0x64),
            file_acl: join64(
                get32(b, 0x68),
                if geo.incompat.contains(Incompat::BIT64) { u32::from(get16(b, 0x76)) } else { 0 },
            ),
            faddr: get32(b, 0x70),
            extra_isize,
            projid: word(extra::PROJID),
            tail: b.get(end..).unwrap_or_default().to_vec(),
            reserved: get16(b, 0x7E),
            raw_extra: b.get(NAMED_END..end).unwrap_or_default().to_vec(),
        })
    }

    /// Writes the inode over `inode_size` bytes, all of them, and computes the checksum.
    pub fn encode_into(&self, bytes: &mut [u8], ino: InodeNr, geo: &Geometry) {
        let size = usize::from(geo.inode_size);
        let Some(b) = bytes.get_mut(..size) else {
            debug_assert!(false, "inode buffer is too short");
            return;
        };
        let end = (OLD + usize::from(self.extra_isize)).min(size);
        b.fill(0);

        let unit = geo.block_size.bits() - 9;
        let huge = geo.ro_compat.contains(RoCompat::HUGE_FILE);
        let whole = self.blocks.trailing_zeros() >= unit;
        let in_blocks =
            huge && (self.blocks >> 48 != 0 || whole && self.flags.contains(InodeFlags::HUGE_FILE));
        let mut flags = self.flags;
        if huge {
            flags.set(InodeFlags::HUGE_FILE, in_blocks);
        }
        let blocks = if in_blocks { self.blocks >> unit } else { self.blocks };

        put16(b, 0x00, self.mode);
        put16(b, 0x02, lo16(self.uid));
        put32(b, 0x04, lo32(self.size));
        put32(b, 0x14, self.dtime);
        put16(b, 0x18, lo16(self.gid));
        put16(b, 0x1A, self.links);
        put32(b, 0x1C, lo32(blocks));
        put32(b, 0x20, flags.bits());
        put32(b, 0x24, lo32(self.version));
        put(b, 0x28, &self.i_block);
        put32(b, 0x64, self.generation);
        put32(b, 0x68, lo32(self.file_acl));
        put32(b, 0x6C, hi32(self.size));
        put32(b, 0x70, self.faddr);
        put16(b, 0x74, lo16(hi32(blocks)));
        put16(b, 0x76, lo16(hi32(self.file_acl)));
        put16(b, 0x78, hi16(self.uid));
        put16(b, 0x7A, hi16(self.gid));
        put16(b, 0x7E, self.reserved);
        for (old, new, time) in [
            (0x08, extra::ATIME, self.atime),
            (0x0C, extra::CTIME, self.ctime),
            (0x10, extra::MTIME, self.mtime),
        ] {
            if new + 4 <= end {
                let (sec, more) = time.to_words();
                put32(b, old, sec);
                put32(b, new, more);
            } else {
                put32(b, old, time.to_word());
            }
        }
        if size > OLD {
            put16(b, 0x80, self.extra_isize);
            let (sec, more) = self.crtime.to_words();
            let words = [
                (
                    extra::CRTIME,
                    if end >= extra::CRTIME_EXTRA + 4 { sec } else { self.crtime.to_word() },
                ),
                (extra::CRTIME_EXTRA, more),
                (extra::VERSION_HI, hi32(self.version)),
                (extra::PROJID, self.projid),
            ];
            for (at, value) in words {
                if at + 4 <= end {
                    put32(b, at, value);
                }
            }
            let room = end.saturating_sub(NAMED_END).min(self.raw_extra.len());
            put(b, NAMED_END.min(size), &self.raw_extra[..room]);
            let room = (size - end).min(self.tail.len());
            put(b, end, &self.tail[..room]);
        }
        if geo.has_metadata_csum() {
            let sum = checksum(b, end, ino, geo);
            put16(b, CHECKSUM_LO, lo16(sum));
            if has_checksum_hi(end) {
                put16(b, CHECKSUM_HI, hi16(sum));
            }
        }
    }

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
            raw_extra: vec![0; (OLD + usize::from(extra_isize)).saturating_sub(NAMED_END)],
        }
    }

    /// Gives an inode that is large but has no extra fields (`extra_isize` 0) the full set, as
    /// Linux does when it first writes one. The space is unused by definition.
    pub fn adopt_extra(&mut self, geo: &Geometry) {
        if geo.inode_size > GOOD_OLD_INODE_SIZE && self.extra_isize == 0 {
            let fresh = Self::new_empty(geo);
            self.extra_isize = fresh.extra_isize;
            self.raw_extra = fresh.raw_extra;
            self.tail = fresh.tail;
        }
    }

    /// What the mode says this is; `None` for a mode that nothing has.
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
            && !self
                .flags
                .intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT)
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

fn has_checksum_hi(end: usize) -> bool {
    end >= OLD + 4
}

/// Full 32-bit checksum of an inode's bytes; both checksum fields count as zero.
fn checksum(b: &[u8], end: usize, ino: InodeNr, geo: &Geometry) -> u32 {
    let part = |from: usize, to: usize| b.get(from..to).unwrap_or_default();
    let seed = geo.fs_seed.inode(ino, get32(b, 0x64)).0;
    let mut sum = crc32c(seed, part(0, CHECKSUM_LO));
    sum = crc32c(sum, &[0, 0]);
    if b.len() <= OLD {
        return crc32c(sum, part(CHECKSUM_LO + 2, OLD));
    }
    sum = crc32c(sum, part(CHECKSUM_LO + 2, CHECKSUM_HI));
    if has_checksum_hi(end) {
        sum = crc32c(sum, &[0, 0]);
        crc32c(sum, part(CHECKSUM_HI + 2, b.len()))
    } else {
        crc32c(sum, part(CHECKSUM_HI, b.len()))
    }
}

fn stored_and_computed(b: &[u8], end: usize, ino: InodeNr, geo: &Geometry) -> (u32, u32) {
    let wanted = checksum(b, end, ino, geo);
    if has_checksum_hi(end) {
        (join32(get16(b, CHECKSUM_LO), get16(b, CHECKSUM_HI)), wanted)
    } else {
        (u32::from(get16(b, CHECKSUM_LO)), wanted & 0xFFFF)
    }
}
