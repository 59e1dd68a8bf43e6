//! The volume under check: superblock, geometry, group descriptors, reads. Immutable while the
//! passes run.

use std::collections::HashSet;

use extol_block::SharedDevice;
use extol_ondisk::checksum::{crc16, crc32c};
use extol_ondisk::{Compat, Geometry, GroupFlags, GroupNr, Incompat, RoCompat, Superblock};

use crate::bytes::{join, le16, le32, part};
use crate::error::Result;

const DESC_CHECKSUM_AT: usize = 0x1E;

/// A group descriptor, as it is on disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub used_dirs: u32,
    pub flags: u16,
    pub unused: u32,
    pub block_csum: u32,
    pub inode_csum: u32,
    pub csum_found: u16,
    pub csum_wanted: u16,
    /// The places are inside of the volume and may be read.
    pub block_bitmap_ok: bool,
    pub inode_bitmap_ok: bool,
    pub table_ok: bool,
}

impl Group {
    fn decode(b: &[u8], geo: &Geometry, nr: u32) -> Self {
        let wide = geo.desc_size >= 64;
        let w16 =
            |lo, hi| u32::from(le16(b, lo)) | if wide { u32::from(le16(b, hi)) << 16 } else { 0 };
        let w32 = |lo, hi| join(le32(b, lo), if wide { le32(b, hi) } else { 0 });
        Self {
            block_bitmap: w32(0x00, 0x20),
            inode_bitmap: w32(0x04, 0x24),
            inode_table: w32(0x08, 0x28),
            free_blocks: w16(0x0C, 0x2C),
            free_inodes: w16(0x0E, 0x2E),
            used_dirs: w16(0x10, 0x30),
            flags: le16(b, 0x12),
            block_csum: w16(0x18, 0x38),
            inode_csum: w16(0x1A, 0x3A),
            unused: w16(0x1C, 0x32),
            csum_found: le16(b, DESC_CHECKSUM_AT),
            csum_wanted: desc_checksum(b, geo, nr),
            ..Self::default()
        }
    }

    pub(crate) fn has(&self, flag: GroupFlags) -> bool {
        self.flags & flag.bits() != 0
    }
}

fn desc_checksum(b: &[u8], geo: &Geometry, nr: u32) -> u16 {
    let (head, tail) = (part(b, 0, DESC_CHECKSUM_AT), part(b, DESC_CHECKSUM_AT + 2, b.len()));
    let number = nr.to_le_bytes();
    if geo.has_metadata_csum() {
        let sum = crc32c(crc32c(crc32c(geo.fs_seed.0, &number), head), &[0, 0]);
        crc32c(sum, tail) as u16
    } else {
        let sum = crc16(crc16(crc16(!0, &geo.uuid), &number), head);
        if geo.incompat().contains(Incompat::BIT64) { crc16(sum, tail) } else { sum }
    }
}

/// The volume.
#[derive(Debug)]
pub(crate) struct Vol {
    pub dev: SharedDevice,
    pub sb: Superblock,
    pub geo: Geometry,
    pub groups: Vec<Group>,
    /// What is seen is the volume after a recovery in memory: orphans and lagging totals belong to
    /// it.
    pub recovered: bool,
    /// The first superblock is damaged, and this is read by a copy, whose totals and state are
    /// those of the time when it was written.
    pub by_copy: bool,
    /// Inodes on the orphan list and in the orphan file (only read after a recovery).
    pub orphans: HashSet<u32>,
}

impl Vol {
    pub(crate) fn new(dev: SharedDevice, sb: Superblock, geo: Geometry) -> Result<Self> {
        let mut vol = Self {
            dev,
            sb,
            geo,
            groups: Vec::new(),
            recovered: false,
            by_copy: false,
            orphans: HashSet::new(),
        };
        vol.groups = vol.read_groups()?;
        Ok(vol)
    }

    fn read_groups(&self) -> Result<Vec<Group>> {
        let geo = &self.geo;
        let size = usize::from(geo.desc_size);
        let mut block = vec![0; geo.block_len()];
        let mut have = None;
        let mut groups = Vec::with_capacity(geo.groups() as usize);
        for nr in 0..geo.groups() {
            let (at, offset) = geo.desc_block(GroupNr(nr));
            if have != Some(at) {
                self.read(at.0, &mut block)?;
                have = Some(at);
            }
            groups.push(Group::decode(part(&block, offset, offset + size), geo, nr));
        }
        Ok(groups)
    }

    /// Reads whole blocks from `nr` on. The caller has checked that they are on the volume.
    pub(crate) fn read(&self, nr: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.dev.read_at(buf, nr.saturating_mul(self.geo.block_len() as u64))?)
    }

    /// One block.
    pub(crate) fn block(&self, nr: u64) -> Result<Vec<u8>> {
        let mut buf = vec![0; self.geo.block_len()];
        self.read(nr, &mut buf)?;
        Ok(buf)
    }

    /// The bytes of an inode; `None` if there is no such inode or its table cannot be found.
    pub(crate) fn inode(&self, ino: u32) -> Result<Option<Vec<u8>>> {
        if ino == 0 || ino > self.geo.inodes() {
            return Ok(None);
        }
        let (group, index) =
            ((ino - 1) / self.geo.inodes_per_group, (ino - 1) % self.geo.inodes_per_group);
        let Some(group) = self.groups.get(group as usize).filter(|g| g.table_ok) else {
            return Ok(None);
        };
        let size = u64::from(self.geo.inode_size);
        let at = group.inode_table * self.geo.block_len() as u64 + u64::from(index) * size;
        let mut buf = vec![0; usize::from(self.geo.inode_size)];
        self.dev.read_at(&mut buf, at)?;
        Ok(Some(buf))
    }

    pub(crate) fn is_block(&self, nr: u64) -> bool {
        (self.geo.first_data_block..self.geo.blocks()).contains(&nr)
    }

    pub(crate) fn has_csum(&self) -> bool {
        self.geo.has_metadata_csum()
    }

    pub(crate) fn compat(&self, feature: Compat) -> bool {
        self.geo.compat().contains(feature)
    }

    pub(crate) fn incompat(&self, feature: Incompat) -> bool {
        self.geo.incompat().contains(feature)
    }

    pub(crate) fn ro_compat(&self, feature: RoCompat) -> bool {
        self.geo.ro_compat.contains(feature)
    }

    /// The group's inode bitmap and table were never written.
    pub(crate) fn inode_uninit(&self, group: u32) -> bool {
        self.geo.has_gdt_csum() && self.flag(group, GroupFlags::INODE_UNINIT)
    }

    fn flag(&self, group: u32, flag: GroupFlags) -> bool {
        self.groups.get(group as usize).is_some_and(|g| g.has(flag))
    }

    /// How many inodes of a group may be in use: the rest of its table was never written.
    pub(crate) fn scanned_inodes(&self, group: u32) -> u32 {
        let Some(g) = self.groups.get(group as usize) else { return 0 };
        if self.inode_uninit(group) || !g.table_ok {
            0
        } else if self.geo.has_gdt_csum() {
            self.geo.inodes_per_group.saturating_sub(g.unused)
        } else {
            self.geo.inodes_per_group
        }
    }

    /// True if an inode lies in a part that was never written by the descriptor. Flags count
    /// even if the volume should have none.
    pub(crate) fn never_written(&self, group: u32, index: u32) -> bool {
        let Some(g) = self.groups.get(group as usize) else { return true };
        // With wrap-around, as e2fsck computes it: an impossible count hides nothing.
        let first = group.wrapping_mul(self.geo.inodes_per_group).wrapping_add(1);
        let unused = first.wrapping_add(self.geo.inodes_per_group).wrapping_sub(g.unused);
        g.has(GroupFlags::INODE_UNINIT) || first.wrapping_add(index) >= unused
    }

    /// The group's bitmap is uninitialised: the flag is set, and the checksum is right.
    pub(crate) fn is_uninit(&self, group: u32, flag: GroupFlags) -> bool {
        let good = self.groups.get(group as usize).is_some_and(|g| g.csum_found == g.csum_wanted);
        good && self.geo.has_gdt_csum() && self.flag(group, flag)
    }

    /// Position of a block in the bitmaps, in clusters.
    pub(crate) fn cluster(&self, nr: u64) -> u64 {
        nr.saturating_sub(self.geo.first_data_block) / u64::from(self.geo.cluster_ratio)
    }

    /// Number of clusters.
    pub(crate) fn clusters(&self) -> u64 {
        (self.geo.blocks() - self.geo.first_data_block).div_ceil(u64::from(self.geo.cluster_ratio))
    }

    /// Blocks of superblock copy, descriptors and reserved descriptors at the start of a group.
    pub(crate) fn base_meta(&self, group: u32) -> (u64, u64) {
        let nr = GroupNr(group);
        let count = self.geo.base_meta_blocks(nr).min(self.geo.group_blocks(nr));
        (self.geo.group_first_block(nr).0, u64::from(count))
    }
}
