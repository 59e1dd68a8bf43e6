//! Clusters: what the block bitmaps count, and what a volume hands out.
//!
//! ```text
//!   blocks    │0 1 2 3│4 5 6 7│8 9 …       cluster_ratio 4
//!   clusters  │   0   │   1   │2 …         group-relative: bits of the block bitmap
//! ```
//!
//! Without bigalloc a cluster is a block. Block numbers are [`BlockNr`] or logical blocks of a
//! file; what is counted in clusters says so. In clusters: bits of block bitmaps, and the free
//! counts of group descriptors. In blocks: all counts of the superblock (but its overhead), and all
//! that extents name.

use super::Geometry;
use crate::ids::BlockNr;

impl Geometry {
    /// True if clusters have several blocks.
    #[must_use]
    pub fn has_clusters(&self) -> bool {
        self.cluster_ratio > 1
    }

    /// How many blocks of its cluster lie before block `nr`, of the volume or of a file.
    #[must_use]
    pub fn inside_cluster(&self, nr: u64) -> u32 {
        nr as u32 & (self.cluster_ratio - 1)
    }

    /// The first block of the cluster that block `nr` lies in.
    #[must_use]
    pub fn cluster_start(&self, nr: BlockNr) -> BlockNr {
        BlockNr(nr.0 - u64::from(self.inside_cluster(nr.0)))
    }

    /// `nr`, if a cluster begins there, else the first block of the next one.
    #[must_use]
    pub fn cluster_end(&self, nr: BlockNr) -> BlockNr {
        self.cluster_start(nr.plus(u64::from(self.cluster_ratio - 1)))
    }

    /// How many clusters `blocks` blocks lie in, from the beginning of one on.
    #[must_use]
    pub fn clusters(&self, blocks: u64) -> u64 {
        blocks.div_ceil(u64::from(self.cluster_ratio))
    }

    /// How many clusters the blocks from `nr` on touch, of the volume or of a file.
    #[must_use]
    pub fn clusters_touched(&self, nr: u64, blocks: u64) -> u64 {
        match blocks {
            0 => 0,
            _ => self.clusters(blocks.saturating_add(u64::from(self.inside_cluster(nr)))),
        }
    }

    /// How many blocks so many clusters have.
    #[must_use]
    pub fn cluster_blocks(&self, clusters: u64) -> u64 {
        clusters.saturating_mul(u64::from(self.cluster_ratio))
    }

    /// The block of the cluster of `goal` that block `lblk` of a file may have: its place in the
    /// cluster is the same on the volume and in the file.
    #[must_use]
    pub fn in_place_of(&self, goal: BlockNr, lblk: u32) -> BlockNr {
        self.cluster_start(goal).plus(u64::from(self.inside_cluster(u64::from(lblk))))
    }

    /// Why blocks and clusters cannot be handed out, if they cannot.
    #[must_use]
    pub fn odd_clusters(&self) -> Option<&'static str> {
        if !self.has_clusters() {
            return None;
        }
        if self.first_data_block != 0 {
            return Some("clusters that do not begin with block 0");
        }
        let whole = self.blocks().is_multiple_of(u64::from(self.cluster_ratio));
        (!whole).then_some("a part of a cluster at its end")
    }
}
