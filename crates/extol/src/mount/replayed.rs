//! What recovery did, for programs.

use extol_jbd2::recovery;
use serde::Serialize;

/// What [`replay`](crate::replay) did.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// The volume had not been closed cleanly.
    pub was_needed: bool,
    /// Transactions brought home.
    pub transactions: u32,
    /// Blocks brought home.
    pub blocks: u32,
    /// Copies skipped because they had been revoked.
    pub revoked: u32,
    /// Fast commits behind them.
    pub fast_commits: u32,
    /// Records in those.
    pub fast_commit_records: u64,
    /// Deleted and truncated files that were finished.
    pub orphans: u32,
    /// Such files are left: Extol cannot write volumes with these features.
    pub orphans_left: bool,
}

impl Replayed {
    pub(crate) fn of(done: Option<&recovery::Recovered>) -> Self {
        let fast = done.and_then(|done| done.fast_commits);
        Self {
            was_needed: done.is_some(),
            transactions: done.map_or(0, |done| done.replayed_transactions),
            blocks: done.map_or(0, |done| done.replayed_blocks),
            revoked: done.map_or(0, |done| done.revoke_hits),
            fast_commits: fast.map_or(0, |fast| fast.commits),
            fast_commit_records: fast.map_or(0, |fast| fast.records),
            orphans: 0,
            orphans_left: false,
        }
    }
}
