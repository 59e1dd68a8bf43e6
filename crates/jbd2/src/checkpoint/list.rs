//! The committed blocks that are not home yet, and the transactions that need them.
//!
//! ```text
//!   waiting ──take──► writing ──wrote──► home, not durable ──settle──► gone
//!      ▲                 │ (a newer version was committed: the block waits again)
//!      └─────────────────┘
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use extol_block::BlockNr;
use extol_sync::Condvar;
use extol_sync::rank::{Mutex, Rank};

use super::policy::Waiting;
use crate::cache::Buf;
use crate::transaction::Snapshot;
use crate::types::Tid;

#[derive(Debug)]
struct Entry {
    tid: Tid,
    data: Arc<Vec<u8>>,
    buf: Arc<Buf>,
    /// A version of the block, this one or an older one, is on its way to the device.
    writing: bool,
    /// This version was written home; no flush has covered that yet.
    home: bool,
}

impl Entry {
    /// The running or the committing transaction has changed the block again.
    fn is_hot(&self) -> bool {
        let state = self.buf.state.lock();
        // One snapshot is this one.
        state.tx.is_some() || state.pending > 1
    }
}

#[derive(Debug, Default)]
struct Lists {
    entries: BTreeMap<BlockNr, Entry>,
    /// Oldest first, consecutive ids.
    transactions: VecDeque<Waiting>,
}

impl Lists {
    fn transaction(&mut self, tid: Tid) -> Option<&mut Waiting> {
        let at = tid.0.wrapping_sub(self.transactions.front()?.tid.0) as usize;
        let found = self.transactions.get_mut(at);
        debug_assert!(found.as_ref().is_none_or(|t| t.tid == tid));
        found
    }

    /// The transaction no longer needs this version.
    fn forget(&mut self, old: &Entry) {
        old.buf.state.lock().pending -= 1;
        if let Some(t) = self.transaction(old.tid) {
            debug_assert!(t.left > 0);
            t.left = t.left.saturating_sub(1);
            t.unwritten = t.unwritten.saturating_sub(usize::from(!old.home));
        }
    }

    fn remove(&mut self, nr: BlockNr) {
        if let Some(old) = self.entries.remove(&nr) {
            self.forget(&old);
        }
    }
}

/// One version of a block that is to go home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Due {
    pub nr: BlockNr,
    tid: Tid,
}

/// All committed blocks that are not home yet.
#[derive(Debug, Default)]
pub(crate) struct CheckpointList {
    lists: Mutex<Lists, { Rank::CheckpointList as u8 }>,
    wrote: Condvar,
}

impl CheckpointList {
    /// A transaction became durable: its snapshots replace older versions, its revokes cancel them.
    /// Gives the number of versions that need no home write any more.
    pub fn committed(
        &self,
        tid: Tid,
        start: u32,
        blocks: Vec<Snapshot>,
        revokes: &[BlockNr],
    ) -> u64 {
        let mut superseded = 0;
        let mut lists = self.lists.lock();
        let left = blocks.len();
        lists.transactions.push_back(Waiting { tid, start, left, unwritten: left });
        for nr in revokes {
            while lists.entries.get(nr).is_some_and(|e| e.writing) {
                self.wrote.wait(lists.bare());
            }
            lists.remove(*nr);
        }
        for Snapshot { buf, data } in blocks {
            let nr = buf.nr();
            // An older version may be on its way to the device: remember that for CP-2.
            let writing = lists.entries.get(&nr).is_some_and(|e| e.writing);
            if let Some(old) =
                lists.entries.insert(nr, Entry { tid, data, buf, writing, home: false })
            {
                superseded += u64::from(!old.home && !old.writing);
                lists.forget(&old);
            }
        }
        superseded
    }

    /// Blocks that take memory.
    pub fn len(&self) -> usize {
        self.lists.lock().entries.len()
    }

    /// Transactions not yet done, oldest first.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.lists.lock().transactions.iter().copied().collect()
    }

    /// What transactions up to and including `through` still need to have written, in block order;
    /// with `spare`, without what is hot.
    pub fn due(&self, through: Tid, spare: bool) -> Vec<Due> {
        let lists = self.lists.lock();
        let waits = |e: &Entry| !(e.home || e.writing) && through.at_least(e.tid);
        let is_due = |e: &Entry| waits(e) && !(spare && e.is_hot());
        lists
            .entries
            .iter()
            .filter(|(_, e)| is_due(e))
            .map(|(nr, e)| Due { nr: *nr, tid: e.tid })
            .collect()
    }

    /// `batch`, and what else the transaction that changed block `last` and older ones still need
    /// to have written, in block order.
    pub fn due_before(&self, last: BlockNr, batch: Vec<Due>) -> Vec<Due> {
        let Some(tid) = batch.iter().find(|due| due.nr == last).map(|due| due.tid) else {
            return batch;
        };
        let mut all = self.due(tid, false);
        all.extend(batch);
        all.sort_unstable_by_key(|due| due.nr);
        all.dedup_by_key(|due| due.nr);
        all
    }

    /// Blocks in these ranges that are not known to be durable at home, in the version that is to
    /// be.
    pub fn not_home(&self, ranges: &[Range<BlockNr>]) -> Vec<Due> {
        let lists = self.lists.lock();
        let inside = |range: &Range<BlockNr>| lists.entries.range(range.clone());
        ranges.iter().flat_map(inside).map(|(nr, e)| Due { nr: *nr, tid: e.tid }).collect()
    }

    /// Blocks in these ranges wait to be written home.
    pub fn has_unwritten(&self, ranges: &[Range<BlockNr>]) -> bool {
        let lists = self.lists.lock();
        ranges.iter().any(|range| lists.entries.range(range.clone()).any(|(_, e)| !e.home))
    }

    /// Marks those of `batch` as being written that still wait in this version, and gives their
    /// bytes. The others are taken off the batch.
    pub fn take(&self, batch: &mut Vec<Due>) -> Vec<(BlockNr, Arc<Vec<u8>>)> {
        let mut lists = self.lists.lock();
        let mut work = Vec::with_capacity(batch.len());
        batch.retain(|due| match lists.entries.get_mut(&due.nr) {
            Some(e) if e.tid == due.tid && !e.home && !e.writing => {
                e.writing = true;
                work.push((due.nr, Arc::clone(&e.data)));
                true
            }
            _ => false,
        });
        work
    }

    /// The writes of [`take`](Self::take) returned. With `home` they succeeded.
    pub fn wrote(&self, batch: &[Due], home: bool) {
        let mut lists = self.lists.lock();
        for due in batch {
            let Some(entry) = lists.entries.get_mut(&due.nr) else { continue };
            entry.writing = false;
            if home && entry.tid == due.tid {
                entry.home = true;
                if let Some(t) = lists.transaction(due.tid) {
                    t.unwritten = t.unwritten.saturating_sub(1);
                }
            }
        }
        self.wrote.notify_all();
    }

    /// A flush covered the writes of this batch: versions that were not replaced meanwhile are
    /// done.
    pub fn settle(&self, batch: &[Due]) {
        let mut lists = self.lists.lock();
        for due in batch {
            if lists.entries.get(&due.nr).is_some_and(|e| e.tid == due.tid && e.home) {
                lists.remove(due.nr);
            }
        }
    }

    /// Drops finished transactions and tells what the oldest unfinished one is.
    pub fn oldest(&self) -> Option<(Tid, u32)> {
        let mut lists = self.lists.lock();
        while lists.transactions.front().is_some_and(|t| t.left == 0) {
            lists.transactions.pop_front();
        }
        lists.transactions.front().map(|t| (t.tid, t.start))
    }
}

#[cfg(test)]
mod tests;
