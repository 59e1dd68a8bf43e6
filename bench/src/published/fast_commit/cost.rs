//! What one fsync cost, from counters before and after a run.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::spread::Spread;
use crate::versus::{Run, times};
use crate::workload::{Op, OpTimes};

const FAST: &str = "/journal/fast_commit";

/// Medians of the rounds, per fsync.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FsyncCost {
    /// Latencies of fsync, all rounds.
    pub latency: Option<OpTimes>,
    /// Bytes written to log and fast-commit area: commits, fast commits, and clearing of the area.
    pub log_bytes: Option<f64>,
    /// All bytes written to the device, file data too.
    pub device_bytes: Option<f64>,
    /// Write requests.
    pub writes: Option<f64>,
    /// Flushes, and durable writes.
    pub flushes: Option<f64>,
    /// Processor time of this process and the daemon in microseconds.
    pub cpu_us: Option<f64>,
    /// Full commits.
    pub transactions: Option<f64>,
    /// Fast commits.
    pub fast_commits: Option<f64>,
    /// Reasons of full commits, most frequent first, all rounds.
    #[serde(serialize_with = "as_object")]
    pub reasons: Vec<(String, u64)>,
}

/// Bytes written to the log and the area.
pub(super) fn log_bytes(run: &Run) -> Option<u64> {
    let blocks = run.grown("/journal/logged_blocks")?
        + run.grown(&format!("{FAST}/blocks"))?
        + run.grown(&format!("{FAST}/cleared"))?;
    Some(blocks * run.after.counter("/block_size")?)
}

impl FsyncCost {
    pub fn of(runs: &[Run]) -> Self {
        let median = |value: &dyn Fn(&Run) -> Option<f64>| {
            let per_fsync = runs.iter().filter_map(|r| Some(value(r)? / r.fsyncs().max(1) as f64));
            Spread::of(per_fsync).map(|s| s.median)
        };
        let fast = |r: &Run| {
            r.grown(&format!("{FAST}/commits")).or_else(|| Some(r.kernel_fast()?.commits))
        };
        Self {
            latency: times(runs, Op::Fsync),
            log_bytes: median(&|r| Some(log_bytes(r)? as f64)),
            device_bytes: median(&|r| Some(r.cost.device?.write_bytes as f64)),
            writes: median(&|r| Some(r.cost.device?.writes as f64)),
            flushes: median(&|r| Some(r.cost.device?.flushes as f64)),
            cpu_us: median(&|r| Some(r.cost.cpu_ns as f64 / 1000.0)),
            transactions: median(&|r| Some(r.cost.transactions? as f64)),
            fast_commits: median(&|r| Some(fast(r)? as f64)),
            reasons: reasons(runs),
        }
    }

    /// The most frequent reasons, in words.
    pub fn why(&self) -> String {
        let words: Vec<String> =
            self.reasons.iter().take(2).map(|(name, n)| format!("{name}: {n}")).collect();
        words.join(", ")
    }
}

/// An object of JSON: reason, count.
fn as_object<S: Serializer>(reasons: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(reasons.iter().map(|(reason, count)| (reason, count)))
}

/// Why requests were committed in full, most frequent first.
fn reasons(runs: &[Run]) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for run in runs {
        let list = |reading: &crate::contender::Reading| -> BTreeMap<String, u64> {
            let value = reading.stats.as_ref().and_then(|s| s.pointer(&format!("{FAST}/reasons")));
            value.and_then(|v| serde_json::from_value(v.clone()).ok()).unwrap_or_default()
        };
        let before = list(&run.before);
        for (name, after) in list(&run.after) {
            let grown = after.saturating_sub(before.get(&name).copied().unwrap_or(0));
            match sums.iter_mut().find(|s| s.0 == name) {
                Some(sum) => sum.1 += grown,
                None => sums.push((name, grown)),
            }
        }
    }
    sums.retain(|s| s.1 > 0);
    sums.sort_by_key(|s| std::cmp::Reverse(s.1));
    sums
}
