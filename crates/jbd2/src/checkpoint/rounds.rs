//! What the checkpoint is in the middle of.

use super::list::Due;

/// Behind the lock that lets one checkpoint run at a time, so that the thread that takes the lock
/// between two batches takes over.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// A run of the asynchronous checkpoint goes on: free log space fell under the threshold, and
    /// is not at the goal.
    pub running: bool,
    /// What this round still has to write, in block order, from `next`.
    plan: Vec<Due>,
    next: usize,
    /// Batches that were written and that no flush has covered for sure, each with the count of
    /// home writes that a flush must have seen to cover it.
    unflushed: Vec<(u64, Vec<Due>)>,
    /// When the oldest of them returned.
    since_ns: u64,
    /// When the tail moved last.
    pub moved_ns: u64,
    /// Time that the home writes since the last move of the tail took.
    pub busy_ns: u64,
}

impl Rounds {
    /// Begins a round; what was left of the last one is dropped (it still waits in the list).
    pub fn begin(&mut self, plan: Vec<Due>) {
        self.plan = plan;
        self.next = 0;
    }

    /// Nothing is left to write in this round.
    pub fn is_written(&self) -> bool {
        self.next >= self.plan.len()
    }

    /// The next blocks to write: as many as `count` says of those that are left.
    pub fn next_batch(&mut self, count: impl FnOnce(&[Due]) -> usize) -> Vec<Due> {
        let left = self.plan.get(self.next..).unwrap_or_default();
        let batch = left.get(..count(left)).unwrap_or(left).to_vec();
        self.next += batch.len();
        batch
    }

    /// This batch was written; a flush that begins once `count` home writes have returned covers
    /// it.
    pub fn wrote(&mut self, count: u64, batch: Vec<Due>, now_ns: u64) {
        if self.unflushed.is_empty() {
            self.since_ns = now_ns;
        }
        self.unflushed.push((count, batch));
    }

    /// Age of the oldest home write that no flush has covered; none if all are durable.
    pub fn unflushed_for(&self, now_ns: u64) -> Option<u64> {
        (!self.unflushed.is_empty()).then(|| now_ns.saturating_sub(self.since_ns))
    }

    /// True if a flush that covered `covered` home writes has covered those of these blocks.
    pub fn are_durable(&self, blocks: &[Due], covered: u64) -> bool {
        let has = |batch: &[Due]| batch.iter().any(|due| blocks.contains(due));
        self.unflushed.iter().all(|(count, batch)| *count <= covered || !has(batch))
    }

    /// Takes out the batches that are durable if a flush has covered `covered` home writes.
    pub fn durable(&mut self, covered: u64) -> Vec<Vec<Due>> {
        let n = self.unflushed.iter().take_while(|(count, _)| *count <= covered).count();
        self.unflushed.drain(..n).map(|(_, batch)| batch).collect()
    }
}
