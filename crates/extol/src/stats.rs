//! State and counters of an open volume, for `extol stat` and for programs.

use extol_jbd2::JournalStats;
use extol_task::MergeStats;
use serde::{Deserialize, Serialize};

use crate::data::cache::DataCacheStats;
use crate::data::readahead::ReadaheadStats;
use crate::mounted::MountedFs;
use crate::services::lazy_init::LazyInitStats;
use crate::superblock::text;
use crate::throttle::ThrottleStats;
use extol_ondisk::superblock::uuid_text;

/// State and counters at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Volume label.
    pub label: String,
    /// Volume uuid.
    pub uuid: String,
    /// Bytes per block.
    pub block_size: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Free blocks that are not reserved.
    pub free_blocks: u64,
    /// Blocks reserved for data that is not mapped yet.
    pub reserved_blocks: u64,
    /// Blocks freed by transactions that are not durable yet.
    pub pending_blocks: u64,
    /// Inodes of the volume, in use and free.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Blocks taken ahead for growing files.
    pub window_blocks: u64,
    /// Groups whose descriptors were read, and whose bitmaps are in memory.
    pub groups_known: u64,
    /// Groups whose bitmaps are in memory.
    pub groups_resident: u64,
    /// Longest free run in those.
    pub longest_free_run: u32,
    /// Free runs in those: element i counts runs of 2^i to 2^(i+1) - 1 blocks.
    pub free_runs_by_order: Vec<u64>,
    /// Writes are refused.
    pub read_only: bool,
    /// Why, in words.
    pub read_only_reason: Option<String>,
    /// True if that was an error.
    pub stopped: bool,
    /// True if no remount mends it: another program has written to the volume, or the device below
    /// was cut. False: a remount mends it once its cause is gone.
    pub needs_new_mount: bool,
    /// True if changes were lost when a remount mended an error, and no sync has told so yet.
    pub lost_changes: bool,
    /// Mount options as `/proc/mounts` shows them: `ro` or `rw`, `relatime`, and what differs from
    /// the defaults.
    pub mount_options: String,
    /// All mount options in force.
    pub options: Vec<String>,
    /// Frozen: changes wait for the thaw.
    pub frozen: bool,
    /// `data=` mode.
    pub data_mode: String,
    /// Operations served.
    pub operations: u64,
    /// Corruptions met.
    pub errors_seen: u64,
    /// Inodes decoded in memory.
    pub inodes_cached: usize,
    /// Inodes that front ends hold references on.
    pub inodes_known: usize,
    /// Inodes with data or times not written yet.
    pub inodes_dirty: usize,
    /// Bytes of file data not written yet.
    pub dirty_bytes: usize,
    /// Clean file data in memory.
    pub data_cache: DataCacheStats,
    /// Orphans (unlinked but in use, or being truncated).
    pub orphans: usize,
    /// What was read ahead for open files of the library.
    pub readahead: ReadaheadStats,
    /// Large writes held up for the fsyncs of other files.
    pub throttle: ThrottleStats,
    /// Inode tables that mkfs left to be zeroed later.
    pub lazy_init: LazyInitStats,
    /// Merged whole-volume requests.
    pub checkpoint_merge: MergeStats,
    /// The journal.
    pub journal: JournalStats,
}

impl Stats {
    pub(crate) fn of(fs: &MountedFs) -> Self {
        fs.look();
        let (label, uuid) = fs.sb.read(|sb| (sb.volume_name, sb.uuid));
        let alloc = fs.vol.alloc.stats();
        let c = alloc.counters;
        let (cached, known) = fs.table.counts();
        Self {
            label: text(&label),
            uuid: uuid_text(&uuid),
            block_size: fs.vol.geo.block_size.bytes(),
            blocks: fs.vol.geo.blocks(),
            free_blocks: c.free,
            reserved_blocks: c.reserved,
            pending_blocks: c.pending,
            inodes: u64::from(fs.vol.geo.inodes()),
            free_inodes: c.free_inodes,
            window_blocks: alloc.in_windows,
            groups_known: alloc.known_groups,
            groups_resident: alloc.resident_groups,
            longest_free_run: alloc.longest_run,
            free_runs_by_order: alloc.runs_by_order,
            read_only: fs.check_writable().is_err(),
            read_only_reason: fs.read_only_reason(),
            stopped: fs.is_stopped() && !fs.maintenance.is_shut_down(),
            needs_new_mount: fs.needs_new_mount(),
            lost_changes: fs.table.has_sync_to_tell(),
            mount_options: fs.mount_options(),
            options: fs.all_options(),
            frozen: fs.freeze_gate.is_closed(),
            data_mode: format!("{:?}", fs.fixed.data).to_lowercase(),
            operations: fs.operations.total(),
            errors_seen: fs.error_state.seen(),
            inodes_cached: cached,
            inodes_known: known,
            inodes_dirty: fs.dirty.len(),
            dirty_bytes: fs.dirty.bytes(),
            data_cache: fs.data_cache.as_ref().map(|cache| cache.stats()).unwrap_or_default(),
            orphans: fs.orphans.len(),
            readahead: fs.readahead.stats(),
            throttle: fs.throttle.stats(),
            lazy_init: fs.lazy_init.stats(),
            checkpoint_merge: fs.maintenance.stats(),
            journal: fs.vol.journal.stats(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extol_block::MemDevice;
    use extol_task::Distribution;

    use crate::mkfs::{MkfsOptions, mkfs};
    use crate::{Ext4, MountOptions};

    /// A mount gives its counters as the value of an extended attribute.
    #[test]
    fn the_largest_fit_into_an_attribute() {
        let device = MemDevice::new(16 << 20);
        mkfs(&device, &MkfsOptions::default(), &mut |_| {}).unwrap();
        let fs = Ext4::open(Arc::new(device), &MountOptions::default()).unwrap();
        let mut stats = fs.stats();
        let n = u64::MAX;
        let full = Distribution {
            count: n,
            sum: n,
            p50: n,
            p90: n,
            p99: n,
            p999: n,
            max: n,
            buckets: (0..65).map(|power| (1_u64.checked_shl(power).unwrap_or(n), n)).collect(),
        };
        let d = &mut stats.journal.distributions;
        for distribution in [
            &mut d.handle_start_ns,
            &mut d.space_wait_ns,
            &mut d.sync_wait_ns,
            &mut d.batch_size,
            &mut d.commit_ns,
            &mut d.locked_ns,
            &mut d.flushing_ns,
            &mut d.logging_ns,
            &mut d.checkpoint_ns,
        ] {
            *distribution = full.clone();
        }
        let text = serde_json::to_string(&stats).unwrap();
        assert!(text.len() < 48 << 10, "{} bytes", text.len());
    }
}
