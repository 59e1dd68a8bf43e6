//! A moment's values of the counters.

use super::Journal;
use crate::fast::area::Area;
use crate::space::LogSpace;
use crate::stats::{AsyncCheckpointStats, BatchingStats, FastCommitStats, JournalStats};

impl Journal {
    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        let c = &self.counters;
        let state = self.state.lock();
        let (space, full, fast) = (state.log.space.as_ref(), &state.sync.batcher, &state.fast);
        let settings = full.settings();
        let (cache_hits, cache_misses) = self.cache.hits_and_misses();
        let reasons = self.fast.source().map_or(&[][..], |source| source.reasons());
        let reasons = reasons.iter().zip(&self.fast.counters.reasons);
        JournalStats {
            max_transaction_blocks: self.max_credits(),
            average_commit_ns: full.average_ns(),
            committed_tid: state.tx.committed.0,
            running_tid: state.tx.running.as_ref().map(|r| r.tx.tid.0),
            log_blocks: space.map_or(0, LogSpace::len),
            log_free: space.map_or(0, LogSpace::free),
            log_head: space.map_or(0, LogSpace::head),
            log_tail: space.map_or(0, LogSpace::tail),
            checkpoint_blocks: self.checkpoint.len() as u64,
            cached_blocks: self.cache.len() as u64,
            cache_hits,
            cache_misses,
            aborted: state.failure.reason.as_deref().map(str::to_owned),
            batching: BatchingStats {
                min_us: settings.min.as_micros() as u64,
                max_us: settings.max.as_micros() as u64,
                syncers: u64::from(full.syncers().max(fast.batcher.syncers())),
                ..c.batching.snapshot()
            },
            async_checkpoint: AsyncCheckpointStats {
                threshold: state.log.threshold,
                ..c.checkpoint.snapshot()
            },
            fast_commit: FastCommitStats {
                enabled: self.fast.tracks(),
                average_ns: fast.batcher.average_ns(),
                area_blocks: fast.area.as_ref().map_or(0, Area::limit),
                reasons: reasons.map(|(name, n)| ((*name).to_owned(), n.get())).collect(),
                ..self.fast.counters.snapshot()
            },
            distributions: c.distributions.snapshot(),
            ..c.snapshot()
        }
    }
}
