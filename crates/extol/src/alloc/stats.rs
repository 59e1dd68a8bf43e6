//! Figures of free space: `extol info`, `extol stat`, statfs.

use extol_ondisk::GroupNr;

use super::{Allocator, Counters};

/// Figures that need no I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AllocStats {
    /// Counters.
    pub counters: Counters,
    /// Blocks taken ahead for growing files.
    pub in_windows: u64,
    /// Groups whose descriptors were read.
    pub known_groups: u64,
    /// Groups whose bitmaps are in memory.
    pub resident_groups: u64,
    /// Longest free run in those.
    pub longest_run: u32,
    /// Free runs in those by length: element *i* counts runs of `2^i .. 2^(i+1)` blocks.
    pub runs_by_order: Vec<u64>,
}

impl Allocator {
    /// Collects the numbers. Takes one group lock after the other.
    pub fn stats(&self) -> AllocStats {
        let mut stats = AllocStats {
            counters: self.block_counters(),
            in_windows: self.windows.blocks(),
            resident_groups: self.table.resident() as u64,
            ..AllocStats::default()
        };
        for group in self.table.known() {
            stats.known_groups += 1;
            let state = group.lock();
            let Some(map) = &state.blocks else { continue };
            let mut at = 0;
            while let Some(run) = map.busy.next_run(at, map.busy.len()) {
                at = run.end();
                let blocks = run.len.saturating_mul(self.geo.cluster_ratio);
                stats.longest_run = stats.longest_run.max(blocks);
                let order = blocks.ilog2() as usize;
                if stats.runs_by_order.len() <= order {
                    stats.runs_by_order.resize(order + 1, 0);
                }
                stats.runs_by_order[order] += 1;
            }
        }
        stats
    }

    /// Blocks that never hold files: boot block, superblock copies, descriptors and reserved ones,
    /// bitmaps, inode tables, journal. statfs subtracts them from the size (without `minixdf`).
    pub fn overhead_blocks(&self) -> u64 {
        let geo = &self.geo;
        if geo.has_clusters() {
            return geo.cluster_blocks(self.overhead_clusters());
        }
        let mut known = self.overhead.lock();
        let (groups, so_far) = *known;
        let now = geo.groups();
        // (No group's part changes when others are added.)
        let fixed = 2 + u64::from(geo.inode_table_blocks);
        let of = |group| fixed + u64::from(geo.base_meta_blocks(GroupNr(group)));
        let sum = so_far + (groups..now).map(of).sum::<u64>();
        *known = (now.max(groups), sum);
        geo.first_data_block + sum + self.opts.journal_blocks
    }

    /// The same in clusters, of which some hold several kinds of metadata. (Bad groups count as
    /// none.)
    fn overhead_clusters(&self) -> u64 {
        let of = |nr| -> u64 {
            let Ok(desc) = self.group_desc(nr) else { return 0 };
            let zones = self.table.zones(&self.journal, nr, &desc);
            zones.iter().map(|zone| u64::from(zone.len)).sum()
        };
        let mut known = self.overhead.lock();
        let (groups, so_far) = *known;
        let now = self.geo.groups();
        let sum = so_far + (groups..now).map(|group| of(GroupNr(group))).sum::<u64>();
        *known = (now.max(groups), sum);
        sum
    }
}
