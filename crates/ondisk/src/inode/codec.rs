//! An inode's bytes: decoding, encoding, checksum.

use super::{FileType, Inode, InodeFlags, OLD, Time};
use crate::bytes::{
    array, get16, get32, hi16, hi32, join32, join64, lo16, lo32, put, put16, put32,
};
use crate::checksum::crc32c;
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::{Incompat, RoCompat};
use crate::geometry::Geometry;
use crate::ids::InodeNr;

const CHECKSUM_LO: usize = 0x7C;
const CHECKSUM_HI: usize = 0x82;
/// End of the extra fields that have names.
pub(super) const NAMED_END: usize = 0xA0;

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
        if geo.verifies_inodes() && b.iter().any(|&x| x != 0) {
            let (found, wanted) = stored_and_computed(b, end, ino, geo);
            ensure_csum("inode", found, wanted)?;
        }

        let word = |at: usize| if at + 4 <= end { get32(b, at) } else { 0 };
        let mode = get16(b, 0);
        let flags = InodeFlags::from_bits_retain(get32(b, 0x20));
        let wide_size = FileType::from_mode(mode) == Some(FileType::Regular)
            || geo.incompat().contains(Incompat::LARGE_DIR);
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
                if geo.incompat().contains(Incompat::BIT64) {
                    u32::from(get16(b, 0x76))
                } else {
                    0
                },
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
        self.put_old_fields(b, geo);
        self.put_times(b, end);
        if size > OLD {
            self.put_extra_fields(b, end);
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

    /// Flags and `blocks` as they are stored: in file-system blocks if the flag asks for that and
    /// they are whole ones, or if 48 bits are too few for units of 512 bytes.
    fn stored_blocks(&self, geo: &Geometry) -> (InodeFlags, u64) {
        let unit = geo.block_size.bits() - 9;
        let huge = geo.ro_compat.contains(RoCompat::HUGE_FILE);
        let whole = self.blocks.trailing_zeros() >= unit;
        let in_blocks =
            huge && (self.blocks >> 48 != 0 || whole && self.flags.contains(InodeFlags::HUGE_FILE));
        let mut flags = self.flags;
        if huge {
            flags.set(InodeFlags::HUGE_FILE, in_blocks);
        }
        (flags, if in_blocks { self.blocks >> unit } else { self.blocks })
    }

    fn put_old_fields(&self, b: &mut [u8], geo: &Geometry) {
        let (flags, blocks) = self.stored_blocks(geo);
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
    }

    fn put_times(&self, b: &mut [u8], end: usize) {
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
    }

    fn put_extra_fields(&self, b: &mut [u8], end: usize) {
        put16(b, 0x80, self.extra_isize);
        let (sec, more) = self.crtime.to_words();
        let has_more = end >= extra::CRTIME_EXTRA + 4;
        let words = [
            (extra::CRTIME, if has_more { sec } else { self.crtime.to_word() }),
            (extra::CRTIME_EXTRA, more),
            (extra::VERSION_HI, hi32(self.version)),
            (extra::PROJID, self.projid),
        ];
        for (at, value) in words {
            if at + 4 <= end {
                put32(b, at, value);
            }
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
