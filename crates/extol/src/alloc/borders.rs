//! Clusters in which the fixed metadata of several groups lie: bitmaps and tables lie one after the
//! other, so a cluster at the border of two has blocks of both.
//!
//! Without bigalloc a cluster is a block, and none is shared.

use std::collections::HashMap;
use std::ops::Range;

use extol_block::BlockNr;
use extol_ondisk::{Geometry, GroupNr};
use extol_vfs::Result;

use super::cut::Fixed;
use super::{Allocator, Run};

/// How many pieces of metadata begin or end in each cluster, by its first block. (What is in the
/// middle of one has its clusters for itself.)
#[derive(Clone, Default, Debug)]
pub(crate) struct Borders {
    pieces: HashMap<u64, u32>,
}

impl Borders {
    /// Those of some groups. `geo`: the volume whose copies of superblock and descriptors count.
    pub fn of(alloc: &Allocator, geo: &Geometry, groups: Range<u32>) -> Result<Self> {
        let mut all = Self::default();
        if !geo.has_clusters() {
            return Ok(all);
        }
        for nr in groups.map(GroupNr) {
            let start = geo.group_first_block(nr);
            all.add(geo, Run { start, len: geo.base_meta_blocks(nr) });
            let desc = alloc.group_desc(nr)?;
            Fixed::ALL.iter().for_each(|what| all.add(geo, what.run(geo, &desc)));
        }
        Ok(all)
    }

    /// The clusters at both ends of a run.
    fn ends(geo: &Geometry, run: Run) -> impl Iterator<Item = u64> + use<> {
        let clusters = geo.has_clusters() && run.len > 0;
        let first = geo.cluster_start(run.start).0;
        let last = geo.cluster_start(BlockNr(run.end().0.saturating_sub(1))).0;
        let last = (last != first).then_some(last);
        clusters.then_some(first).into_iter().chain(last.filter(|_| clusters))
    }

    /// Metadata lies there.
    pub fn add(&mut self, geo: &Geometry, run: Run) {
        for cluster in Self::ends(geo, run) {
            *self.pieces.entry(cluster).or_default() += 1;
        }
    }

    /// It lies there no more.
    pub fn remove(&mut self, geo: &Geometry, run: Run) {
        for cluster in Self::ends(geo, run) {
            if let Some(pieces) = self.pieces.get_mut(&cluster) {
                *pieces = pieces.saturating_sub(1);
            }
        }
    }

    /// Clusters that only this run has, all its blocks without bigalloc. `own`: as often the run
    /// itself is counted here.
    pub fn left(&self, geo: &Geometry, run: Run, own: u32) -> Run {
        if !geo.has_clusters() || run.len == 0 {
            return run;
        }
        let whole = run.whole_clusters(geo);
        let (mut start, mut end) = (whole.start.0, whole.end().0);
        let ratio = u64::from(geo.cluster_ratio);
        let is_shared = |first: u64| self.pieces.get(&first).is_some_and(|pieces| *pieces > own);
        if is_shared(start) {
            start += ratio;
        }
        if start < end && is_shared(end - ratio) {
            end -= ratio;
        }
        Run { start: BlockNr(start), len: end.saturating_sub(start) as u32 }
    }
}
