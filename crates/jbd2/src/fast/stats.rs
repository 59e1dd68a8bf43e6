//! What Linux shows in `/proc/fs/ext4/<dev>/fc_info`, and a little more.

use serde::{Deserialize, Serialize};

use crate::stats::Counter;

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
    pub settled: Counter,
    pub one_trip: Counter,
    pub deferred: Counter,
    pub by_fua: Counter,
    pub reasons: [Counter; MOST_REASONS],
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
    pub one_trip: u64,
    /// Writes of file data that were left to the leader of a commit.
    pub deferred: u64,
    /// Of the fast commits, those that became durable by FUA, without a flush.
    pub by_fua: u64,
    /// Fast commits asked for because such data was about to be overwritten.
    pub settled: u64,
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
            "fc stats:\n{} commits\n{} ineligible\n{} numblks\n{}us avg_commit_time\nIneligible reasons:\n",
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
    /// So many requests were committed in full because of this.
    pub fn count(&self, reason: u8, requests: u32) {
        if let Some(counter) = self.reasons.get(usize::from(reason)) {
            counter.add(u64::from(requests));
        }
    }

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
            one_trip: self.one_trip.get(),
            deferred: self.deferred.get(),
            by_fua: self.by_fua.get(),
            settled: self.settled.get(),
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
