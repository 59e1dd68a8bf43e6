//! The committed blocks that are not home yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use extol_device::BlockNr;
use extol_sync::Condvar;
use extol_sync::rank::{Mutex, Rank};

use crate::cache::Buf;
use crate::transaction::Snapshot;
use crate::types::Tid;

#[derive(Debug)]
struct Entry {
    tid: Tid,
    data: Arc<Vec<u8>>,
    buf: Arc<Buf>,
    writing: bool,
}

#[derive(Debug)]
struct Committed {
    tid: Tid,
    /// First log block.
    log_start: u32,
    /// Blocks whose newest committed version is this transaction's.
    left: usize,
}

#[derive(Debug, Default)]
struct Lists {
    entries: BTreeMap<BlockNr, Entry>,
    /// Oldest first, consecutive ids.
    transactions: VecDeque<Committed>,
}

impl Lists {
    fn settle(&mut self, tid: Tid) {
        let Some(front) = self.transactions.front() else { return };
        let at = tid.0.wrapping_sub(front.tid.0) as usize;
        if let Some(t) = self.transactions.get_mut(at) {
            debug_assert_eq!(t.tid, tid);
            debug_assert!(t.left > 0);
            t.left = t.left.saturating_sub(1);
        }
    }

    fn remove(&mut self, nr: BlockNr) {
        if let Some(old) = self.entries.remove(&nr) {
            old.buf.state.lock().pending -= 1;
            self.settle(old.tid);
        }
    }
}

/// A block to write home.
#[derive(Clone, Debug)]
pub(crate) struct HomeWrite {
    pub nr: BlockNr,
    pub data: Arc<Vec<u8>>,
    tid: Tid,
}

/// All committed blocks that are not home yet.
#[derive(Debug, Default)]
pub(crate) struct CheckpointList {
    lists: Mutex<Lists, { Rank::CheckpointList as u8 }>,
    written: Condvar,
}

impl CheckpointList {
    /// A transaction became durable: its snapshots replace older versions, its revokes cancel them.
    pub fn committed(&self, tid: Tid, log_start: u32, blocks: Vec<Snapshot>, revokes: &[BlockNr]) {
        let mut lists = self.lists.lock();
        lists.transactions.push_back(Committed { tid, log_start, left: blocks.len() });
        for nr in revokes {
            while lists.entries.get(nr).is_some_and(|e| e.writing) {
                self.written.wait(lists.bare());
            }
            lists.remove(*nr);
        }
        for Snapshot { buf, data } in blocks {
            let nr = buf.nr();
            // An older version may be on its way to the device: remember that for K2.
            let writing = lists.entries.get(&nr).is_some_and(|e| e.writing);
            if let Some(old) = lists.entries.insert(nr, Entry { tid, data, buf, writing }) {
                old.buf.state.lock().pending -= 1;
                lists.settle(old.tid);
            }
        }
    }

    /// Blocks waiting.
    pub fn len(&self) -> usize {
        self.lists.lock().entries.len()
    }

    /// Transactions not yet done, oldest first, as (id, first log block, blocks left).
    pub fn waiting(&self) -> Vec<(Tid, u32, usize)> {
        self.lists.lock().transactions.iter().map(|t| (t.tid, t.log_start, t.left)).collect()
    }

    /// Takes the blocks that transactions up to and including `through` still need, in block order, and marks them
    /// as being written.
    pub fn begin(&self, through: Tid) -> Vec<HomeWrite> {
        let mut lists = self.lists.lock();
        let mut work = Vec::new();
        for (nr, entry) in &mut lists.entries {
            if through.at_least(entry.tid) {
                entry.writing = true;
                work.push(HomeWrite { nr: *nr, data: Arc::clone(&entry.data), tid: entry.tid });
            }
        }
        work
    }

    /// The writes of [`begin`](Self::begin) ended. With `durable`, versions that nobody replaced meanwhile are done.
    pub fn end(&self, work: &[HomeWrite], durable: bool) {
        let mut lists = self.lists.lock();
        for w in work {
            let Some(entry) = lists.entries.get_mut(&w.nr) else { continue };
            entry.writing = false;
            if durable && entry.tid == w.tid {
                lists.remove(w.nr);
            }
        }
        self.written.notify_all();
    }

    /// Drops finished transactions and tells what the oldest unfinished one is.
    pub fn oldest(&self) -> Option<(Tid, u32)> {
        let mut lists = self.lists.lock();
        while lists.transactions.front().is_some_and(|t| t.left == 0) {
            lists.transactions.pop_front();
        }
        lists.transactions.front().map(|t| (t.tid, t.log_start))
    }
}

#[cfg(test)]
mod tests;
