//! An inode's bytes, read field by field. Nothing is refused here: the passes check.

use extol_ondisk::checksum::crc32c;
use extol_ondisk::{FileType, Geometry, Incompat, InodeFlags, InodeSeed, RoCompat};

use crate::bytes::{is_zero, join, le16, le32, part};

const OLD: usize = 128;

/// The bytes of one inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub b: &'a [u8],
    pub ino: u32,
}

impl<'a> Raw<'a> {
    pub(crate) fn mode(&self) -> u16 {
        le16(self.b, 0)
    }

    pub(crate) fn kind(&self) -> Option<FileType> {
        FileType::from_mode(self.mode())
    }

    pub(crate) fn is(&self, kind: FileType) -> bool {
        self.kind() == Some(kind)
    }

    pub(crate) fn size(&self) -> u64 {
        join(le32(self.b, 0x04), le32(self.b, 0x6C))
    }

    pub(crate) fn size_hi(&self) -> u32 {
        le32(self.b, 0x6C)
    }

    pub(crate) fn dtime(&self) -> u32 {
        le32(self.b, 0x14)
    }

    pub(crate) fn links(&self) -> u16 {
        le16(self.b, 0x1A)
    }

    pub(crate) fn blocks_lo(&self) -> u32 {
        le32(self.b, 0x1C)
    }

    pub(crate) fn blocks_hi(&self) -> u16 {
        le16(self.b, 0x74)
    }

    /// The count of blocks as stored, in its own unit.
    pub(crate) fn blocks(&self, geo: &Geometry) -> u64 {
        let wide = geo.ro_compat.contains(RoCompat::HUGE_FILE);
        join(self.blocks_lo(), if wide { u32::from(self.blocks_hi()) } else { 0 })
    }

    pub(crate) fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(le32(self.b, 0x20))
    }

    pub(crate) fn has(&self, flags: InodeFlags) -> bool {
        self.flags().intersects(flags)
    }

    /// The 60 bytes of the map.
    pub(crate) fn i_block(&self) -> &'a [u8] {
        part(self.b, 0x28, 0x64)
    }

    /// Word `n` of the map.
    pub(crate) fn word(&self, n: usize) -> u32 {
        le32(self.i_block(), n * 4)
    }

    pub(crate) fn generation(&self) -> u32 {
        le32(self.b, 0x64)
    }

    pub(crate) fn file_acl_hi(&self) -> u16 {
        le16(self.b, 0x76)
    }

    /// Block of the attributes. e2fsck and Linux use the high half whatever the features are.
    pub(crate) fn file_acl(&self, geo: &Geometry) -> u64 {
        let wide = geo.incompat().contains(Incompat::BIT64);
        join(le32(self.b, 0x68), if wide { u32::from(self.file_acl_hi()) } else { 0 })
    }

    pub(crate) fn faddr(&self) -> u32 {
        le32(self.b, 0x70)
    }

    /// Number and size of the fragment, of inodes of the Hurd.
    pub(crate) fn fragment(&self) -> u16 {
        le16(self.b, 0x74)
    }

    /// The block of the translator, of inodes of the Hurd.
    pub(crate) fn translator(&self) -> u32 {
        le32(self.b, 0x24)
    }

    pub(crate) fn extra_isize(&self) -> u16 {
        if self.b.len() > OLD { le16(self.b, 0x80) } else { 0 }
    }

    /// The attribute area, with its magic number; empty if there is no room for one.
    pub(crate) fn attributes(&self) -> &'a [u8] {
        if self.b.len() <= OLD {
            return &[];
        }
        part(self.b, OLD + usize::from(self.extra_isize()), self.b.len())
    }

    pub(crate) fn seed(&self, geo: &Geometry) -> InodeSeed {
        geo.fs_seed.inode(extol_ondisk::InodeNr(self.ino), self.generation())
    }

    pub(crate) fn is_fast_symlink(&self) -> bool {
        self.is(FileType::Symlink) && (1..60).contains(&self.size())
    }

    /// True if the map holds blocks, as far as type, size and attribute block tell.
    pub(crate) fn maps_blocks(&self, geo: &Geometry) -> bool {
        match self.kind() {
            Some(FileType::Regular | FileType::Directory) => {}
            // As Linux decides it: blocks may be those of attributes.
            Some(FileType::Symlink) if geo.incompat().contains(Incompat::EA_INODE) => {
                if self.is_fast_symlink() {
                    return false;
                }
            }
            Some(FileType::Symlink) => {
                if self.file_acl(geo) == 0 {
                    if self.blocks_lo() == 0 {
                        return false;
                    }
                } else if le32(self.b, 4) < 60 && !(le32(self.b, 4) > 4 && self.word(1) == 0) {
                    return false;
                }
            }
            _ => return false,
        }
        !self.has(InodeFlags::INLINE_DATA)
    }

    /// True if the checksum is right. An inode whose old part is zero never had one.
    pub(crate) fn checksum_ok(&self, geo: &Geometry) -> bool {
        let b = self.b;
        let seed = self.seed(geo).0;
        let mut sum = crc32c(crc32c(seed, part(b, 0, 0x7C)), &[0, 0]);
        let has_hi = b.len() > OLD && self.extra_isize() >= 4;
        if b.len() <= OLD {
            sum = crc32c(sum, part(b, 0x7E, OLD));
        } else if has_hi {
            sum = crc32c(crc32c(sum, part(b, 0x7E, 0x82)), &[0, 0]);
            sum = crc32c(sum, part(b, 0x84, b.len()));
        } else {
            sum = crc32c(sum, part(b, 0x7E, b.len()));
        }
        let found =
            u32::from(le16(b, 0x7C)) | if has_hi { u32::from(le16(b, 0x82)) << 16 } else { 0 };
        let wanted = if has_hi { sum } else { sum & 0xFFFF };
        found == wanted || is_zero(part(b, 0, OLD))
    }
}

/// True if 60 bytes (or a block) begin with a usable header of an extent node.
pub(crate) fn extent_header_ok(b: &[u8]) -> bool {
    let (magic, entries, max) = (le16(b, 0), le16(b, 2), le16(b, 4));
    let room = (b.len().saturating_sub(12) / 12) as u16;
    magic == 0xF30A && entries <= max && max <= room && max.saturating_add(2) >= room
}
