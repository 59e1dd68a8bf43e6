//! What the journal counts while it works. Atomics, no lock. `stats` makes numbers of it.

use std::sync::atomic::{AtomicU64, Ordering};

use extol_task::Histogram;

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Live counters of a journal.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub transactions: Counter,
    pub requested: Counter,
    pub wait_ns: Counter,
    pub request_delay_ns: Counter,
    pub running_ns: Counter,
    pub locked_ns: Counter,
    pub flushing_ns: Counter,
    pub logging_ns: Counter,
    pub handles: Counter,
    pub blocks: Counter,
    pub logged_blocks: Counter,
    pub revoked_blocks: Counter,
    pub overdrafts: Counter,
    pub checkpoints: Counter,
    pub checkpointed_blocks: Counter,
    pub space_waits: Counter,
    pub space_wait_ns: Counter,
    pub flushes: Counter,
    pub flushes_saved: Counter,
    pub batch_waits: Counter,
    pub batch_wait_ns: Counter,
    pub async_runs: Counter,
    pub async_batches: Counter,
    pub async_blocks: Counter,
    pub async_busy_ns: Counter,
    pub async_shared_flushes: Counter,
    pub superseded: Counter,
    pub tail_moves: Counter,
    pub distributions: Histograms,
}

/// Live histograms. Times in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Histograms {
    pub handle_start: Histogram,
    pub space_wait: Histogram,
    pub sync_wait: Histogram,
    pub batch_size: Histogram,
    pub commit: Histogram,
    pub fast_commit: Histogram,
    pub locked: Histogram,
    pub flushing: Histogram,
    pub logging: Histogram,
    pub checkpoint: Histogram,
}

/// Most reasons for full commits that are counted.
pub const MOST_REASONS: usize = 32;

/// Live counters.
#[derive(Debug, Default)]
pub(crate) struct FastCounters {
    pub commits: Counter,
    pub ineligible: Counter,
    pub failed: Counter,
    pub skipped: Counter,
    pub blocks: Counter,
    pub bytes: Counter,
    pub requests: Counter,
    pub heads: Counter,
    pub cleared: Counter,
    pub overwrites: Counter,
    pub checksummed: Counter,
    pub deferred: Counter,
    pub by_fua: Counter,
    pub reasons: [Counter; MOST_REASONS],
}

impl FastCounters {
    /// So many requests were committed in full because of this.
    pub fn count(&self, reason: u8, requests: u32) {
        if let Some(counter) = self.reasons.get(usize::from(reason)) {
            counter.add(u64::from(requests));
        }
    }
}
