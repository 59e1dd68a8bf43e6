//! How long an fsync waits for others to join its transaction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The rule by which an fsync waits before it commits (`fsync_batching=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchPolicy {
    /// Never wait.
    None,
    /// Wait one jiffy as long as others join, as ext3 did before 2009.
    Static,
    /// Wait as long as measured commit times say that it pays off.
    #[default]
    Adaptive,
}

impl BatchPolicy {
    /// Every policy, as option values.
    pub const NAMES: [(&'static str, Self); 3] =
        [("none", Self::None), ("static", Self::Static), ("adaptive", Self::Adaptive)];

    /// The option value.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, policy)| *policy == self).map_or("", |(name, _)| name)
    }
}

/// The rule and its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batching {
    /// The rule.
    pub policy: BatchPolicy,
    /// Wait at least this long where the rule waits at all (`min_batch_time=`, default 0).
    pub min: Duration,
    /// Never wait longer (`max_batch_time=`, default 15 ms); 0: never wait.
    pub max: Duration,
}

impl Default for Batching {
    fn default() -> Self {
        Self { policy: BatchPolicy::Adaptive, min: Duration::ZERO, max: Duration::from_millis(15) }
    }
}

/// What batching did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BatchingStats {
    /// The rule in force.
    pub policy: BatchPolicy,
    /// `min_batch_time`, in microseconds.
    pub min_us: u64,
    /// `max_batch_time`, in microseconds.
    pub max_us: u64,
    /// Commits whose leader waited for others.
    pub waits: u64,
    /// Time of those waits, in nanoseconds.
    pub wait_ns: u64,
    /// Threads that are thought to sync at the same time.
    pub syncers: u64,
}
