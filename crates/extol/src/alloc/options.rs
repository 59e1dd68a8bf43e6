//! How an allocator works.

use std::fmt;
use std::sync::Arc;

use extol_block::SharedDevice;
use extol_vfs::FsError;

/// Called for each group found bad, under the group's lock: it must not call the allocator.
#[derive(Clone)]
pub(crate) struct Report(pub Arc<dyn Fn(&FsError) + Send + Sync>);

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// How an allocator works.
#[derive(Clone, Debug)]
pub(crate) struct AllocOptions {
    /// The superblock's counters are taken as they are: the volume was unmounted cleanly, and is
    /// only read. Else the descriptors are summed up.
    pub trust_counters: bool,
    /// The log was not replayed yet: nothing is changed, and counts of groups are not compared.
    pub before_recovery: bool,
    /// Groups whose bitmaps may stay in memory.
    pub resident_groups: usize,
    /// How many bitmaps one request may read from the device in search of a long run.
    pub search_reads: u32,
    /// Most blocks taken ahead for one growing file.
    pub max_window: u32,
    /// Blocks of the internal journal, for statfs.
    pub journal_blocks: u64,
    /// Called for bad groups.
    pub report: Option<Report>,
    /// Freed blocks are discarded on this device (`discard`).
    pub discard: Option<SharedDevice>,
}

impl Default for AllocOptions {
    fn default() -> Self {
        Self {
            trust_counters: false,
            before_recovery: false,
            resident_groups: 1024,
            search_reads: 32,
            max_window: 2048,
            journal_blocks: 0,
            report: None,
            discard: None,
        }
    }
}
