//! Owners of blocks. Every block belongs to one owner: the fixed metadata (superblocks,
//! descriptors, bitmaps, inode tables), which claims first, then files and their trees. A second
//! claim is an error; where the first owner is metadata, a worse one.
//!
//! With bigalloc the unit is the cluster, as in the block bitmaps.
//!
//! A hostile volume may name the same block over and over. What was claimed already is read
//! (as a tree node or a directory block) only while a budget lasts, which bounds the work by the
//! size of the volume.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use extol_ondisk::{InodeNr, RoCompat};

use crate::bits::{Bits, Claimed};
use crate::error::Result;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::{Group, Vol};

/// Blocks that may be read though they were claimed before.
const REPEATED_DESCENTS: i64 = 10_000;

/// The claims of a check.
#[derive(Debug)]
pub(crate) struct Claims {
    /// By cluster.
    pub found: Claimed,
    /// Fixed metadata, by block.
    pub meta: Bits,
    /// Of that, what has no copy and no other place: the first superblock, the descriptors behind
    /// it, the bitmaps, inodes in use. Sorted.
    vital: Vec<u64>,
    shared: bool,
    ratio: u64,
    first: u64,
    budget: AtomicI64,
}

impl Claims {
    /// With the fixed metadata of the volume claimed. Overlaps in it are findings.
    pub(crate) fn new(vol: &Vol, out: &mut Findings) -> Result<Self> {
        let mut claims = Self {
            found: Claimed::new(vol.clusters()),
            meta: Bits::new(vol.geo.blocks()),
            vital: vital(vol)?,
            shared: vol.ro_compat(RoCompat::SHARED_BLOCKS),
            ratio: u64::from(vol.geo.cluster_ratio),
            first: vol.geo.first_data_block,
            budget: AtomicI64::new(REPEATED_DESCENTS),
        };
        for group in 0..vol.geo.groups() {
            let (from, len) = vol.base_meta(group);
            (from..from + len).for_each(|nr| {
                claims.meta.set(nr);
            });
            claims.cover(vol, from, len);
        }
        let table_blocks = u64::from(vol.geo.inode_table_blocks);
        for (nr, group) in (0u32..).zip(&vol.groups) {
            let tables = [
                (group.inode_table, table_blocks, group.table_ok, "inode table"),
                (group.block_bitmap, 1, group.block_bitmap_ok, "block bitmap"),
                (group.inode_bitmap, 1, group.inode_bitmap_ok, "inode bitmap"),
            ];
            for (from, len, usable, what) in tables {
                if !usable {
                    continue;
                }
                let mut clash = None;
                for block in from..from + len {
                    if !claims.meta.set(block) {
                        clash.get_or_insert(block);
                    }
                }
                if let Some(block) = clash {
                    let what = format!("the {what} overlaps other metadata");
                    out.push(Finding::error(Kind::GroupOverlap, what).group(nr).block(block));
                }
                claims.cover(vol, from, len);
            }
        }
        Ok(claims)
    }

    /// Marks the clusters of metadata blocks.
    fn cover(&self, vol: &Vol, from: u64, len: u64) {
        if len > 0 {
            let (first, last) = (vol.cluster(from), vol.cluster(from + len - 1));
            self.found.claim_range(first, last - first + 1);
        }
    }

    /// Claims the clusters that blocks `from..from + len` lie in. False if one of them was claimed
    /// before.
    pub(crate) fn claim(
        &self,
        from: u64,
        len: u64,
        ino: u32,
        what: &str,
        out: &mut Findings,
    ) -> bool {
        if len == 0 {
            return true;
        }
        let first = from.saturating_sub(self.first) / self.ratio;
        let last = from.saturating_add(len - 1).saturating_sub(self.first) / self.ratio;
        let (taken, at) = self.found.claim_range(first, last - first + 1);
        let Some(at) = at else { return true };
        if self.shared {
            return false;
        }
        let block = at.saturating_mul(self.ratio).saturating_add(self.first).max(from);
        let more = if taken > 1 { format!(" (and {} more)", taken - 1) } else { String::new() };
        let is_bad = ino == InodeNr::BAD_BLOCKS.0;
        let finding = if self.meta.get(block) {
            let what = format!("{what} lies on the volume's own metadata{more}");
            // A bad block may well lie on something. What has a copy, or can lie elsewhere, is
            // none the worse.
            if is_bad && !self.has_vital(from, len) {
                Finding::note(Kind::BlockOnMetadata, what)
            } else {
                Finding::error(Kind::BlockOnMetadata, what)
            }
        } else {
            let what = format!("{what} is claimed a second time{more}");
            let finding = Finding::error(Kind::BlockShared, what);
            if is_bad { finding.beyond() } else { finding }
        };
        out.push(finding.inode(ino).block(block));
        false
    }

    fn has_vital(&self, from: u64, len: u64) -> bool {
        let at = self.vital.partition_point(|block| *block < from);
        self.vital.get(at).is_some_and(|block| *block - from < len)
    }

    /// True if a block that was claimed before may still be read.
    pub(crate) fn may_descend_again(&self) -> bool {
        self.budget.fetch_sub(1, Relaxed) > 0
    }
}

fn vital(vol: &Vol) -> Result<Vec<u64>> {
    let (first, len) = vol.base_meta(0);
    let reserved = u64::from(vol.sb.reserved_gdt_blocks).min(len);
    let mut vital: Vec<u64> = (first..first + len - reserved).collect();
    for group in &vol.groups {
        vital.extend([group.block_bitmap, group.inode_bitmap]);
    }
    let list = vol.inode(InodeNr::BAD_BLOCKS.0)?.unwrap_or_default();
    let list = Raw { b: &list, ino: InodeNr::BAD_BLOCKS.0 };
    if list.i_block().iter().any(|byte| *byte != 0) {
        for (nr, group) in (0..).zip(&vol.groups) {
            vital.extend(written_tables(vol, nr, group));
        }
    }
    vital.sort_unstable();
    Ok(vital)
}

/// The blocks of a group's table that were written: e2fsck takes all inodes of a bad one for used.
fn written_tables(vol: &Vol, nr: u32, group: &Group) -> std::ops::Range<u64> {
    let blocks = vol.scanned_inodes(nr).div_ceil(vol.geo.inodes_per_block());
    group.inode_table..group.inode_table + u64::from(blocks)
}
