//! What the journal counts while it works (atomics, no lock), and a moment's values of it: what
//! Linux shows in `/proc/fs/jbd2/<dev>/info` and `/proc/fs/ext4/<dev>/fc_info`, and a little more.

use std::sync::atomic::{AtomicU64, Ordering};

use extol_task::{Distribution, Histogram};
use serde::{Deserialize, Serialize};

use crate::checkpoint::policy::FreeThreshold;

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

/// Live counters, and the public snapshot of them with the same names.
macro_rules! counted {
    (
        $(#[$live_doc:meta])* $live:ident { $($more:ident: $more_type:ty),* }
        $(#[$doc:meta])* $snapshot:ident { $($(#[$other_doc:meta])* $other:ident: $type:ty,)* }
        counters { $($(#[$count_doc:meta])* $count:ident,)* }
    ) => {
        $(#[$live_doc])*
        #[derive(Debug, Default)]
        pub(crate) struct $live {
            $(pub $more: $more_type,)*
            $(pub $count: Counter,)*
        }

        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        pub struct $snapshot {
            $($(#[$other_doc])* pub $other: $type,)*
            $($(#[$count_doc])* pub $count: u64,)*
        }

        impl $live {
            /// What was counted; all else is to be filled in.
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($count: self.$count.get(),)* ..Default::default() }
            }
        }
    };
}

/// Live histograms, and the public distributions with the same names.
macro_rules! distributed {
    ($(#[$doc:meta])* $snapshot:ident { $($(#[$field_doc:meta])* $name:ident,)* }) => {
        /// Live histograms. Times in nanoseconds.
        #[derive(Debug, Default)]
        pub(crate) struct Histograms {
            $(pub $name: Histogram,)*
        }

        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        pub struct $snapshot {
            $($(#[$field_doc])* pub $name: Distribution,)*
        }

        impl Histograms {
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($name: self.$name.distribution(),)* }
            }
        }
    };
}

counted! {
    /// Live counters of a journal.
    Counters { distributions: Histograms, batching: BatchingCounters, checkpoint: AsyncCounters }
    /// A moment's values. Times are sums over all transactions unless named average, in
    /// nanoseconds.
    JournalStats {
        /// Most blocks in one transaction.
        max_transaction_blocks: u32,
        /// Moving average of the commit time.
        average_commit_ns: u64,
        /// Id of the newest durable transaction.
        committed_tid: u32,
        /// Id of the running transaction, if any.
        running_tid: Option<u32>,
        /// Blocks of the log (0 without one).
        log_blocks: u32,
        /// Of these, free.
        log_free: u32,
        /// Head and tail of the log.
        log_head: u32,
        /// Oldest block still needed.
        log_tail: u32,
        /// Blocks committed and not yet written home.
        checkpoint_blocks: u64,
        /// Metadata blocks in memory.
        cached_blocks: u64,
        /// Cache hits.
        cache_hits: u64,
        /// Cache misses.
        cache_misses: u64,
        /// Why the journal stopped, if it did.
        aborted: Option<String>,
        /// fsync batching.
        batching: BatchingStats,
        /// Asynchronous checkpoint.
        async_checkpoint: AsyncCheckpointStats,
        /// Fast commits.
        fast_commit: FastCommitStats,
        /// Distributions of times and sizes.
        distributions: JournalDistributions,
    }
    counters {
        /// Committed transactions.
        transactions,
        /// Of these, asked for (fsync, sync) rather than by the timer or for space.
        requested,
        /// Time that handles waited to join a transaction.
        wait_ns,
        /// From the request of a commit to its start.
        request_delay_ns,
        /// From a transaction's first handle to its commit's start.
        running_ns,
        /// Waiting for open handles.
        locked_ns,
        /// Flushing the device before the commit record.
        flushing_ns,
        /// Writing the log.
        logging_ns,
        /// Handles that took part.
        handles,
        /// Blocks changed.
        blocks,
        /// Blocks written to the log, control blocks included.
        logged_blocks,
        /// Revoke records written.
        revoked_blocks,
        /// Credits that a budget had missed (a mistake in the program, harmless to the data).
        overdrafts,
        /// Checkpoint runs that wrote something.
        checkpoints,
        /// Blocks written home.
        checkpointed_blocks,
        /// Times a handle waited for log space, and for how long.
        space_waits,
        /// Time of those waits.
        space_wait_ns,
        /// Device flushes issued.
        flushes,
        /// Flushes not needed because another had covered the data.
        flushes_saved,
    }
}

counted! {
    /// Live counters of batching.
    BatchingCounters {  }
    /// What batching did.
    BatchingStats {
        /// `min_batch_time`, in microseconds.
        min_us: u64,
        /// `max_batch_time`, in microseconds.
        max_us: u64,
        /// Concurrent syncers.
        syncers: u64,
    }
    counters {
        /// Commits whose leader waited for others.
        waits,
        /// Time of those waits, in nanoseconds.
        wait_ns,
    }
}

counted! {
    /// Live counters of the checkpoint.
    AsyncCounters {  }
    /// What the asynchronous checkpoint did.
    AsyncCheckpointStats {
        /// `async_checkpoint=`; none when off.
        threshold: Option<FreeThreshold>,
    }
    counters {
        /// Times that free log space fell under the threshold.
        runs,
        /// Batches written home.
        batches,
        /// Blocks written home.
        blocks,
        /// Time that it worked, in nanoseconds.
        busy_ns,
        /// Blocks that never went home because a newer version was committed first (whatever the
        /// policy).
        superseded,
        /// Times that a flush made for something else, usually a commit, made home writes durable.
        shared_flushes,
        /// Times that the tail moved (whatever the policy).
        tail_moves,
    }
}

/// Most reasons for full commits that are counted.
pub const MOST_REASONS: usize = 32;

counted! {
    /// Live counters of fast commits.
    FastCounters { reasons: [Counter; MOST_REASONS] }
    /// A moment's values of the fast commits.
    FastCommitStats {
        /// The volume has the feature and the mount uses it.
        enabled: bool,
        /// Moving average of the time of one fast commit, in nanoseconds.
        average_ns: u64,
        /// Blocks of the area that one transaction may use.
        area_blocks: u32,
        /// Reasons of full commits, with Linux's names and in their order: each counted once per
        /// request.
        #[serde(with = "crate::stats::reasons")]
        reasons: Vec<(String, u64)>,
    }
    counters {
        /// Fast commits written.
        commits,
        /// Requests that were committed in full because records cannot say what they need.
        ineligible,
        /// Requests that were committed in full because the area was full, or there was no base to
        /// write on.
        failed,
        /// Requests that found everything durable.
        skipped,
        /// Blocks written to the area.
        blocks,
        /// Bytes of records in them, without padding.
        bytes,
        /// Durable requests that fast commits served.
        requests,
        /// Of the fast commits, those that were the first of their transaction.
        heads,
        /// Times the area's first block was cleared because a full commit made it void.
        cleared,
        /// Of the fast commits, those with file data that was not flushed before them: they say
        /// what it must be.
        checksummed,
        /// Writes of file data that were left to the leader of a commit.
        deferred,
        /// Of the fast commits, those that became durable by FUA, without a flush.
        by_fua,
        /// Fast commits asked for because such data was about to be overwritten.
        overwrites,
    }
}

distributed! {
    /// How times and sizes are distributed.
    JournalDistributions {
        /// Time to join a transaction, of every handle.
        handle_start_ns,
        /// Waits for log space, of the handles that had to.
        space_wait_ns,
        /// From asking for durability to having it: fsync, fdatasync, sync.
        sync_wait_ns,
        /// Durable requests that one commit served, fast or in full.
        batch_size,
        /// A whole commit, from the lock to the last waiter's wake-up.
        commit_ns,
        /// A whole fast commit, from asking what has changed to the last waiter's wake-up.
        fast_commit_ns,
        /// Commit phase: waiting for open handles.
        locked_ns,
        /// Commit phase: flushing the device before the record.
        flushing_ns,
        /// Commit phase: writing the log, the flush included.
        logging_ns,
        /// One checkpoint: home writes, flush and tail.
        checkpoint_ns,
    }
}

impl FastCounters {
    /// So many requests were committed in full because of this.
    pub fn count(&self, reason: u8, requests: u32) {
        if let Some(counter) = self.reasons.get(usize::from(reason)) {
            counter.add(u64::from(requests));
        }
    }
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

/// The reasons are an object of JSON, in their order: reason, count.
mod reasons {
    use serde::de::{MapAccess, Visitor};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        reasons: &[(String, u64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(reasons.iter().map(|(reason, count)| (reason, count)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, u64)>, D::Error> {
        deserializer.deserialize_map(Pairs)
    }

    struct Pairs;

    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<(String, u64)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("reasons and counts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_an_object() {
        let reasons = vec![("Zone".to_owned(), 3), ("Extent tree".to_owned(), 0)];
        let stats = FastCommitStats { reasons, ..FastCommitStats::default() };
        let text = serde_json::to_string(&stats).unwrap();
        assert!(text.contains(r#""reasons":{"Zone":3,"Extent tree":0}"#), "{text}");
        let back: FastCommitStats = serde_json::from_str(&text).unwrap();
        assert_eq!(back.reasons, stats.reasons, "in their order");
    }
}
