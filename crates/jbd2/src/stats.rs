//! What Linux shows in `/proc/fs/jbd2/<dev>/info` and `/proc/fs/ext4/<dev>/fc_info`, and a little
//! more.

use extol_task::Distribution;
use serde::{Deserialize, Serialize};

use crate::batching::BatchingStats;
use crate::checkpoint::policy::AsyncCheckpointStats;
use crate::counters::{FastCounters, Histograms};
use crate::fast::area::Area;
use crate::journal::Journal;
use crate::space::LogSpace;

impl Histograms {
    fn distributions(&self) -> JournalDistributions {
        JournalDistributions {
            handle_start_ns: self.handle_start.distribution(),
            space_wait_ns: self.space_wait.distribution(),
            sync_wait_ns: self.sync_wait.distribution(),
            batch_size: self.batch_size.distribution(),
            commit_ns: self.commit.distribution(),
            fast_commit_ns: self.fast_commit.distribution(),
            locked_ns: self.locked.distribution(),
            flushing_ns: self.flushing.distribution(),
            logging_ns: self.logging.distribution(),
            checkpoint_ns: self.checkpoint.distribution(),
        }
    }
}

/// How times and sizes are distributed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JournalDistributions {
    /// Time to join a transaction, of every handle.
    pub handle_start_ns: Distribution,
    /// Waits for log space, of the handles that had to.
    pub space_wait_ns: Distribution,
    /// From asking for durability to having it: fsync, fdatasync, sync.
    pub sync_wait_ns: Distribution,
    /// Durable requests that one commit served, fast or in full.
    pub batch_size: Distribution,
    /// A whole commit, from the lock to the last waiter's wake-up.
    pub commit_ns: Distribution,
    /// A whole fast commit, from asking what has changed to the last waiter's wake-up.
    pub fast_commit_ns: Distribution,
    /// Commit phase: waiting for open handles.
    pub locked_ns: Distribution,
    /// Commit phase: flushing the device before the record.
    pub flushing_ns: Distribution,
    /// Commit phase: writing the log, the flush included.
    pub logging_ns: Distribution,
    /// One checkpoint: home writes, flush and tail.
    pub checkpoint_ns: Distribution,
}

/// A moment's values. Times are sums over all transactions unless named average, in nanoseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalStats {
    /// Committed transactions.
    pub transactions: u64,
    /// Of these, asked for (fsync, sync) rather than by the timer or for space.
    pub requested: u64,
    /// Most blocks in one transaction.
    pub max_transaction_blocks: u32,
    /// Time that handles waited to join a transaction.
    pub wait_ns: u64,
    /// From the request of a commit to its start.
    pub request_delay_ns: u64,
    /// From a transaction's first handle to its commit's start.
    pub running_ns: u64,
    /// Waiting for open handles.
    pub locked_ns: u64,
    /// Flushing the device before the commit record.
    pub flushing_ns: u64,
    /// Writing the log.
    pub logging_ns: u64,
    /// Moving average of the commit time.
    pub average_commit_ns: u64,
    /// Handles that took part.
    pub handles: u64,
    /// Blocks changed.
    pub blocks: u64,
    /// Blocks written to the log, control blocks included.
    pub logged_blocks: u64,
    /// Revoke records written.
    pub revoked_blocks: u64,
    /// Credits that a budget had missed (a mistake in the program, harmless to the data).
    pub overdrafts: u64,
    /// Checkpoint runs that wrote something.
    pub checkpoints: u64,
    /// Blocks written home.
    pub checkpointed_blocks: u64,
    /// Times a handle waited for log space, and for how long.
    pub space_waits: u64,
    /// Time of those waits.
    pub space_wait_ns: u64,
    /// Device flushes issued.
    pub flushes: u64,
    /// Flushes not needed because another had covered the data.
    pub flushes_saved: u64,
    /// Id of the newest durable transaction.
    pub committed_tid: u32,
    /// Id of the running transaction, if any.
    pub running_tid: Option<u32>,
    /// Blocks of the log (0 without one).
    pub log_blocks: u32,
    /// Of these, free.
    pub log_free: u32,
    /// Head and tail of the log.
    pub log_head: u32,
    /// Oldest block still needed.
    pub log_tail: u32,
    /// Blocks committed and not yet written home.
    pub checkpoint_blocks: u64,
    /// Metadata blocks in memory.
    pub cached_blocks: u64,
    /// Cache hits.
    pub cache_hits: u64,
    /// Cache misses.
    pub cache_misses: u64,
    /// Why the journal stopped, if it did.
    pub aborted: Option<String>,
    /// fsync batching.
    pub batching: BatchingStats,
    /// Asynchronous checkpoint.
    pub async_checkpoint: AsyncCheckpointStats,
    /// Fast commits.
    pub fast_commit: FastCommitStats,
    /// Distributions of times and sizes.
    pub distributions: JournalDistributions,
}

impl JournalStats {
    /// The text of Linux's jbd2 `info` file for these numbers.
    #[must_use]
    pub fn jbd2_info(&self) -> String {
        let mut s = format!(
            "{} transactions ({} requested), each up to {} blocks\n",
            self.transactions, self.requested, self.max_transaction_blocks
        );
        if self.transactions == 0 {
            return s;
        }
        let n = self.transactions;
        let ms = |ns: u64| ns / n / 1_000_000;
        s.push_str("average: \n");
        s.push_str(&format!("  {}ms waiting for transaction\n", ms(self.wait_ns)));
        s.push_str(&format!(
            "  {}ms request delay\n",
            self.request_delay_ns.checked_div(self.requested).unwrap_or(0) / 1_000_000
        ));
        s.push_str(&format!("  {}ms running transaction\n", ms(self.running_ns)));
        s.push_str(&format!("  {}ms transaction was being locked\n", ms(self.locked_ns)));
        s.push_str(&format!("  {}ms flushing data (in ordered mode)\n", ms(self.flushing_ns)));
        s.push_str(&format!("  {}ms logging transaction\n", ms(self.logging_ns)));
        s.push_str(&format!(
            "  {}us average transaction commit time\n",
            self.average_commit_ns / 1000
        ));
        s.push_str(&format!("  {} handles per transaction\n", self.handles / n));
        s.push_str(&format!("  {} blocks per transaction\n", self.blocks / n));
        s.push_str(&format!("  {} logged blocks per transaction\n", self.logged_blocks / n));
        s
    }
}

/// A moment's values of the fast commits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FastCommitStats {
    /// The volume has the feature and the mount uses it.
    pub enabled: bool,
    /// Fast commits written.
    pub commits: u64,
    /// Requests that were committed in full because records cannot say what they need.
    pub ineligible: u64,
    /// Requests that were committed in full because the area was full, or there was no base to
    /// write on.
    pub failed: u64,
    /// Requests that found everything durable.
    pub skipped: u64,
    /// Blocks written to the area.
    pub blocks: u64,
    /// Bytes of records in them, without padding.
    pub bytes: u64,
    /// Durable requests that fast commits served.
    pub requests: u64,
    /// Of the fast commits, those that were the first of their transaction.
    pub heads: u64,
    /// Times the area's first block was cleared because a full commit made it void.
    pub cleared: u64,
    /// Of the fast commits, those with file data that was not flushed before them: they say what it
    /// must be.
    pub checksummed: u64,
    /// Writes of file data that were left to the leader of a commit.
    pub deferred: u64,
    /// Of the fast commits, those that became durable by FUA, without a flush.
    pub by_fua: u64,
    /// Fast commits asked for because such data was about to be overwritten.
    pub overwrites: u64,
    /// Moving average of the time of one fast commit, in nanoseconds.
    pub average_ns: u64,
    /// Blocks of the area that one transaction may use.
    pub area_blocks: u32,
    /// Reasons of full commits, with Linux's names: each counted once per request.
    pub reasons: Vec<(String, u64)>,
}

impl FastCommitStats {
    /// The text of Linux's `fc_info` file for these numbers.
    #[must_use]
    pub fn fc_info(&self) -> String {
        let mut text = format!(
            "fc stats:\n{} commits\n{} ineligible\n{} numblks\n{}us avg_commit_time\n\
             Ineligible reasons:\n",
            self.commits,
            self.ineligible + self.failed,
            self.blocks,
            self.average_ns / 1000
        );
        for (name, count) in &self.reasons {
            text.push_str(&format!("\"{name}\":\t{count}\n"));
        }
        text
    }
}

impl FastCounters {
    pub fn snapshot(
        &self,
        enabled: bool,
        average_ns: u64,
        area_blocks: u32,
        reasons: &[&str],
    ) -> FastCommitStats {
        FastCommitStats {
            enabled,
            commits: self.commits.get(),
            ineligible: self.ineligible.get(),
            failed: self.failed.get(),
            skipped: self.skipped.get(),
            blocks: self.blocks.get(),
            bytes: self.bytes.get(),
            requests: self.requests.get(),
            heads: self.heads.get(),
            cleared: self.cleared.get(),
            checksummed: self.checksummed.get(),
            deferred: self.deferred.get(),
            by_fua: self.by_fua.get(),
            overwrites: self.overwrites.get(),
            average_ns,
            area_blocks,
            reasons: reasons
                .iter()
                .zip(&self.reasons)
                .map(|(name, count)| ((*name).to_owned(), count.get()))
                .collect(),
        }
    }
}

impl Journal {
    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        let c = &self.counters;
        let state = self.state.lock();
        let space = state.log.space.as_ref();
        let batching = state.sync.batcher.settings();
        let (cache_hits, cache_misses) = self.cache.hits_and_misses();
        JournalStats {
            transactions: c.transactions.get(),
            requested: c.requested.get(),
            max_transaction_blocks: self.max_credits(),
            wait_ns: c.wait_ns.get(),
            request_delay_ns: c.request_delay_ns.get(),
            running_ns: c.running_ns.get(),
            locked_ns: c.locked_ns.get(),
            flushing_ns: c.flushing_ns.get(),
            logging_ns: c.logging_ns.get(),
            average_commit_ns: state.sync.batcher.average_ns(),
            handles: c.handles.get(),
            blocks: c.blocks.get(),
            logged_blocks: c.logged_blocks.get(),
            revoked_blocks: c.revoked_blocks.get(),
            overdrafts: c.overdrafts.get(),
            checkpoints: c.checkpoints.get(),
            checkpointed_blocks: c.checkpointed_blocks.get(),
            space_waits: c.space_waits.get(),
            space_wait_ns: c.space_wait_ns.get(),
            flushes: c.flushes.get(),
            flushes_saved: c.flushes_saved.get(),
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
                min_us: batching.min.as_micros() as u64,
                max_us: batching.max.as_micros() as u64,
                waits: c.batch_waits.get(),
                wait_ns: c.batch_wait_ns.get(),
                syncers: u64::from(state.sync.batcher.syncers().max(state.fast.batcher.syncers())),
            },
            async_checkpoint: AsyncCheckpointStats {
                threshold: state.log.threshold,
                runs: c.async_runs.get(),
                batches: c.async_batches.get(),
                blocks: c.async_blocks.get(),
                busy_ns: c.async_busy_ns.get(),
                superseded: c.superseded.get(),
                shared_flushes: c.async_shared_flushes.get(),
                tail_moves: c.tail_moves.get(),
            },
            fast_commit: self.fast.counters.snapshot(
                self.fast.tracks(),
                state.fast.batcher.average_ns(),
                state.fast.area.as_ref().map_or(0, Area::limit),
                self.fast.source().map_or(&[], |source| source.reasons()),
            ),
            distributions: c.distributions.distributions(),
        }
    }
}
