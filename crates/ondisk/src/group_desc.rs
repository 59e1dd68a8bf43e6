//! Group descriptors: where a group's bitmaps and inode table lie and how much of it is free.
//!
//! 32 bytes, or 64 and more with 64bit, where the second part holds high halves. With metadata_csum
//! the checksum is the low half of a crc32c over the whole descriptor, with uninit_bg alone a crc16
//! that leaves its own place out, else there is none. UNINIT flags mean that the bitmap (and inode
//! table) was never written and is to be imagined.

use crate::bytes::{get16, get32, hi16, hi32, join32, join64, lo16, lo32, put16, put32};
use crate::checksum::{crc16, crc32c};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::Incompat;
use crate::geometry::Geometry;
use crate::ids::BlockNr;
use crate::ids::GroupNr;
use bitflags::bitflags;

const CHECKSUM_AT: usize = 0x1E;

bitflags! {
    /// State of a group's bitmaps and inode table. Only with uninit_bg or metadata_csum.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct GroupFlags: u16 {
        /// Inode bitmap and table were never written: all inodes are free.
        const INODE_UNINIT = 1;
        /// Block bitmap was never written: only the group's metadata is in use.
        const BLOCK_UNINIT = 2;
        /// The inode table was zeroed.
        const INODE_ZEROED = 4;
    }
}

/// A group descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupDesc {
    /// Block bitmap.
    pub block_bitmap: u64,
    /// Inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// Free clusters (blocks, without bigalloc).
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// Uninitialised parts.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap: 16 bits in descriptors of 32 bytes.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap: 16 bits in descriptors of 32 bytes.
    pub inode_bitmap_csum: u32,
    /// Exclude bitmap of snapshots (never merged).
    pub exclude_bitmap: u64,
}

impl GroupDesc {
    /// Decodes the descriptor of `group` from `desc_size` bytes and checks it.
    ///
    /// # Errors
    /// A wrong checksum, metadata outside the volume, or counts larger than the group.
    pub fn decode(bytes: &[u8], geo: &Geometry, group: GroupNr) -> Result<Self> {
        let desc = Self::decode_before_recovery(bytes, geo, group)?;
        desc.check_counts(geo, group)?;
        Ok(desc)
    }

    /// As [`decode`](Self::decode), for a volume whose log was not replayed yet. Where a replay was
    /// interrupted, descriptors may be home and not the superblock that gives the last group its
    /// size, so no count is compared.
    ///
    /// # Errors
    /// A wrong checksum, or metadata outside the volume.
    pub fn decode_before_recovery(bytes: &[u8], geo: &Geometry, group: GroupNr) -> Result<Self> {
        let size = usize::from(geo.desc_size);
        let b = bytes.get(..size).ok_or(OnDiskError::bad("group descriptor is cut short"))?;
        if geo.has_gdt_csum() {
            let wanted = checksum(b, geo, group);
            ensure_csum("group descriptor", u32::from(get16(b, CHECKSUM_AT)), u32::from(wanted))?;
        }
        // Beyond the 32 bytes of a short descriptor everything reads as zero.
        let wide16 = |lo: usize, hi: usize| join32(get16(b, lo), get16(b, hi));
        let wide32 = |lo: usize, hi: usize| join64(get32(b, lo), get32(b, hi));
        let desc = Self {
            block_bitmap: wide32(0x00, 0x20),
            inode_bitmap: wide32(0x04, 0x24),
            inode_table: wide32(0x08, 0x28),
            free_blocks: wide16(0x0C, 0x2C),
            free_inodes: wide16(0x0E, 0x2E),
            used_dirs: wide16(0x10, 0x30),
            flags: GroupFlags::from_bits_retain(get16(b, 0x12)),
            exclude_bitmap: wide32(0x14, 0x34),
            block_bitmap_csum: wide16(0x18, 0x38),
            inode_bitmap_csum: wide16(0x1A, 0x3A),
            itable_unused: wide16(0x1C, 0x32),
        };
        desc.check_places(geo, group)?;
        Ok(desc)
    }

    fn check_places(&self, geo: &Geometry, group: GroupNr) -> Result<()> {
        ensure(geo.is_valid_group(group), "no such group")?;
        let table = u64::from(geo.inode_table_blocks);
        ensure(
            geo.is_valid_block(BlockNr(self.block_bitmap)),
            "block bitmap is outside the volume",
        )?;
        ensure(
            geo.is_valid_block(BlockNr(self.inode_bitmap)),
            "inode bitmap is outside the volume",
        )?;
        ensure(
            geo.is_valid_range(BlockNr(self.inode_table), table),
            "inode table is outside the volume",
        )?;
        if !geo.incompat().contains(Incompat::FLEX_BG) {
            let last = self.inode_table + table - 1;
            let home = |nr| geo.group_of_block(BlockNr(nr)) == group;
            let all = home(self.block_bitmap)
                && home(self.inode_bitmap)
                && home(self.inode_table)
                && home(last);
            ensure(all, "group metadata is outside its group")?;
        }
        let (super_block, _) = geo.super_block();
        let (desc_block, _) = geo.desc_block(group);
        for special in [super_block.0, desc_block.0] {
            let in_table = (self.inode_table..self.inode_table + table).contains(&special);
            let clash = in_table || self.block_bitmap == special || self.inode_bitmap == special;
            ensure(!clash, "group metadata lies on the superblock or the descriptors")?;
        }
        Ok(())
    }

    fn check_counts(&self, geo: &Geometry, group: GroupNr) -> Result<()> {
        ensure(
            self.free_blocks <= geo.group_clusters(group),
            "more free blocks than the group has",
        )?;
        ensure(self.free_inodes <= geo.inodes_per_group, "more free inodes than the group has")?;
        ensure(
            self.used_dirs <= geo.inodes_per_group,
            "more directories than the group has inodes",
        )?;
        ensure(self.itable_unused <= geo.inodes_per_group, "more unused inodes than the group has")
    }

    /// Writes the descriptor over `desc_size` bytes, keeping bytes without a name, and computes the
    /// checksum.
    pub fn encode_into(&self, bytes: &mut [u8], geo: &Geometry, group: GroupNr) {
        let size = usize::from(geo.desc_size);
        let Some(b) = bytes.get_mut(..size) else {
            debug_assert!(false, "descriptor buffer is too short");
            return;
        };
        let wide = size >= 64;
        let put_wide16 = |b: &mut [u8], lo: usize, hi: usize, v: u32| {
            put16(b, lo, lo16(v));
            if wide {
                put16(b, hi, hi16(v));
            }
        };
        let put_wide32 = |b: &mut [u8], lo: usize, hi: usize, v: u64| {
            put32(b, lo, lo32(v));
            if wide {
                put32(b, hi, hi32(v));
            }
        };
        put_wide32(b, 0x00, 0x20, self.block_bitmap);
        put_wide32(b, 0x04, 0x24, self.inode_bitmap);
        put_wide32(b, 0x08, 0x28, self.inode_table);
        put_wide16(b, 0x0C, 0x2C, self.free_blocks);
        put_wide16(b, 0x0E, 0x2E, self.free_inodes);
        put_wide16(b, 0x10, 0x30, self.used_dirs);
        put16(b, 0x12, self.flags.bits());
        put_wide32(b, 0x14, 0x34, self.exclude_bitmap);
        put_wide16(b, 0x18, 0x38, self.block_bitmap_csum);
        put_wide16(b, 0x1A, 0x3A, self.inode_bitmap_csum);
        put_wide16(b, 0x1C, 0x32, self.itable_unused);
        if geo.has_gdt_csum() {
            let sum = checksum(b, geo, group);
            put16(b, CHECKSUM_AT, sum);
        }
    }
}

/// Checksum of the descriptor in `b` (all `desc_size` bytes of it), by the rule of the volume.
fn checksum(b: &[u8], geo: &Geometry, group: GroupNr) -> u16 {
    let (head, rest) = b.split_at(CHECKSUM_AT.min(b.len()));
    let tail = rest.get(2..).unwrap_or_default();
    let number = group.0.to_le_bytes();
    if geo.has_metadata_csum() {
        let sum = crc32c(crc32c(geo.fs_seed.0, &number), head);
        lo16(crc32c(crc32c(sum, &[0, 0]), tail))
    } else {
        let sum = crc16(crc16(crc16(!0, &geo.uuid), &number), head);
        if geo.incompat().contains(Incompat::BIT64) { crc16(sum, tail) } else { sum }
    }
}
